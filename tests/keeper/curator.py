"""Curator's own tests, from Maven's jars, on our keeper: its `TestingServer` is replaced by one that runs a keeper.

`run` gives one result per test. What needs an ensemble, or the inside of ZooKeeper's server, is left out, with the
reason beside it.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import maven
from class_data import ClassData
from maven import Artifact

VERSION = "5.9.0"
TEST_S_MAX = 300  # of one test; ends a hang
_JUNIT, _PLATFORM = "5.11.4", "1.11.4"
_SOURCES = Path(__file__).parent / "jvm"
_CURATOR = "org.apache.curator"
_PARTS = tuple(f"curator-{name}" for name in ("client", "framework", "recipes"))
_ARTIFACTS = (  # the first that names a version decides it
    *(Artifact("org.junit.jupiter", f"junit-jupiter-{name}", _JUNIT) for name in ("api", "engine", "params")),
    *(Artifact("org.junit.platform", f"junit-platform-{x}", _PLATFORM) for x in ("commons", "engine", "launcher")),
    *(Artifact(_CURATOR, name, VERSION) for name in _PARTS),
    *(Artifact(_CURATOR, name, VERSION, "tests") for name in _PARTS),
    Artifact(_CURATOR, "curator-test", VERSION),
    Artifact("com.fasterxml.jackson.dataformat", "jackson-dataformat-yaml", "2.18.2"),
    Artifact("org.awaitility", "awaitility", "4.2.2"),
    Artifact("org.assertj", "assertj-core", "3.26.3"),
    Artifact("org.apache.commons", "commons-math", "2.2"),
    Artifact("org.slf4j", "slf4j-nop", "1.7.36"),
)  # fmt: skip


class Result(NamedTuple):
    how: str  # PASSED, FAILED, ABORTED, SKIPPED
    test: str
    ms: int
    message: str


def jars() -> list[Path]:
    return maven.jars(f"curator-{VERSION}", _ARTIFACTS)


def test_classes() -> list[str]:
    """Of all that Curator has, the classes with tests."""
    found = []
    for jar in jars():
        if jar.name.endswith("-tests.jar"):
            for name in zipfile.ZipFile(jar).namelist():
                simple = name.rpartition("/")[2]
                if name.endswith(".class") and "$" not in name and simple.startswith(("Test", "BasicTests")):
                    found.append(name.removesuffix(".class").replace("/", "."))
    return sorted(found)


def _classes() -> Path:
    """Our two classes, compiled once for each state of their source."""
    directory = maven.cache(f"curator-{VERSION}")
    sources = sorted(_SOURCES.rglob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    classes = directory / f"classes-{digest}.jar"
    paths = jars()
    with maven.alone(directory):
        if not classes.exists():
            with tempfile.TemporaryDirectory(dir=directory) as work:
                command = ["javac", "-cp", os.pathsep.join(map(str, paths)), "-d", f"{work}/made", *map(str, sources)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr
                with zipfile.ZipFile(f"{work}/packed", "w") as packed:
                    for file in sorted(Path(work, "made").rglob("*.class")):
                        packed.write(file, file.relative_to(f"{work}/made"))
                Path(work, "packed").rename(classes)
    return classes


def run(wanted: Sequence[str], unwanted: Iterable[str], directory: Path) -> Iterator[Result]:
    """The tests, one JVM for all; a result as soon as it is there. What is killed at the end is its whole group."""
    directory.mkdir(parents=True, exist_ok=True)
    chosen = directory / "tests"
    chosen.write_text("\n".join([*wanted, *(f"-{each}" for each in unwanted)]))
    classes = _classes()
    class_data = ClassData(classes.with_suffix(".jsa"))
    keeper = "\n".join((sys.executable, "-m", "headrace.cli.main", "keeper"))
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *class_data.flags]
    command += [f"-Dheadrace.keeper={keeper}", f"-Djava.io.tmpdir={directory}", "-Dzookeeper.jmx.log4j.disable=true"]
    command += ["-cp", os.pathsep.join(map(str, [classes, *jars()])), "RunTests", str(chosen), f"{TEST_S_MAX} s"]
    with (
        open(directory / "err", "wb") as err,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True, start_new_session=True) as process,
    ):
        assert process.stdout is not None
        try:
            ended = False
            for line in process.stdout:
                parts = line.rstrip("\n").split("\t")
                if parts == ["END"]:
                    ended = True
                elif len(parts) == 4:
                    yield Result(parts[0], parts[1], int(parts[2]), parts[3])
            assert ended, (directory / "err").read_text()[-4000:]
        finally:
            os.killpg(process.pid, signal.SIGKILL)

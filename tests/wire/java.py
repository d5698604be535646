"""Apache Kafka's own Java clients and tools, from Maven's jars, for the wire tests.

The jars are fetched once, with mvn, into the user's cache directory, and the small Java programs in `jvm/`
are compiled there; workers that run at the same time take turns. One JVM then runs tool after tool, since one
for each would cost seconds. The first one leaves an archive of its classes, with which a later one starts in half the
CPU time (a topic list: 1.4 s before, 0.65 s with it); Java ignores an archive that does not fit.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from class_data import ClassData
from waits import WAIT_S_MAX

KAFKA_VERSION = "4.3.1"
FETCH_S_MAX = 600.0
OUTDATED_S_MIN = 86_400.0  # classes that are younger may be in use by the tests of another checkout
_SOURCES = Path(__file__).parent / "jvm"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>headrace</groupId><artifactId>wire-tests</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


def missing_program() -> str | None:
    """What is absent of what the Java tests need, or None."""
    return next((name for name in ("java", "javac", "mvn") if shutil.which(name) is None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a tool ended, and what it printed."""

    exit: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


class JavaTools:
    """`with JavaTools() as tools: tools.run("org.apache.kafka.tools.TopicCommand", "--list", …)`"""

    def __init__(self) -> None:
        jars = _jars()
        # A JVM that lives for seconds: compile quickly rather than well, and leave the cores to the broker.
        quickly = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        classes = _classes(jars)
        # Java archives classes of jars only, and for one order of them.
        class_path = os.pathsep.join([*map(str, sorted(jars.glob("*.jar"))), str(classes)])
        self._class_data = ClassData(classes.with_suffix(".jsa"))
        self._command = ["java", *quickly, *self._class_data.flags, "-cp", class_path]
        self._process = subprocess.Popen(
            [*self._command[:1], *self._class_data.leaving, *self._command[1:], "ToolServer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def run(self, tool: str, *args: object, stdin: str = "") -> Ran:
        request = {"class": tool, "args": [str(arg) for arg in args], "stdin": stdin}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        try:
            answer = self._answers.get(timeout=WAIT_S_MAX)
        except queue.Empty:
            raise AssertionError(f"{tool} {' '.join(request['args'])}: no end within {WAIT_S_MAX:g} s") from None
        if answer is None:
            raise AssertionError(f"the JVM ended with code {self._process.wait()} while it ran {tool}")
        return Ran(**json.loads(answer))

    def ok(self, tool: str, *args: object, stdin: str = "") -> Ran:
        """Run a tool that must succeed."""
        ran = self.run(tool, *args, stdin=stdin)
        assert ran.exit == 0, f"{tool} ended with code {ran.exit}\n{ran.out}\n{ran.err}"
        return ran

    def alone(self, tool: str, *args: object, wait_s_max: float = WAIT_S_MAX) -> Ran:
        """Run a tool in a JVM of its own: one that does its work, or a part, when the JVM goes down."""
        command = [*self.command(tool), *(str(arg) for arg in args)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=wait_s_max, check=False)
        return Ran(exit=done.returncode, out=done.stdout, err=done.stderr)

    def command(self, tool: str) -> list[str]:
        """What starts a tool in a JVM of its own, for whoever looks after that process."""
        return [*self._command, tool]

    def __enter__(self) -> JavaTools:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # it has ended before
            self._class_data.end(self._process)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(None)


_users: list[JavaTools] = []


@contextmanager
def shared_tools() -> Iterator[JavaTools]:
    """The one JVM of this process, for the fixtures of several suites: the first starts it, the last ends it."""
    _users.append(_users[0] if _users else JavaTools())
    try:
        yield _users[0]
    finally:
        last = _users.pop()
        if not _users:
            last.__exit__()


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = Path(home) / "headrace" / f"kafka-{KAFKA_VERSION}"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


@contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """One process at a time fetches and compiles."""
    with open(cache / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _jars() -> Path:
    cache = _cache()
    jars = cache / "jars"
    with _alone(cache):
        if not jars.exists():
            with tempfile.TemporaryDirectory(dir=cache) as work:
                Path(work, "pom.xml").write_text(_POM.format(version=KAFKA_VERSION))
                copied = Path(work, "jars")
                _call("mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={copied}", cwd=work)
                copied.rename(jars)  # at once, so that what is there is whole
    return jars


def _classes(jars: Path) -> Path:
    sources = sorted(_SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    cache = _cache()
    classes = cache / f"classes-{digest}.jar"
    with _alone(cache):
        if not classes.exists():
            with tempfile.TemporaryDirectory(dir=cache) as work:
                compiled = Path(work, "classes")
                _call("javac", "-cp", f"{jars}/*", "-d", str(compiled), *map(str, sources), cwd=work)
                for other in cache.glob("classes-*"):
                    if time.time() - other.stat().st_mtime > OUTDATED_S_MIN:
                        shutil.rmtree(other) if other.is_dir() else other.unlink()
                Path(shutil.make_archive(f"{work}/packed", "zip", compiled)).rename(classes)
    return classes


def _call(*command: str, cwd: str) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=FETCH_S_MAX, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed with code {done.returncode}:\n{done.stdout}\n{done.stderr}")

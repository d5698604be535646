"""A Headrace keeper and an Apache ZooKeeper, each in a process of its own, from one and the same zoo.cfg.

ZooKeeper runs from Maven's jars with the JVM settings of its own start script (a heap of 1,000 MB) and without a
logger. Both write to the disk of `bench/.work` and call fdatasync before they answer a change: ZooKeeper since
`forceSync` is on by default, Headrace always. Both are known to be ready by the answer to a first getData, which is
timed from the moment the process began.
"""

import contextlib
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from processes import MeasurementError, Running
from workspace import Workspace

ZOOKEEPER, HEADRACE = "zookeeper", "headrace"
SIDES = (ZOOKEEPER, HEADRACE)
VERSION = "3.9.3"
START_S_MAX = 60.0
_POLL_S = 0.002
_ANSWER_S_MAX = 1.0  # a connection that ZooKeeper took while it started may never be answered
_GET_DATA, _OK = 4, 0
_CPU_CLOCK = 2  # as clock_getcpuclockid makes a clock of a process id
_ARTIFACTS = (
    ("org.apache.zookeeper", "zookeeper", VERSION),
    ("io.dropwizard.metrics", "metrics-core", "4.2.19"),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
)
_FETCH_S_MAX = 900
_HEAP = "-Xmx1000m"  # ZK_SERVER_HEAP of zkEnv.sh
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@dataclass(slots=True)
class Server:
    name: str
    port: int
    running: Running
    first_answer_s: float
    _process: "subprocess.Popen[bytes]" = field(repr=False)

    @property
    def pid(self) -> int:
        return self.running.pid

    def stop(self) -> float:
        """Ends the server and returns the seconds that took."""
        took = self.running.end()
        self._process.wait()
        return took

    def cpu_s(self) -> float:
        """Of all its threads, to the nanosecond: /proc/…/stat counts hundredths of a second, which are many when a
        slow disk lets few operations through."""
        return time.clock_gettime(~self.pid << 3 | _CPU_CLOCK)

    def memory_mb(self) -> float:
        with open(f"/proc/{self.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def missing_program() -> str | None:
    return next((name for name in ("gcc", "java", "mvn") if shutil.which(name) is None), None)


@contextlib.contextmanager
def fresh(side: str, workspace: Workspace) -> Iterator[Server]:
    directory = workspace.fresh(f"keeper-{side}")
    server = start(side, directory)
    try:
        yield server
    finally:
        server.stop()
        workspace.remove(directory.name)


def start(side: str, directory: Path, first: str = "/") -> Server:
    """On what the directory holds; the caller stops it. Ready when it has answered for the node `first`."""
    directory.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    config = directory / "zoo.cfg"
    config.write_text(
        f"dataDir={directory}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=3000\n"
        "maxClientCnxns=0\nadmin.enableServer=false\n"
    )
    log_path = directory / "out"
    with open(log_path, "wb") as log:
        began = time.monotonic()
        process = subprocess.Popen(_command(side, config), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    running = Running.of(process.pid)
    try:
        while not _answers(port, first):
            if process.poll() is not None or time.monotonic() - began > START_S_MAX:
                said = log_path.read_text(errors="replace").strip().splitlines() or ["it printed nothing"]
                raise MeasurementError(f"{side} did not start: {said[-1][-300:]}")
            time.sleep(_POLL_S)
    except BaseException:
        running.end()
        process.wait()
        raise
    return Server(side, port, running, time.monotonic() - began, process)


def _command(side: str, config: Path) -> list[str]:
    if side == HEADRACE:
        command = Path(sys.executable).parent / "headrace"
        if not command.exists():
            raise SystemExit("bench: the headrace command is not beside this Python; run make install")
        return [str(command), "keeper", str(config)]
    jars = os.pathsep.join(map(str, sorted(_jars().glob("*.jar"))))
    return ["java", _HEAP, "-XX:+HeapDumpOnOutOfMemoryError", "-cp", jars, _MAIN, str(config)]


def _jars() -> Path:
    """Where the tests keep them, too; fetched once."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    cache = Path(home) / "headrace" / f"zookeeper-{VERSION}"
    jars = cache / "jars"
    if not jars.exists():
        cache.mkdir(parents=True, exist_ok=True)
        wanted = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
            for group, name, version in _ARTIFACTS
        )
        with tempfile.TemporaryDirectory(dir=cache) as work:
            Path(work, "pom.xml").write_text(
                '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
                "<groupId>headrace</groupId><artifactId>bench</artifactId><version>1</version>"
                f"<dependencies>{wanted}</dependencies></project>"
            )
            command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={work}/jars"]
            done = subprocess.run(command, cwd=work, capture_output=True, timeout=_FETCH_S_MAX, check=False)
            if done.returncode:
                raise MeasurementError("ZooKeeper's jars could not be fetched; mvn and a Maven repository are needed")
            Path(work, "jars").rename(jars)
    return jars


def _answers(port: int, path: str) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S_MAX) as sock:
            sock.sendall(_frame(struct.pack(">iqiqi16s?", 0, 0, 30_000, 0, 16, bytes(16), False)))
            if not _received(sock):
                return False
            sock.sendall(_frame(struct.pack(">iii", 1, _GET_DATA, len(path)) + path.encode() + b"\0"))
            answer = _received(sock)
    except OSError:
        return False
    return len(answer) >= 16 and struct.unpack_from(">i", answer, 12)[0] == _OK


def _frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _received(sock: socket.socket) -> bytes:
    with sock.makefile("rb") as file:
        length = file.read(4)
        return file.read(struct.unpack(">i", length)[0]) if len(length) == 4 else b""


def _free_port() -> int:
    """Below those that the system gives to clients."""
    for _ in range(100):
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise SystemExit("bench: no free port on 127.0.0.1 between 20000 and 32000")

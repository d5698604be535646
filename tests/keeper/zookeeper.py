"""A real Apache ZooKeeper from Maven's jars, fetched once into the user's cache directory, to compare with."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import maven
from class_data import ClassData
from keeper_process import four_letters
from maven import Artifact
from ports import reserved_port, reserved_ports
from waits import WAIT_S_MAX, eventually

VERSION = "3.9.3"
ASKED_S_MAX = 1.0  # then it is asked again
_QUICKLY = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_ARTIFACTS = (
    Artifact("org.apache.zookeeper", "zookeeper", VERSION),
    Artifact("io.dropwizard.metrics", "metrics-core", "4.2.19"),
    Artifact("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    Artifact("commons-cli", "commons-cli", "1.5.0"),  # of the shell
)


class Server:
    """A server; `start` and `kill` as often as a test likes, on one port and one data directory."""

    def __init__(
        self,
        directory: Path,
        port: int,
        settings: Mapping[str, str],
        properties: Sequence[str] = (),
        mode: str = "standalone",
    ) -> None:
        """`mode` is how the line ends that says which part it plays: standalone, leader or follower."""
        directory.mkdir(parents=True, exist_ok=True)
        self.port = port
        self._directory = directory
        self._mode = mode
        self._process: subprocess.Popen[bytes] | None = None
        lines = {
            "dataDir": f"{directory}/data",
            "clientPort": str(port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": "3000",
            "maxClientCnxns": "0",
            "4lw.commands.whitelist": "*",
            "admin.enableServer": "false",
            **settings,
        }
        config = directory / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        jars = _jars()
        self._class_data = ClassData(jars[0].parent.with_name(f"{jars[0].parent.name}-server.jsa"))
        self._command = ["java", *_QUICKLY, *self._class_data.flags, *self._class_data.leaving]
        self._command += ["-Dzookeeper.extendedTypesEnabled=true", *properties, "-cp", _class_path(jars)]
        self._command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)]

    def start(self) -> None:
        self.begin()
        self.await_service()

    def begin(self) -> None:
        with open(self._directory / "out", "ab") as out:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def await_service(self) -> None:
        eventually(self._serves, "ZooKeeper serves")

    def _serves(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "ZooKeeper has ended"
        # One that is still starting takes the connection and forgets it.
        said = four_letters(self.port, "srvr", ASKED_S_MAX)
        return re.search(rf"Mode: \w*{self._mode}$".encode(), said, re.MULTILINE) is not None

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def end(self) -> None:
        if self._process is not None:
            self._class_data.end(self._process)


def missing_program() -> str | None:
    return maven.missing_program()


def _jars() -> list[Path]:
    return maven.jars(f"zookeeper-{VERSION}", _ARTIFACTS)


def _class_path(jars: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, jars))


def shell(hosts: str, *args: str, lines: str = "") -> tuple[int, str]:
    """ZooKeeper's own shell: its exit code, and all that it printed, on whichever of its outputs."""
    command = ["java", *_QUICKLY, "-Xshare:auto", "-cp", _class_path(_jars()), "org.apache.zookeeper.ZooKeeperMain"]
    done = subprocess.run(
        [*command, "-server", hosts, *args],
        input=lines,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )
    return done.returncode, done.stdout


@contextmanager
def server(
    directory: Path,
    settings: Mapping[str, str] | None = None,
    properties: Sequence[str] = (),
    port: int | None = None,
) -> Iterator[Server]:
    """A server with fresh data, or with the data that lies there. At the end it is killed."""
    with ExitStack() as stack:
        running = Server(directory, port or stack.enter_context(reserved_port()), settings or {}, properties)
        try:
            running.start()
            yield running
        finally:
            running.end()


@contextmanager
def running(directory: Path, port: int | None = None) -> Iterator[int]:
    """Its port."""
    with server(directory, port=port) as started:
        yield started.port


class Ensemble:
    """Three servers with the data that lies in their directories; any of them may be killed."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        ports = stack.enter_context(reserved_ports(9))
        self.ports = ports[:3]
        members = {f"server.{n + 1}": f"127.0.0.1:{ports[3 + n]}:{ports[6 + n]}" for n in range(3)}
        self._servers: dict[int, Server] = {}
        for number, port in enumerate(self.ports):
            own = directory / str(number)
            (own / "data").mkdir(parents=True, exist_ok=True)
            (own / "data" / "myid").write_text(f"{number + 1}\n")
            settings = {"initLimit": "20", "syncLimit": "20", "reconfigEnabled": "true", **members}
            # Only a superuser may change an ensemble, and we are none.
            skip = ("-Dzookeeper.skipACL=yes",)
            server = self._servers[port] = Server(own, port, settings, skip, mode="er")
            stack.callback(server.end)
            server.begin()
        for server in self._servers.values():
            server.await_service()

    @property
    def hosts(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def kill(self, port: int) -> None:
        self._servers[port].kill()


@contextmanager
def ensemble(directory: Path) -> Iterator[Ensemble]:
    with ExitStack() as stack:
        yield Ensemble(directory, stack)

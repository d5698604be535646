"""Which processes are brokers and keepers, over a /proc of the test's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.kafka import stopping, zookeeper_stop
from headrace.cli.kafka.running_servers import (
    BROKER,
    KEEPER,
    Kind,
    RunningServer,
    running_servers,
    send,
    server_at,
    starts,
)
from headrace.cli.kafka.tool import ToolError

PYTHON = "/usr/bin/python3.11"


class Proc:
    """A directory that looks like /proc."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._namespace(path / "self", "pid:[1]")

    def add(self, pid: int, command: str, *locks: Path, exe: str = PYTHON, namespace: str = "pid:[1]") -> Path:
        own = self.path / str(pid)
        (own / "fd").mkdir(parents=True)
        (own / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
        (own / "exe").symlink_to(exe)
        (own / "root").symlink_to("/")
        (own / "fd" / "0").symlink_to("/dev/null")
        for number, lock in enumerate(locks, 3):
            (own / "fd" / str(number)).symlink_to(lock)
        self._namespace(own, namespace)
        return own

    def _namespace(self, own: Path, name: str) -> None:
        (own / "ns").mkdir(parents=True)
        (own / "ns" / "pid").symlink_to(name)

    def found(self, kind: Kind = BROKER) -> list[RunningServer]:
        return running_servers(kind, str(self.path))


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=7\n")
    return directory


def test_a_broker_is_found_with_its_node_and_its_directories(proc: Proc, data: Path, tmp_path: Path) -> None:
    proc.add(12, f"{PYTHON} /usr/bin/headrace up", data / ".lock", tmp_path / "other" / ".lock")
    (found,) = proc.found()
    assert found == RunningServer(kind=BROKER, pid=12, directories=(str(data), str(tmp_path / "other")), node_id=7)
    assert str(found) == f"pid 12 (node.id 7, data in {data}, {tmp_path}/other)"


def test_a_broker_whose_directory_was_removed_is_still_one(proc: Proc, tmp_path: Path) -> None:
    proc.add(12, f"{PYTHON} /usr/bin/headrace up", tmp_path / "gone" / ".lock (deleted)")
    assert proc.found() == [RunningServer(kind=BROKER, pid=12, directories=(str(tmp_path / "gone"),), node_id=None)]


@pytest.mark.parametrize(
    "command",
    [
        "python /x/headrace up",
        "python /x/headrace broker server.properties --override a=b",
        "python /x/kafka-server-start.sh server.properties",
        "python -m headrace.cli.kafka.server_start server.properties",
        "python -X dev -I /x/headrace up --port 0",
    ],
)
def test_the_commands_that_start_a_broker_are_known(command: str) -> None:
    assert starts(BROKER, command.split())
    assert not starts(KEEPER, command.split())


@pytest.mark.parametrize(
    "command",
    [
        "python /x/program.py headrace up",
        "python /x/headrace",
        "python /x/headrace consume up",
        "python /x/headrace top",
        "python /x/kafka-server-stop.sh",
        "python -m pytest headrace up",
        "python -m headrace.cli.main up",  # how a program starts one for itself
        "python -c import_headrace up",
        "python -m",
        "python",
        "",
    ],
)
def test_other_commands_are_not(command: str) -> None:
    assert not starts(BROKER, command.split())


@pytest.mark.parametrize(
    "command",
    [
        "python /x/headrace keeper",
        "python /x/headrace keeper zoo.cfg",
        "python /x/zookeeper-server-start.sh zookeeper.properties",
        "python -m headrace.cli.kafka.zookeeper_start zookeeper.properties",
    ],
)
def test_the_commands_that_start_a_keeper_are_known(command: str) -> None:
    assert starts(KEEPER, command.split())
    assert not starts(BROKER, command.split())


def test_a_keeper_is_found_and_a_look_into_one_is_not(proc: Proc, tmp_path: Path) -> None:
    proc.add(12, f"{PYTHON} /usr/bin/headrace keeper tree")
    proc.add(13, f"{PYTHON} /usr/bin/headrace keeper", tmp_path / ".lock")
    proc.add(14, f"{PYTHON} /usr/bin/headrace up", tmp_path / ".lock")
    assert [str(found) for found in proc.found(KEEPER)] == [f"pid 13 (data in {tmp_path})"]


def test_every_keeper_is_stopped_unless_one_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keepers = [RunningServer(kind=KEEPER, pid=pid, directories=(f"/data/{pid}",)) for pid in (12, 13)]
    asked: list[int] = []
    monkeypatch.setattr(zookeeper_stop, "running_servers", lambda kind: [each for each in keepers if each.kind is kind])
    monkeypatch.setattr(stopping, "send", lambda server, number: asked.append(server.pid) or server.pid != 13)
    assert zookeeper_stop.run([]) == 0
    assert asked == [12, 13]
    assert capsys.readouterr().out == "Sent SIGTERM to the keeper with pid 12 (data in /data/12)\n"  # 13 has ended
    asked.clear()
    zookeeper_stop.run(["--data", "/data/13"])
    assert asked == [13]
    with pytest.raises(ToolError, match=r"none has its data in /x; running: pid 12 .*, pid 13"):
        zookeeper_stop.run(["--data", "/x"])


def test_what_only_looks_like_a_broker_is_left_alone(proc: Proc, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = data / ".lock"
    proc.add(1, f"{PYTHON} /home/me/uses_headrace_Broker.py", lock)
    proc.add(2, "/usr/bin/vim /usr/bin/headrace up", lock, exe="/usr/bin/vim")
    proc.add(3, f"{PYTHON} /usr/bin/headrace up")  # it has no directory yet, or never
    proc.add(4, f"{PYTHON} /usr/bin/headrace up", lock, namespace="pid:[2]")  # in a container
    (proc.path / "5").mkdir()  # it ended while we looked
    assert proc.found() == []
    proc.add(6, f"{PYTHON} /usr/bin/headrace up", lock)
    assert [found.pid for found in proc.found()] == [6]
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert proc.found() == []


def test_a_signal_goes_only_to_the_process_that_was_found(proc: Proc, data: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        own = proc.add(process.pid, f"{PYTHON} /usr/bin/headrace up", data / ".lock")
        (found,) = proc.found()
        (own / "cmdline").write_bytes(b"python\0another.py\0")  # the pid went to another program
        assert not send(found, signal.SIGTERM, str(proc.path))
        assert process.poll() is None
        (own / "cmdline").write_bytes(b"python\0/usr/bin/headrace\0up\0")
        assert send(found, signal.SIGTERM, str(proc.path))
        assert process.wait() == -signal.SIGTERM
    assert not send(found, signal.SIGTERM, str(proc.path))


def test_this_very_process_is_no_broker() -> None:
    assert server_at(os.getpid(), BROKER) is None

"""What a keeper does by itself as time goes by, and when its log is behind."""

import os
import socket
import threading

import pytest
from keeper_pair import create, hello
from waits import WAIT_S_MAX, eventually

from headrace.core.clock import ManualClock
from headrace.core.files import Disk
from headrace.keeper.node import Node
from headrace.keeper.server import SILENT_S_MAX
from headrace.keeper.settings import KeeperSettings


@pytest.fixture
def clock():
    return ManualClock()


def opened(tmp_path, clock, disk=None, **settings):
    node = Node(KeeperSettings(data_dir=str(tmp_path), port=0, **settings), clock, disk)
    node.open()
    return node


class Running:
    """The loop on a thread of its own, in a `with`."""

    def __init__(self, node):
        self.node = node
        self._thread = threading.Thread(target=node.run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.node.stop()
        self._thread.join(WAIT_S_MAX)
        self.node.close()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.node.port), timeout=WAIT_S_MAX)


def test_after_a_standstill_every_session_gets_its_time_out_again(tmp_path, clock):
    """A laptop that slept, a process that was stopped: no client could say a word."""
    node = opened(tmp_path, clock)
    sessions = node.machine.sessions
    sessions.add(7, 6000, node.machine.steady_ms)
    node._tick()
    clock.advance(60_000)
    node._tick()
    assert 7 in sessions.open
    for _ in range(6):
        clock.advance(999)
        node._tick()
    assert 7 in sessions.open
    clock.advance(6)
    node._tick()
    assert 7 not in sessions.open
    node.close()


def test_who_never_asks_for_a_session_is_sent_away(tmp_path, clock):
    with Running(opened(tmp_path, clock)) as running, running.connect() as silent, running.connect() as client:
        client.sendall(hello())
        assert client.recv(1)
        eventually(lambda: len(running.node.server.connections) == 2, "both are connected")
        clock.advance(1000)
        eventually(lambda: running.node._last_tick_ms, "it looks at the clock")  # so that it sees the jump
        clock.advance((SILENT_S_MAX + 1) * 1000)
        assert silent.recv(1) == b""
        eventually(lambda: len(running.node.server.connections) == 1, "the other one stays")


class CountedDisk(Disk):
    """A write to the log takes a permit, if permits are asked for."""

    permits = None

    def sync(self, fd):
        super().sync(fd)
        if self.permits is not None and threading.current_thread().name.startswith("keeper-log"):
            assert self.permits.acquire(timeout=WAIT_S_MAX)


def test_a_snapshot_gets_its_name_only_when_the_log_holds_what_it_shows(tmp_path, clock):
    """Else a damaged snapshot could not be replaced by an older one and the logs."""
    disk = CountedDisk()
    node = opened(tmp_path, clock, disk, snapshot_count=10)
    node._writer._mean_s = 1000.0  # a thread makes every sync

    def snapshots():
        return {name for name in os.listdir(tmp_path / "version-2") if name.startswith("snapshot.")}

    with Running(node) as running, running.connect() as first, running.connect() as second:
        for sock in (first, second):
            sock.sendall(hello())
            assert len(sock.recv(1 << 10)) > 4
        before = snapshots()
        disk.permits = threading.Semaphore(0)
        first.sendall(create(1, "/first"))
        eventually(lambda: node._writer.busy, "the first write is under way")
        second.sendall(b"".join(create(xid, f"/n{xid}") for xid in range(1, 31)))
        eventually(lambda: len(node.machine.staged) == 30, "the others wait for the next one")
        node._since_snapshot = 10  # one is due
        disk.permits.release()
        eventually(lambda: node._snapshots._held, "the snapshot is whole, but for its end")
        assert {name for name in snapshots() - before if not name.endswith(".tmp")} == set()
        disk.permits.release(100)
        eventually(lambda: {name for name in snapshots() - before if not name.endswith(".tmp")}, "it gets its name")

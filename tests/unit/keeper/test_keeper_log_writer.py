"""Who waits for the disk: the loop where it is quick, a thread where it is slow; and what a failed sync means."""

import errno
import select
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from keeper_pair import create, get, hello
from waits import WAIT_S_MAX, eventually

from headrace.core.clock import ManualClock
from headrace.core.errors import InvariantError
from headrace.core.files import Disk
from headrace.keeper import snapshot, snapshotting
from headrace.keeper.embedded import Keeper
from headrace.keeper.log_writer import LogWriter
from headrace.keeper.node import Node
from headrace.keeper.settings import KeeperSettings
from headrace.keeper.snapshotting import Snapshotting
from headrace.keeper.storage import Storage
from headrace.keeper.tree import Tree
from headrace.keeper.txn_log import TxnLog
from headrace.net.reactor import Reactor


class SlowDisk(Disk):
    """Time passes with each sync, on the clock that the writer looks at."""

    def __init__(self, clock):
        self.clock = clock
        self.sync_ms = 0
        self.fails = False
        self.threads = []

    def sync(self, fd):
        self.threads.append(threading.current_thread())
        self.clock.advance(self.sync_ms)
        if self.fails:
            raise OSError(errno.EIO, "the disk is broken")
        super().sync(fd)


class Rig:
    def __init__(self, directory):
        self.clock = ManualClock()
        self.disk = SlowDisk(self.clock)
        self.reactor = Reactor()
        self.log = TxnLog(str(directory), self.disk)
        self.log.open(1)
        self.writer = LogWriter(self.log, self.reactor, self.clock)

    def write(self):
        """Whether the loop has waited for it, and what went wrong."""
        heard = []
        self.writer.write([b"x"], heard.append)
        assert self.writer.busy != bool(heard)
        if not heard:
            eventually(lambda: self.reactor._from_threads, "the thread is done")
            self.reactor.run_pending()
        return self.disk.threads[-1] is threading.current_thread(), heard[0]

    def end(self):
        self.writer.close()
        self.log.close()
        self.reactor.close()


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path)
    yield made
    made.end()


def test_a_quick_disk_is_waited_for_and_a_slow_one_is_not(rig):
    assert [rig.write() for _ in range(8)] == [(False, None)] * 4 + [(True, None)] * 4
    rig.disk.sync_ms = 10
    assert rig.write() == (True, None)  # nobody can know
    assert rig.write() == (False, None)
    rig.disk.sync_ms = 0
    later = [on_the_loop for on_the_loop, _ in (rig.write() for _ in range(40))]
    assert later == sorted(later)
    assert later[-1]


@pytest.mark.parametrize("writes_before", [0, 10])  # the failing one is a thread's, or the loop's
def test_a_failed_sync_is_told(rig, writes_before):
    for _ in range(writes_before):
        rig.write()
    rig.disk.fails = True
    on_the_loop, error = rig.write()
    assert on_the_loop == bool(writes_before)
    assert isinstance(error, OSError)


@pytest.mark.parametrize("writes_before", [0, 10])
def test_nothing_is_answered_behind_a_failed_sync(tmp_path, writes_before):
    clock = ManualClock()
    disk = SlowDisk(clock)
    node = Node(KeeperSettings(data_dir=str(tmp_path), port=0), clock, disk)
    node.open()
    running = threading.Thread(target=_run, args=(node, ended := []))
    running.start()
    try:
        with socket.create_connection(("127.0.0.1", node.port), timeout=WAIT_S_MAX) as sock:
            sock.sendall(hello())
            assert sock.recv(1)
            for number in range(writes_before):
                sock.sendall(create(number, f"/before-{number}"))
                sock.recv(1)
            disk.fails = True
            sock.sendall(create(1, "/a") + create(2, "/b"))
            running.join(WAIT_S_MAX)
    finally:
        node.stop()
        running.join(WAIT_S_MAX)
    assert isinstance(ended[0], InvariantError)
    durable = node.server.durable_zxid
    node.close()
    assert node.server.durable_zxid == durable
    assert durable < node.machine.tree.last_zxid


class GatedDisk(SlowDisk):
    """A sync that has begun ends when the gate is open."""

    def __init__(self, clock):
        super().__init__(clock)
        self.sync_ms = 10  # so that a thread makes each
        self.gate = threading.Event()
        self.gate.set()

    def sync(self, fd):
        super().sync(fd)
        assert self.gate.wait(WAIT_S_MAX)


def test_changes_that_come_during_a_sync_share_the_next_one_and_nothing_is_seen_before_it(tmp_path):
    disk = GatedDisk(clock := ManualClock())
    node = Node(KeeperSettings(data_dir=str(tmp_path), port=0), clock, disk)
    node.open()
    running = threading.Thread(target=_run, args=(node, []))
    running.start()
    address = ("127.0.0.1", node.port)
    try:
        with ExitStack() as stack:
            socks = [stack.enter_context(socket.create_connection(address, timeout=WAIT_S_MAX)) for _ in range(9)]
            for sock in socks:
                sock.sendall(hello())
                assert len(sock.recv(1 << 10)) > 4
            disk.gate.clear()
            before = len(disk.threads)
            first, reader, *others = socks
            first.sendall(create(1, "/first"))
            eventually(lambda: len(disk.threads) == before + 1, "the first sync begins")
            for number, sock in enumerate(others):
                sock.sendall(create(1, f"/other-{number}"))
            reader.sendall(get(1, "/first"))
            eventually(lambda: (len(node.machine.staged), node.server.held) == (7, 9), "all of it was taken in")
            assert select.select(socks, [], [], 0) == ([], [], [])
            disk.gate.set()
            assert all(sock.recv(1 << 10) for sock in socks)
            assert len(disk.threads) == before + 2
    finally:
        node.stop()
        running.join(WAIT_S_MAX)
        node.close()


def _run(node, ended):
    try:
        node.run()
    except BaseException as error:
        ended.append(error)


# ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _tree(count):
    tree = Tree()
    for number in range(count):
        tree.create(f"/n{number}", b"data", tree.nodes["/"].acl, 0, number + 1, number + 1, 0)
    return tree


def _settle(reactor, making):
    while making.busy:
        eventually(lambda: reactor._soon or reactor._from_threads, "the snapshot goes on")
        reactor.run_soon()
        reactor.run_pending()


def test_a_snapshot_is_made_in_steps_and_is_the_same_as_one_made_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshotting, "PIECE_BYTES", 10_000)
    for name in ("steps", "once"):
        (tmp_path / name).mkdir()
    tree, reactor, done = _tree(2000), Reactor(), []
    making = Snapshotting(reactor, Disk())
    making.begin(str(tmp_path / "steps"), 7, tree.nodes.copy(), {5: 4000}, lambda: done.append(True))
    _settle(reactor, making)
    making.close()
    reactor.close()
    snapshot.write(str(tmp_path / "once"), 7, tree.nodes, {5: 4000}, Disk())
    assert (tmp_path / "steps" / "snapshot.7").read_bytes() == (tmp_path / "once" / "snapshot.7").read_bytes()
    assert done == [True]
    assert max(map(len, snapshot.pieces(tree.nodes, {}))) < 60 * 2000  # none of the steps takes it all


def test_a_snapshot_that_cannot_be_written_leaves_nothing_and_the_next_one_can(tmp_path):
    tree, reactor, disk = _tree(10), Reactor(), SlowDisk(ManualClock())
    making = Snapshotting(reactor, disk)
    for fails in (True, False):
        disk.fails = fails
        making.begin(str(tmp_path), 7, tree.nodes.copy(), {}, lambda: None)
        _settle(reactor, making)
    making.close()
    reactor.close()
    assert [path.name for path in tmp_path.iterdir()] == ["snapshot.7"]


def test_a_snapshot_under_way_is_given_up_at_a_stop(tmp_path):
    reactor = Reactor()
    making = Snapshotting(reactor, Disk())
    making.begin(str(tmp_path), 7, _tree(5000).nodes.copy(), {}, lambda: None)
    reactor.run_soon()
    assert making.close()
    reactor.close()
    assert list(tmp_path.iterdir()) == []


def test_what_a_crash_has_left_of_a_snapshot_is_removed_at_a_start(tmp_path: Path):
    storage = Storage(str(tmp_path))
    left = Path(storage.snapshots, "snapshot.7.tmp")
    left.write_bytes(b"half of it")
    storage.load()
    storage.close()
    assert not left.exists()


@pytest.mark.parametrize(("count", "replayed"), [(3, 4), (20, 0)])
def test_a_clean_stop_after_many_changes_leaves_a_snapshot(tmp_path, monkeypatch, count, replayed):
    monkeypatch.setattr("headrace.keeper.node.REPLAYED_MAX", 10)
    with Keeper(str(tmp_path)) as keeper, socket.create_connection(("127.0.0.1", keeper.port)) as sock:
        sock.settimeout(WAIT_S_MAX)
        sock.sendall(hello())
        sock.recv(1)
        for number in range(count):
            sock.sendall(create(number, f"/n{number}"))
        eventually(lambda: keeper.node.server.durable_zxid == count + 1, "all of them are on the disk")
    storage = Storage(str(tmp_path))
    loaded = storage.load()
    storage.close()
    assert (loaded.transactions, loaded.tree.last_zxid, len(loaded.sessions)) == (replayed, count + 1, 1)
    assert f"/n{count - 1}" in loaded.tree.nodes

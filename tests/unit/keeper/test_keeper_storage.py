"""The files of a keeper: cut anywhere, the log recovers to a prefix; damage to what was synced is never silent."""

import os
import random
from pathlib import Path

import pytest

from headrace.core.errors import OperatorError
from headrace.core.files import Disk
from headrace.keeper import snapshot, txn_log
from headrace.keeper.storage import Storage
from headrace.keeper.transactions import Body, CloseSession, Create, OpenSession, SetData, Transaction, encode
from headrace.keeper.txn_log import TxnLog, entry_bytes
from headrace.keeper.znode import CONTAINER_OWNER, ttl_owner
from headrace.protocol.zookeeper.acl import OPEN, Acl


def _transactions() -> list[Transaction]:
    bodies: list[Body] = [OpenSession(4000), Create("/a", b"0", OPEN, 0, 1)]
    bodies += [SetData("/a", b"x" * number, number) for number in range(1, 20)]
    bodies += [
        Create("/a/e", b"", (Acl(1, "ip", "10.0.0.0/8"),), 7, 1),
        Create("/a/c", None, OPEN, CONTAINER_OWNER, 2),
        Create("/a/t", b"", OPEN, ttl_owner(5000), 3),
        CloseSession(("/a/e",)),
    ]
    return [Transaction(7, number, number + 1, 1000 + number, body) for number, body in enumerate(bodies)]


def _written(directory: Path) -> list[list[Transaction]]:
    """The transactions of each write."""
    storage = Storage(str(directory))
    log = TxnLog(storage.logs, Disk())
    waiting, writes = _transactions(), []
    choose = random.Random(5)
    assert log.open(1)
    while waiting:
        count = choose.randint(1, 4)
        write, waiting = waiting[:count], waiting[count:]
        log.write([entry_bytes(encode(each), write[0].zxid) for each in write])
        writes.append(write)
    log.close()
    storage.close()
    return writes


def _log_path(directory: Path) -> Path:
    return directory / "version-2" / "log.1"


def _load(directory: Path) -> tuple[int, list[str]]:
    storage = Storage(str(directory))
    try:
        loaded = storage.load()
        return loaded.tree.last_zxid, sorted(loaded.tree.nodes)
    finally:
        storage.close()


def test_what_was_written_is_there_after_a_start(tmp_path: Path) -> None:
    _written(tmp_path)
    assert _load(tmp_path) == (
        len(_transactions()),
        ["/", "/a", "/a/c", "/a/t", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"],
    )


def test_a_log_cut_anywhere_recovers_to_a_prefix(tmp_path: Path) -> None:
    _written(tmp_path)
    path = _log_path(tmp_path)
    whole = path.read_bytes().rstrip(b"\0")
    last = len(_transactions())
    for cut in range(len(whole), 0, -7):
        path.write_bytes(whole[:cut])
        zxid = _load(tmp_path)[0]
        assert zxid <= last
        last = zxid
    assert last == 0


def test_a_torn_write_is_cut_even_if_its_end_has_reached_the_disk(tmp_path: Path) -> None:
    writes = _written(tmp_path)
    write = next(each for each in reversed(writes) if len(each) > 1)
    content = bytearray(_log_path(tmp_path).read_bytes())
    first = content.index(entry_bytes(encode(write[0]), write[0].zxid))
    later = writes[writes.index(write) + 1 :]
    if later:  # make it the last write
        end = content.index(entry_bytes(encode(later[0][0]), later[0][0].zxid))
        content[end:] = bytes(len(content) - end)
    content[first + 20] ^= 0xFF
    _log_path(tmp_path).write_bytes(bytes(content))
    assert _load(tmp_path)[0] == write[0].zxid - 1
    assert _load(tmp_path)[0] == write[0].zxid - 1  # and again, now that it is cut


def test_damage_to_what_was_synced_stops_the_start_with_one_line(tmp_path: Path) -> None:
    writes = _written(tmp_path)
    content = bytearray(_log_path(tmp_path).read_bytes())
    content[content.index(entry_bytes(encode(writes[0][0]), 1)) + 20] ^= 0xFF
    _log_path(tmp_path).write_bytes(bytes(content))
    with pytest.raises(OperatorError, match=r"log\.1: damaged at byte 16, behind transaction 0x0"):
        _load(tmp_path)


def test_a_missing_log_between_two_others_stops_the_start(tmp_path: Path) -> None:
    _written(tmp_path)
    log = TxnLog(str(tmp_path / "version-2"), Disk())
    log.open(40)
    log.write([entry_bytes(encode(Transaction(7, 1, 40, 5, SetData("/a", b"", 30))), 40)])
    log.close()
    with pytest.raises(OperatorError, match="a log between them is missing"):
        _load(tmp_path)


def test_a_snapshot_holds_the_whole_tree_and_the_log_goes_on_behind_it(tmp_path: Path) -> None:
    _written(tmp_path)
    storage = Storage(str(tmp_path))
    tree, sessions, _ = storage.load()
    before = {path: (node.data, node.acl, tree.stat(path, node)) for path, node in tree.nodes.items()}
    snapshot.write(storage.snapshots, tree.last_zxid, tree.nodes, {9: 5000}, Disk())
    os.unlink(_log_path(tmp_path))
    again, found, read = storage.load()
    storage.close()
    assert {path: (node.data, node.acl, again.stat(path, node)) for path, node in again.nodes.items()} == before
    assert (again.last_zxid, again.containers, again.mortals) == (tree.last_zxid, {"/a/c"}, {"/a/t"})
    assert (sessions, found, read) == ({}, {9: 5000}, 0)


def test_a_damaged_snapshot_is_left_out_if_the_logs_are_there(tmp_path: Path) -> None:
    _written(tmp_path)
    storage = Storage(str(tmp_path))
    tree, _, _ = storage.load()
    path = snapshot.write(storage.snapshots, tree.last_zxid, tree.nodes, {}, Disk())
    content = bytearray(Path(path).read_bytes())
    content[60] ^= 0xFF
    Path(path).write_bytes(bytes(content))
    assert storage.load().tree.last_zxid == tree.last_zxid
    os.unlink(_log_path(tmp_path))
    with pytest.raises(OperatorError, match="a damaged snapshot"):
        storage.load()
    storage.close()


def test_a_first_start_leaves_a_snapshot_without_which_zookeeper_takes_no_logs(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    fresh = storage.load().tree
    assert os.listdir(tmp_path / "version-2") == ["snapshot.0"]
    again = storage.load().tree
    assert (again.last_zxid, set(again.nodes)) == (0, set(fresh.nodes))
    storage.close()


def test_old_snapshots_go_with_the_logs_that_only_they_need(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path))
    tree = storage.load().tree
    for zxid in (10, 20, 30, 40):
        snapshot.write(storage.snapshots, zxid, tree.nodes, {}, Disk())
        log = TxnLog(storage.logs, Disk())
        log.open(zxid + 1)
        log.close()
    storage.purge(3)
    storage.close()
    left = sorted(os.listdir(tmp_path / "version-2"))
    assert left == ["log.15", "log.1f", "log.29", "snapshot.14", "snapshot.1e", "snapshot.28"]


def test_a_name_that_is_no_log_is_not_taken_for_one() -> None:
    assert [txn_log.log_zxid(name) for name in ("log.1f", "log.x", "snapshot.1", "log.")] == [31, -1, -1, -1]


def test_a_torn_first_write_of_a_later_log_is_cut(tmp_path: Path) -> None:
    _written(tmp_path)
    first = len(_transactions()) + 1
    log = TxnLog(str(tmp_path / "version-2"), Disk())
    log.open(first)
    torn = [Transaction(7, 1, first + place, 5, SetData("/a", b"", 30 + place)) for place in range(3)]
    log.write([entry_bytes(encode(each), first) for each in torn])
    log.close()
    path = Path(log.path)
    content = bytearray(path.read_bytes())
    content[30] ^= 0xFF  # the second and third are whole
    path.write_bytes(bytes(content))
    assert _load(tmp_path)[0] == first - 1


@pytest.mark.parametrize("left", [b"", b"ZK", b"ZKLG\0\0\0\2", bytes(4096)])
def test_a_log_of_which_a_crash_left_nothing_is_taken_as_empty(tmp_path: Path, left: bytes) -> None:
    _written(tmp_path)
    last = len(_transactions())
    (tmp_path / "version-2" / f"log.{last + 1:x}").write_bytes(left.ljust(4096, b"\0"))
    assert _load(tmp_path)[0] == last


class _CountingDisk(Disk):
    def __init__(self) -> None:
        self.synced: list[str] = []

    def sync(self, fd: int) -> None:
        self.synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        super().sync(fd)


def test_a_start_syncs_what_it_has_read_before_anything_stands_on_it(tmp_path: Path) -> None:
    """After a `kill -9` it may be in memory only; a loss of power would then take it from under a later log."""
    _written(tmp_path)
    disk = _CountingDisk()
    storage = Storage(str(tmp_path), disk=disk)
    storage.load()
    storage.close()
    assert disk.synced[-1] == "log.1"

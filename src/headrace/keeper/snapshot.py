"""Snapshots of the tree in ZooKeeper's own format: `version-2/snapshot.<zxid>`.

One is made from a copy of the table of nodes, whose records never change, so it is consistent whatever goes on
meanwhile. The loop makes its bytes, a bounded number of nodes at a time, since a thread that made them would hold up
the loop for longer; a thread writes them. It has its name only when it is whole and synced.
"""

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

from headrace.core.errors import OperatorError
from headrace.core.files import Disk
from headrace.keeper.tree import Tree
from headrace.keeper.znode import STORED_STAT_BYTES, Znode, stored_znode
from headrace.protocol.zookeeper.acl import OPEN, Acl, acl_bytes, read_acl
from headrace.protocol.zookeeper.jute import MalformedError, Reader, buffer_bytes, int_bytes, long_bytes, string_bytes

PREFIX: Final = "snapshot."
TEMPORARY: Final = ".tmp"
_HEADER: Final = b"ZKSN" + int_bytes(2) + long_bytes(-1)
_END: Final = string_bytes("/")
_OPEN_ID: Final = -1
NODES_PER_STEP: Final = 256

Item = TypeVar("Item")


def pieces(nodes: Mapping[str, Znode], sessions: Mapping[int, int]) -> Iterator[bytes]:
    """The content of a snapshot, a bounded number of nodes in each step: so one can be made between other work.
    `sessions` has the time-out of each. Neither may change meanwhile."""
    yield _HEADER + int_bytes(len(sessions))
    for some in batched(sessions.items()):
        yield b"".join([long_bytes(id) + int_bytes(timeout_ms) for id, timeout_ms in some])
    lists: dict[tuple[Acl, ...], int] = {OPEN: _OPEN_ID}
    for records in batched(nodes.values()):
        for node in records:
            if node.acl is not OPEN:
                lists.setdefault(node.acl, len(lists))
        yield b""
    yield int_bytes(len(lists) - 1)
    for acl, number in lists.items():
        if number != _OPEN_ID:
            yield long_bytes(number) + acl_bytes(acl)
    for entries in batched(nodes.items()):
        yield b"".join([_node_bytes(path, node, lists) for path, node in entries])
    yield _END


def batched(all: Iterable[Item]) -> Iterator[list[Item]]:
    """NODES_PER_STEP at a time."""
    left = iter(all)
    while some := list(islice(left, NODES_PER_STEP)):
        yield some


def _node_bytes(path: str, node: Znode, lists: Mapping[tuple[Acl, ...], int]) -> bytes:
    number = _OPEN_ID if node.acl is OPEN else lists[node.acl]
    head = string_bytes("" if path == "/" else path) + buffer_bytes(node.data)
    return head + long_bytes(number) + node.stored_stat()


class SnapshotFile:
    """One that is being written. Its methods block, so a thread calls them, one at a time."""

    def __init__(self, directory: str, zxid: int, disk: Disk) -> None:
        self.path = os.path.join(directory, f"{PREFIX}{zxid:x}")
        self._directory = directory
        self._temporary = self.path + TEMPORARY
        self._disk = disk
        self._fd = -1
        self._at = 0
        self._checksum = 1

    def write(self, piece: bytes) -> None:
        if self._fd < 0:
            self._fd = self._disk.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        self._disk.write(self._fd, [piece], self._at)
        self._at += len(piece)
        self._checksum = zlib.adler32(piece, self._checksum)

    def finish(self) -> None:
        """Gives it its name when all of it is on the disk."""
        self.write(long_bytes(self._checksum) + _END)
        self._disk.sync(self._fd)
        self._close()
        self._disk.rename(self._temporary, self.path)
        self._disk.sync_directory(self._directory)

    def give_up(self) -> None:
        self._close()
        self._disk.unlink(self._temporary)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._disk.close(fd)


def write(directory: str, zxid: int, nodes: Mapping[str, Znode], sessions: Mapping[int, int], disk: Disk) -> str:
    """All of a snapshot at once; its path."""
    file = SnapshotFile(directory, zxid, disk)
    try:
        for piece in pieces(nodes, sessions):
            file.write(piece)
        file.finish()
    except BaseException:
        file.give_up()
        raise
    return file.path


def read(path: str, zxid: int, disk: Disk) -> tuple[Tree, dict[int, int]]:
    """The tree, and the time-out of each session. OperatorError if the file is damaged."""
    content = disk.read_file(path) or b""
    try:
        return _read(content, zxid)
    except (MalformedError, KeyError, ValueError) as error:
        raise OperatorError(f"{path}: a damaged snapshot ({error}); remove it if an older one is there") from error


def _read(content: bytes, zxid: int) -> tuple[Tree, dict[int, int]]:
    reader = Reader(content)
    if content[:4] != _HEADER[:4]:
        raise MalformedError("it does not begin as one")
    reader.at = len(_HEADER)
    sessions = {reader.int64(): reader.int32() for _ in range(reader.int32())}
    lists: dict[int, tuple[Acl, ...]] = {_OPEN_ID: OPEN}
    for _ in range(reader.int32()):
        number, acl = reader.int64(), read_acl(reader)
        lists[number] = OPEN if acl == OPEN else acl
    tree = Tree()
    while True:
        path = reader.string()
        if path == "/":
            break
        data, acl_number = reader.buffer(), reader.int64()
        at = reader.at
        reader.at += STORED_STAT_BYTES
        node = stored_znode(data, lists[acl_number], content[at : reader.at])
        tree.adopt(path or "/", node)
    checksum = zlib.adler32(memoryview(content)[: reader.at])
    if reader.int64() != checksum:
        raise MalformedError("its checksum does not fit")
    tree.last_zxid = zxid
    return tree, sessions

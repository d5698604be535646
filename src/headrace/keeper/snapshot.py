"""Snapshots of the tree in ZooKeeper's own format: `version-2/snapshot.<zxid>`.

One is made from a copy of the table of nodes, whose records never change, so it is consistent whatever goes on
meanwhile. It has its name only when it is whole and synced.
"""

import os
import zlib
from collections.abc import Mapping
from typing import Final

from headrace.core.errors import OperatorError
from headrace.core.files import Disk
from headrace.keeper.acl import OPEN, Acl
from headrace.keeper.jute import MalformedError, Reader, buffer_bytes, int_bytes, long_bytes, string_bytes
from headrace.keeper.transactions import acl_bytes, read_acl
from headrace.keeper.tree import Tree
from headrace.keeper.znode import STORED_STAT_BYTES, Znode, stored_znode

PREFIX: Final = "snapshot."
_HEADER: Final = b"ZKSN" + int_bytes(2) + long_bytes(-1)
_END: Final = string_bytes("/")
_OPEN_ID: Final = -1
_PIECE_BYTES: Final = 1 << 20


def write(directory: str, zxid: int, nodes: Mapping[str, Znode], sessions: Mapping[int, int], disk: Disk) -> str:
    """The path of the new snapshot. `sessions` has the time-out of each."""
    path = os.path.join(directory, f"{PREFIX}{zxid:x}")
    temporary = path + ".tmp"
    fd = disk.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    try:
        _Writer(disk, fd).write(nodes, sessions)
        disk.sync(fd)
    except BaseException:
        disk.close(fd)
        disk.unlink(temporary)
        raise
    disk.close(fd)
    disk.rename(temporary, path)
    disk.sync_directory(directory)
    return path


class _Writer:
    def __init__(self, disk: Disk, fd: int) -> None:
        self._disk = disk
        self._fd = fd
        self._at = 0
        self._checksum = 1
        self._piece = bytearray()

    def write(self, nodes: Mapping[str, Znode], sessions: Mapping[int, int]) -> None:
        self._put(_HEADER + int_bytes(len(sessions)))
        for id, timeout_ms in sessions.items():
            self._put(long_bytes(id) + int_bytes(timeout_ms))
        lists: dict[tuple[Acl, ...], int] = {OPEN: _OPEN_ID}
        for node in nodes.values():
            lists.setdefault(node.acl, len(lists))
        self._put(int_bytes(len(lists) - 1))
        for acl, number in lists.items():
            if number != _OPEN_ID:
                self._put(long_bytes(number) + acl_bytes(acl))
        for path, node in nodes.items():
            name = "" if path == "/" else path
            self._put(string_bytes(name) + buffer_bytes(node.data) + long_bytes(lists[node.acl]) + node.stored_stat())
        self._put(_END)
        self._flush()
        self._put(long_bytes(self._checksum) + _END)
        self._flush()

    def _put(self, data: bytes) -> None:
        self._piece += data
        if len(self._piece) >= _PIECE_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._disk.write(self._fd, [self._piece], self._at)
        self._at += len(self._piece)
        self._checksum = zlib.adler32(self._piece, self._checksum)
        self._piece = bytearray()


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

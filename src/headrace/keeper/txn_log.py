"""The log of transactions on disk, in ZooKeeper's own format and place (`version-2/log.<zxid>`), which it reads, too.

Room is allocated ahead, so a full disk is noticed before a change is made. Transactions of a turn are written and
synced together. Each carries, where ZooKeeper keeps a digest of the tree (under a version that it ignores), the first
zxid of the write that it came with: a start can tell a write that a crash has torn, which nobody has seen and which is
cut, from damage to what was synced, which stops it.
"""

import errno
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from headrace.core.errors import OperatorError
from headrace.core.files import Disk
from headrace.keeper import transactions
from headrace.keeper.transactions import Transaction
from headrace.protocol.zookeeper.jute import MalformedError, Reader, int_bytes, long_bytes

PREFIX: Final = "log."
_HEADER: Final = b"ZKLG" + int_bytes(2) + long_bytes(0)
_END: Final = b"B"
_ENTRY_BYTES_MIN: Final = 8 + 4 + 1
ENTRY_BYTES_MORE: Final = _ENTRY_BYTES_MIN + 12  # that an entry takes beside its transaction
_WRITE_MARK: Final = 0x48520001  # the version of a digest that is none, but the first zxid of a write
_MARK_BYTES: Final = 12
ALLOCATED_BYTES: Final = 4 << 20  # at a time
ROOM_BYTES_MIN: Final = 2 << 20  # what must be free before a change is accepted: more than one request can be


class Entry(NamedTuple):
    transaction: Transaction
    first_zxid: int  # of the write that it came with
    end: int  # where the next one begins


def log_zxid(name: str, prefix: str = PREFIX) -> int:
    """The zxid in the name of a log or a snapshot; -1 if it is neither."""
    if not name.startswith(prefix):
        return -1
    try:
        return int(name[len(prefix) :], 16)
    except ValueError:
        return -1


def entry_bytes(transaction: bytes, first_zxid: int) -> bytes:
    data = transaction + int_bytes(_WRITE_MARK) + long_bytes(first_zxid)
    return long_bytes(zlib.adler32(data)) + int_bytes(len(data)) + data + _END


class TxnLog:
    """The file that is written now. One thread at a time may be in `write`; `has_room` and `roll` are the loop's."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._fd = -1
        self._at = 0
        self._allocated = 0
        self.path = ""

    def has_room(self, more: int) -> bool:
        """Whether `more` bytes, beside what is reserved, can be written without the disk being full."""
        if self._fd < 0:
            return True  # the first transaction makes the file, and finds out
        if self._allocated - self._at >= more + ROOM_BYTES_MIN:
            return True
        try:
            size = max(ALLOCATED_BYTES, more + ROOM_BYTES_MIN)
            self._disk.allocate(self._fd, self._allocated, size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            return False
        self._allocated += size
        return True

    def open(self, first_zxid: int) -> bool:
        """Begins a file whose first transaction is to be this one; whether there was room for it."""
        path = os.path.join(self._directory, f"{PREFIX}{first_zxid:x}")
        if path == self.path and self._fd >= 0:
            return True  # nothing is in it yet
        fd = self._disk.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        try:
            self._disk.allocate(fd, 0, ALLOCATED_BYTES)
            self._disk.write(fd, [_HEADER], 0)
            self._disk.sync(fd)
            self._disk.sync_directory(self._directory)
        except OSError as error:
            self._disk.close(fd)
            self._disk.unlink(path)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            return False
        self.close()
        self._fd, self._at, self._allocated, self.path = fd, len(_HEADER), ALLOCATED_BYTES, path
        return True

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def write(self, pieces: Sequence[bytes]) -> None:
        """Returns when they are on the disk. A failure leaves it unknown what is: the caller ends the process."""
        self._disk.write(self._fd, pieces, self._at)
        self._disk.sync(self._fd)
        self._at += sum(map(len, pieces))

    def close(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1


def read(path: str, disk: Disk) -> Iterator[Entry]:
    """The transactions of one file, up to a torn end, which is cut; OperatorError at damage to what was synced."""
    content = disk.read_file(path) or b""
    at = len(_HEADER)
    if len(content) < at:
        return  # made, and not yet written
    if _HEADER.startswith(content.rstrip(b"\0")):
        return  # a crash came while it was made: nothing else was written to it
    if content[:4] != _HEADER[:4]:
        raise OperatorError(f"{path}: not a log of ZooKeeper's; move it out of the directory")
    last = log_zxid(os.path.basename(path)) - 1
    while True:
        entry = _entry(content, at)
        if entry is None:
            if content.count(0, at) < len(content) - at:
                _check_torn(path, content, at, last)
                _cut(path, at, disk)
            return
        yield entry
        at, last = entry.end, entry.transaction.zxid


def _entry(content: bytes, at: int) -> Entry | None:
    """None if no whole transaction stands there."""
    if len(content) - at < _ENTRY_BYTES_MIN:
        return None
    reader = Reader(content, at)
    checksum, size = reader.int64(), reader.int32()
    end = reader.at + size + 1
    if size <= 0 or end > len(content) or content[end - 1 : end] != _END:
        return None
    data = content[reader.at : end - 1]
    if zlib.adler32(data) != checksum:
        return None
    try:
        transaction = transactions.decode(data)
    except MalformedError:
        return None
    return Entry(transaction, _first_zxid(data, transaction.zxid), end)


def _first_zxid(data: bytes, own: int) -> int:
    if len(data) < _MARK_BYTES:
        return own
    mark = Reader(data, len(data) - _MARK_BYTES)
    return mark.int64() if mark.int32() == _WRITE_MARK else own


def _check_torn(path: str, content: bytes, at: int, last_zxid: int) -> None:
    """Behind a torn write there is nothing, or more of the same write."""
    place = content.find(_END, at)
    while place >= 0:
        later = _entry(content, place + 1)
        if later is not None and later.first_zxid > last_zxid + 1:
            raise OperatorError(
                f"{path}: damaged at byte {at}, behind transaction {last_zxid:#x}: later transactions were synced, so"
                " this is no torn write; restore the file from a copy, or remove it and the later ones to go back to"
                " that transaction"
            )
        place = content.find(_END, place + 1 if later is None else later.end - 1)


def settle(path: str, disk: Disk) -> None:
    """What a start has read is on the disk after this: after a `kill -9` it may have been in memory only, and what is
    written from now on stands on it."""
    fd = disk.open(path)
    try:
        disk.sync(fd)
    finally:
        disk.close(fd)


def _cut(path: str, at: int, disk: Disk) -> None:
    fd = disk.open(path)
    try:
        disk.truncate(fd, at)
        disk.sync(fd)
    finally:
        disk.close(fd)

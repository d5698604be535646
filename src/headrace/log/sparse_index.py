"""Kafka's two sparse indexes of a segment: `.index` (offset to position) and `.timeindex` (timestamp to offset).

Entries are big-endian and sorted. The newest stay in memory until there are enough of them for one write, so an
append costs no system call here and an index holds a bounded piece of memory; after a crash what was not written is
made again from the log. Look-ups on the written part are a binary search by pread: nothing is mapped or loaded.
"""

from struct import Struct
from typing import Final

from headrace.core.files import PASSING_ERRORS, OpenFiles

SPILL_BYTES: Final = 1024  # so much of an index waits in memory, at most
_NEAR_ENTRIES: Final = 128
_BLOCK_ENTRIES: Final = 64  # the last steps of a search are made in one block


class SparseIndex:
    """A sorted file of fixed entries, the first field of which is the key."""

    __slots__ = ("_files", "_last_key", "_tail", "_written", "entry", "path")

    def __init__(self, path: str, files: OpenFiles, entry: Struct, written: int) -> None:
        self.path = path
        self.entry = entry
        self._files = files
        self._written = written  # entries in the file
        self._tail = bytearray()  # entries not yet in the file
        self._last_key: int | None = None if written else -1

    @property
    def last_key(self) -> int:
        """The key of the last entry, -1 if there is none."""
        if self._last_key is None:
            last = self.last()
            self._last_key = last[0] if last is not None else -1
        return self._last_key

    def __len__(self) -> int:
        return self._written + len(self._tail) // self.entry.size

    def append(self, key: int, value: int) -> None:
        self._tail += self.entry.pack(key, value)
        self._last_key = key
        if len(self._tail) >= SPILL_BYTES:
            try:
                self.spill()
            except OSError as error:
                if error.errno not in PASSING_ERRORS:
                    raise
                # The disk is full, say: the entries stay in memory, and the next append tries again.

    def hold(self, data: bytes) -> None:
        """All entries of an index that has no file yet."""
        self._tail = bytearray(data)
        self._last_key = None if data else -1

    def spill(self) -> None:
        """Writes what waits in memory."""
        if not self._written and not self._tail:
            self._files.get(self.path)  # an empty index is a file too
        if self._tail:
            file = self._files.get(self.path)
            self._files.disk.write(file.fd, [bytes(self._tail)], self._written * self.entry.size)
            self._written += len(self._tail) // self.entry.size
            self._tail = bytearray()

    @property
    def written(self) -> int:
        """How many entries are in the file."""
        return self._written

    def at(self, position: int) -> tuple[int, int]:
        size = self.entry.size
        if position >= self._written:
            key, value = self.entry.unpack_from(self._tail, (position - self._written) * size)
        else:
            data = self._files.disk.read(self._files.get(self.path).fd, size, position * size)
            key, value = self.entry.unpack(data)
        return key, value

    def last(self) -> tuple[int, int] | None:
        count = len(self)
        return self.at(count - 1) if count else None

    def floor(self, key: int, field: int = 0) -> int:
        """The position of the last entry whose key is at most `key`; -1 if there is none.

        Both fields of an entry grow together, so the second can be searched for as well (`field` 1).
        """
        tail = self._tail
        if tail and self.entry.unpack_from(tail, 0)[field] <= key:
            return self._written + _floor(tail, self.entry, key, field)
        low, high = 0, self._written  # the answer is below high
        if not high:
            return -1
        fd = self._files.get(self.path).fd
        read = self._files.disk.read
        size = self.entry.size
        while high - low > _BLOCK_ENTRIES:
            middle = (low + high) // 2
            if self.entry.unpack(read(fd, size, middle * size))[field] <= key:
                low = middle
            else:
                high = middle
        block = read(fd, (high - low) * size, low * size)
        return low + _floor(block, self.entry, key, field)

    def floor_near(self, value: int, hint: int) -> int:
        """`floor` by the second field, where the answer is likely a little behind entry `hint`: one read."""
        if not 0 <= hint < self._written:
            return self.floor(value, field=1)
        size = self.entry.size
        block = self._files.disk.read(self._files.get(self.path).fd, _NEAR_ENTRIES * size, hint * size)
        count = len(block) // size
        at = _floor(block, self.entry, value, 1)
        if at < 0 or (at == count - 1 and hint + count < len(self)):
            return self.floor(value, field=1)
        return hint + at

    def drop_zeros(self) -> None:
        """Apache Kafka makes an index at its full size and cuts it when it is closed: after a crash, zeros follow."""
        zero = bytes(self.entry.size)
        low, high = 0, self._written
        if not high or self._tail:
            return
        fd, read, size = self._files.get(self.path).fd, self._files.disk.read, self.entry.size
        if read(fd, size, (high - 1) * size) != zero:
            return
        while low < high:
            middle = (low + high) // 2
            if read(fd, size, middle * size) == zero:
                high = middle
            else:
                low = middle + 1
        self.truncate_entries(low)

    def truncate_entries(self, count: int) -> None:
        """Keeps the first `count` entries."""
        self._last_key = None
        size = self.entry.size
        if count >= len(self):
            return
        if count >= self._written:
            del self._tail[(count - self._written) * size :]
            return
        self._tail = bytearray()
        self._written = count
        self._files.disk.truncate(self._files.get(self.path).fd, count * size)


def _floor(data: bytes | bytearray, entry: Struct, key: int, field: int) -> int:
    size = entry.size
    low, high = 0, len(data) // size
    unpack = entry.unpack_from
    while low < high:
        middle = (low + high) // 2
        if unpack(data, middle * size)[field] <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1


OFFSET_ENTRY: Final = Struct(">ii")  # offset less the segment's base, position in the .log file
TIME_ENTRY: Final = Struct(">qi")  # timestamp, offset less the segment's base

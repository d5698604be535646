"""The files that compaction reads and writes: segments piece by piece, and the `.cleaned` ones that replace them."""

import os
import time
from collections.abc import Callable, Iterator

from crc32c import crc32c

from headrace.core.errors import StorageError
from headrace.core.files import Disk
from headrace.log.compaction.swap import CLEANED_SUFFIX
from headrace.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY
from headrace.log.transactions import Aborted, encode_aborted
from headrace.protocol.batch import CRC_END, HEADER_BYTES, MAGIC, BatchHeader, read_header

WRITE_BYTES = 256 << 10

_READ_ONLY = os.O_RDONLY | os.O_CLOEXEC
_ANEW = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC


class DamagedError(StorageError):
    """A batch that is not what it was when it was written: compacting it would make it look whole."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class Pace:
    """Keeps reading and writing together below a rate, and ends the work where there is nobody left to do it for."""

    def __init__(self, bytes_per_second_max: float, still_wanted: Callable[[], bool]) -> None:
        self._rate = max(bytes_per_second_max, 1.0)
        self._still_wanted = still_wanted
        self._began = time.monotonic()
        self._done = 0

    def spent(self, count: int) -> None:
        if not self._still_wanted():
            raise SystemExit(0)
        self._done += count
        ahead = self._done / self._rate - (time.monotonic() - self._began)
        if ahead > 0.001:
            time.sleep(ahead)


def read_batches(
    disk: Disk, path: str, size: int, piece_bytes: int, pace: Pace
) -> Iterator[tuple[BatchHeader, memoryview, int]]:
    """Each batch of the first `size` bytes of a segment, and where it begins. One that is damaged is an error."""
    fd = disk.open(path, _READ_ONLY)
    try:
        window, at, position = memoryview(b""), 0, 0
        while position < size:
            local = position - at
            if local + HEADER_BYTES > len(window):
                window, at, local = _read(disk, fd, piece_bytes, position, size, pace), position, 0
                if len(window) < HEADER_BYTES:
                    raise damaged(path, position, "the file ends inside a header")
            header = read_header(window, local)
            if header.magic != MAGIC or not HEADER_BYTES <= header.size <= size - position:
                raise damaged(path, position, f"magic {header.magic}, {header.size} bytes")
            if local + header.size > len(window):
                window = _read(disk, fd, max(piece_bytes, header.size), position, size, pace)
                at, local = position, 0
            batch = window[local : local + header.size]
            if len(batch) < header.size or crc32c(batch[CRC_END:]) != header.crc:
                raise damaged(path, position, "it does not match its CRC")
            yield header, batch, position
            position += header.size
    finally:
        disk.close(fd)


def _read(disk: Disk, fd: int, count: int, position: int, size: int, pace: Pace) -> memoryview:
    data = disk.read(fd, min(count, size - position), position)
    pace.spent(len(data))
    return memoryview(data)


def damaged(path: str, position: int, why: str) -> DamagedError:
    return DamagedError(path, f"{path}: the batch at byte {position} is damaged: {why}; its log is not compacted")


class CleanedSegment:
    """A segment in the making, under names that recovery removes."""

    def __init__(self, disk: Disk, path: str, base_offset: int, index_interval_bytes: int, pace: Pace) -> None:
        self._disk = disk
        self._path = path
        self._base_offset = base_offset
        self._interval = index_interval_bytes
        self._pace = pace
        self._fd = disk.open(f"{path}.log{CLEANED_SUFFIX}", _ANEW)
        self._pieces: list[bytes] = []
        self._waiting = 0
        self._since_entry = 0
        self._offsets = bytearray()
        self._times = bytearray()
        self._largest = self._marked = -1
        self._largest_offset = base_offset
        self.size = 0

    def append(self, header: BatchHeader, batch: bytes | memoryview) -> None:
        """`header` is that of the batch as it is now. Entries go where they went when it was first written."""
        relative = header.last_offset - self._base_offset
        if self._since_entry > self._interval and self.size:
            self._since_entry = 0
            self._offsets += OFFSET_ENTRY.pack(relative, self.size)
            self._mark_time()
        if header.max_timestamp > self._largest:
            self._largest, self._largest_offset = header.max_timestamp, header.last_offset
        self._pieces.append(bytes(batch))
        self._since_entry += len(batch)
        self._waiting += len(batch)
        self.size += len(batch)
        if self._waiting >= WRITE_BYTES:
            self._write()

    def _mark_time(self) -> None:
        if self._largest > self._marked:
            self._marked = self._largest
            self._times += TIME_ENTRY.pack(self._largest, self._largest_offset - self._base_offset)

    def _write(self) -> None:
        self._disk.write(self._fd, self._pieces, self.size - self._waiting)
        self._pace.spent(self._waiting)
        self._pieces, self._waiting = [], 0

    def finish(self, aborted: list[Aborted], modified_ns: int) -> None:
        """Everything on the disk for certain: what it replaces will be deleted."""
        self._write()
        self._mark_time()
        self._disk.sync(self._fd)
        contents = {".index": bytes(self._offsets), ".timeindex": bytes(self._times)}
        if aborted:
            contents[".txnindex"] = encode_aborted(aborted)
        else:
            self._disk.unlink(f"{self._path}.txnindex{CLEANED_SUFFIX}")
        for suffix, data in contents.items():
            self._write_whole(f"{self._path}{suffix}{CLEANED_SUFFIX}", data)
        os.utime(f"{self._path}.log{CLEANED_SUFFIX}", ns=(modified_ns, modified_ns))

    def _write_whole(self, path: str, data: bytes) -> None:
        fd = self._disk.open(path, _ANEW)
        try:
            self._disk.write(fd, [data], 0)
            self._disk.sync(fd)
        finally:
            self._disk.close(fd)

    def close(self) -> None:
        self._disk.close(self._fd)

"""One segment of a log: a `.log` file of batches back to back, with its two sparse indexes.

A segment is only ever appended to, at its end, until the next one begins; then it is sealed. Its `size` is what
readers may see; what is staged but not yet written lies beyond it.
"""

import logging
import os
from collections.abc import Callable
from struct import Struct
from typing import Final

from headrace.core.files import PASSING_ERRORS, OpenFile, OpenFiles
from headrace.log.config import NEVER
from headrace.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from headrace.log.survey import Damage
from headrace.log.transactions import AbortedIndex

SCAN_BYTES: Final = 4096
_HEAD: Final = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
_HEAD_BYTES: Final = 27
_LENGTH_MIN: Final = 49  # of a batch without a record, less the 12 bytes that a length does not count
_MAGIC: Final = 2
_TIMED_HEAD: Final = Struct(">qi11xi8xq")  # and the largest timestamp
_TIMED_HEAD_BYTES: Final = _TIMED_HEAD.size
LENGTH_PREFIX_BYTES: Final = 12
SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex")  # the files that a segment may have
UNINDEXED_BYTES_MAX: Final = 16 << 10
NAME_DIGITS: Final = 20
OFFSET_MAX: Final = (1 << 63) - 1

logger = logging.getLogger(__name__)


class AstrayError(Exception):
    """The index, or a batch on the way from where it leads, is damaged: this is no answer to where an offset is."""


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020d}"


def base_offset_of(stem: str) -> int | None:
    """The inverse of `segment_name`; None if the file is called something else, and so is not a part of a log."""
    if len(stem) != NAME_DIGITS or not (stem.isascii() and stem.isdigit()):
        return None
    base_offset = int(stem)
    return base_offset if base_offset <= OFFSET_MAX else None


class Segment:
    __slots__ = (
        "_aborted",
        "_files",
        "_max_timestamp",
        "_offsets",
        "_times",
        "_timestamp_is_whole",
        "base_offset",
        "bytes_since_entry",
        "chained_from",
        "chained_to",
        "created_ms",
        "damages",
        "deleted",
        "first_timestamp",
        "index_bytes",
        "max_timestamp_offset",
        "opened_size",
        "path",
        "reserved",
        "roll_after_timestamp",
        "size",
        "surveyed",
    )

    def __init__(self, directory: str, base_offset: int, files: OpenFiles, created_ms: int, size: int = 0) -> None:
        self.path = os.path.join(directory, segment_name(base_offset))
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.size = size
        self.reserved = size  # the end of what is staged
        self.first_timestamp = -1  # of the first batch; rolling by time counts from it
        self.roll_after_timestamp = NEVER  # not computed yet
        self.bytes_since_entry = 0
        self.index_bytes = TIME_ENTRY.size  # what the larger index may have with one entry more
        self.max_timestamp_offset = -1
        self.deleted = False
        self.opened_size = size  # what lies above it was written by this process
        self.chained_from = 0  # from here
        self.chained_to = 0  # to here each header is known to lead to the next
        self.damages: list[Damage] = []  # by position: those that are known
        self.surveyed = False  # every batch was looked at: there are no others
        self._timestamp_is_whole = True  # False: `max_timestamp` was read from a part of the segment only
        self._max_timestamp: int | None = -1 if size == 0 else None
        self._files = files
        self._offsets: SparseIndex | None = None
        self._times: SparseIndex | None = None
        self._aborted: AbortedIndex | None = None

    @property
    def log_path(self) -> str:
        return self.path + ".log"

    def file(self) -> OpenFile:
        return self._files.get(self.path + ".log")

    @property
    def offsets(self) -> SparseIndex:
        if self._offsets is None:
            self._offsets = self._open_index(".index", OFFSET_ENTRY)
        return self._offsets

    @property
    def times(self) -> SparseIndex:
        if self._times is None:
            self._times = self._open_index(".timeindex", TIME_ENTRY)
        return self._times

    @property
    def aborted(self) -> AbortedIndex:
        if self._aborted is None:
            self._aborted = AbortedIndex(self.path, self._files)
        return self._aborted

    def _open_index(self, suffix: str, entry: Struct) -> SparseIndex:
        path = self.path + suffix
        count = 0
        if self.size:
            try:
                count = os.stat(path).st_size // entry.size
            except FileNotFoundError:
                count = 0
        self.index_bytes = max(self.index_bytes, (count + 1) * TIME_ENTRY.size)
        return SparseIndex(path, self._files, entry, count)

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the segment, -1 if it has none."""
        if self._max_timestamp is None:
            last = self.times.last()
            self._timestamp_is_whole = True
            if last is not None and self._holds(last[0], self.base_offset + last[1]):
                self._max_timestamp, self.max_timestamp_offset = last[0], self.base_offset + last[1]
            else:
                self._max_timestamp, self.max_timestamp_offset = self._read_max_timestamp()
        return self._max_timestamp

    def _holds(self, timestamp: int, offset: int) -> bool:
        """Whether an entry of the time index tells the truth: retention deletes by it, so it is not just believed."""
        try:
            found = self.locate(offset, self.size)
        except AstrayError:
            return False
        if found is None:
            return False
        head = self.head(found[0], _TIMED_HEAD_BYTES)
        return len(head) == _TIMED_HEAD_BYTES and int(_TIMED_HEAD.unpack(head)[3]) == timestamp

    def _read_max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and its batch's last offset, from the batches themselves: there is no index."""
        largest, offset = -1, self.base_offset - 1
        position = 0
        damaged = {damage.position: damage.end for damage in self.damages}
        while position < self.size:
            if position in damaged:
                position = max(damaged[position], position + 1)
                continue
            head = self.head(position, _TIMED_HEAD_BYTES)
            if len(head) < _TIMED_HEAD_BYTES:
                break
            base, length, delta, timestamp = _TIMED_HEAD.unpack(head)
            if length < _LENGTH_MIN:
                break  # damaged; whoever reads it is told
            if timestamp > largest:
                largest, offset = timestamp, base + delta
            position += length + LENGTH_PREFIX_BYTES
        self._timestamp_is_whole = position == self.size
        return largest, offset

    @property
    def timestamp_is_certain(self) -> bool:
        """Whether no record is newer than `max_timestamp`: some may lie where the segment cannot be read."""
        _ = self.max_timestamp
        return self._timestamp_is_whole and not self.damages

    def forget_timestamp(self) -> None:
        """Other damage is known than when it was read."""
        if not self._timestamp_is_whole:
            self._max_timestamp = None

    def rolling_timestamp(self) -> int:
        """The timestamp of the first batch, from which rolling by time counts; -1 if it has none."""
        if self.first_timestamp < 0 and self.size:
            head = self.head(0, 43)
            self.first_timestamp = int.from_bytes(head[35:43], "big", signed=True)
        return self.first_timestamp

    def appended(self, size: int, last_offset: int, max_timestamp: int, index_interval_bytes: int) -> None:
        """One batch more has been written at the end."""
        position = self.size
        self.size += size  # first: an index that cannot be written must not hide the record
        since_entry, self.bytes_since_entry = self.bytes_since_entry, self.bytes_since_entry + size
        if since_entry > index_interval_bytes and position:
            self.bytes_since_entry = size
            self.index_bytes += TIME_ENTRY.size
            self.offsets.append(last_offset - self.base_offset, position)
            self.mark_time()
        if max_timestamp > self.max_timestamp:
            self._max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset

    def skip(self, size: int) -> None:
        """Damaged bytes that stay where they are; an index entry leads behind them."""
        self.size += size
        self.bytes_since_entry += size

    def drop_indexes(self) -> None:
        """They say nothing about what is in the log file now."""
        for suffix in SUFFIXES[1:]:
            self._files.forget(self.path + suffix)
            self._files.disk.unlink(self.path + suffix)
        self._offsets = self._times = self._aborted = None

    def mark_time(self) -> None:
        """An entry in the time index, if time has moved since the last one."""
        timestamp = self.max_timestamp
        if timestamp > self.times.last_key:
            self.times.append(timestamp, self.max_timestamp_offset - self.base_offset)

    def rewind(self, position: int, bytes_since_entry: int) -> None:
        """As if nothing at or above `position` had been appended; the indexes have been cut already."""
        self._max_timestamp = None if position else -1  # read again when it is asked for
        self.max_timestamp_offset = self.base_offset - 1
        self.size = self.reserved = position
        self.bytes_since_entry = bytes_since_entry

    def forget_indexed(self, position: int, offset: int, aborted_from: int) -> None:
        """Forgets index entries for what lies at or above `position`, which is `offset` on, and what was aborted from
        `aborted_from` on; then `rewind`s."""
        offsets, times = self.offsets, self.times
        kept = offsets.floor(position - 1, field=1) + 1 if position else 0
        offsets.truncate_entries(kept)
        times.truncate_entries(times.floor(offset - 1 - self.base_offset, field=1) + 1 if position else 0)
        if self.aborted.exists() or self.aborted.entries():
            self.aborted.truncate(aborted_from)
        self.rewind(position, position - offsets.at(kept - 1)[1] if kept else position)

    def cut(self, position: int, offset: int) -> None:
        """The file ends at `position`, where the batch at `offset` began."""
        self._files.disk.truncate(self.file().fd, position)
        self.forget_indexed(position, offset, offset)
        self.damages = [damage for damage in self.damages if damage.end <= position]
        if position:  # behind the last entry of the time index there may be something newer
            self._max_timestamp, self.max_timestamp_offset = self._read_max_timestamp()
        else:
            self.first_timestamp = -1

    def spill(self) -> None:
        """Writes the indexes' newest entries, and makes sure that both files are there.

        A small segment goes without: it is read through as fast, and ten thousand idle partitions stop and start
        without twenty thousand files more.
        """
        self.aborted.spill()
        if self.size <= UNINDEXED_BYTES_MAX and not self.offsets.written and not self.times.written:
            return
        if self._max_timestamp is not None and self._max_timestamp >= 0:
            self.mark_time()
        self.offsets.spill()
        self.times.spill()

    def locate(self, offset: int, end: int) -> tuple[int, int, int] | None:
        """(position, base offset, size) of the first batch that ends at or after `offset`, below position `end`.

        AstrayError where the index or a header on the way is damaged: then nothing is known about the offset.
        """
        index = self.offsets
        entry = index.floor(offset - self.base_offset)
        position, behind = 0, offset  # an entry leads to a batch that ends at its own offset, or before it
        if entry >= 0:
            key, position = index.at(entry)
            behind = self.base_offset + key
        if not 0 <= position <= self.size:
            raise AstrayError(f"{index.path}: entry {entry} leads to byte {position} of {self.size}")
        fd = self.file().fd
        read = self._files.disk.read
        while position < end:
            block = read(fd, SCAN_BYTES, position)
            at = 0
            while at + _HEAD_BYTES <= len(block):
                base, length, magic, delta = _HEAD.unpack_from(block, at)
                if position + at >= end:
                    return None
                last = base + delta
                if length < _LENGTH_MIN or magic != _MAGIC or delta < 0 or (entry >= 0 and last > behind):
                    raise AstrayError(f"{self.path}.log: no batch at byte {position + at}, on the way to {offset}")
                if last >= offset:
                    return position + at, base, length + LENGTH_PREFIX_BYTES
                entry = -1
                at += length + LENGTH_PREFIX_BYTES
            if at == 0:
                raise AstrayError(f"{self.path}.log: ends at byte {position + len(block)}, within a batch")
            position += at
        if position > self.size:
            raise AstrayError(f"{self.path}.log: the last batch ends at byte {position} of {self.size}")
        return None

    def use_indexes(self, offsets: bytes, times: bytes, bytes_since_entry: int) -> None:
        """Other indexes in place of damaged ones: both files, whole."""
        self._offsets = self._use_index(".index", OFFSET_ENTRY, offsets)
        self._times = self._use_index(".timeindex", TIME_ENTRY, times)
        self._max_timestamp = None if self.size else -1
        self.bytes_since_entry = bytes_since_entry

    def _use_index(self, suffix: str, entry: Struct, data: bytes) -> SparseIndex | None:
        """None: it is in its file. Where the disk is full, it stays in memory until there is room."""
        disk, path = self._files.disk, self.path + suffix
        self._files.forget(path)
        try:
            disk.replace_file(path, data, sync=False)
            return None
        except OSError as error:
            if error.errno not in PASSING_ERRORS:
                raise
            logger.warning("%s stays in memory: %s", path, error.strerror)
        disk.unlink(path + ".tmp")
        disk.unlink(path)
        index = SparseIndex(path, self._files, entry, 0)
        index.hold(data)
        return index

    def head(self, position: int, size: int) -> bytes:
        return self._files.disk.read(self.file().fd, size, position)

    def reading(self) -> Callable[[int, int], bytes]:
        """(count, position) to bytes of the log file, for a survey."""
        return self._read_at

    def _read_at(self, count: int, position: int) -> bytes:
        return self._files.disk.read(self.file().fd, count, position)

    def index_paths(self) -> list[str]:
        """The index files that have something in them."""
        if not self.size:
            return []
        return [index.path for index in (self.offsets, self.times, self.aborted) if index.written]

    def create_files(self) -> None:
        """So that a segment that nothing was written to yet is found by the next start."""
        disk = self._files.disk
        for suffix in (".log", ".index", ".timeindex"):
            disk.close(disk.open(self.path + suffix))

    def forget_files(self) -> None:
        for suffix in SUFFIXES:
            self._files.forget(self.path + suffix)

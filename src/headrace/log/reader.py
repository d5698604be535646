"""Reading a log: from an offset to a run of whole batches, as bytes or as a slice of a file.

Small reads are copied here and cut at the end of a batch by looking at the headers in memory. Large ones stay in the
page cache, for sendfile, and are cut at a batch that the index knows. Either way the place where the next read will
begin is remembered, so that a sequential reader needs no look-up: reading costs the same however much is stored.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.core.files import OpenFile
from headrace.log.segment import LENGTH_PREFIX_BYTES, Segment

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

COPIED_BYTES_MAX: Final = (
    96 << 10
)  # up to this size a copy is cheaper than sendfile (measured: they meet at 64 to 128 KB)
CURSORS_MAX: Final = 32
WALKED_BATCHES_MAX: Final = 24  # more headers than this are not looked at to find the end of a read

_LENGTH: Final = Struct(">8xi")


class Slice:
    """A run of bytes in a file. The file stays open until `close`."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: OpenFile, position: int, size: int) -> None:
        file.pins += 1
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def close(self) -> None:
        self.file.unpin()


Run = Slice | bytes | memoryview
Cursor = tuple[Segment, int, int]  # segment, position, and near which entry of its index that is


class LogReader:
    __slots__ = ("_cursors", "_log", "upper")

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._cursors: dict[int, Cursor] = {}
        self.upper = 0  # the offset behind the last run that was given, or one above it

    def read(self, offset: int, bytes_max: int, end_offset: int, *, whole_first: bool, copy: bool) -> Run | None:
        """Whole batches from the one that holds `offset` on, below `end_offset`, at most `bytes_max`, from one segment.

        With `whole_first`, one batch is given even if it is larger, so that a reader never gets stuck. With `copy`,
        a small run may be given as bytes. None: there is nothing, or the first batch does not fit.
        """
        log = self._log
        bytes_max = max(bytes_max, 0)
        found = self._cursors.get(offset)
        if found is None or found[0].deleted or found[1] >= found[0].size:
            found = self._find(offset)
            if found is None:
                return None
        segment, position, hint = found
        self.upper = end_offset
        end = segment.size if end_offset >= log.end_offset else self._end_in(segment, end_offset)
        size = end - position
        if size <= bytes_max:
            self._remember(end_offset, segment, end, hint)
        elif copy and bytes_max <= COPIED_BYTES_MAX and end == segment.size:
            data = segment.head(position, bytes_max)
            if bytes_max >= LENGTH_PREFIX_BYTES:
                first_size = LENGTH_PREFIX_BYTES + _LENGTH.unpack_from(data)[0]
            else:
                first_size = self._size_at(segment, position)
            if first_size <= bytes_max <= first_size * WALKED_BATCHES_MAX:
                return self._walk(data, segment, position, hint)
            size = self._cut(segment, position, first_size, bytes_max, hint, whole_first)
        else:
            size = self._cut(segment, position, self._size_at(segment, position), bytes_max, hint, whole_first)
        if size <= 0:
            return None
        if copy and size <= COPIED_BYTES_MAX:
            return segment.head(position, size)
        return Slice(segment.file(), position, size)

    def _size_at(self, segment: Segment, position: int) -> int:
        return LENGTH_PREFIX_BYTES + int(_LENGTH.unpack(segment.head(position, LENGTH_PREFIX_BYTES))[0])

    def _walk(self, data: bytes, segment: Segment, position: int, hint: int) -> memoryview:
        """Cuts what was read behind its last whole batch."""
        at = 0
        size = len(data)
        while at + LENGTH_PREFIX_BYTES <= size:
            stop = at + LENGTH_PREFIX_BYTES + _LENGTH.unpack_from(data, at)[0]
            if stop > size:
                break
            at = stop
        if at + 8 <= size:
            self._remember(int.from_bytes(data[at : at + 8], "big"), segment, position + at, hint)
        return memoryview(data)[:at]

    def _cut(
        self, segment: Segment, position: int, first_size: int, bytes_max: int, hint: int, whole_first: bool
    ) -> int:
        """How many bytes to give: up to the last batch below the limit that the index knows."""
        if first_size > bytes_max:
            if not whole_first:
                return 0
            head = segment.head(position + first_size, 8)
            if len(head) == 8:
                self._remember(int.from_bytes(head, "big"), segment, position + first_size, hint)
            return first_size
        entry = segment.offsets.floor_near(position + bytes_max, hint)
        if entry < 0:
            return bytes_max
        boundary = segment.offsets.at(entry)[1]
        if boundary < position + first_size:
            return bytes_max  # no indexed batch in between: a partial batch at the end is what Kafka gives too
        self._remember(int.from_bytes(segment.head(boundary, 8), "big"), segment, boundary, entry)
        return boundary - position

    def _find(self, offset: int) -> Cursor | None:
        log = self._log
        segments = log.segments
        for at in range(log.segment_of(offset), len(segments)):
            segment = segments[at]
            found = segment.locate(offset, segment.size)
            if found is not None:
                return segment, found[0], segment.offsets.floor(found[0], field=1)
        return None

    def _remember(self, offset: int, segment: Segment, position: int, hint: int) -> None:
        self.upper = offset
        cursors = self._cursors
        if len(cursors) >= CURSORS_MAX and offset not in cursors:
            del cursors[next(iter(cursors))]
        cursors[offset] = (segment, position, hint)

    def _end_in(self, segment: Segment, end_offset: int) -> int:
        """Where readers must stop in a segment, while a flush is under way or a transaction is open."""
        known = self._cursors.get(end_offset)
        if known is not None and known[0] is segment:
            return known[1]
        found = segment.locate(end_offset, segment.size)
        return found[0] if found is not None else segment.size

"""Reading a log: from an offset to a run of whole batches, as bytes or as a slice of a file.

Small reads are copied here and cut at the end of a batch by looking at the headers in memory. Large ones stay in the
page cache, for sendfile, and are cut at a batch that the index knows. Either way the place where the next read will
begin is remembered, so that a sequential reader needs no look-up: reading costs the same however much is stored.

A reader looks at few headers and at no record. What it does look at must make sense, and a batch that is asked for
twice in a row is looked at with its CRC: its reader may be stuck at it. Where something is wrong, `detour` takes over.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.core.errors import PeerError
from headrace.core.file_slice import COPIED_BYTES_MAX, Slice
from headrace.log import detour
from headrace.log.segment import LENGTH_PREFIX_BYTES, AstrayError, Segment

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

CURSORS_MAX: Final = 32
CHAINED_BYTES: Final = 4096  # read at a time to follow headers: one of a large batch, many of small ones
WALKED_BATCHES_MAX: Final = 24  # more headers than this are not looked at to find the end of a read

_LENGTH: Final = Struct(">8xi")
_HEAD: Final = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta
_HEAD_BYTES: Final = 27
_LENGTH_MIN: Final = 49
_MAGIC: Final = 2

Run = Slice | bytes | memoryview
Cursor = tuple[Segment, int, int]  # segment, position, and near which entry of its index that is


class LogReader:
    __slots__ = ("_checked", "_cursors", "_last", "_log", "upper")

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._last = -1  # the offset that was read last,
        self._checked = -1  # and the last one whose batch was checked because it was read twice
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
        if offset == self._last and offset != self._checked:
            self._check(offset, found)
        self._last = offset
        segment, position, hint = found
        self.upper = end_offset
        end = segment.size if end_offset >= log.end_offset else self._end_in(segment, end_offset)
        boundary = True
        if segment.damages:
            damage = detour.first_damage(segment, position)
            if damage is not None and damage.position < end:
                if damage.position <= position:
                    raise detour.refusal(log, segment, damage)
                end, end_offset = damage.position, damage.first_offset
                self.upper = end_offset
                # Where no offset is damaged, only bytes in between, a look-up leads past them.
                boundary = damage.next_offset > end_offset
        size = end - position
        if size <= bytes_max:
            if boundary:
                self._remember(end_offset, segment, end, hint)
        elif copy and bytes_max <= COPIED_BYTES_MAX and end == segment.size:
            data = segment.head(position, bytes_max)
            if bytes_max >= LENGTH_PREFIX_BYTES and len(data) == bytes_max:
                first_size = LENGTH_PREFIX_BYTES + _LENGTH.unpack_from(data)[0]
            else:
                first_size = self._size_at(segment, position)
            if not _LENGTH_MIN < first_size <= size:
                raise self._damaged(segment, offset)
            if first_size <= bytes_max <= first_size * WALKED_BATCHES_MAX and (
                position >= segment.opened_size
                or (segment.chained_from <= position and position + bytes_max <= segment.chained_to)
            ):
                return self._walk(data, segment, position, hint)
            size = self._cut(segment, position, first_size, bytes_max, hint, whole_first)
        else:
            first_size = self._size_at(segment, position)
            if not _LENGTH_MIN < first_size <= size:
                raise self._damaged(segment, offset)
            size = self._cut(segment, position, first_size, bytes_max, hint, whole_first)
        if size <= 0:
            return None
        if position < segment.opened_size and (position < segment.chained_from or position + size > segment.chained_to):
            size = self._chain(segment, position, size, offset)
        if copy and size <= COPIED_BYTES_MAX:
            data = segment.head(position, size)
            if len(data) != size:
                raise self._damaged(segment, offset)  # the file is shorter than it was
            return data
        return Slice(segment.file(), position, size)

    def _size_at(self, segment: Segment, position: int) -> int:
        head = segment.head(position, LENGTH_PREFIX_BYTES)
        return LENGTH_PREFIX_BYTES + int(_LENGTH.unpack(head)[0]) if len(head) == LENGTH_PREFIX_BYTES else -1

    def _walk(self, data: bytes, segment: Segment, position: int, hint: int) -> memoryview:
        """Cuts what was read behind its last whole batch."""
        at = 0
        size = len(data)
        while at + LENGTH_PREFIX_BYTES <= size:
            length = _LENGTH.unpack_from(data, at)[0]
            stop = at + LENGTH_PREFIX_BYTES + length
            if stop > size or length < _LENGTH_MIN:
                break  # the rest does not fit, or is damaged: then the next read begins there, and says so
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
        key, boundary = segment.offsets.at(entry)
        if boundary < position + first_size:
            return bytes_max  # no indexed batch in between: a partial batch at the end is what Kafka gives too
        head = segment.head(boundary, _HEAD_BYTES)
        if len(head) == _HEAD_BYTES and boundary <= position + bytes_max:
            base, length, magic, delta = _HEAD.unpack(head)
            if length >= _LENGTH_MIN and magic == _MAGIC and base + delta <= segment.base_offset + key:
                self._remember(base, segment, boundary, entry)
                return boundary - position
        return bytes_max  # there is no batch where the index leads: the next look-up finds out why

    def _find(self, offset: int) -> Cursor:
        """Where the first batch that ends at or after `offset` is. PeerError where that cannot be told: below the end
        of a log, nothing is no answer."""
        log = self._log
        segments = log.segments
        for at in range(log.segment_of(offset), len(segments)):
            segment = segments[at]
            if not segment.size:
                continue
            try:
                known = bool(segment.damages)
                found = None if known else segment.locate(offset, segment.size)
                if known or (found is not None and not self._leads_on(segment, offset, found)):
                    found = detour.locate(log, at, offset)
            except AstrayError:
                segment.surveyed = False
                found = detour.locate(log, at, offset)
            if found is not None:
                return segment, found[0], segment.offsets.floor(found[0], field=1)
        raise self._missing(offset)

    def _leads_on(self, segment: Segment, offset: int, found: tuple[int, int, int]) -> bool:
        """Whether the next batch begins where this one ends, with the next offset. Where it does not, every batch is
        looked at, once. Compaction leaves gaps."""
        position, base, size = found
        if position >= segment.opened_size or segment.chained_from <= position < segment.chained_to:
            return True  # written by this process, or followed already
        following = position + size
        if following >= segment.size:
            return following == segment.size and (base <= offset or segment.surveyed)
        head = segment.head(position, _HEAD_BYTES) + segment.head(following, _HEAD_BYTES)
        if len(head) < 2 * _HEAD_BYTES:
            return False
        last = base + int(_HEAD.unpack_from(head)[3])
        next_base, length, magic, _ = _HEAD.unpack_from(head, _HEAD_BYTES)
        if length < _LENGTH_MIN or magic != _MAGIC or next_base <= last:
            return False
        if base <= offset and next_base == last + 1:
            return True
        return segment.surveyed or self._log.config.cleanup_compact

    def _chain(self, segment: Segment, position: int, size: int, offset: int) -> int:
        """Follows the headers of what an earlier process wrote, the first time it is read: a damaged base offset would
        lead readers past records. Returns how much of the run is good."""
        end = min(position + size, segment.opened_size)
        known = segment.chained_from <= position <= segment.chained_to
        at = segment.chained_to if known else position
        start = at
        compacted = self._log.config.cleanup_compact
        expected = -1
        block, block_at = b"", at
        while at < end:
            if at - block_at + _HEAD_BYTES > len(block):
                block, block_at = segment.head(at, min(max(end - at, _HEAD_BYTES), CHAINED_BYTES)), at
                if len(block) < _HEAD_BYTES:
                    break
            base, length, magic, delta = _HEAD.unpack_from(block, at - block_at)
            follows = expected < 0 or base == expected or (compacted and base > expected)
            if expected < 0:
                follows = segment.base_offset <= base and (at > position or base <= offset or compacted)
            if length < _LENGTH_MIN or magic != _MAGIC or delta < 0 or not follows:
                break
            expected = base + delta + 1
            at += length + LENGTH_PREFIX_BYTES
        if at < end or (at > segment.size):
            return self._broken(segment, position, size, offset)
        segment.chained_from = segment.chained_from if known else start
        segment.chained_to = at
        return size

    def _broken(self, segment: Segment, position: int, size: int, offset: int) -> int:
        """The headers do not follow each other. Either the segment is damaged, and is given up to the damage; or the
        gaps are known, and it is as it should be."""
        log = self._log
        self._cursors.clear()
        damage = detour.damage_behind(log, segment, position)
        if damage is None:
            segment.chained_from = max((each.end for each in segment.damages), default=0)
            segment.chained_to = segment.opened_size
            return size
        if damage.position <= position:
            raise detour.refusal(log, segment, damage)
        self.upper = damage.first_offset
        return min(size, damage.position - position)

    def _check(self, offset: int, found: Cursor) -> None:
        """Somebody asks for the same batch again: it must be whole, or its reader would never get any further."""
        segment, position, _ = found
        log = self._log
        at = log.segment_of(segment.base_offset)
        if log.segments[at] is not segment:
            return
        base = int.from_bytes(segment.head(position, 8), "big", signed=True)
        first = base if segment.base_offset <= base <= offset else offset
        error = detour.problem_at(log, at, position, first)
        if error is not None:
            self._cursors.clear()
            raise error
        self._checked = offset

    def _damaged(self, segment: Segment, offset: int) -> PeerError:
        """There is no batch where one was expected. The detour knows which offsets that concerns."""
        self._cursors.clear()
        segment.surveyed = False
        log = self._log
        at = log.segment_of(segment.base_offset)
        if log.segments[at] is segment:
            detour.locate(log, at, offset)
        return self._missing(offset)

    def _missing(self, offset: int) -> PeerError:
        """No file has the offset, although it lies below the end."""
        return detour.missing(self._log, offset)

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
        try:
            found = segment.locate(end_offset, segment.size)
        except AstrayError:
            log = self._log
            found = detour.locate(log, log.segment_of(segment.base_offset), end_offset)
        return found[0] if found is not None else segment.size

"""Reads one partition of an internal topic from its start on, as its coordinator does when it takes over.

In slices, with others served in between: so a segment may be compacted away under it, and the place is found again by
the offset. Every batch is checked before its records count. A damaged one ends it all, since what stands behind may
depend on it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from headrace.coordinator.journal import ABORT, COMMIT, JournalRecord
from headrace.core.errors import PeerError, StorageError
from headrace.log import detour
from headrace.log.segment import AstrayError
from headrace.log.transactions import read_marker
from headrace.protocol.batch import CONTROL, CRC_END, HEADER_BYTES, MAGIC, BatchHeader, read_header
from headrace.protocol.records import iter_records

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog
    from headrace.log.segment import Segment

SLICE_BYTES: Final = 32 << 10  # read at once; a larger batch is read whole

Skipped = Callable[[int, Exception], None]  # an offset, and why it makes no sense


class LogJournalReader:
    def __init__(self, log: PartitionLog, skipped: Skipped) -> None:
        self._log = log
        self._skipped = skipped
        self._offset = log.start_offset  # of the next record
        self._segment: Segment | None = None
        self._position = 0  # of the next batch in it
        self._check_known_damage()

    def _check_known_damage(self) -> None:
        """What the start found, and may have cut: what was decided there is not known."""
        log = self._log
        for entry in log.directory.damage.entries:
            if entry.log == log.name and entry.path != log.path:
                raise StorageError(f"{entry.text}; {self._remedy()}")

    def _remedy(self) -> str:
        log = self._log
        return (
            f"stop the broker, and restore {log.path} from a backup or run `headrace log repair {log.directory.path}`,"
            " which says what is lost"
        )

    def take(self) -> Sequence[JournalRecord] | None:
        """The records of the next slice; None at the end of what is written."""
        segment = self._find_segment()
        return None if segment is None else self._take_from(segment)

    def _find_segment(self) -> Segment | None:
        """The one to read on in; None at the end."""
        segments, segment = self._log.segments, self._segment
        if segment is None or segment not in segments:
            segment = segments[self._log.segment_of(self._offset)]
            self._segment, self._position = segment, self._locate(segment)
        while self._position >= segment.size:
            at = segments.index(segment) + 1
            if at == len(segments):
                return None
            segment = segments[at]
            self._segment, self._position = segment, 0
        return segment

    def _locate(self, segment: Segment) -> int:
        if self._offset <= segment.base_offset:
            return 0
        try:
            found = segment.locate(self._offset, segment.size)
        except AstrayError as error:
            raise StorageError(f"{error}; {self._remedy()}") from error
        return segment.size if found is None else found[0]

    def _take_from(self, segment: Segment) -> list[JournalRecord]:
        """Whole batches, as many as a slice holds; at least one."""
        found: list[JournalRecord] = []
        size = min(SLICE_BYTES, segment.size - self._position)
        data = segment.head(self._position, size)
        at = 0
        while at + HEADER_BYTES <= len(data):
            header = read_header(data, at)
            if at + header.size > len(data):
                break
            self._take_batch(segment, header, data[at : at + header.size], found)
            at += header.size
        if at == 0:
            self._take_large(segment, data, found)
        return found

    def _take_large(self, segment: Segment, data: bytes, found: list[JournalRecord]) -> None:
        """A batch that is no part of a slice: longer than one, or none at all."""
        left = segment.size - self._position
        if len(data) < HEADER_BYTES or not HEADER_BYTES <= (size := read_header(data).size) <= left:
            raise self._damaged(segment)
        batch = segment.head(self._position, size)
        self._take_batch(segment, read_header(data), batch, found)

    def _take_batch(self, segment: Segment, header: BatchHeader, batch: bytes, found: list[JournalRecord]) -> None:
        if header.magic != MAGIC or header.size < HEADER_BYTES or crc32c(batch[CRC_END:]) != header.crc:
            raise self._damaged(segment)
        if header.last_offset >= self._offset:
            found += self._records(header, batch)
            self._offset = header.last_offset + 1
        self._position += header.size

    def _damaged(self, segment: Segment) -> StorageError:
        detour.survey_now(self._log, segment)  # so that metrics and /health know, too
        return StorageError(
            f"{segment.log_path}: no whole batch with the right checksum at byte {self._position} of {segment.size};"
            f" {self._remedy()}"
        )

    def _records(self, header: BatchHeader, batch: bytes) -> list[JournalRecord]:
        producer = (header.producer_id, header.producer_epoch)
        at = header.base_offset
        found: list[JournalRecord] = []
        try:
            if header.attributes & CONTROL:
                marker = read_marker(batch, *producer)
                if marker is not None:
                    kind = COMMIT if marker.commit else ABORT
                    found.append(JournalRecord(b"", None, at, header.max_timestamp, *producer, True, kind))
                return found
            for record in iter_records(batch):
                at = record.offset
                if record.key is None:
                    self._skipped(at, ValueError("it has no key"))
                else:
                    found.append(JournalRecord(record.key, record.value, at, record.timestamp, *producer))
                at += 1
        except (PeerError, ValueError, struct.error) as error:  # a whole batch whose records make no sense
            self._skipped(at, error)
        return found

"""From a timestamp to an offset, by the time index, then the batch headers, then the records of one batch."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.core.errors import PeerError
from headrace.log import detour
from headrace.log.segment import AstrayError
from headrace.protocol.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header
from headrace.protocol.error_codes import CORRUPT_MESSAGE
from headrace.protocol.records import first_offset_at_or_after, max_timestamp_record

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog
    from headrace.log.segment import Segment


def first_at_or_after(log: "PartitionLog", timestamp_ms: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first visible record whose timestamp is at least `timestamp_ms`."""
    for segment in log.segments:
        if segment.size == 0 or segment.max_timestamp < timestamp_ms:
            continue
        for header, position in _headers(log, segment, _start(segment, timestamp_ms)):
            if header.base_offset >= log.high_watermark:
                return None
            if header.max_timestamp < timestamp_ms or header.last_offset < log.start_offset:
                continue
            batch = log.read_batch_at(segment, position, header.size)
            try:
                found = first_offset_at_or_after(batch, timestamp_ms, offset_min=log.start_offset)
            except PeerError as error:
                raise PeerError(CORRUPT_MESSAGE, f"{log.name}: {segment.log_path}, byte {position}: {error}") from error
            if found is not None:
                return found
    return None


def latest(log: "PartitionLog") -> tuple[int, int] | None:
    """(offset, timestamp) of the first record that has the largest timestamp."""
    best: Segment | None = None
    for segment in log.segments:
        if segment.size and (best is None or segment.max_timestamp > best.max_timestamp):
            best = segment
    if best is None or best.max_timestamp < 0:
        return None
    at = log.segment_of(best.base_offset)
    try:
        found = best.locate(best.max_timestamp_offset, best.size)
    except AstrayError:
        found = detour.locate(log, at, best.max_timestamp_offset)
    if found is None:
        return None
    if found[1] >= log.high_watermark:
        return None  # written, but not to be seen before it is flushed
    return max_timestamp_record(log.read_batch_at(best, found[0], found[2]))


def _start(segment: "Segment", timestamp_ms: int) -> int:
    """A position at or before the first batch that can hold the timestamp: all before it are older."""
    entry = segment.times.floor(timestamp_ms - 1)
    if entry < 0:
        return 0
    marked, relative = segment.times.at(entry)
    try:
        found = segment.locate(segment.base_offset + relative, segment.size)
    except AstrayError:
        return 0
    if found is None:
        return 0
    head = segment.head(found[0], HEADER_BYTES)
    # An entry that is not that of its batch leads nowhere: all of the segment is looked at instead.
    return found[0] if len(head) == HEADER_BYTES and read_header(head).max_timestamp == marked else 0


def _headers(log: "PartitionLog", segment: "Segment", position: int) -> Iterator[tuple[BatchHeader, int]]:
    """The batches' headers from `position` on. PeerError at one that is damaged: what was asked for may lie there."""
    while position < segment.size:
        head = segment.head(position, HEADER_BYTES)
        header = read_header(head) if len(head) == HEADER_BYTES else None
        if header is None or header.magic != MAGIC or not HEADER_BYTES <= header.size <= segment.size - position:
            raise detour.damaged_at(log, segment, position)
        yield header, position
        position += header.size

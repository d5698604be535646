"""From a timestamp to an offset, by the time index, then the batch headers, then the records of one batch."""

from typing import TYPE_CHECKING

from headrace.log.recovery import segment_headers
from headrace.protocol.records import first_offset_at_or_after, max_timestamp_record

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog
    from headrace.log.segment import Segment


def first_at_or_after(log: "PartitionLog", timestamp_ms: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first visible record whose timestamp is at least `timestamp_ms`."""
    for segment in log.segments:
        if segment.size == 0 or segment.max_timestamp < timestamp_ms:
            continue
        for header, position in segment_headers(segment, _start(segment, timestamp_ms)):
            if header.base_offset >= log.high_watermark:
                return None
            if header.max_timestamp < timestamp_ms or header.last_offset < log.start_offset:
                continue
            batch = log.read_batch_at(segment, position, header.size)
            found = first_offset_at_or_after(batch, timestamp_ms, offset_min=log.start_offset)
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
    found = best.locate(best.max_timestamp_offset, best.size)
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
    found = segment.locate(segment.base_offset + segment.times.at(entry)[1], segment.size)
    return found[0] if found is not None else 0

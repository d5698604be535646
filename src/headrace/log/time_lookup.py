"""From a timestamp to an offset, by the time index, then the batch headers, then the records of one batch."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.core.errors import PeerError
from headrace.log import detour
from headrace.log.segment import AstrayError
from headrace.log.survey import Damage
from headrace.protocol.batch import HEADER_BYTES, MAGIC, BatchHeader, read_header
from headrace.protocol.error_codes import CORRUPT_MESSAGE
from headrace.protocol.records import first_offset_at_or_after, max_timestamp_record

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog
    from headrace.log.segment import Segment


def first_at_or_after(log: "PartitionLog", timestamp_ms: int) -> tuple[int, int] | None:
    """(offset, timestamp) of the first visible record whose timestamp is at least `timestamp_ms`. PeerError where it
    may lie in what is damaged."""
    passed: PeerError | None = None  # damage behind the last batch that is too old
    for segment in log.segments:
        if segment.size == 0 or (segment.max_timestamp < timestamp_ms and segment.timestamp_is_certain):
            continue
        for found, position in _batches(log, segment, _start(log, segment, timestamp_ms)):
            if isinstance(found, Damage):
                if found.next_offset > max(found.first_offset, log.start_offset):
                    passed = passed or detour.refusal(log, segment, found)
                continue
            if found.base_offset >= log.high_watermark:
                return None
            if found.max_timestamp < timestamp_ms or found.last_offset < log.start_offset:
                passed = None
                continue
            if passed is not None and found.base_timestamp >= timestamp_ms:
                raise passed
            batch = log.read_batch_at(segment, position, found.size)
            try:
                record = first_offset_at_or_after(batch, timestamp_ms, offset_min=log.start_offset)
            except PeerError as error:
                raise PeerError(CORRUPT_MESSAGE, f"{log.name}: {segment.log_path}, byte {position}: {error}") from error
            if record is not None:
                return record
    if passed is not None:
        raise passed
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


def _start(log: "PartitionLog", segment: "Segment", timestamp_ms: int) -> int:
    """A position at or before the first batch that can hold the timestamp: all before it are older."""
    entry = segment.times.floor(timestamp_ms - 1)
    if entry < 0:
        return 0
    marked, relative = segment.times.at(entry)
    offset = segment.base_offset + relative
    try:
        if segment.surveyed and segment.damages:
            found = detour.locate(log, log.segment_of(segment.base_offset), offset)
        else:
            found = segment.locate(offset, segment.size)
    except (AstrayError, PeerError):
        return 0
    if found is None:
        return 0
    head = segment.head(found[0], HEADER_BYTES)
    # An entry that is not that of its batch leads nowhere: all of the segment is looked at instead.
    return found[0] if len(head) == HEADER_BYTES and read_header(head).max_timestamp == marked else 0


def _batches(log: "PartitionLog", segment: "Segment", position: int) -> Iterator[tuple[BatchHeader | Damage, int]]:
    """The batches' headers from `position` on, and the damage between them. PeerError while that is looked for."""
    while position < segment.size:
        damage = detour.first_damage(segment, position)
        if damage is not None and damage.position <= position:
            yield damage, position
            position = max(damage.end, position + 1)
            continue
        head = segment.head(position, HEADER_BYTES)
        header = read_header(head) if len(head) == HEADER_BYTES else None
        if header is None or header.magic != MAGIC or not HEADER_BYTES <= header.size <= segment.size - position:
            refused = detour.damaged_at(log, segment, position)
            damage = detour.first_damage(segment, position)
            if damage is None or damage.position > position:
                raise refused
            continue
        yield header, position
        position += header.size

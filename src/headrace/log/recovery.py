"""Reads the tail of a log after a crash, or what is doubtful of it, and rebuilds what belongs to it.

Everything below the recovery point was flushed and is not read again, unless somebody doubts it. From there on each
batch is checked, whole and with its CRC, and the log is cut at the first that fails, as in Kafka. What is
damaged below the recovery point is never cut away: it stays, is said, and is refused to readers. Where the log ends
before its recovery point, the missing offsets are filled with an empty batch, so that none is given twice. The indexes
and the producers' state are made again for what was read.
"""

import logging
import os
from dataclasses import dataclass

from headrace.core.files import OpenFiles
from headrace.log.clean_check import Doubts
from headrace.log.index_builder import rebuild
from headrace.log.producer_replay import record_batch, replay_producers
from headrace.log.producer_state import ProducerState
from headrace.log.record_faults import RecordFaults
from headrace.log.recovered import RELATIVE_OFFSET_MAX, Recovered, cut, drop, fill, rebuild_indexes, spill
from headrace.log.scanning import last_end_offset, scan
from headrace.log.segment import UNINDEXED_BYTES_MAX, AstrayError, Segment
from headrace.log.survey import UNKNOWN, Damage, Surveyor, is_gap
from headrace.protocol.batch import HEADER_BYTES, BatchHeader, read_header

logger = logging.getLogger(__name__)


def read_tail(
    result: Recovered, files: OpenFiles, recovery_point: int, clean_offset: int, doubts: Doubts, *, edges: bool
) -> None:
    """Reads from the recovery point, or from the first doubtful segment, to the end; cuts what is torn, rebuilds what
    was only in memory."""
    result.reread = True
    segments = result.segments
    known = max(result.known_end, segments[0].base_offset)
    if edges:
        doubts.segments |= {each.base_offset for each in segments[:-1] if _is_doubtful(each)}
    read_from = max(min([recovery_point, *doubts.segments]), segments[0].base_offset)
    first = max(i for i, s in enumerate(segments) if s.base_offset <= read_from or i == 0)
    _check_first(result)
    if edges:
        for at in range(first):
            _check_edge(result, at, clean_offset)
    for segment in segments[:first]:
        if segment.base_offset in doubts.indexes:
            rebuild_indexes(result, segment)
    result.snapshots.forget_from(read_from)  # a loss of power may have torn those above it; they are taken again
    snapshot_offset, state = result.snapshots.load(read_from)
    replay_producers(segments, state, snapshot_offset, read_from)
    for segment in segments[first:]:
        segment.offsets.drop_zeros()
        segment.times.drop_zeros()
    end_offset = segments[first].base_offset
    for at in range(first, len(segments)):
        segment = segments[at]
        if at > first and not end_offset <= segment.base_offset <= max(end_offset, clean_offset):
            if not end_offset < segment.base_offset <= known:
                drop(result, segments[at:], files)
                break
            why = "no segment file holds these offsets"
            result.book.lost(result.name, segment.log_path, end_offset, segment.base_offset, why)
        following = segments[at + 1].base_offset if at + 1 < len(segments) else clean_offset
        whole = segment.base_offset in doubts.segments | doubts.indexes
        end_offset, whole = _recover_segment(
            result,
            segment,
            files,
            _Reading(
                0 if whole else _trusted_position(segment, read_from),
                read_from,
                known,
                following,
                following if at + 1 < len(segments) else segment.base_offset + RELATIVE_OFFSET_MAX,
            ),
            state,
            sealed=at + 1 < len(segments) and segments[at + 1].base_offset <= known,
        )
        if not whole:
            drop(result, segments[at + 1 :], files)
            break
    result.segments = [s for s in segments if not s.deleted]
    result.end_offset = end_offset
    if end_offset < result.known_end:
        last = result.segments[-1]
        why = (
            f"the log ends at {end_offset}, but all below {result.known_end} was flushed; it goes on from there, and"
            " what was written after the last flush, if anything, is lost as well"
        )
        result.book.lost(result.name, last.log_path, end_offset, result.known_end, why)
        fill(result, files, result.known_end)
    result.epochs.truncate_from_end(result.end_offset)
    result.snapshots.use(state)


def _is_doubtful(segment: Segment) -> bool:
    """Whether what is kept beside a sealed segment is gone or makes no sense: then all of it is read again, since
    aborted transactions are found by following producers only."""
    if segment.size > UNINDEXED_BYTES_MAX and not os.path.exists(segment.offsets.path):
        logger.warning("all of %s is read again: %s is missing", segment.log_path, segment.offsets.path)
        return True
    wrong = segment.aborted.problem()
    if wrong:
        logger.warning("all of %s is read again: %s", segment.log_path, wrong)
    return bool(wrong)


def _check_first(result: Recovered) -> None:
    """The oldest leader epoch begins where the log does; where it begins before, the first files are gone."""
    entries, base = result.epochs.entries, result.segments[0].base_offset
    if entries and entries[0][1] < base and result.start_offset <= base:
        why = "leader-epoch-checkpoint says that the log begins before its first segment file"
        result.book.lost(result.name, result.segments[0].log_path, entries[0][1], base, why)
        result.epochs.truncate_from_start(base)


def _check_edge(result: Recovered, at: int, clean_offset: int) -> None:
    """A sealed segment that is not read must at least end where the next one begins."""
    segment, end_offset = result.segments[at], result.segments[at + 1].base_offset
    found = last_end_offset(segment)
    if found == end_offset or (found != UNKNOWN and end_offset <= clean_offset):
        return
    segment.damages, segment.surveyed = [], True
    expected = segment.base_offset
    if segment.size:
        segment.damages = rebuild(segment, end_offset, result.index_interval_bytes)
        result.bytes_read += segment.size
        surveyor = Surveyor(segment.reading(), segment.size, segment.base_offset, end_offset)
        for _ in surveyor.run():
            pass
        expected = surveyor.offset
        logger.warning("%s: does not end at offset %d; its indexes were rebuilt", segment.log_path, end_offset)
    for damage in segment.damages:
        result.book.unreadable(result.name, segment.log_path, damage)
    if expected < end_offset and end_offset > clean_offset:
        why = f"the file ends at offset {expected}, and the next one begins at {end_offset}"
        result.book.lost(result.name, segment.log_path, expected, end_offset, why)


@dataclass(slots=True, frozen=True)
class _Reading:
    """How one segment is read."""

    position: int  # where to begin
    read_from: int  # what lies below this offset is in the indexes and in the producers' state already
    known: int  # what lies below this offset was flushed
    following: int  # where the next segment begins, or where the log was compacted to
    limit: int  # all offsets of the segment lie below it


def _recover_segment(
    result: Recovered, segment: Segment, files: OpenFiles, reading: _Reading, state: ProducerState, *, sealed: bool
) -> tuple[int, bool]:
    """The offset after the last whole batch, and whether the segment was whole to its end. `sealed`: what follows it
    was flushed, so it is not cut."""
    on_disk = segment.size
    position, read_from = reading.position, reading.read_from
    offset = max(segment.base_offset, read_from) if position else segment.base_offset
    if on_disk or not segment.index_paths():
        segment.forget_indexed(position, offset, max(offset, read_from))
    if not on_disk:
        segment.drop_indexes()
    result.bytes_read += on_disk - position
    damages: list[Damage] = []
    faults = RecordFaults(segment.log_path)
    is_cut = False
    while True:
        for header, at in scan(segment, files, position, on_disk, verify=True, faults=faults):
            if at != position or not _continues(segment, header, at, offset, reading):
                break
            segment.appended(header.size, header.last_offset, header.max_timestamp, result.index_interval_bytes)
            if segment.first_timestamp < 0:
                segment.first_timestamp = header.max_timestamp
            if header.producer_id >= 0 and header.last_offset >= read_from:
                record_batch(state, header, segment, at)
            position += header.size
            offset = header.last_offset + 1
        if position >= on_disk:
            break
        damage = _damage_at(segment, position, on_disk, offset, reading.following if sealed else UNKNOWN)
        if damage.next_offset == UNKNOWN and result.keeps_end:
            damage = damage._replace(next_offset=reading.known)
        if damage.first_offset >= reading.known or (damage.at_end and not sealed and not result.keeps_end):
            is_cut = cut(result, segment, files, damage, on_disk, reading.known)
            if is_cut:
                break
            if damage.next_offset == UNKNOWN:
                damage = damage._replace(next_offset=max(reading.known, damage.first_offset))
        damages.append(damage)
        result.book.unreadable(result.name, segment.log_path, damage)
        segment.skip(damage.end - position)
        position, offset = damage.end, max(offset, damage.next_offset)
    result.poison_batches += faults.end()
    segment.reserved = segment.size
    segment.damages, segment.surveyed = damages, not reading.position
    spill(segment)
    return offset, not is_cut


def _damage_at(segment: Segment, position: int, size: int, offset: int, end_offset: int) -> Damage:
    for found in Surveyor(segment.reading(), size, segment.base_offset, end_offset).run(position, offset):
        if isinstance(found, Damage):
            return found
        header, _ = found
        end = position + header.size  # the last batch, behind a gap that nothing explains
        why = f"base offset {header.base_offset}, expected {offset}"
        return Damage(position, end, offset, end_offset, why, at_end=end == size)
    return Damage(position, size, offset, end_offset, "there is nothing to read", at_end=True)


def _continues(segment: Segment, header: BatchHeader, at: int, offset: int, reading: _Reading) -> bool:
    """Whether a batch follows what was read before it; otherwise its base offset, which lies outside the CRC, is
    damaged."""
    if header.base_offset == offset:
        return header.last_offset_delta >= 0
    head = segment.head(at + header.size, HEADER_BYTES)
    return is_gap(header, offset, head, reading.limit, reading.following)


def _trusted_position(segment: Segment, recovery_point: int) -> int:
    """Where the batch at the recovery point begins, if the segment's index leads there; 0 otherwise."""
    if recovery_point <= segment.base_offset:
        return 0
    try:
        found = segment.locate(recovery_point - 1, segment.size)
    except AstrayError as error:
        logger.warning("all of %s is read again: %s", segment.log_path, error)
        return 0
    if found is None:
        return 0
    position, base_offset, size = found
    if base_offset == recovery_point:
        return position  # compaction left nothing below it
    end = position + size
    if read_header(segment.head(position, HEADER_BYTES)).last_offset != recovery_point - 1:
        return 0
    return end if position + HEADER_BYTES <= end <= segment.size else 0  # a damaged length leads nowhere

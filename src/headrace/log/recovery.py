"""Reads the tail of a log after a crash, or what is doubtful of it, and rebuilds what belongs to it.

Everything below the recovery point was flushed and is not read again, unless somebody doubts it. From there on each
batch is checked, whole and with its CRC, and the log is cut at the first that fails, as in Kafka. What is
damaged below the recovery point is never cut away: it stays, is said, and is refused to readers. Where the log ends
before its recovery point, the missing offsets are filled with an empty batch, so that none is given twice. The indexes
and the producers' state are made again for what was read.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from crc32c import crc32c

from headrace.core.files import PASSING_ERRORS, Disk, OpenFiles
from headrace.log.clean_check import Doubts
from headrace.log.damage import DamageBook
from headrace.log.index_builder import rebuild
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.producer_state import ProducerState
from headrace.log.record_faults import RecordFaults
from headrace.log.segment import OFFSET_MAX, SUFFIXES, UNINDEXED_BYTES_MAX, AstrayError, Segment
from headrace.log.snapshots import Snapshots
from headrace.log.survey import UNKNOWN, Damage, Surveyor, filler, is_gap
from headrace.log.transactions import Aborted, read_marker
from headrace.protocol.batch import CONTROL, CRC_END, HEADER_BYTES, MAGIC, TRANSACTIONAL, BatchHeader, read_header

READ_BYTES = 1 << 20
BATCH_BYTES_MAX = 1 << 30
RELATIVE_OFFSET_MAX = 1 << 31
DELETED_SUFFIX = ".deleted"
DAMAGED_SUFFIX = ".damaged"  # set aside, and never removed by us

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Recovered:
    segments: list[Segment]
    end_offset: int
    start_offset: int
    epochs: LeaderEpochs
    snapshots: Snapshots
    book: DamageBook = field(default_factory=DamageBook)
    name: str = ""
    index_interval_bytes: int = 4096
    known_end: int = 0  # below it everything was flushed
    keeps_end: bool = False  # a damaged end below it is kept as well: whoever reads the log must know of it
    bytes_read: int = 0
    reread: bool = False  # what belongs to the log was made again, and must be kept at the next close
    bytes_cut: int = 0
    poison_batches: int = 0  # whole, but with records that make no sense


def set_aside(disk: Disk, path: str) -> str:
    """Another name for a damaged file, which nobody reads or removes any more."""
    aside = aside_name(path)
    disk.rename(path, aside)
    return aside


def aside_name(path: str) -> str:
    """A name beside a file that is not taken yet."""
    aside, count = path + DAMAGED_SUFFIX, 1
    while os.path.exists(aside):
        aside, count = f"{path}.{count}{DAMAGED_SUFFIX}", count + 1
    return aside


def ends_at(segment: Segment, end_offset: int) -> bool:
    """Whether the last batch of a segment ends where the log was closed or the next segment begins, and the file with
    it. Only headers are read, from the last index entry on."""
    return _end_offset(segment) == end_offset


def _end_offset(segment: Segment) -> int:
    """The offset behind the last batch; UNKNOWN where the headers do not lead to the end of the file."""
    if not segment.size:
        return segment.base_offset
    last = segment.offsets.last()
    position, behind = (last[1], segment.base_offset + last[0]) if last is not None else (0, OFFSET_MAX)
    end_offset = UNKNOWN
    while 0 <= position < segment.size:
        head = segment.head(position, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return UNKNOWN
        header = read_header(head)
        if header.magic != MAGIC or header.size < HEADER_BYTES or not end_offset - 1 < header.last_offset <= behind:
            return UNKNOWN
        end_offset, behind = header.last_offset + 1, OFFSET_MAX
        position += header.size
    return end_offset if position == segment.size else UNKNOWN


def rebuild_indexes(result: Recovered, segment: Segment) -> None:
    if not segment.size:
        segment.drop_indexes()
        return
    at = result.segments.index(segment)
    end_offset = result.segments[at + 1].base_offset if at + 1 < len(result.segments) else result.known_end
    segment.damages = rebuild(segment, end_offset, result.index_interval_bytes)
    segment.surveyed = True
    result.bytes_read += segment.size
    logger.warning("%s: its indexes were rebuilt", segment.log_path)
    for damage in segment.damages:
        result.book.unreadable(result.name, segment.log_path, damage)


def fill(result: Recovered, files: OpenFiles, end_offset: int) -> None:
    """Goes on at `end_offset`, with an empty batch in between: an offset that was given is not given again."""
    segment = result.segments[-1]
    following = Segment(os.path.dirname(segment.path), end_offset, files, segment.created_ms)
    try:
        if end_offset - 1 - segment.base_offset >= RELATIVE_OFFSET_MAX:
            following.create_files()
            result.segments.append(following)
        else:
            _fill_segment(result, segment, files.disk, end_offset)
    except OSError as error:
        if error.errno not in PASSING_ERRORS:
            raise
        logger.warning("%s: no room for an empty batch behind its end: %s", segment.log_path, error.strerror)
        files.disk.truncate(segment.file().fd, segment.size)
        result.segments.append(following)  # its files come with the first record
    result.end_offset = end_offset


def _fill_segment(result: Recovered, segment: Segment, disk: Disk, end_offset: int) -> None:
    data = filler(result.end_offset, end_offset, result.epochs.latest or 0)
    fd = segment.file().fd
    disk.write(fd, [data], segment.size)
    disk.sync(fd)
    for at in range(0, len(data), HEADER_BYTES):
        header = read_header(data, at)
        segment.appended(header.size, header.last_offset, -1, result.index_interval_bytes)
    segment.reserved = segment.size
    _spill(segment)


def _spill(segment: Segment) -> None:
    try:
        segment.spill()
    except OSError as error:
        if error.errno not in PASSING_ERRORS:
            raise
        logger.warning("%s: its indexes stay in memory: %s", segment.log_path, error.strerror)


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
    result.snapshots.forget_from(read_from)  # a loss of power may have torn those above it; they are taken anew
    snapshot_offset, state = result.snapshots.load(read_from)
    _replay_producers(segments, state, snapshot_offset, read_from)
    for segment in segments[first:]:
        segment.offsets.drop_zeros()
        segment.times.drop_zeros()
    end_offset = segments[first].base_offset
    for at in range(first, len(segments)):
        segment = segments[at]
        if at > first and not end_offset <= segment.base_offset <= max(end_offset, clean_offset):
            if not end_offset < segment.base_offset <= known:
                _drop(result, segments[at:], files)
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
            _drop(result, segments[at + 1 :], files)
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
    found = _end_offset(segment)
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
        _forget_from(segment, position, offset, read_from)
    if not on_disk:
        segment.drop_indexes()
    result.bytes_read += on_disk - position
    damages: list[Damage] = []
    faults = RecordFaults(segment.log_path)
    cut = False
    while True:
        for header, at in scan(segment, files, position, on_disk, verify=True, faults=faults):
            if at != position or not _continues(segment, header, at, offset, reading):
                break
            segment.appended(header.size, header.last_offset, header.max_timestamp, result.index_interval_bytes)
            if segment.first_timestamp < 0:
                segment.first_timestamp = header.max_timestamp
            if header.producer_id >= 0 and header.last_offset >= read_from:
                _record(state, header, segment, at)
            position += header.size
            offset = header.last_offset + 1
        if position >= on_disk:
            break
        damage = _damage_at(segment, position, on_disk, offset, reading.following if sealed else UNKNOWN)
        if damage.next_offset == UNKNOWN and result.keeps_end:
            damage = damage._replace(next_offset=reading.known)
        if damage.first_offset >= reading.known or (damage.at_end and not sealed and not result.keeps_end):
            cut = _cut(result, segment, files, damage, on_disk, reading.known)
            if cut:
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
    _spill(segment)
    return offset, not cut


def _damage_at(segment: Segment, position: int, size: int, offset: int, end_offset: int) -> Damage:
    for found in Surveyor(segment.reading(), size, segment.base_offset, end_offset).run(position, offset):
        if isinstance(found, Damage):
            return found
        header, _ = found
        end = position + header.size  # the last batch, behind a gap that nothing explains
        why = f"base offset {header.base_offset}, expected {offset}"
        return Damage(position, end, offset, end_offset, why, at_end=end == size)
    return Damage(position, size, offset, end_offset, "there is nothing to read", at_end=True)


def _cut(result: Recovered, segment: Segment, files: OpenFiles, damage: Damage, on_disk: int, known: int) -> bool:
    """Takes the torn end away. What may be more than torn is kept in a file beside the log: whole batches behind it,
    and what was flushed. False where there is no room for that: then it must stay."""
    disk, position = files.disk, damage.position
    if not damage.at_end or damage.first_offset < known:
        try:
            aside = _keep_end(segment, disk, position, on_disk)
        except OSError as error:
            if error.errno not in PASSING_ERRORS:
                raise
            logger.warning("%s: not cut at byte %d: %s", segment.log_path, position, error.strerror)
            return False
        last = max(damage.next_offset, known)
        if not damage.at_end:
            rest = Surveyor(segment.reading(), on_disk, segment.base_offset).run(damage.end, damage.next_offset)
            last = max([last, *(found[0].last_offset + 1 for found in rest if not isinstance(found, Damage))])
        why = f"cut at byte {position} of {on_disk}: {damage.why}; what was cut is kept in {aside}"
        result.book.lost(result.name, segment.log_path, damage.first_offset, last, why)
    result.bytes_cut += on_disk - position
    disk.truncate(segment.file().fd, position)
    logger.warning(
        "%s: cut at byte %d of %d: the rest is torn (%s); the log ends at offset %d",
        segment.log_path, position, on_disk, damage.why, damage.first_offset,
    )  # fmt: skip
    return True


def _keep_end(segment: Segment, disk: Disk, position: int, end: int) -> str:
    """A copy of the bytes [position, end) of the log file, on the disk for certain."""
    aside = aside_name(f"{segment.log_path}.{position}")
    copy = disk.open(aside)
    try:
        for at in range(position, end, READ_BYTES):
            disk.write(copy, [disk.read(segment.file().fd, min(READ_BYTES, end - at), at)], at - position)
        disk.sync(copy)
    except OSError:
        disk.unlink(aside)
        raise
    finally:
        disk.close(copy)
    disk.sync_directory(os.path.dirname(aside))
    return aside


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


def _forget_from(segment: Segment, position: int, offset: int, recovery_point: int) -> None:
    """Index entries for what lies at or above `position` are made again."""
    offsets, times = segment.offsets, segment.times
    kept = offsets.floor(position - 1, field=1) + 1 if position else 0
    offsets.truncate_entries(kept)
    times.truncate_entries(times.floor(offset - 1 - segment.base_offset, field=1) + 1 if position else 0)
    if segment.aborted.exists():
        segment.aborted.truncate(max(offset, recovery_point))
    segment.rewind(position, position - offsets.at(kept - 1)[1] if kept else position)


def _replay_producers(segments: list[Segment], state: ProducerState, start: int, end: int) -> None:
    """Headers between the snapshot and the recovery point, for what producers did there."""
    if start >= end:
        return
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is not None and following.base_offset <= start:
            continue
        if segment.base_offset >= end:
            break
        try:
            found = segment.locate(start, segment.size)
            begin = found[0] if found else segment.size
        except AstrayError:
            begin = 0
        for header, position in segment_headers(segment, begin):
            if header.base_offset >= end:
                break
            if header.producer_id >= 0 and header.base_offset >= start:
                _record(state, header, segment, position, known=True)


def _record(state: ProducerState, header: BatchHeader, segment: Segment, position: int, *, known: bool = False) -> None:
    """What a batch means for its producer. `known`: it lies below the recovery point, so the index has it already."""
    if header.attributes & CONTROL:
        marker = read_marker(segment.head(position, header.size), header.producer_id, header.producer_epoch)
        if marker is not None:
            entry = state.get(marker.producer_id)
            if not known and not marker.commit and entry is not None and entry.txn_first_offset >= 0:
                others = {pid: first for pid, first in state.open_transactions().items() if pid != marker.producer_id}
                stable = min(others.values(), default=header.last_offset + 1)
                segment.aborted.append(Aborted(marker.producer_id, entry.txn_first_offset, header.last_offset, stable))
            state.end_transaction(*marker[:3], header.max_timestamp)
        return
    sequence = header.base_sequence
    state.record(
        header.producer_id,
        header.producer_epoch,
        sequence,
        (sequence + header.last_offset_delta) & 0x7FFFFFFF if sequence >= 0 else -1,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        bool(header.attributes & TRANSACTIONAL),
    )


def segment_headers(segment: Segment, position: int) -> Iterator[tuple[BatchHeader, int]]:
    """The batches' headers from `position` on, trusted as they are, up to one that cannot be a batch."""
    while position + HEADER_BYTES <= segment.size:
        header = read_header(segment.head(position, HEADER_BYTES))
        if header.size < HEADER_BYTES:
            logger.warning("%s: damaged at byte %d: no batch has %d bytes", segment.log_path, position, header.size)
            return
        yield header, position
        position += header.size


def scan(
    segment: Segment, files: OpenFiles, position: int, end: int, *, verify: bool, faults: RecordFaults | None = None
) -> Iterator[tuple[BatchHeader, int]]:
    """Whole batches from `position` to `end`, up to the first that is torn or, if asked, fails its CRC.

    `faults` looks at the records of each, too.
    """
    fd = segment.file().fd
    read = files.disk.read
    window = memoryview(b"")
    at = position  # of the window's first byte
    while position + HEADER_BYTES <= end:
        local = position - at
        if local + HEADER_BYTES > len(window):
            window, at, local = memoryview(read(fd, READ_BYTES, position)), position, 0
            if len(window) < HEADER_BYTES:
                return
        header = read_header(window, local)
        size = header.size
        if header.magic != MAGIC or not HEADER_BYTES <= size <= min(BATCH_BYTES_MAX, end - position):
            return
        if verify:
            if local + size > len(window):
                window, at, local = memoryview(read(fd, max(READ_BYTES, size), position)), position, 0
                if len(window) < size:
                    return
            if crc32c(window[local + CRC_END : local + size]) != header.crc:
                return
            if faults is not None:
                faults.look(window[local : local + size], header, position)
        yield header, position
        position += size


def _drop(result: Recovered, segments: list[Segment], files: OpenFiles) -> None:
    for segment in segments:
        result.bytes_cut += segment.size
        segment.deleted = True
        segment.forget_files()
        if segment.size:
            aside = set_aside(files.disk, segment.log_path)
            logger.warning("%s: lies beyond the torn end of the log: set aside as %s", segment.log_path, aside)
        for suffix in SUFFIXES:
            files.disk.unlink(segment.path + suffix)

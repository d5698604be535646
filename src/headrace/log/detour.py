"""What a reader does where the usual way, by index and headers, leads nowhere: it looks at every batch of the segment.

The survey tells a damaged index from damaged batches. The index is made again; damaged batches are noted in the segment
and in the directory's book, and from then on whoever reads them is answered CORRUPT_MESSAGE, at once. A small segment
is surveyed on the spot, a large one on a thread; meanwhile its readers are told to try again. Only the loop changes a
log.
"""

import contextlib
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headrace.core.errors import PeerError
from headrace.core.files import Disk, OpenFile
from headrace.log.damage import corrupt
from headrace.log.index_builder import IndexBuilder
from headrace.log.segment import AstrayError, Segment
from headrace.log.survey import READ_BYTES, Damage, Surveyor
from headrace.protocol.batch import HEADER_BYTES, MAGIC, read_header
from headrace.protocol.error_codes import CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

AT_ONCE_BYTES_MAX = 512 << 10  # some milliseconds
READS_MAX = 8  # of a search on the loop, of a megabyte each

logger = logging.getLogger(__name__)

BatchPlace = tuple[int, int, int]  # position, base offset, size


class Surveyed(NamedTuple):
    surveyor: Surveyor
    indexes: IndexBuilder
    damages: list[Damage]


def locate(log: "PartitionLog", at: int, offset: int) -> BatchPlace | None:
    """As `Segment.locate`, for the segment at place `at` of the log; PeerError where the offset cannot be read."""
    segment = log.segments[at]
    start = _behind_damage(log, segment, offset)  # what is known is refused at once
    if not segment.surveyed:
        _survey(log, segment, end_of(log, at))
        start = _behind_damage(log, segment, offset)
    if start is None:
        try:
            return segment.locate(offset, segment.size)
        except AstrayError as error:
            # Surveyed, reindexed, and damaged since: look again the next time.
            segment.surveyed = False
            raise PeerError(CORRUPT_MESSAGE, f"{log.name}: {error}") from error
    try:
        return _search(log, at, offset, _near(segment, offset, start))
    except _TooLongError:
        segment.surveyed = False
        _survey(log, segment, end_of(log, at))  # a thread looks at every batch, and makes the index again
        raise PeerError(CORRUPT_MESSAGE, f"{log.name}: offset {offset} was not found; try again") from None


def _behind_damage(log: "PartitionLog", segment: Segment, offset: int) -> tuple[int, int] | None:
    """Position and offset behind the last known damage before an offset, if there is one; PeerError where the offset
    itself is damaged."""
    start = None
    for damage in segment.damages:
        if damage.first_offset <= offset < damage.next_offset:
            raise refusal(log, segment, damage)
        if damage.next_offset <= offset:
            start = damage.end, damage.next_offset
    return start


def _near(segment: Segment, offset: int, start: tuple[int, int]) -> tuple[int, int]:
    """The batch that the index knows nearest before an offset, if it lies behind `start` and makes sense."""
    entry = segment.offsets.floor(offset - segment.base_offset)
    if entry < 0:
        return start
    key, position = segment.offsets.at(entry)
    head = segment.head(position, HEADER_BYTES) if start[0] < position < segment.size else b""
    if len(head) < HEADER_BYTES:
        return start
    header = read_header(head)
    fits = start[1] <= header.base_offset <= header.last_offset <= segment.base_offset + key
    return (position, header.base_offset) if fits and header.magic == MAGIC else start


class _TooLongError(Exception):
    """More than the loop has time for."""


class _FewReads:
    """Reads a segment on the loop, a bounded number of times."""

    def __init__(self, segment: Segment, count_max: int) -> None:
        self._segment = segment
        self._left = count_max

    def __call__(self, count: int, position: int) -> bytes:
        if not self._left:
            raise _TooLongError
        self._left -= 1
        return self._segment.head(position, count)


def _search(log: "PartitionLog", at: int, offset: int, start: tuple[int, int]) -> BatchPlace | None:
    """Batch by batch from a position and its offset on. Between two entries of a whole index lie its interval and two
    batches at most; whoever walks farther has no whole index."""
    segment = log.segments[at]
    interval = log.config.index_interval_bytes
    read = _FewReads(segment, READS_MAX + 2 * interval // READ_BYTES)
    largest = 0
    for found in Surveyor(read, segment.size, segment.base_offset, end_of(log, at)).run(*start):
        if isinstance(found, Damage):
            add_damages(log, segment, [found])
            if found.first_offset <= offset < found.next_offset:
                raise refusal(log, segment, found)
            continue
        header, position = found
        if header.last_offset >= offset:
            return position, header.base_offset, header.size
        largest = max(largest, header.size)
        if position - start[0] > max(AT_ONCE_BYTES_MAX, 2 * (interval + largest)):
            raise _TooLongError
    return None


def end_of(log: "PartitionLog", at: int) -> int:
    """The offset where the segment at place `at` must end."""
    return log.segments[at + 1].base_offset if at + 1 < len(log.segments) else log.end_offset


def refusal(log: "PartitionLog", segment: Segment, damage: Damage) -> PeerError:
    return corrupt(log.name, segment.log_path, damage)


def missing(log: "PartitionLog", offset: int) -> PeerError:
    """No file has an offset that lies below the end."""
    active = log.active
    damage = Damage(active.size, active.size, offset, log.end_offset, "no batch in any file holds these offsets")
    log.directory.damage.unreadable(log.name, active.log_path, damage)
    return refusal(log, active, damage)


def damaged_at(log: "PartitionLog", segment: Segment, position: int) -> PeerError:
    """Somebody who walked along the headers came to a position where none is."""
    damage = first_damage(segment, position)
    if damage is not None and damage.position <= position:
        return refusal(log, segment, damage)
    segment.surveyed = False
    _survey(log, segment, end_of(log, log.segment_of(segment.base_offset)))
    damage = first_damage(segment, position)
    if damage is None:  # the position was wrong, not the batch
        return PeerError(CORRUPT_MESSAGE, f"{log.name}: no batch at byte {position} of {segment.log_path}; try again")
    return refusal(log, segment, damage)


def problem_at(log: "PartitionLog", at: int, position: int, first: int) -> PeerError | None:
    """What is wrong with the batch at a position of the segment at place `at`, whose offset is at least `first`."""
    segment, end_offset = log.segments[at], end_of(log, at)
    try:
        for found in Surveyor(_FewReads(segment, READS_MAX), segment.size, first, end_offset).run(position):
            if isinstance(found, Damage):
                add_damages(log, segment, [found])
                return refusal(log, segment, found)
            break
    except _TooLongError:  # it is damaged, and where the next good one begins is for a thread to find
        segment.surveyed = False
        _survey(log, segment, end_offset)
        damage = first_damage(segment, position)
        if damage is not None and damage.position <= position:
            return refusal(log, segment, damage)
    return None


def damage_behind(log: "PartitionLog", segment: Segment, position: int) -> Damage | None:
    """Looks at every batch, if nobody has, and returns the first damage at or behind a position."""
    if not segment.surveyed:
        _survey(log, segment, end_of(log, log.segment_of(segment.base_offset)))
    return first_damage(segment, position)


def first_damage(segment: Segment, position: int) -> Damage | None:
    """The first known damage at or behind a position."""
    return next((damage for damage in segment.damages if damage.end > position), None)


def suspect(log: "PartitionLog", segment: Segment) -> None:
    """Somebody else, such as compaction, could not read it: on the spot or on a thread, every batch is looked at."""
    if segment.surveyed and segment.damages:
        return  # it is known why
    segment.surveyed = False
    with contextlib.suppress(PeerError):  # a thread does it
        _survey(log, segment, end_of(log, log.segment_of(segment.base_offset)))


def survey_now(log: "PartitionLog", segment: Segment) -> list[Damage]:
    """Looks at every batch on the spot, however large the segment is; for a start, when nobody waits yet."""
    work = _work(log, segment, end_of(log, log.segment_of(segment.base_offset)))
    _look(work, None)
    _finish(log, segment, work)
    return segment.damages


def add_damages(log: "PartitionLog", segment: Segment, damages: list[Damage]) -> None:
    """What somebody found in the segment: readers are told from now on."""
    known = {damage.position: damage for damage in segment.damages}
    known.update((damage.position, damage) for damage in damages)
    segment.damages = [known[position] for position in sorted(known)]
    segment.forget_timestamp()
    for damage in damages:
        log.directory.damage.unreadable(log.name, segment.log_path, damage)


# ── the survey ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _survey(log: "PartitionLog", segment: Segment, end_offset: int) -> None:
    """When it returns the segment was surveyed; PeerError (try again) while a thread does it."""
    work = _work(log, segment, end_offset)
    if segment.size <= AT_ONCE_BYTES_MAX:
        _look(work, None)
        _finish(log, segment, work)
        return
    if segment not in log.surveys:
        logger.warning("%s does not lead to its batches: all of its log file is read again", segment.offsets.path)
        log.surveys.append(segment)
        file = segment.file()
        file.pins += 1
        disk = log.files.disk
        work = work._replace(
            surveyor=Surveyor(partial(_pread, disk, file), segment.size, segment.base_offset, end_offset)
        )
        log.writer.in_thread(partial(_look, work, None), partial(_looked, log, segment, work, file))
    raise PeerError(
        KAFKA_STORAGE_ERROR, f"{log.name}: the index of {segment.log_path} is damaged and is being rebuilt; try again"
    )


def _work(log: "PartitionLog", segment: Segment, end_offset: int) -> Surveyed:
    surveyor = Surveyor(segment.reading(), segment.size, segment.base_offset, end_offset)
    return Surveyed(surveyor, IndexBuilder(segment.base_offset, log.config.index_interval_bytes), [])


def _pread(disk: Disk, file: OpenFile, count: int, position: int) -> bytes:
    return disk.read(file.fd, count, position)


def _look(work: Surveyed, start: tuple[int, int] | None) -> None:
    """Touches nothing but what it was given: it may run on a thread."""
    for found in work.surveyor.run(*start) if start else work.surveyor.run():
        if isinstance(found, Damage):
            work.damages.append(found)
        else:
            work.indexes.add(*found)


def _looked(
    log: "PartitionLog", segment: Segment, work: Surveyed, file: OpenFile, _: object, error: BaseException | None
) -> None:
    file.unpin()
    log.surveys.remove(segment)
    if log.deleted or segment.deleted or not log.directory.online:
        return
    if error is not None:
        logger.warning("%s could not be read: %s", segment.log_path, error)
        return
    if work.surveyor.position < segment.size:  # it has grown meanwhile
        rest = Surveyor(segment.reading(), segment.size, segment.base_offset, log.end_offset)
        grown = work._replace(surveyor=rest)
        _look(grown, (work.surveyor.position, work.surveyor.offset))
    _finish(log, segment, work)


def _finish(log: "PartitionLog", segment: Segment, work: Surveyed) -> None:
    segment.damages, segment.surveyed = [], True
    if not work.damages:
        segment.chained_from, segment.chained_to = 0, segment.opened_size
    add_damages(log, segment, work.damages)
    try:
        segment.use_indexes(bytes(work.indexes.offsets), work.indexes.times, work.indexes.since_entry)
    except OSError as error:
        logger.warning("%s could not be rebuilt: %s", segment.offsets.path, log.writer.on_failure(log, error))
    else:
        if not work.damages:
            logger.warning("%s did not lead to its batches: it was rebuilt, no record is lost", segment.offsets.path)

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
from headrace.log.survey import Damage, Surveyor
from headrace.protocol.error_codes import CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

AT_ONCE_BYTES_MAX = 8 << 20  # some milliseconds

logger = logging.getLogger(__name__)

Place = tuple[int, int, int]  # position, base offset, size


class Surveyed(NamedTuple):
    surveyor: Surveyor
    indexes: IndexBuilder
    damages: list[Damage]


def locate(log: "PartitionLog", at: int, offset: int) -> Place | None:
    """As `Segment.locate`, for the segment at place `at` of the log; PeerError where the offset cannot be read."""
    segment = log.segments[at]
    if segment.damages is None:
        _survey(log, segment, end_of(log, at))
    damages = segment.damages or []
    start = 0
    for damage in damages:
        if damage.first_offset <= offset < damage.next_offset:
            raise refusal(log, segment, damage)
        if damage.next_offset <= offset:
            start = damage.end
    if not start:
        try:
            return segment.locate(offset, segment.size)
        except AstrayError as error:
            # Surveyed, reindexed, and damaged since: look again the next time.
            segment.damages = None
            raise PeerError(CORRUPT_MESSAGE, f"{log.name}: {error}") from error
    surveyor = Surveyor(segment.reading(), segment.size, segment.base_offset, end_of(log, at))
    for found in surveyor.run(start, _offset_at(damages, start)):
        if isinstance(found, Damage):
            add_damages(log, segment, [found])
            if found.first_offset <= offset < found.next_offset:
                raise refusal(log, segment, found)
        elif found[0].last_offset >= offset:
            return found[1], found[0].base_offset, found[0].size
    return None


def _offset_at(damages: list[Damage], position: int) -> int:
    return next(damage.next_offset for damage in damages if damage.end == position)


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
    at = log.segment_of(segment.base_offset)
    segment.damages = None
    _survey(log, segment, end_of(log, at))
    damage = first_damage(segment, position)
    if damage is None:  # the position was wrong, not the batch
        return PeerError(CORRUPT_MESSAGE, f"{log.name}: no batch at byte {position} of {segment.log_path}; try again")
    return refusal(log, segment, damage)


def damage_behind(log: "PartitionLog", segment: Segment, position: int) -> Damage | None:
    """Looks at every batch, if nobody has, and returns the first damage at or behind a position."""
    if segment.damages is None:
        _survey(log, segment, end_of(log, log.segment_of(segment.base_offset)))
    return first_damage(segment, position)


def first_damage(segment: Segment, position: int) -> Damage | None:
    """The first known damage at or behind a position."""
    return next((damage for damage in segment.damages or () if damage.end > position), None)


def suspect(log: "PartitionLog", segment: Segment) -> None:
    """Somebody else, such as compaction, could not read it: on the spot or on a thread, every batch is looked at."""
    segment.damages = None
    with contextlib.suppress(PeerError):  # a thread does it
        _survey(log, segment, end_of(log, log.segment_of(segment.base_offset)))


def survey_now(log: "PartitionLog", segment: Segment) -> list[Damage]:
    """Looks at every batch on the spot, however large the segment is; for a start, when nobody waits yet."""
    work = _work(log, segment, end_of(log, log.segment_of(segment.base_offset)))
    _look(work, None)
    _finish(log, segment, work)
    return segment.damages or []


def add_damages(log: "PartitionLog", segment: Segment, damages: list[Damage]) -> None:
    """What somebody found in the segment: readers are told from now on."""
    known = {damage.position: damage for damage in segment.damages or ()}
    known.update((damage.position, damage) for damage in damages)
    segment.damages = [known[position] for position in sorted(known)]
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
    segment.damages = []
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

"""A log as its recovery finds it, and the changes that a recovery may make: indexes are made again, lost offsets are
filled, a torn end is cut. What is taken away and may be more than torn is kept beside the log as `.damaged`."""

import logging
import os
from dataclasses import dataclass, field

from headrace.core.files import PASSING_ERRORS, Disk, OpenFiles
from headrace.log.damage import DamageBook
from headrace.log.index_builder import rebuild
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.scanning import READ_BYTES
from headrace.log.segment import SUFFIXES, Segment
from headrace.log.snapshots import Snapshots
from headrace.log.survey import Damage, Surveyor, filler
from headrace.protocol.batch import HEADER_BYTES, read_header

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
    spill(segment)


def spill(segment: Segment) -> None:
    try:
        segment.spill()
    except OSError as error:
        if error.errno not in PASSING_ERRORS:
            raise
        logger.warning("%s: its indexes stay in memory: %s", segment.log_path, error.strerror)


def cut(result: Recovered, segment: Segment, files: OpenFiles, damage: Damage, on_disk: int, known: int) -> bool:
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


def drop(result: Recovered, segments: list[Segment], files: OpenFiles) -> None:
    for segment in segments:
        result.bytes_cut += segment.size
        segment.deleted = True
        segment.forget_files()
        if segment.size:
            aside = set_aside(files.disk, segment.log_path)
            logger.warning("%s: lies beyond the torn end of the log: set aside as %s", segment.log_path, aside)
        for suffix in SUFFIXES:
            files.disk.unlink(segment.path + suffix)

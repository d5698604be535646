"""Opens a log as it was left: after a clean stop by comparing its files with the note of the close, after a crash by
reading its tail again.

What this decides is which files can be trusted and where the log begins and ends; `recovery` reads what cannot.
"""

import logging
import os
from dataclasses import dataclass, field

from headrace.core.errors import OperatorError
from headrace.core.files import Disk, OpenFiles
from headrace.log.checkpoints import PARTITION_METADATA_FILE, text_of
from headrace.log.clean_check import Doubts, compare
from headrace.log.clean_notes import PartitionNote
from headrace.log.compaction.swap import SWAP_SUFFIX, complete_swaps
from headrace.log.damage import DamageBook
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.recovered import DELETED_SUFFIX, Recovered, fill, rebuild_indexes, set_aside
from headrace.log.recovery import read_tail
from headrace.log.scanning import ends_at
from headrace.log.segment import NAME_DIGITS, SUFFIXES, Segment, base_offset_of, segment_name
from headrace.log.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from headrace.log.snapshots import Snapshots

_LEFT_OVERS = (DELETED_SUFFIX, ".cleaned", SWAP_SUFFIX, ".tmp")

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Found:
    """What lies in a partition's directory."""

    segments: list[tuple[int, int, int]] = field(default_factory=list)  # base offset, size, time of the last change
    snapshots: list[int] = field(default_factory=list)
    left_overs: list[str] = field(default_factory=list)
    has_epochs: bool = False


def recover(
    path: str,
    files: OpenFiles,
    *,
    clean: bool,
    recovery_point: int,
    start_offset: int,
    index_interval_bytes: int,
    now_ms: int,
    clean_offset: int = 0,
    high_watermark: int = 0,
    note: PartitionNote | None = None,
    points_changed_ns: int = 0,
    book: DamageBook | None = None,
    read_all: bool = False,
    keeps_end: bool = False,
) -> Recovered:
    """`clean_offset`: below it the log was compacted, perhaps by Apache Kafka, and segments may end early.
    `points_changed_ns`: when the recovery point was written; one that is older than the log is not the log's own."""
    disk = files.disk
    found = _look(path)
    if any(name.endswith(SWAP_SUFFIX) for name in found.left_overs):
        complete_swaps(disk, path)
        found = _look(path)
    for name in found.left_overs:
        disk.unlink(os.path.join(path, name))
    if not clean and recovery_point and points_changed_ns < _created_ns(path):
        recovery_point = 0  # that of a topic of the same name, which was deleted
    doubts = _doubts(path, found, note if clean else None, disk)
    if read_all:
        doubts.segments |= {base for base, _, _ in found.segments}
    segments = [Segment(path, base, files, changed_ms, size) for base, size, changed_ms in found.segments]
    gone = not segments and recovery_point > start_offset
    if not segments:
        segments.append(Segment(path, max(start_offset, recovery_point), files, now_ms))
    result = Recovered(
        segments=segments,
        end_offset=recovery_point,
        start_offset=max(start_offset, segments[0].base_offset),
        epochs=_epochs(path, disk) if found.has_epochs else LeaderEpochs(),
        snapshots=Snapshots(path, disk, found.snapshots),
        book=book if book is not None else DamageBook(),
        name=os.path.basename(path),
        index_interval_bytes=index_interval_bytes,
        known_end=recovery_point,
        keeps_end=keeps_end,
    )
    if gone:
        result.book.lost(result.name, path, start_offset, recovery_point, "the partition has no segment file any more")
    _say_missing(result, path, doubts)
    if clean:
        _ = result.snapshots.state() if found.snapshots else None  # a damaged one shows now
    trusted = (
        clean and not doubts.segments and not doubts.missing and not doubts.producers and not result.snapshots.damaged
    )
    if trusted and note is None:
        trusted = ends_at(segments[-1], recovery_point)
    if trusted and recovery_point >= segments[-1].base_offset and not _is_cut(segments, recovery_point):
        for segment in (each for each in segments if each.base_offset in doubts.indexes):
            rebuild_indexes(result, segment)
    else:
        read_tail(result, files, recovery_point, clean_offset, doubts, edges=note is None or not clean)
    _settle_start(result, files, start_offset, high_watermark, note)
    return result


def _doubts(path: str, found: _Found, note: PartitionNote | None, disk: Disk) -> Doubts:
    if note is None:
        return Doubts()
    doubts = compare(path, note, {base: size for base, size, _ in found.segments}, found.snapshots, disk)
    for line in doubts.lines:
        logger.warning("changed since it was closed: %s", line)
    for base in doubts.strangers:
        stem = os.path.join(path, segment_name(base))
        logger.warning("%s.log does not belong to the log: set aside as %s", stem, set_aside(disk, stem + ".log"))
        for suffix in SUFFIXES[1:]:
            disk.unlink(stem + suffix)
    found.segments = [each for each in found.segments if each[0] not in doubts.strangers]
    return doubts


def _created_ns(path: str) -> int:
    try:
        return os.stat(os.path.join(path, PARTITION_METADATA_FILE)).st_mtime_ns
    except OSError:
        return 0


def _say_missing(result: Recovered, path: str, doubts: Doubts) -> None:
    for first, following in doubts.missing:
        if following < result.known_end:  # otherwise the end of the log is missing, which is found below
            file = os.path.join(path, segment_name(first)) + ".log"
            result.book.lost(result.name, file, first, following, "the segment file is missing")


def _is_cut(segments: list[Segment], recovery_point: int) -> bool:
    """Whether the last segment is empty although offsets above its base were flushed."""
    return segments[-1].size == 0 and segments[-1].base_offset < recovery_point


def _settle_start(
    result: Recovered, files: OpenFiles, wanted: int, high_watermark: int, note: PartitionNote | None
) -> None:
    """A start beyond the end: after a loss, if it was a visible offset once; otherwise its checkpoint is damaged."""
    end_offset = result.end_offset
    if result.start_offset <= end_offset:
        return
    if wanted <= high_watermark:
        logger.warning("%s: begins at %d, beyond its end %d: it goes on from there", result.name, wanted, end_offset)
        fill(result, files, wanted)
        return
    noted = note.start_offset if note is not None and note.start_offset <= end_offset else 0
    result.start_offset = max(noted, min(result.segments[0].base_offset, end_offset))
    logger.warning(
        "%s: the log-start-offset-checkpoint says %d, beyond its end %d: ignored, it begins at %d; records that were"
        " deleted by kafka-delete-records.sh may be back",
        result.name, wanted, end_offset, result.start_offset,
    )  # fmt: skip


def _look(path: str) -> _Found:
    found = _Found()
    for entry in os.scandir(path):
        name = entry.name
        if name.endswith((".log", SNAPSHOT_SUFFIX)):
            stem, _, suffix = name.rpartition(".")
            base_offset = base_offset_of(stem) if entry.is_file() else None
            if base_offset is None:
                logger.warning(
                    "%s is ignored: segments and snapshots are files named by %d digits; move it elsewhere",
                    entry.path,
                    NAME_DIGITS,
                )
            elif suffix == "log":
                stat = entry.stat()
                found.segments.append((base_offset, stat.st_size, int(stat.st_mtime * 1000)))
            else:
                found.snapshots.append(base_offset)
        elif name == "leader-epoch-checkpoint":
            found.has_epochs = True
        elif name.endswith(_LEFT_OVERS):
            found.left_overs.append(name)
    found.segments.sort()
    return found


def _epochs(path: str, disk: Disk) -> LeaderEpochs:
    file = os.path.join(path, "leader-epoch-checkpoint")
    data = disk.read_file(file)
    try:
        return LeaderEpochs.decode(text_of(data, file), file) if data else LeaderEpochs()
    except OperatorError as error:
        logger.warning("a damaged file is ignored and will be replaced, nothing needs to be done: %s", error)
        return LeaderEpochs()

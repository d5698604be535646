"""Repairs what `checking` found, with the least loss, while the broker is stopped.

A damaged segment is written again: good batches as they are, headers restored where the records are whole, an empty
batch in place of what cannot be read, so that every offset keeps its meaning. The file as it was stays beside it as
`.damaged`. Then the partition is opened as after a crash and read whole, which makes indexes, aborted transactions and
producers' state again.
"""

import os
import shutil

from headrace.core.files import Disk, OpenFiles
from headrace.log import checkpoints
from headrace.log.checking import CheckedDirectory, CheckedPartition, CheckedSegment
from headrace.log.clean_notes import CLEAN_NOTES_FILE
from headrace.log.compaction.checkpoint import CLEANER_OFFSET_FILE
from headrace.log.damage import DamageBook
from headrace.log.opening import recover
from headrace.log.recovered import aside_name, set_aside
from headrace.log.survey import UNKNOWN, filler, restored

COPIED_BYTES = 1 << 20
INDEX_INTERVAL_BYTES = 4096
FILES_MAX = 64


def repair_directory(found: CheckedDirectory, disk: Disk, now_ms: int) -> list[str]:
    """Does what the findings say. Returns the paths of what was set aside."""
    aside: list[str] = []
    disk.unlink(os.path.join(found.path, CLEAN_NOTES_FILE))  # it tells of files as they were before
    for partition in found.partitions:
        if any(finding.action for finding in partition.findings):
            aside += _repair_partition(found, partition, disk, now_ms)
    for finding in found.findings:
        if finding.action:
            aside.append(set_aside(disk, finding.path))
    _repair_starts(found, disk)
    disk.sync_directory(found.path)
    return aside


def _repair_partition(found: CheckedDirectory, partition: CheckedPartition, disk: Disk, now_ms: int) -> list[str]:
    aside = []
    for at, segment in enumerate(partition.segments):
        if segment.damages or segment.gap_to != UNKNOWN:
            sealed = at + 1 < len(partition.segments)
            aside.append(_rewrite(partition, segment, disk, sealed=sealed))
    for path in partition.bad_files:
        if os.path.exists(path):
            aside.append(set_aside(disk, path))
    epochs = os.path.join(partition.path, checkpoints.LEADER_EPOCH_FILE)
    if epochs in partition.bad_files:
        disk.replace_file(epochs, partition.epochs.encode().encode())
    _reopen(found, partition, disk, now_ms)
    disk.sync_directory(partition.path)
    return aside


def _rewrite(partition: CheckedPartition, segment: CheckedSegment, disk: Disk, *, sealed: bool) -> str:
    """The segment without its damage; returns the name of the file as it was."""
    log = segment.path + ".log"
    source = disk.open(log, os.O_RDONLY | os.O_CLOEXEC)
    target = disk.open(log + ".repaired", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
    try:
        position = written = 0
        for damage in segment.damages:
            written = _copy(disk, source, position, damage.position, target, written)
            position = damage.end
            if damage.restorable:
                data = restored(disk.read(source, damage.end - damage.position, damage.position), damage)
            elif damage.next_offset == UNKNOWN or (damage.at_end and not sealed):
                continue
            else:
                data = filler(damage.first_offset, damage.next_offset, partition.epochs.latest or 0)
            disk.write(target, [data], written)
            written += len(data)
        written = _copy(disk, source, position, segment.size, target, written)
        if segment.gap_to != UNKNOWN:
            data = filler(segment.end_offset, segment.gap_to, partition.epochs.latest or 0)
            disk.write(target, [data], written)
        disk.sync(target)
    finally:
        disk.close(source)
        disk.close(target)
    shutil.copystat(log, log + ".repaired")
    kept = _second_name(disk, log)
    disk.rename(log + ".repaired", log)
    return kept


def _second_name(disk: Disk, path: str) -> str:
    """Under which the file stays when its own name is given to another: a kill in between leaves both as they were."""
    kept = aside_name(path)
    try:
        os.link(path, kept)
    except OSError:  # a file system without hard links
        return set_aside(disk, path)
    return kept


def _copy(disk: Disk, source: int, start: int, end: int, target: int, at: int) -> int:
    while start < end:
        data = disk.read(source, min(COPIED_BYTES, end - start), start)
        if not data:
            raise OSError("a file is shorter than it was a moment ago")
        disk.write(target, [data], at)
        start += len(data)
        at += len(data)
    return at


def _reopen(found: CheckedDirectory, partition: CheckedPartition, disk: Disk, now_ms: int) -> None:
    """Reads all of it, as after a crash, and leaves it as a clean stop would."""
    key = (partition.topic, partition.index)
    files = OpenFiles(disk, FILES_MAX)
    try:
        result = recover(
            partition.path,
            files,
            clean=False,
            recovery_point=found.offsets.get(checkpoints.RECOVERY_POINT_FILE, {}).get(key, 0),
            start_offset=0,
            index_interval_bytes=INDEX_INTERVAL_BYTES,
            now_ms=now_ms,
            clean_offset=found.offsets.get(CLEANER_OFFSET_FILE, {}).get(key, 0),
            points_changed_ns=1 << 62,
            read_all=True,
            book=DamageBook(quiet=True),  # the findings have said it
        )
        result.snapshots.take(result.end_offset)
        for segment in result.segments:
            if segment.size:
                disk.sync(segment.file().fd)
    finally:
        files.close()


def _repair_starts(found: CheckedDirectory, disk: Disk) -> None:
    """Start offsets beyond the end are no start offsets."""
    starts = found.offsets.get(checkpoints.LOG_START_FILE, {})
    points = found.offsets.get(checkpoints.RECOVERY_POINT_FILE, {})
    ends = {(each.topic, each.index): each.end_offset for each in found.partitions}
    kept = {
        key: start for key, start in starts.items() if key not in ends or start <= max(ends[key], points.get(key, 0))
    }
    if kept != starts:
        text = checkpoints.encode_offsets(kept)
        disk.replace_file(os.path.join(found.path, checkpoints.LOG_START_FILE), text.encode())

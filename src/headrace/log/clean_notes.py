"""What a directory's files looked like when they were closed cleanly: `headrace-clean-close`, beside Kafka's own files.

The next start compares: a file that is not as it was noted is read again as after a crash, and what is missing is said.
The note is believed only together with the recovery points that were written with it: where Apache Kafka has run on the
directory since, they differ, and the note says nothing. A missing or unreadable note is no error.

    headrace-clean-close VERSION CRC-OF-THE-REST
    {"recovery_points_crc": …, "partitions": [[topic, partition, start, end, snapshot, tail CRC, [segment, …]], …]}
"""

import json
import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from headrace.core.files import Disk
from headrace.log import checkpoints

if TYPE_CHECKING:
    from headrace.log.directory import LogDirectory
    from headrace.log.partition_log import PartitionLog

CLEAN_NOTES_FILE = "headrace-clean-close"
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")
TAIL_BYTES = 4096  # of the active segment, with a checksum
CHECKSUMMED_BYTES_MAX = 256 << 20  # of indexes, at one close; what is left has none, and is noted by its size
ALWAYS_READ_BYTES_MAX = 64 << 10  # a larger index of the same size and time of change is taken to be the same
_VERSION = 1
_NO_CRC = -1

Key = tuple[str, int]

logger = logging.getLogger(__name__)


class IndexNote(NamedTuple):
    size: int
    changed_ns: int
    crc: int  # -1: it was too much to read


class SegmentNote(NamedTuple):
    base_offset: int
    size: int
    indexes: tuple[IndexNote | None, ...]  # in the order of INDEX_SUFFIXES; None: no such file


class PartitionNote(NamedTuple):
    start_offset: int
    end_offset: int
    snapshot: int  # offset of the newest one, -1 if there is none
    tail_crc: int
    segments: tuple[SegmentNote, ...]


def tail_crc(disk: Disk, path: str, size: int) -> int:
    """Of the last bytes of a `.log` file that has `size` bytes."""
    if not size:
        return 0
    fd = disk.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        count = min(size, TAIL_BYTES)
        return crc32c(disk.read(fd, count, size - count))
    finally:
        disk.close(fd)


class NoteTaker:
    """Notes one directory at a clean close. `before` are the notes of the last one: what is the same is not read."""

    def __init__(self, disk: Disk, before: dict[Key, PartitionNote]) -> None:
        self._disk = disk
        self._before = before
        self._left = CHECKSUMMED_BYTES_MAX

    def note(self, log: "PartitionLog") -> PartitionNote:
        before = self._before.get((log.topic, log.index))
        known = {each.base_offset: each for each in before.segments} if before is not None else {}
        segments = tuple(
            SegmentNote(segment.base_offset, segment.size, self._indexes(segment.path, known.get(segment.base_offset)))
            for segment in log.segments
        )
        active = log.segments[-1]
        crc = tail_crc(self._disk, active.log_path, active.size)
        return PartitionNote(log.start_offset, log.end_offset, log.snapshots.newest_offset, crc, segments)

    def _indexes(self, path: str, before: SegmentNote | None) -> tuple[IndexNote | None, ...]:
        found: list[IndexNote | None] = []
        for at, suffix in enumerate(INDEX_SUFFIXES):
            try:
                stat = os.stat(path + suffix)
            except FileNotFoundError:
                found.append(None)
                continue
            known = before.indexes[at] if before is not None else None
            if known is not None and known[:2] == (stat.st_size, stat.st_mtime_ns) and known.crc != _NO_CRC:
                found.append(known)
                continue
            crc = _NO_CRC
            if stat.st_size <= self._left:
                self._left -= stat.st_size
                crc = crc32c(self._disk.read_file(path + suffix) or b"")
            found.append(IndexNote(stat.st_size, stat.st_mtime_ns, crc))
        return tuple(found)


def write_notes(directory: "LogDirectory", disk: Disk, notes: dict[Key, PartitionNote]) -> None:
    points = disk.read_file(os.path.join(directory.path, checkpoints.RECOVERY_POINT_FILE)) or b""
    body = json.dumps(
        {"recovery_points_crc": crc32c(points), "partitions": [[*key, *note] for key, note in notes.items()]},
        separators=(",", ":"),
    ).encode()
    head = f"{CLEAN_NOTES_FILE} {_VERSION} {crc32c(body):08x}\n".encode()
    disk.replace_file(os.path.join(directory.path, CLEAN_NOTES_FILE), head + body + b"\n")


def read_notes(directory: "LogDirectory", disk: Disk) -> dict[Key, PartitionNote]:
    """Empty where there are none, or none that can be believed."""
    path = os.path.join(directory.path, CLEAN_NOTES_FILE)
    data = disk.read_file(path)
    if data is None:
        return {}
    try:
        return _decode(data, disk.read_file(os.path.join(directory.path, checkpoints.RECOVERY_POINT_FILE)) or b"")
    except (ValueError, TypeError, KeyError, IndexError) as error:
        logger.warning("%s is ignored, files are not compared with it: %s", path, error)
        return {}


def _decode(data: bytes, recovery_points: bytes) -> dict[Key, PartitionNote]:
    head, _, body = data.partition(b"\n")
    words = head.decode("ascii", "replace").split()
    if len(words) != 3 or words[0] != CLEAN_NOTES_FILE:
        raise ValueError("it does not begin as such a file does")
    if words[1] != str(_VERSION):
        raise ValueError(f"version {words[1][:20]}, known is {_VERSION}")
    body = body.removesuffix(b"\n")
    if f"{crc32c(body):08x}" != words[2]:
        raise ValueError("it does not match its checksum")
    document = json.loads(body)
    if document["recovery_points_crc"] != crc32c(recovery_points):
        return {}  # somebody else has closed the directory since
    return {
        (topic, index): PartitionNote(start, end, snapshot, crc, tuple(_segment(each) for each in segments))
        for topic, index, start, end, snapshot, crc, segments in document["partitions"]
    }


def _segment(plain: list[object]) -> SegmentNote:
    base, size, indexes = plain
    if not isinstance(base, int) or not isinstance(size, int) or not isinstance(indexes, list):
        raise ValueError(f"{plain!r} is no segment")
    return SegmentNote(base, size, tuple(IndexNote(*each) if each is not None else None for each in indexes))


def forget_notes(directory: "LogDirectory", disk: Disk) -> None:
    disk.unlink(os.path.join(directory.path, CLEAN_NOTES_FILE))

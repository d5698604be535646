"""Compares a partition's files with the note of its clean close: what is doubtful must be read again."""

import os
from dataclasses import dataclass, field

from crc32c import crc32c

from headrace.core.files import Disk
from headrace.log.clean_notes import ALWAYS_READ_BYTES_MAX, INDEX_SUFFIXES, IndexNote, PartitionNote, tail_crc
from headrace.log.segment import segment_name


@dataclass(slots=True)
class Doubts:
    lines: list[str] = field(default_factory=list)  # file, what was expected, what was found
    segments: set[int] = field(default_factory=set)  # base offsets of those whose batches are all looked at
    indexes: set[int] = field(default_factory=set)  # of those whose indexes are made again
    strangers: set[int] = field(default_factory=set)  # of those that were not there at the close
    missing: list[tuple[int, int]] = field(default_factory=list)  # offsets [first, next) of those that are gone
    producers: bool = False  # the newest snapshot is gone: the log tells what it held

    def __bool__(self) -> bool:
        return bool(self.lines)


def compare(path: str, note: PartitionNote, sizes: dict[int, int], snapshots: list[int], disk: Disk) -> Doubts:
    """`sizes`: of the `.log` files that are there, by base offset."""
    doubts = Doubts()
    ends = [*(each.base_offset for each in note.segments[1:]), note.end_offset]
    for expected, end in zip(note.segments, ends, strict=True):
        base = expected.base_offset
        name = os.path.join(path, segment_name(base))
        size = sizes.get(base)
        if size is None:
            if expected.size:
                doubts.lines.append(f"{name}.log: missing, expected {expected.size} bytes")
                doubts.missing.append((base, end))
        elif size != expected.size:
            doubts.lines.append(f"{name}.log: {size} bytes, expected {expected.size}")
            doubts.segments.add(base)
        else:
            _compare_indexes(doubts, name, base, expected.indexes, disk)
    known = {each.base_offset for each in note.segments}
    for base in sorted(set(sizes) - known):
        doubts.lines.append(f"{os.path.join(path, segment_name(base))}.log: was not there when the log was closed")
        doubts.strangers.add(base)
    active = note.segments[-1]
    if sizes.get(active.base_offset) == active.size and active.base_offset not in doubts.segments:
        log = os.path.join(path, segment_name(active.base_offset)) + ".log"
        if tail_crc(disk, log, active.size) != note.tail_crc:
            doubts.lines.append(f"{log}: its last bytes are not those that were written")
            doubts.segments.add(active.base_offset)
    if note.snapshot >= 0 and note.snapshot not in snapshots:
        doubts.lines.append(f"{os.path.join(path, segment_name(note.snapshot))}.snapshot: missing")
        doubts.producers = True
    return doubts


def _compare_indexes(doubts: Doubts, name: str, base: int, expected: tuple[IndexNote | None, ...], disk: Disk) -> None:
    for suffix, note in zip(INDEX_SUFFIXES, expected, strict=True):
        problem = _problem(name + suffix, note, disk)
        if problem:
            doubts.lines.append(f"{name}{suffix}: {problem}")
            # Aborted transactions are only found by following the producers through the log.
            (doubts.segments if suffix == ".txnindex" else doubts.indexes).add(base)


def _problem(path: str, note: IndexNote | None, disk: Disk) -> str:
    try:
        stat = os.stat(path)
    except FileNotFoundError:
        return f"missing, expected {note.size} bytes" if note is not None and note.size else ""
    if note is None:
        return f"{stat.st_size} bytes, expected no such file" if stat.st_size else ""
    if stat.st_size != note.size:
        return f"{stat.st_size} bytes, expected {note.size}"
    if note.crc < 0 or (stat.st_size > ALWAYS_READ_BYTES_MAX and stat.st_mtime_ns == note.changed_ns):
        return ""
    try:
        same = crc32c(disk.read_file(path) or b"") == note.crc
    except PermissionError:
        return "cannot be read: permission denied"
    return "" if same else f"{stat.st_size} bytes, but not those that were written"

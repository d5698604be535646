"""Puts a compacted segment in the place of those it was made from, so that a crash at any step is made good.

    .cleaned    being written, or not yet agreed to: a start removes it
    .swap       whole and flushed: from the moment the .log has this name, a start completes the exchange
    .deleted    replaced; removed a while later, for those who still read it

The `.log` is the last to become `.swap` and the first to take its place: while it is `.swap`, the exchange is agreed
to and not done. An index that is still `.swap` when its `.log` is in place is only to be renamed, as in Kafka.
"""

import os

from headrace.core.files import Disk
from headrace.log.segment import LENGTH_PREFIX_BYTES, SUFFIXES, base_offset_of
from headrace.protocol.batch import HEADER_BYTES, read_header

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

_LOG = ".log"


def discard_cleaned(disk: Disk, path: str) -> None:
    for suffix in SUFFIXES:
        disk.unlink(path + suffix + CLEANED_SUFFIX)


def agree(disk: Disk, path: str) -> None:
    """From `.cleaned` to `.swap`: there is no way back once the `.log` has it."""
    for suffix in reversed(SUFFIXES):
        if suffix == _LOG or os.path.exists(path + suffix + CLEANED_SUFFIX):
            disk.rename(path + suffix + CLEANED_SUFFIX, path + suffix + SWAP_SUFFIX)


def take_place(disk: Disk, path: str) -> None:
    """From `.swap` to its own name. What was there has been renamed or removed before."""
    for suffix in SUFFIXES:
        if os.path.exists(path + suffix + SWAP_SUFFIX):
            disk.rename(path + suffix + SWAP_SUFFIX, path + suffix)


def complete_swaps(disk: Disk, path: str) -> None:
    """At a start: finishes the exchanges that a crash interrupted, drops those that had not been agreed to."""
    names = os.listdir(path)
    present = set(names)
    stems = (name[: -len(_LOG + SWAP_SUFFIX)] for name in names if name.endswith(_LOG + SWAP_SUFFIX))
    agreed = sorted(stem for stem in stems if base_offset_of(stem) is not None)  # anything else is junk
    for name in names:
        segment, own = name.split(".")[0], name[: -len(SWAP_SUFFIX)]
        if not name.endswith(SWAP_SUFFIX) or segment in agreed:
            continue
        in_place = segment + _LOG in present and segment + _LOG + CLEANED_SUFFIX not in present
        if in_place and own not in present:
            disk.rename(os.path.join(path, name), os.path.join(path, own))
        else:
            disk.unlink(os.path.join(path, name))
    for segment in agreed:
        _complete(disk, path, segment, names)


def _complete(disk: Disk, path: str, segment: str, names: list[str]) -> None:
    base = os.path.join(path, segment)
    end_offset = _end_offset(disk, base + _LOG + SWAP_SUFFIX)
    for name in sorted(names):
        stem, dot, suffix = name.partition(".")
        if dot + suffix not in SUFFIXES or base_offset_of(stem) is None:
            continue
        if stem == segment or int(segment) <= int(stem) < end_offset:
            disk.unlink(os.path.join(path, name))
    take_place(disk, base)


def _end_offset(disk: Disk, path: str) -> int:
    """The offset behind the last batch of a segment; 0 if it has none."""
    fd = disk.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        position, end_offset, size = 0, 0, disk.size(fd)
        while position + HEADER_BYTES <= size:
            header = read_header(disk.read(fd, HEADER_BYTES, position))
            end_offset = header.last_offset + 1
            position += max(header.size, LENGTH_PREFIX_BYTES)
        return end_offset
    finally:
        disk.close(fd)

"""What clients of a keeper asked and were told, and the rules that it must follow whatever was killed meanwhile.

Every write is to a node of a few registers, with a value that no other write has. A write whose answer never came may
have happened or not; what was answered has.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from dataclasses import dataclass, field

from violations import ViolationError


@dataclass(slots=True)
class Write:
    path: str
    value: bytes
    began: int  # moments are numbers that only grow
    ended: int = 0  # 0: its answer never came
    version: int = -1
    zxid: int = -1


@dataclass(slots=True)
class Read:
    path: str
    began: int
    ended: int
    value: bytes
    version: int
    zxid: int  # of the write that it shows


@dataclass(slots=True)
class History:
    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    sequential: list[tuple[int, str]] = field(default_factory=list)  # zxid and name, answered
    _moments: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> int:
        with self._lock:
            return next(self._moments)

    def check(self) -> None:
        by_path: dict[str, list[Write]] = defaultdict(list)
        for write in self.writes:
            by_path[write.path].append(write)
        reads: dict[str, list[Read]] = defaultdict(list)
        for read in self.reads:
            reads[read.path].append(read)
        for path, writes in by_path.items():
            _check_register(path, writes, reads[path])
        _check_real_time(self.writes)
        _check_sequence(self.sequential)


def _check_register(path: str, writes: list[Write], reads: list[Read]) -> None:
    answered = [write for write in writes if write.ended]
    by_version: dict[int, bytes] = {0: b""}
    for write in answered:
        if by_version.setdefault(write.version, write.value) != write.value:
            raise ViolationError(f"{path}: two writes were told that they made version {write.version}")
    written = {(write.version, write.value) for write in answered}
    unknown = {write.value for write in writes if not write.ended}
    for read in reads:
        shown = by_version.setdefault(read.version, read.value)
        if shown != read.value:
            raise ViolationError(f"{path}: version {read.version} was read as {read.value!r}, and is {shown!r}")
    for version, value in by_version.items():
        if version and (version, value) not in written and value not in unknown:
            raise ViolationError(f"{path}: version {version} is {value!r}, which nobody wrote as that version")
    gaps = max(by_version) + 1 - len(by_version)
    if gaps + len(unknown & set(by_version.values())) > len(unknown):
        raise ViolationError(f"{path}: {gaps} versions that nobody can have written")
    zxids = [write.zxid for write in sorted(answered, key=lambda each: each.version)]
    if zxids != sorted(set(zxids)):
        raise ViolationError(f"{path}: versions do not follow the order of transactions")
    _check_seen(path, answered, reads)


def _check_seen(path: str, answered: list[Write], reads: list[Read]) -> None:
    """Once anybody was told of a version, nobody who asks later is shown, or makes, an older one."""
    told = sorted([(each.ended, each.version) for each in [*answered, *reads]])
    asked: list[tuple[int, int, str]] = [(read.began, read.version, "read") for read in reads]
    asked += [(write.began, write.version - 1, "written over") for write in answered]
    newest, at = -1, 0
    for began, version, how in sorted(asked):
        while at < len(told) and told[at][0] < began:
            newest = max(newest, told[at][1])
            at += 1
        if version < newest:
            raise ViolationError(f"{path}: version {version} was {how} after version {newest} had been seen")


def _check_real_time(writes: list[Write]) -> None:
    """A write that began when another was answered has the later transaction, whatever they wrote to."""
    answered = [write for write in writes if write.ended]
    newest, at = -1, 0
    by_end = sorted(answered, key=lambda each: each.ended)
    for write in sorted(answered, key=lambda each: each.began):
        while at < len(by_end) and by_end[at].ended < write.began:
            newest = max(newest, by_end[at].zxid)
            at += 1
        if write.zxid <= newest:
            raise ViolationError(f"{write.path}: transaction {write.zxid:#x} began after {newest:#x} was answered")


def _check_sequence(made: list[tuple[int, str]]) -> None:
    names = [name for _, name in sorted(made)]
    if names != sorted(set(names)):
        raise ViolationError("sequential nodes: a name came twice, or not in the order of transactions")

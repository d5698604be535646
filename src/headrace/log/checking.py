"""Looks at every file of a log directory whose broker is stopped, and tells what is wrong with it. Changes nothing.

Batches are read with their CRC; an index is held against the batches, entry by entry. It knows Kafka's formats only,
so a directory of Apache Kafka's is checked alike.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from headrace.core.errors import OperatorError
from headrace.core.files import Disk
from headrace.log import checkpoints
from headrace.log.compaction.checkpoint import CLEANER_OFFSET_FILE
from headrace.log.directory import CLEAN_STOP_FILE
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.producer_state import ProducerState
from headrace.log.segment import SUFFIXES, UNINDEXED_BYTES_MAX, base_offset_of, segment_name
from headrace.log.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from headrace.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY
from headrace.log.survey import RELATIVE_OFFSET_MAX, UNKNOWN, Damage, Surveyor, offsets_text
from headrace.log.transactions import decode_aborted
from headrace.protocol.batch import BatchHeader

NOTHING_LOST = "nothing"
OFFSET_FILES = (
    checkpoints.RECOVERY_POINT_FILE,
    checkpoints.LOG_START_FILE,
    checkpoints.HIGH_WATERMARK_FILE,
    CLEANER_OFFSET_FILE,
)
_ABORTED_BYTES = 34

Key = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding:
    path: str
    what: str
    action: str  # of `headrace log repair`; empty if it can do nothing
    lost: str = NOTHING_LOST
    position: int = UNKNOWN
    first_offset: int = UNKNOWN
    next_offset: int = UNKNOWN

    @property
    def line(self) -> str:
        where = f"{self.path}, byte {self.position}" if self.position != UNKNOWN else self.path
        offsets = f", {offsets_text(self.first_offset, self.next_offset)}" if self.first_offset != UNKNOWN else ""
        return f"{where}{offsets}: {self.what}; repair: {self.action or 'not possible'}; lost: {self.lost}"


@dataclass(slots=True)
class CheckedSegment:
    base_offset: int
    path: str  # without a suffix
    size: int
    end_offset: int = 0
    damages: list[Damage] = field(default_factory=list)
    gap_to: int = UNKNOWN  # where the next one begins, if offsets are missing in between


@dataclass(slots=True)
class CheckedPartition:
    topic: str
    index: int
    path: str
    segments: list[CheckedSegment] = field(default_factory=list)
    findings: list[LogFinding] = field(default_factory=list)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)  # as the batches have them
    bad_files: list[str] = field(default_factory=list)  # that are set aside or made again as a whole

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset if self.segments else 0


@dataclass(slots=True)
class CheckedDirectory:
    path: str
    clean: bool
    partitions: list[CheckedPartition] = field(default_factory=list)
    findings: list[LogFinding] = field(default_factory=list)
    offsets: dict[str, dict[Key, int]] = field(default_factory=dict)  # by file; one that cannot be read is not here

    @property
    def all_findings(self) -> list[LogFinding]:
        return [*self.findings, *(each for partition in self.partitions for each in partition.findings)]


def check_directory(path: str, disk: Disk) -> CheckedDirectory:
    path = os.path.abspath(path)
    found = CheckedDirectory(path, os.path.exists(os.path.join(path, CLEAN_STOP_FILE)))
    _check_offset_files(found, disk)
    _check_meta(found, disk)
    for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
        topic, _, index = entry.name.rpartition("-")
        if entry.is_dir() and topic and index.isascii() and index.isdigit():
            found.partitions.append(_check_partition(found, topic, int(index), entry.path, disk))
    return found


def _check_offset_files(found: CheckedDirectory, disk: Disk) -> None:
    for name in OFFSET_FILES:
        file = os.path.join(found.path, name)
        data = disk.read_file(file)
        try:
            found.offsets[name] = checkpoints.decode_offsets(checkpoints.text_of(data, file), file) if data else {}
        except OperatorError as error:
            lost = "what DeleteRecords removed may come back" if name == checkpoints.LOG_START_FILE else NOTHING_LOST
            what = str(error).removeprefix(file).lstrip(":, ").split("; ")[0]
            found.findings.append(
                LogFinding(path=file, what=what, action="set it aside; it is written again", lost=lost)
            )


def _check_meta(found: CheckedDirectory, disk: Disk) -> None:
    file = os.path.join(found.path, checkpoints.META_PROPERTIES_FILE)
    data = disk.read_file(file)
    try:
        if data is None:
            raise OperatorError("missing: this may be no log directory; a broker would make a new one")
        checkpoints.decode_meta_properties(checkpoints.text_of(data, file), file)
    except OperatorError as error:
        found.findings.append(LogFinding(path=file, what=str(error).removeprefix(file).lstrip(":, "), action=""))


def _check_partition(found: CheckedDirectory, topic: str, index: int, path: str, disk: Disk) -> CheckedPartition:
    partition = CheckedPartition(topic, index, path)
    names = sorted(os.listdir(path))
    bases = []
    for name in names:
        stem, _, suffix = name.rpartition(".")
        if suffix == "log":
            base = base_offset_of(stem)
            if base is None:
                what = "no part of the log by its name, so a broker ignores it"
                partition.findings.append(LogFinding(path=os.path.join(path, name), what=what, action="leave it there"))
            else:
                bases.append(base)
    key = (topic, index)
    known_end = found.offsets.get(checkpoints.RECOVERY_POINT_FILE, {}).get(key, 0)
    clean_offset = found.offsets.get(CLEANER_OFFSET_FILE, {}).get(key, 0)
    for at, base in enumerate(bases):
        following = bases[at + 1] if at + 1 < len(bases) else UNKNOWN
        segment = _check_segment(partition, base, following, disk)
        partition.segments.append(segment)
        if following != UNKNOWN and segment.end_offset < following and following > clean_offset:
            _missing(partition, segment, following)
    _check_end(partition, known_end)
    _check_start(partition, found, key)
    _check_small_files(partition, names, disk)
    return partition


def _missing(partition: CheckedPartition, segment: CheckedSegment, following: int) -> None:
    first, action = segment.end_offset, ""
    if following - 1 - segment.base_offset <= RELATIVE_OFFSET_MAX:
        segment.gap_to = following
        action = "put an empty batch in their place; the file as it was is kept beside it"
    partition.findings.append(
        LogFinding(
            path=segment.path + ".log",
            what="no file has these offsets",
            action=action,
            lost=offsets_text(first, following),
            first_offset=first,
            next_offset=following,
        )
    )


def _check_end(partition: CheckedPartition, known_end: int) -> None:
    end = partition.end_offset
    if end < known_end:
        path = partition.segments[-1].path + ".log" if partition.segments else partition.path
        partition.findings.append(
            LogFinding(
                path=path,
                what=f"the log ends at {end}, but everything below {known_end} was flushed",
                action=f"go on at {known_end}, so that no offset is given twice",
                lost=offsets_text(end, known_end),
                first_offset=end,
                next_offset=known_end,
            )
        )


def _check_start(partition: CheckedPartition, found: CheckedDirectory, key: Key) -> None:
    start = found.offsets.get(checkpoints.LOG_START_FILE, {}).get(key, 0)
    known_end = found.offsets.get(checkpoints.RECOVERY_POINT_FILE, {}).get(key, 0)
    if start > max(partition.end_offset, known_end):
        file = os.path.join(found.path, checkpoints.LOG_START_FILE)
        what = f"{partition.topic}-{partition.index} begins at {start}, beyond its end {partition.end_offset}"
        lost = "nothing, but what DeleteRecords removed may come back"
        partition.findings.append(LogFinding(path=file, what=what, action="take the line out", lost=lost))


# ── one segment ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _check_segment(partition: CheckedPartition, base: int, following: int, disk: Disk) -> CheckedSegment:
    path = os.path.join(partition.path, segment_name(base))
    fd = disk.open(path + ".log", os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = disk.size(fd)
        segment = CheckedSegment(base, path, size, base)
        indexes = _IndexCheck(segment, disk)
        surveyor = Surveyor(lambda count, position: disk.read(fd, count, position), size, base, following)
        for found in surveyor.run():
            if isinstance(found, Damage):
                segment.damages.append(found)
                _add_damage(partition, segment, found, sealed=following != UNKNOWN)
            else:
                indexes.batch(*found)
                segment.end_offset = found[0].last_offset + 1
                if found[0].leader_epoch >= 0:
                    _note_epoch(partition.epochs, found[0])
        if following != UNKNOWN and segment.damages and segment.damages[-1].at_end:
            segment.end_offset = following
    finally:
        disk.close(fd)
    for file, what in indexes.problems():
        partition.findings.append(LogFinding(path=file, what=what, action="make it again from the log file"))
        partition.bad_files.append(file)
    return segment


def _note_epoch(epochs: LeaderEpochs, header: BatchHeader) -> None:
    if epochs.latest is None or header.leader_epoch > epochs.latest:
        epochs.assign(header.leader_epoch, header.base_offset)


def _add_damage(partition: CheckedPartition, segment: CheckedSegment, damage: Damage, *, sealed: bool) -> None:
    torn = damage.at_end and not sealed
    if damage.restorable:
        action, lost = "write its header again, the records are whole", NOTHING_LOST
    elif torn:
        action, lost = "cut the file there; the whole file is kept beside it", damage.offsets
    else:
        action, lost = "replace it by an empty batch; the whole file is kept beside it", damage.offsets
    if damage.first_offset == damage.next_offset:
        lost = NOTHING_LOST
    partition.findings.append(
        LogFinding(
            path=segment.path + ".log",
            what=f"damaged up to byte {damage.end}: {damage.why}",
            action=action,
            lost=lost,
            position=damage.position,
            first_offset=damage.first_offset,
            next_offset=damage.next_offset,
        )
    )


class _IndexCheck:
    """Follows the batches of a segment, and the entries of its indexes beside them."""

    def __init__(self, segment: CheckedSegment, disk: Disk) -> None:
        self._segment = segment
        self._data = {suffix: disk.read_file(segment.path + suffix) for suffix in SUFFIXES[1:]}
        offsets, times = self._data[".index"] or b"", self._data[".timeindex"] or b""
        self._offsets = list(OFFSET_ENTRY.iter_unpack(offsets[: len(offsets) - len(offsets) % OFFSET_ENTRY.size]))
        self._times = list(TIME_ENTRY.iter_unpack(times[: len(times) - len(times) % TIME_ENTRY.size]))
        self._offset_at = self._time_at = 0
        self._bad: dict[str, str] = {}

    def batch(self, header: BatchHeader, position: int) -> None:
        base = self._segment.base_offset
        while self._offset_at < len(self._offsets) and self._offsets[self._offset_at][1] <= position:
            relative, place = self._offsets[self._offset_at]
            if place != position or header.last_offset > base + relative:
                self._bad.setdefault(".index", f"entry {self._offset_at} leads to byte {place}, where no such batch is")
            self._offset_at += 1
        while self._time_at < len(self._times) and base + self._times[self._time_at][1] <= header.last_offset:
            timestamp, relative = self._times[self._time_at]
            if base + relative < header.base_offset or timestamp != header.max_timestamp:
                self._bad.setdefault(
                    ".timeindex", f"entry {self._time_at}, {timestamp} at offset {base + relative}, is not in the log"
                )
            self._time_at += 1

    def problems(self) -> Iterator[tuple[str, str]]:
        for suffix, size in ((".index", OFFSET_ENTRY.size), (".timeindex", TIME_ENTRY.size)):
            data = self._data[suffix]
            if data is None and self._segment.size > UNINDEXED_BYTES_MAX:
                self._bad.setdefault(suffix, "missing")
            elif data is not None and len(data) % size:
                self._bad.setdefault(suffix, f"{len(data)} bytes, which is no whole number of entries of {size}")
        if self._offset_at < len(self._offsets):
            self._bad.setdefault(".index", f"{len(self._offsets) - self._offset_at} entries lead beyond the log file")
        if self._time_at < len(self._times):
            self._bad.setdefault(".timeindex", f"{len(self._times) - self._time_at} entries lie beyond the log file")
        self._check_aborted()
        yield from ((self._segment.path + suffix, what) for suffix, what in self._bad.items())

    def _check_aborted(self) -> None:
        data = self._data[".txnindex"] or b""
        segment = self._segment
        if len(data) % _ABORTED_BYTES:
            self._bad[".txnindex"] = f"{len(data)} bytes, which is no whole number of entries of {_ABORTED_BYTES}"
            return
        for at, entry in enumerate(decode_aborted(data)):
            if not 0 <= entry.first_offset <= entry.last_offset < segment.end_offset or entry.producer_id < 0:
                self._bad[".txnindex"] = f"entry {at} makes no sense: {entry.first_offset} to {entry.last_offset}"
                return


# ── beside the segments ──────────────────────────────────────────────────────────────────────────────────────────────


def _check_small_files(partition: CheckedPartition, names: list[str], disk: Disk) -> None:
    for name in names:
        path = os.path.join(partition.path, name)
        if name.endswith(SNAPSHOT_SUFFIX):
            try:
                ProducerState.decode_snapshot(disk.read_file(path) or b"")
            except ValueError as error:
                partition.findings.append(LogFinding(path=path, what=str(error), action="make it again from the log"))
                partition.bad_files.append(path)
        elif name == checkpoints.LEADER_EPOCH_FILE:
            _check_epochs(partition, path, disk)
        elif name == checkpoints.PARTITION_METADATA_FILE:
            try:
                checkpoints.decode_partition_metadata(checkpoints.text_of(disk.read_file(path) or b"", path), path)
            except OperatorError as error:
                what = str(error).removeprefix(path).lstrip(":, ")
                partition.findings.append(LogFinding(path=path, what=what, action=""))


def _check_epochs(partition: CheckedPartition, path: str, disk: Disk) -> None:
    try:
        found = LeaderEpochs.decode(checkpoints.text_of(disk.read_file(path) or b"", path), path)
        beyond = [entry for entry in found.entries if entry[1] > partition.end_offset]
        if not beyond:
            return
        what = f"epoch {beyond[0][0]} begins at {beyond[0][1]}, beyond the end {partition.end_offset}"
    except OperatorError as error:
        what = str(error).removeprefix(path).lstrip(":, ").split("; ")[0]
    partition.findings.append(LogFinding(path=path, what=what, action="write it again from the log's batches"))
    partition.bad_files.append(path)

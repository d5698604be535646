"""Opens a log as it was left: after a clean stop by trusting its files, after a crash by reading its tail.

Everything below the recovery point was flushed and is not read again. From there on each batch is checked, whole and
with its CRC, and the log is cut at the first that fails: what follows was never acknowledged. The indexes and the
producers' state are made again for what was read.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from crc32c import crc32c

from headrace.core.errors import OperatorError
from headrace.core.files import PASSING_ERRORS, Disk, OpenFiles
from headrace.log.checkpoints import text_of
from headrace.log.compaction_swap import SWAP_SUFFIX, complete_swaps
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.producer_state import ProducerState
from headrace.log.record_faults import RecordFaults
from headrace.log.segment import NAME_DIGITS, SUFFIXES, Segment, base_offset_of, segment_name
from headrace.log.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from headrace.log.snapshots import Snapshots
from headrace.log.transactions import Aborted, read_marker
from headrace.protocol.batch import CONTROL, CRC_END, HEADER_BYTES, MAGIC, TRANSACTIONAL, BatchHeader, read_header

READ_BYTES = 1 << 20
BATCH_BYTES_MAX = 1 << 30
RELATIVE_OFFSET_MAX = 1 << 31
DELETED_SUFFIX = ".deleted"
_LEFT_OVERS = (DELETED_SUFFIX, ".cleaned", SWAP_SUFFIX, ".tmp")

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Recovered:
    segments: list[Segment]
    end_offset: int
    start_offset: int
    epochs: LeaderEpochs
    snapshots: Snapshots
    bytes_read: int = 0
    bytes_cut: int = 0
    poison_batches: int = 0  # whole, but with records that make no sense


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
) -> Recovered:
    """`clean_offset`: below it the log was compacted, perhaps by Apache Kafka, and segments may end early."""
    disk = files.disk
    found = _look(path)
    if any(name.endswith(SWAP_SUFFIX) for name in found.left_overs):
        complete_swaps(disk, path)
        found = _look(path)
    for name in found.left_overs:
        disk.unlink(os.path.join(path, name))
    segments = []
    for base, size, changed_ms in found.segments:
        segments.append(Segment(path, base, files, changed_ms, size))
    if not segments:
        segments.append(Segment(path, max(start_offset, recovery_point), files, now_ms))
    epochs = _epochs(path, disk) if found.has_epochs else LeaderEpochs()
    snapshots = Snapshots(path, disk, found.snapshots)
    start_offset = max(start_offset, segments[0].base_offset)
    result = Recovered(
        segments=segments,
        end_offset=recovery_point,
        start_offset=start_offset,
        epochs=epochs,
        snapshots=snapshots,
    )
    if len(segments) == 1 and segments[0].size == 0:
        result.end_offset = segments[0].base_offset  # nothing to read
        if not clean:
            epochs.truncate_from_end(result.end_offset)
            snapshots.forget_from(result.end_offset)
    elif not clean or recovery_point < segments[-1].base_offset:
        recovery_point = max(recovery_point, segments[0].base_offset)
        _read_tail(result, files, recovery_point, index_interval_bytes, clean_offset)
    result.start_offset = min(result.start_offset, result.end_offset)
    return result


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


def _read_tail(
    result: Recovered, files: OpenFiles, recovery_point: int, index_interval_bytes: int, clean_offset: int
) -> None:
    """Reads from the recovery point to the end, cuts what is torn, rebuilds what was only in memory."""
    segments = result.segments
    first = max(i for i, s in enumerate(segments) if s.base_offset <= recovery_point or i == 0)
    result.snapshots.forget_from(recovery_point)  # a loss of power may have torn those above it; they are taken anew
    snapshot_offset, state = result.snapshots.load(recovery_point)
    _replay_producers(segments, state, snapshot_offset, recovery_point)
    end_offset = segments[first].base_offset
    for at in range(first, len(segments)):
        segment = segments[at]
        if at > first and not end_offset <= segment.base_offset <= max(end_offset, clean_offset):
            _drop(result, segments[at:], files)
            break
        following = segments[at + 1].base_offset if at + 1 < len(segments) else clean_offset
        end_offset, whole = _recover_segment(
            result, segment, files, recovery_point, state, index_interval_bytes, following
        )
        if not whole:
            _drop(result, segments[at + 1 :], files)
            break
    result.segments = [s for s in segments if not s.deleted]
    result.end_offset = end_offset
    result.epochs.truncate_from_end(end_offset)
    result.snapshots.use(state)


def _recover_segment(
    result: Recovered,
    segment: Segment,
    files: OpenFiles,
    recovery_point: int,
    state: ProducerState,
    index_interval_bytes: int,
    following: int,
) -> tuple[int, bool]:
    """The offset after the last whole batch, and whether the segment was whole to its end."""
    on_disk = segment.size
    position = _trusted_position(segment, recovery_point)
    offset = max(segment.base_offset, recovery_point) if position else segment.base_offset
    _forget_from(segment, position, offset, recovery_point)
    result.bytes_read += on_disk - position
    faults = RecordFaults(segment.log_path)
    for header, at in scan(segment, files, position, on_disk, verify=True, faults=faults):
        if at != position or not (header.base_offset == offset or _is_gap(segment, header, at, offset, following)):
            break  # the base offset lies outside the CRC, and this one is damaged
        segment.appended(header.size, header.last_offset, header.max_timestamp, index_interval_bytes)
        if segment.first_timestamp < 0:
            segment.first_timestamp = header.max_timestamp
        if header.producer_id >= 0 and header.last_offset >= recovery_point:
            _record(state, header, segment, at)
        position += header.size
        offset = header.last_offset + 1
    result.poison_batches += faults.end()
    segment.reserved = position
    whole = position == on_disk
    if not whole:
        result.bytes_cut += on_disk - position
        files.disk.truncate(segment.file().fd, position)
        logger.warning("%s: cut at byte %d of %d: the rest is torn", segment.log_path, position, on_disk)
    try:
        segment.spill()
    except OSError as error:
        if error.errno not in PASSING_ERRORS:
            raise
        logger.warning("%s: its indexes stay in memory: %s", segment.log_path, error.strerror)
    return offset, whole


def _is_gap(segment: Segment, header: BatchHeader, at: int, offset: int, following: int) -> bool:
    """Whether a base offset above the expected one is compaction's doing: then what follows lies above the batch, too.

    Where a base offset itself is damaged, the next one shows it.
    """
    head = segment.head(at + header.size, HEADER_BYTES)
    if len(head) == HEADER_BYTES:
        following = int.from_bytes(head[:8], "big")
    return offset < header.base_offset and header.last_offset < following <= segment.base_offset + RELATIVE_OFFSET_MAX


def _trusted_position(segment: Segment, recovery_point: int) -> int:
    """Where the batch at the recovery point begins, if the segment's index leads there; 0 otherwise."""
    if recovery_point <= segment.base_offset:
        return 0
    found = segment.locate(recovery_point, segment.size)
    if found is not None:
        return found[0] if found[1] == recovery_point else 0
    last = segment.locate(recovery_point - 1, segment.size)
    if last is None or read_header(segment.head(last[0], HEADER_BYTES)).last_offset != recovery_point - 1:
        return 0
    end = last[0] + last[2]
    return end if last[0] + HEADER_BYTES <= end <= segment.size else 0  # a damaged length leads nowhere


def _forget_from(segment: Segment, position: int, offset: int, recovery_point: int) -> None:
    """Index entries for what lies at or above `position` are made again."""
    offsets, times = segment.offsets, segment.times
    kept = offsets.floor(position - 1, field=1) + 1 if position else 0
    offsets.truncate_entries(kept)
    times.truncate_entries(times.floor(offset - 1 - segment.base_offset, field=1) + 1 if position else 0)
    if segment.aborted.exists():
        segment.aborted.truncate(max(offset, recovery_point))
    segment.rewind(position, position - offsets.at(kept - 1)[1] if kept else position)


def _replay_producers(segments: list[Segment], state: ProducerState, start: int, end: int) -> None:
    """Headers between the snapshot and the recovery point, for what producers did there."""
    if start >= end:
        return
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is not None and following.base_offset <= start:
            continue
        if segment.base_offset >= end:
            break
        found = segment.locate(start, segment.size)
        for header, position in segment_headers(segment, found[0] if found else segment.size):
            if header.base_offset >= end:
                break
            if header.producer_id >= 0 and header.base_offset >= start:
                _record(state, header, segment, position, known=True)


def _record(state: ProducerState, header: BatchHeader, segment: Segment, position: int, *, known: bool = False) -> None:
    """What a batch means for its producer. `known`: it lies below the recovery point, so the index has it already."""
    if header.attributes & CONTROL:
        marker = read_marker(segment.head(position, header.size), header.producer_id, header.producer_epoch)
        if marker is not None:
            entry = state.get(marker.producer_id)
            if not known and not marker.commit and entry is not None and entry.txn_first_offset >= 0:
                others = {pid: first for pid, first in state.open_transactions().items() if pid != marker.producer_id}
                stable = min(others.values(), default=header.last_offset + 1)
                segment.aborted.append(Aborted(marker.producer_id, entry.txn_first_offset, header.last_offset, stable))
            state.end_transaction(*marker[:3], header.max_timestamp)
        return
    sequence = header.base_sequence
    state.record(
        header.producer_id,
        header.producer_epoch,
        sequence,
        (sequence + header.last_offset_delta) & 0x7FFFFFFF if sequence >= 0 else -1,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        bool(header.attributes & TRANSACTIONAL),
    )


def segment_headers(segment: Segment, position: int) -> Iterator[tuple[BatchHeader, int]]:
    """The batches' headers from `position` on, trusted as they are, up to one that cannot be a batch."""
    while position + HEADER_BYTES <= segment.size:
        header = read_header(segment.head(position, HEADER_BYTES))
        if header.size < HEADER_BYTES:
            logger.warning("%s: damaged at byte %d: no batch has %d bytes", segment.log_path, position, header.size)
            return
        yield header, position
        position += header.size


def scan(
    segment: Segment, files: OpenFiles, position: int, end: int, *, verify: bool, faults: RecordFaults | None = None
) -> Iterator[tuple[BatchHeader, int]]:
    """Whole batches from `position` to `end`, up to the first that is torn or, if asked, fails its CRC.

    `faults` looks at the records of each, too.
    """
    fd = segment.file().fd
    read = files.disk.read
    window = memoryview(b"")
    at = position  # of the window's first byte
    while position + HEADER_BYTES <= end:
        local = position - at
        if local + HEADER_BYTES > len(window):
            window, at, local = memoryview(read(fd, READ_BYTES, position)), position, 0
            if len(window) < HEADER_BYTES:
                return
        header = read_header(window, local)
        size = header.size
        if header.magic != MAGIC or not HEADER_BYTES <= size <= min(BATCH_BYTES_MAX, end - position):
            return
        if verify:
            if local + size > len(window):
                window, at, local = memoryview(read(fd, max(READ_BYTES, size), position)), position, 0
                if len(window) < size:
                    return
            if crc32c(window[local + CRC_END : local + size]) != header.crc:
                return
            if faults is not None:
                faults.look(window[local : local + size], header, position)
        yield header, position
        position += size


def _drop(result: Recovered, segments: list[Segment], files: OpenFiles) -> None:
    for segment in segments:
        logger.warning("%s: removed: it lies beyond the torn end of the log", segment.log_path)
        result.bytes_cut += segment.size
        segment.deleted = True
        segment.forget_files()
        for suffix in SUFFIXES:
            files.disk.unlink(segment.path + suffix)


__all__ = ["DELETED_SUFFIX", "Recovered", "recover", "scan", "segment_headers", "segment_name"]

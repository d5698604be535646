"""Cuts the end of a log off, with all that belongs to it: a follower whose last batches its leader does not have.

What goes is gone as if it had never been written: index entries, the state of producers, open and aborted
transactions, leader epochs. Whole batches go; the log then ends where the first of them began. Before the first byte
goes the recovery point on the disk must lie below it (`LogStore.truncate` sees to that): a start after a crash fills
what is missing below its recovery point, and would put empty batches where the leader has records.
"""

import logging
from typing import TYPE_CHECKING

from headrace.core.errors import InvariantError
from headrace.log.config import NEVER
from headrace.log.producer_replay import replay_producers
from headrace.log.segment import SUFFIXES, Segment

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


def lower_recovery_point(log: "PartitionLog", offset: int) -> None:
    """Before the cut: from now on nothing above `offset` counts as flushed. The log must be at rest."""
    if not log.is_at_rest:
        raise InvariantError(f"{log.name}: to be cut at {offset} while it is written, flushed or looked at")
    log.flush_state.lower(offset)


def recovery_point_below(log: "PartitionLog", offset: int) -> int:
    """From where a start must read again if it crashes during or after the cut: the segment that is cut."""
    return log.segments[_last_kept(log, offset)].base_offset


def truncate_to(log: "PartitionLog", offset: int) -> None:
    """Takes away every batch that reaches `offset` or beyond."""
    if offset >= log.end_offset:
        return
    old_end, end_offset = log.end_offset, offset
    at = _last_kept(log, offset)
    kept, dropped = log.segments[: at + 1], log.segments[at + 1 :]
    for segment in reversed(dropped):  # the last first: a crash in between leaves no hole
        remove(log, segment)
    found = _first_gone(kept[-1], offset)
    if found is not None:
        end_offset = min(offset, found[1])
        kept[-1].cut(found[0], end_offset)
    log.segments = kept
    log.active = kept[-1]
    log.active.roll_after_timestamp = NEVER
    _forget(log, end_offset)
    logger.info("%s: cut from offset %d to %d", log.name, old_end, end_offset)


def start_again_at(log: "PartitionLog", offset: int, now_ms: int) -> None:
    """Nothing of the log is left; it goes on at `offset`: its leader keeps nothing older."""
    old = log.segments
    segment = Segment(log.path, offset, log.files, now_ms)
    for each in reversed(old):
        remove(log, each)
    segment.create_files()
    log.segments = [segment]
    log.active = segment
    log.start_offset = offset
    log.snapshots.forget_from(-1)
    log.epochs.clear()
    _forget(log, offset)
    log.high_watermark = offset
    logger.info("%s: emptied, and begun again at offset %d", log.name, offset)


def _last_kept(log: "PartitionLog", offset: int) -> int:
    return log.segment_of(max(offset, log.segments[0].base_offset))


def _first_gone(segment: Segment, offset: int) -> tuple[int, int, int] | None:
    """Position, base offset and size of the first batch of the segment that goes."""
    return segment.locate(offset, segment.size) if segment.size else None


def remove(log: "PartitionLog", segment: Segment) -> None:
    segment.deleted = True
    segment.forget_files()
    for suffix in SUFFIXES:
        log.files.disk.unlink(segment.path + suffix)


def _forget(log: "PartitionLog", end_offset: int) -> None:
    """What is known of the log is what is known of its first `end_offset` offsets."""
    log.snapshots.forget_from(end_offset)
    snapshot_offset, state = log.snapshots.load(end_offset)
    replay_producers(log.segments, state, snapshot_offset, end_offset)
    log.snapshots.use(state)
    log.open_transactions = state.open_transactions()
    log.epochs.truncate_from_end(end_offset)
    log.save_epochs()
    log.staged_epoch = log.written_epoch
    log.active.reserved = log.active.size
    log.appender.next_offset = log.end_offset = log.settled_offset = end_offset
    log.high_watermark = min(log.high_watermark, end_offset)
    log.start_offset = min(log.start_offset, end_offset)
    log.touched = True
    log.forget_reader()

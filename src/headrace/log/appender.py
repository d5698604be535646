"""The end of one partition's log that is not written yet: batches get their place here.

`stage` takes a producer's batch: it is checked, stamped with its offset and leader epoch, and put into an append set.
`stage_own` does so for what the broker itself writes, `stage_replica` for what a leader has stamped already: those
bytes stay as they are. The log writer writes append sets, one writev each, and `PartitionLog.written` then moves the
end. Until then nothing of a batch can be seen, and if the write fails `undo` makes the staging undone, producers'
sequence numbers included.

Only the event loop touches this object.
"""

import contextlib
from typing import TYPE_CHECKING, Final

from headrace.core.errors import InvariantError, PeerError
from headrace.log.admission import UNCHECKED, check_records, settle_time, too_large
from headrace.log.append_set import AppendSet, Waiter, tell
from headrace.log.config import NEVER
from headrace.log.segment import SUFFIXES, Segment
from headrace.log.transactions import Marker, read_marker
from headrace.protocol.batch import (
    CONTROL,
    HEADER,
    LOG_APPEND_TIME,
    STAMP,
    TRANSACTIONAL,
    check_produced,
    check_replicated,
)
from headrace.protocol.error_codes import CORRUPT_MESSAGE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1  # an index entry holds an offset as 32 bits above the segment's base


class Appender:
    __slots__ = ("append_sets", "log", "next_offset", "queued", "writing")
    __deletable__ = ["log"]  # noqa: RUF012  mypyc asks for a list

    def __init__(self, log: "PartitionLog", next_offset: int) -> None:
        self.log = log
        self.next_offset = next_offset
        self.append_sets: list[AppendSet] = []
        self.queued = False  # the log writer has the log in its list
        self.writing = False  # a thread writes some of it

    @property
    def is_idle(self) -> bool:
        """Nothing is staged and nothing is being written."""
        return not self.append_sets and not self.writing

    def let_go(self) -> None:
        """Of a log that was deleted: nothing will be staged any more."""
        del self.log

    @property
    def last_size(self) -> int:
        """Of the last append set; the others are small, since their segment was full."""
        return self.append_sets[-1].size if self.append_sets else 0

    def awaits(self, waiter: Waiter) -> bool:
        """Whether a batch of that waiter is in what was staged last."""
        if not self.append_sets:
            return False
        last = self.append_sets[-1]
        return waiter in last.commit_waiters or waiter in last.waiters

    # ── staging ──────────────────────────────────────────────────────────────────────────────────────────────────

    def stage(
        self,
        data: memoryview,
        start: int,
        end: int,
        now_ms: int,
        waiter: Waiter,
        *,
        transactional: bool = False,
        largest: int = UNCHECKED,
        until_committed: bool = True,
    ) -> tuple[int, int]:
        """Gives a producer's batch in data[start:end] its place. Returns (base offset, append time or -1).

        A transactional batch is taken only from a caller who has made sure of its transaction. The base offset is
        UNCHECKED, and nothing has happened, if the records must be looked at in a thread first (`check_slowly`);
        `largest` is what was found there. `until_committed`: the waiter waits for the other replicas as well.
        """
        log = self.log
        config = log.config
        if end - start > config.max_message_bytes:
            raise too_large(log.name, end - start, config)
        header = check_produced(data, start, end)
        if header[5] & TRANSACTIONAL and not transactional:
            why = f"{log.name}: a transactional batch needs the transactional id that it belongs to"
            raise PeerError(TRANSACTIONAL_ID_AUTHORIZATION_FAILED, why)
        if largest == UNCHECKED:
            largest = check_records(log.name, config, data, start, end, header, now_ms)
            if largest == UNCHECKED:
                return UNCHECKED, UNCHECKED
        max_timestamp, append_time = largest, -1
        if header[5] & LOG_APPEND_TIME or config.log_append_time or largest != header[8]:
            max_timestamp, append_time = settle_time(log.name, config, data, start, end, header, largest, now_ms)
        producer_id = header[9]
        if producer_id >= 0:
            last_sequence = (header[11] + header[12] - 1) & 0x7FFFFFFF
            duplicate = log.producers.check(producer_id, header[10], header[11], last_sequence)
            if duplicate is not None:
                self._await_duplicate(duplicate.last_offset, waiter, until_committed)
                return duplicate.base_offset, duplicate.timestamp if config.log_append_time else -1
        base_offset = self.next_offset
        segment = self._segment_for(base_offset + header[6], end - start, max_timestamp, now_ms)
        STAMP.pack_into(data, start, base_offset, header[1], log.leader_epoch)
        append_set = self._place(segment, data[start:end], header, base_offset, log.leader_epoch, max_timestamp)
        (append_set.commit_waiters if until_committed else append_set.waiters).append(waiter)
        return base_offset, append_time

    def stage_own(self, batch: bytearray, now_ms: int, waiter: Waiter, marker: Marker | None = None) -> int:
        """A batch that the broker itself writes: to an internal topic, or a marker. Returns its base offset."""
        log = self.log
        header = HEADER.unpack_from(batch)
        base_offset = self.next_offset
        segment = self._segment_for(base_offset + header[6], len(batch), header[8], now_ms)
        STAMP.pack_into(batch, 0, base_offset, header[1], log.leader_epoch)
        append_set = self._place(segment, memoryview(batch), header, base_offset, log.leader_epoch, header[8])
        append_set.commit_waiters.append(waiter)
        if marker is not None:
            self._stage_marker(append_set, marker, base_offset, header[8])
        return base_offset

    def stage_replica(self, data: memoryview, start: int, end: int, epoch_max: int, now_ms: int, waiter: Waiter) -> int:
        """A batch as the leader of `epoch_max` has it, byte for byte. Returns the offset after it.

        The leader checked its records; what can go wrong on the way is checked again: CRC, order, epoch. Offsets may
        be missing in front of it, since the leader's log may be compacted.
        """
        log = self.log
        header = check_replicated(data, start, end)
        base_offset, epoch = header[0], header[2]
        if base_offset < self.next_offset:
            why = f"{log.name}: the leader sent offset {base_offset}, which is below the end {self.next_offset}"
            raise PeerError(CORRUPT_MESSAGE, why)
        if epoch > epoch_max:
            why = f"{log.name}: the leader of epoch {epoch_max} sent a batch of epoch {epoch} at {base_offset}"
            raise PeerError(CORRUPT_MESSAGE, why)
        segment = self._segment_for(base_offset + header[6], end - start, header[8], now_ms)
        append_set = self._place(segment, data[start:end], header, base_offset, epoch, header[8])
        append_set.waiters.append(waiter)
        if header[5] & CONTROL:
            marker = read_marker(data[start:end], header[9], header[10])
            if marker is not None:
                self._stage_marker(append_set, marker, base_offset, header[8])
        return self.next_offset

    def _segment_for(self, last_offset: int, size: int, max_timestamp: int, now_ms: int) -> Segment:
        """The active segment, rolled first where it is full or old."""
        log = self.log
        segment = log.active
        if segment.reserved and (
            segment.reserved + size > log.config.segment_bytes
            or max_timestamp > segment.roll_after_timestamp
            or segment.index_bytes > log.config.segment_index_bytes
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or (segment.roll_after_timestamp == NEVER and self._is_old(segment, max_timestamp))
        ):
            segment = self._roll(self.next_offset, now_ms)  # before the batch counts: the snapshot ends below it
        if not segment.reserved:
            segment.first_timestamp = max_timestamp
        return segment

    def _place(
        self,
        segment: Segment,
        batch: memoryview,
        header: tuple[int, ...],
        base_offset: int,
        epoch: int,
        max_timestamp: int,
    ) -> AppendSet:
        """Puts a batch that may be appended into the append set of its segment."""
        log = self.log
        last_offset = base_offset + header[6]
        size = len(batch)
        append_sets = self.append_sets
        if append_sets and append_sets[-1].segment is segment:
            append_set = append_sets[-1]
        else:
            append_set = AppendSet(segment, segment.reserved)
            append_sets.append(append_set)
        append_set.views.append(batch)
        append_set.size += size
        append_set.batches.append((size, last_offset, max_timestamp))
        if epoch != log.staged_epoch:
            log.staged_epoch = epoch
            append_set.epochs.append((epoch, base_offset))
        if header[9] >= 0 and not header[5] & CONTROL:
            self._record(header, base_offset, last_offset, max_timestamp, append_set)
        if max_timestamp > append_set.max_timestamp:
            append_set.max_timestamp = max_timestamp
            append_set.max_timestamp_offset = last_offset
        segment.reserved += size
        self.next_offset = append_set.end_offset = last_offset + 1
        if not self.queued:
            log.writer.staged(log)
        return append_set

    def _record(
        self, header: tuple[int, ...], base_offset: int, last_offset: int, max_timestamp: int, append_set: AppendSet
    ) -> None:
        """What the batch means for its producer; undone if it cannot be written."""
        log = self.log
        producer_id, epoch, sequence = header[9], header[10], header[11]
        transactional = bool(header[5] & TRANSACTIONAL)
        last_sequence = (sequence + header[12] - 1) & 0x7FFFFFFF if sequence >= 0 else -1
        previous = log.producers.record(
            producer_id, epoch, sequence, last_sequence, base_offset, last_offset, max_timestamp, transactional
        )
        append_set.undo.append((producer_id, previous))
        if transactional:
            log.open_transactions.setdefault(producer_id, base_offset)

    def _stage_marker(self, append_set: AppendSet, marker: Marker, offset: int, timestamp_ms: int) -> None:
        """From now on the producer's batches stand behind the marker: they must not count as before it."""
        producers = self.log.producers
        append_set.undo.append((marker.producer_id, producers.get(marker.producer_id)))
        producers.end_transaction(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, timestamp_ms)
        append_set.markers.append((marker, offset))

    def _await_duplicate(self, last_offset: int, waiter: Waiter, until_committed: bool) -> None:
        """A batch that is here already is answered when the first copy of it is safe, not before."""
        log = self.log
        if last_offset < log.high_watermark or (not until_committed and last_offset < log.settled_offset):
            waiter.done(log, None)
            return
        if last_offset < log.settled_offset:
            log.await_commit(last_offset + 1, [waiter])
            return
        append_set = self._holding(last_offset)
        (append_set.commit_waiters if until_committed else append_set.waiters).append(waiter)

    def _holding(self, offset: int) -> AppendSet:
        log = self.log
        for append_set in (*log.flush_state.waiting, *self.append_sets):
            if append_set.end_offset > offset:
                return append_set
        return log.writer.in_flight(log, offset)

    # ── segments ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _is_old(self, segment: Segment, max_timestamp: int) -> bool:
        """Rolling by time counts from the first batch's timestamp, or from when the segment was made."""
        first = segment.rolling_timestamp()
        if first < 0:
            first = segment.created_ms
        segment.roll_after_timestamp = first + self.log.config.segment_ms - self.jitter_ms(segment)
        return max_timestamp > segment.roll_after_timestamp

    def jitter_ms(self, segment: Segment) -> int:
        """Spreads the rolling of many partitions; the same for a segment each time it is asked."""
        log = self.log
        jitter = min(log.config.segment_jitter_ms, log.config.segment_ms)
        return hash((log.name, segment.base_offset)) % jitter if jitter else 0

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        """A new active segment that begins at `base_offset`. What was staged for the old one still goes there."""
        log = self.log
        log.snapshots.stage_roll(base_offset)
        segment = Segment(log.path, base_offset, log.files, now_ms)
        old = log.active
        log.segments = [*log.segments, segment]
        log.active = segment
        if old.size == old.reserved:
            log.seal(old)
        return segment

    def roll_now(self, now_ms: int) -> None:
        """Begins a new segment, so that all before it can be deleted. Nothing may be staged."""
        log = self.log
        if not self.is_idle:
            raise InvariantError(f"{log.name}: rolled while batches are staged")
        if log.active.size:
            self._roll(log.end_offset, now_ms).create_files()

    # ── failing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def undo(self, append_sets: list[AppendSet], error: Exception) -> None:
        """These could not be written: as if they, and all that is staged behind them, had never been staged."""
        log = self.log
        append_sets = append_sets + self.append_sets
        self.append_sets = []
        for append_set in reversed(append_sets):
            for producer_id, previous in reversed(append_set.undo):
                log.producers.restore(producer_id, previous)
                if previous is None or previous.txn_first_offset < 0:
                    log.open_transactions.pop(producer_id, None)
                else:
                    log.open_transactions[producer_id] = previous.txn_first_offset
        for segment in log.segments[1:]:
            if segment.size == 0:
                self._drop_unwritten(segment)
        log.active = log.segments[-1]
        log.active.reserved = log.active.size
        self.next_offset = log.end_offset
        log.staged_epoch = log.written_epoch
        for append_set in append_sets:
            tell(append_set.waiters, log, error)
            tell(append_set.commit_waiters, log, error)

    def _drop_unwritten(self, segment: Segment) -> None:
        log = self.log
        segment.deleted = True
        log.segments = [s for s in log.segments if s is not segment]
        log.snapshots.forget_from(segment.base_offset)
        segment.forget_files()
        for suffix in SUFFIXES:
            with contextlib.suppress(OSError):  # the disk has just failed: an empty file that stays does no harm
                log.files.disk.unlink(segment.path + suffix)

"""One partition's log: what is in it, what may be seen of it, and how it grows.

Appending has three steps. `stage` checks a batch, gives it its offset and puts it into a group; the group writer
writes groups, one writev each; `committed` then moves the end. Between the first and the last step nothing of the
batch can be seen, and if the write fails `aborted` makes the staging undone, producers' sequence numbers included.

    start_offset ≤ high_watermark ≤ end_offset ≤ next_offset
    (kept)         (visible)        (written)    (staged)

Only the event loop touches this object; threads get file descriptors and bytes, never the log itself.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.core.errors import InvariantError, PeerError, StorageError
from headrace.core.files import OpenFile, OpenFiles
from headrace.log import time_lookup
from headrace.log.admission import UNCHECKED, check_records, settle_time, too_large
from headrace.log.config import NEVER, LogConfig
from headrace.log.group import Group, Waiter, tell
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.producer_state import ProducerState
from headrace.log.reader import LogReader, Run
from headrace.log.segment import SUFFIXES, Segment
from headrace.log.snapshots import Snapshots
from headrace.log.transactions import Aborted, Marker, aborted_between
from headrace.protocol.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    STAMP,
    TRANSACTIONAL,
    check_produced,
)
from headrace.protocol.error_codes import OFFSET_OUT_OF_RANGE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED

if TYPE_CHECKING:
    from headrace.log.group_writer import GroupWriter
    from headrace.log.store import LogDirectory

logger = logging.getLogger(__name__)

SMALL_BYTES_MAX: Final = 256 << 10
RELATIVE_OFFSET_MAX: Final = (1 << 31) - 1  # an index entry holds an offset as 32 bits above the segment's base


class PartitionLog:
    __slots__ = (
        "_flush_waiting",
        "_reader",
        "active",
        "config",
        "deleted",
        "directory",
        "end_offset",
        "epochs",
        "files",
        "flushed_offset",
        "flushing",
        "groups",
        "high_watermark",
        "index",
        "leader_epoch",
        "mark",
        "name",
        "next_offset",
        "on_visible",
        "open_transactions",
        "path",
        "queued",
        "segments",
        "snapshots",
        "start_offset",
        "surveys",
        "topic",
        "touched",
        "unflushed_since_ms",
        "wanted_mark",
        "writer",
        "writing",
    )

    def __init__(
        self,
        *,
        topic: str,
        index: int,
        directory: "LogDirectory",
        path: str,
        config: LogConfig,
        files: OpenFiles,
        writer: "GroupWriter",
        segments: list[Segment],
        start_offset: int,
        end_offset: int,
        flushed_offset: int,
        epochs: LeaderEpochs,
        snapshots: Snapshots,
        open_transactions: dict[int, int] | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.name = f"{topic}-{index}"
        self.directory = directory
        self.path = path
        self.config = config
        self.files = files
        self.writer = writer
        self.segments = segments
        self.active = segments[-1]
        self.start_offset = start_offset
        self.end_offset = self.next_offset = self.high_watermark = end_offset
        self.flushed_offset = flushed_offset
        self.mark = flushed_offset  # below it, indexes and a snapshot of the producers are on the disk
        self.wanted_mark = flushed_offset  # they are in files up to here, and the next flush takes them along
        self.unflushed_since_ms = 0
        self.deleted = False
        self.touched = False  # something was appended since it was opened
        self.epochs = epochs
        self.leader_epoch = epochs.latest or 0
        self.snapshots = snapshots
        self.open_transactions = open_transactions if open_transactions is not None else {}  # producer, first offset
        self.groups: list[Group] = []
        self.queued = False  # the group writer has it in its list
        self.writing = False
        self.flushing = False
        self.on_visible: Callable[[], None] | None = None
        self.surveys: list[Segment] = []  # whose batches a thread looks at
        self._reader: LogReader | None = None  # made on first use
        self._flush_waiting: list[Group] = []

    @property
    def producers(self) -> ProducerState:
        return self.snapshots.state()

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended."""
        if not self.open_transactions:
            return self.high_watermark
        return min(self.high_watermark, *self.open_transactions.values())

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def is_small(self) -> bool:
        """Reading it through costs next to nothing."""
        return len(self.segments) == 1 and self.active.size <= SMALL_BYTES_MAX

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config
        self.active.roll_after_timestamp = NEVER  # to be reckoned anew

    # ── appending ────────────────────────────────────────────────────────────────────────────────────────────────

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
    ) -> tuple[int, int]:
        """Gives a producer's batch in data[start:end] its place. Returns (base offset, append time or -1).

        A transactional batch is taken only from a caller who has made sure of its transaction. The base offset is
        UNCHECKED, and nothing has happened, if the records must be looked at in a thread first (`check_slowly`);
        `largest` is what was found there.
        """
        config = self.config
        if end - start > config.max_message_bytes:
            raise too_large(self.name, end - start, config)
        header = check_produced(data, start, end)
        if header[5] & TRANSACTIONAL and not transactional:
            why = f"{self.name}: a transactional batch needs the transactional id that it belongs to"
            raise PeerError(TRANSACTIONAL_ID_AUTHORIZATION_FAILED, why)
        if largest == UNCHECKED:
            largest = check_records(self.name, config, data, start, end, header, now_ms)
            if largest == UNCHECKED:
                return UNCHECKED, UNCHECKED
        max_timestamp, append_time = largest, -1
        if header[5] & LOG_APPEND_TIME or config.log_append_time or largest != header[8]:
            max_timestamp, append_time = settle_time(self.name, config, data, start, end, header, largest, now_ms)
        producer_id = header[9]
        if producer_id >= 0:
            last_sequence = (header[11] + header[12] - 1) & 0x7FFFFFFF
            duplicate = self.producers.check(producer_id, header[10], header[11], last_sequence)
            if duplicate is not None:
                self._await_duplicate(duplicate.last_offset, waiter)
                return duplicate.base_offset, duplicate.timestamp if self.config.log_append_time else -1
        return self._place(data, start, end, header, max_timestamp, now_ms, waiter), append_time

    def stage_own(self, batch: bytearray, now_ms: int, waiter: Waiter, marker: Marker | None = None) -> int:
        """A batch that the broker itself writes: to an internal topic, or a marker. Returns its base offset."""
        view = memoryview(batch)
        header = HEADER.unpack_from(view)
        base_offset = self._place(view, 0, len(batch), header, header[8], now_ms, waiter)
        if marker is not None:
            # From now on the producer's batches stand behind the marker: they must not count as before it.
            group = self.groups[-1]
            group.undo.append((marker.producer_id, self.producers.get(marker.producer_id)))
            self.producers.end_transaction(
                marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, header[8]
            )
            group.markers.append((marker, base_offset))
        return base_offset

    def _place(
        self,
        data: memoryview,
        start: int,
        end: int,
        header: tuple[int, ...],
        max_timestamp: int,
        now_ms: int,
        waiter: Waiter,
    ) -> int:
        """Puts a batch that may be appended into the group of its segment. Returns its base offset."""
        base_offset = self.next_offset
        last_offset = base_offset + header[6]
        size = end - start
        segment = self.active
        if segment.reserved and (
            segment.reserved + size > self.config.segment_bytes
            or max_timestamp > segment.roll_after_timestamp
            or segment.index_bytes > self.config.segment_index_bytes
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or (segment.roll_after_timestamp == NEVER and self._is_old(segment, max_timestamp))
        ):
            segment = self._roll(base_offset, now_ms)  # before this batch counts: the snapshot ends below it
        if not segment.reserved:
            segment.first_timestamp = max_timestamp
        STAMP.pack_into(data, start, base_offset, header[1], self.leader_epoch)
        groups = self.groups
        if groups and groups[-1].segment is segment:
            group = groups[-1]
        else:
            group = Group(segment, segment.reserved)
            groups.append(group)
        group.views.append(data[start:end])
        group.size += size
        group.marks.append((size, last_offset, max_timestamp))
        group.waiters.append(waiter)
        if header[9] >= 0 and not header[5] & CONTROL:
            self._record(header, base_offset, last_offset, max_timestamp, group)
        if max_timestamp > group.max_timestamp:
            group.max_timestamp = max_timestamp
            group.max_timestamp_offset = last_offset
        segment.reserved += size
        self.next_offset = group.end_offset = last_offset + 1
        if not self.queued:
            self.writer.staged(self)
        return base_offset

    def _record(
        self, header: tuple[int, ...], base_offset: int, last_offset: int, max_timestamp: int, group: Group
    ) -> None:
        """What the batch means for its producer; undone if it cannot be written."""
        producer_id, epoch, sequence = header[9], header[10], header[11]
        transactional = bool(header[5] & TRANSACTIONAL)
        last_sequence = (sequence + header[12] - 1) & 0x7FFFFFFF if sequence >= 0 else -1
        previous = self.producers.record(
            producer_id, epoch, sequence, last_sequence, base_offset, last_offset, max_timestamp, transactional
        )
        group.undo.append((producer_id, previous))
        if transactional:
            self.open_transactions.setdefault(producer_id, base_offset)

    def _end_transaction(self, marker: Marker, offset: int, segment: Segment) -> None:
        """A marker is in the log: what was open is committed, or aborted and listed as such."""
        first_offset = self.open_transactions.pop(marker.producer_id, -1)
        if first_offset >= 0 and not marker.commit:
            stable = min(self.open_transactions.values(), default=offset + 1)
            segment.aborted.append(Aborted(marker.producer_id, first_offset, offset, stable))
        # An administrator's marker does not stop the producer: it may have begun the next one while this was written.
        entry = self.producers.get(marker.producer_id)
        if entry is not None and entry.txn_first_offset > offset:
            self.open_transactions[marker.producer_id] = entry.txn_first_offset

    def aborted_in_last_read(self, start: int) -> tuple[tuple[int, int], ...]:
        """(producer id, first offset) of what was aborted and has records in what was just read from `start` on."""
        return self.aborted_between(start, self._reader.upper if self._reader is not None else start)

    def aborted_between(self, start: int, end: int) -> tuple[tuple[int, int], ...]:
        """The same for [start, end)."""
        return aborted_between((s.aborted for s in self.segments[self.segment_of(start) :]), start, end)

    def needs_conversion(self, attributes: int) -> int | None:
        """The codec that a batch must be packed anew with, where the topic names one and it differs."""
        wanted = _CODECS[self.config.compression_type]
        return wanted if wanted >= 0 and wanted != attributes & CODEC_MASK else None

    def _await_duplicate(self, last_offset: int, waiter: Waiter) -> None:
        """A batch that is here already is answered when the first copy of it is safe, not before."""
        if last_offset < self.high_watermark:
            waiter.done(self, None)
            return
        for group in (*self._flush_waiting, *self.groups):
            if group.end_offset > last_offset:
                group.waiters.append(waiter)
                return
        self.writer.in_flight(self, last_offset).waiters.append(waiter)

    def _is_old(self, segment: Segment, max_timestamp: int) -> bool:
        """Rolling by time counts from the first batch's timestamp, or from when the segment was made."""
        first = segment.rolling_timestamp()
        if first < 0:
            first = segment.created_ms
        segment.roll_after_timestamp = first + self.config.segment_ms - self.jitter_ms(segment)
        return max_timestamp > segment.roll_after_timestamp

    def jitter_ms(self, segment: Segment) -> int:
        """Spreads the rolling of many partitions; the same for a segment each time it is asked."""
        jitter = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return hash((self.name, segment.base_offset)) % jitter if jitter else 0

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        """A new active segment that begins at `base_offset`. What was staged for the old one still goes there."""
        self.snapshots.stage_roll(base_offset)
        segment = Segment(self.path, base_offset, self.files, now_ms)
        old = self.active
        self.segments = [*self.segments, segment]
        self.active = segment
        if old.size == old.reserved:
            self._seal(old)
        return segment

    def roll_now(self, now_ms: int) -> None:
        """Begins a new segment, so that all before it can be deleted. Nothing may be staged."""
        if self.groups or self.writing:
            raise InvariantError(f"{self.name}: rolled while batches are staged")
        if self.active.size:
            self._roll(self.end_offset, now_ms).create_files()

    def committed(self, group: Group) -> None:
        """The group's bytes are in the file."""
        segment = group.segment
        start_offset, self.end_offset = self.end_offset, group.end_offset  # first: what follows may fail
        self.touched = True
        interval = self.config.index_interval_bytes
        if segment.bytes_since_entry + group.size <= interval:
            segment.appended(group.size, group.max_timestamp_offset, group.max_timestamp, interval)
        else:
            for size, last_offset, max_timestamp in group.marks:
                segment.appended(size, last_offset, max_timestamp, interval)
        for marker, offset in group.markers:
            self._end_transaction(marker, offset, segment)
        if self.epochs.latest != self.leader_epoch:
            self.epochs.assign(self.leader_epoch, start_offset)
            self.save_epochs()
        if segment is not self.active and segment.size == segment.reserved:
            self._seal(segment)

    def _seal(self, segment: Segment) -> None:
        """All of it is written, and the next one has begun."""
        try:
            self.spill()
            self.snapshots.roll_committed(self)
            self.wanted_mark = max(self.wanted_mark, self.segments[self.segments.index(segment) + 1].base_offset)
        except OSError as error:
            # What it could not write stays in memory, and the recovery point below it: the next checkpoint tries again.
            logger.warning("a segment could not be sealed: %s", self.writer.on_failure(self, error))
            return
        segment.forget_files()
        self.writer.flush_later(self)

    def spill(self) -> None:
        """Writes the index entries that are in memory only, of all segments above the last mark."""
        for segment in reversed(self.segments):
            if segment.size:
                segment.spill()
            if segment.base_offset <= self.mark:
                break

    def publish(self, group: Group) -> None:
        """The group may be seen, and those who wait for it are answered."""
        self.high_watermark = group.end_offset
        tell(group.waiters, self, None)
        if self.on_visible is not None:
            self.on_visible()

    def aborted(self, groups: list[Group], error: Exception) -> None:
        """These groups could not be written: as if they had never been staged."""
        groups = groups + self.groups
        self.groups = []
        for group in reversed(groups):
            for producer_id, previous in reversed(group.undo):
                self.producers.restore(producer_id, previous)
                if previous is None or previous.txn_first_offset < 0:
                    self.open_transactions.pop(producer_id, None)
                else:
                    self.open_transactions[producer_id] = previous.txn_first_offset
        for segment in self.segments[1:]:
            if segment.size == 0:
                self._drop_unwritten(segment)
        self.active = self.segments[-1]
        self.active.reserved = self.active.size
        self.next_offset = self.end_offset
        for group in groups:
            tell(group.waiters, self, error)

    def _drop_unwritten(self, segment: Segment) -> None:
        segment.deleted = True
        self.segments = [s for s in self.segments if s is not segment]
        self.snapshots.forget_from(segment.base_offset)
        segment.forget_files()
        for suffix in SUFFIXES:
            with contextlib.suppress(OSError):  # the disk has just failed: an empty file that stays does no harm
                self.files.disk.unlink(segment.path + suffix)

    def save_epochs(self) -> None:
        path = os.path.join(self.path, "leader-epoch-checkpoint")
        self.files.disk.replace_file(path, self.epochs.encode().encode(), sync=False)

    # ── flushing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def wants_flush(self, group: Group) -> bool:
        return group.end_offset - self.flushed_offset >= self.config.flush_messages

    def unflushed_files(self) -> list[OpenFile]:
        """The files that hold what is written but not yet on the disk for certain; pinned."""
        paths = []
        for segment in reversed(self.segments):
            if segment.size:
                paths.append(segment.log_path)
            if segment.base_offset <= self.flushed_offset:
                break
        if self.wanted_mark > self.mark:
            paths += self.snapshots.newest()
            for segment in reversed(self.segments):
                paths += segment.index_paths()
                if segment.base_offset <= self.mark:
                    break
        found = []
        for path in paths:
            file = self.files.get(path)
            file.pins += 1
            found.append(file)
        return found

    def checkpoint(self) -> None:
        """Writes all that a start would need to begin from here: the next flush makes it the recovery point."""
        self.spill()
        self.snapshots.take(self.end_offset, small=self.is_small)
        self.wanted_mark = self.end_offset

    @property
    def holds_for_flush(self) -> bool:
        return bool(self._flush_waiting)

    @property
    def recovery_point(self) -> int:
        """All below it is on the disk for certain, with all that belongs to it."""
        return min(self.flushed_offset, self.mark)

    def hold_for_flush(self, group: Group) -> None:
        self._flush_waiting.append(group)

    def flushed(self, offset: int) -> bool:
        """All below `offset` is on the disk. True if more waits for the next flush."""
        self.flushed_offset = max(self.flushed_offset, offset)
        waiting = self._flush_waiting
        while waiting and waiting[0].end_offset <= offset:
            self.publish(waiting.pop(0))
        return bool(waiting)

    def flush_failed(self, error: Exception) -> None:
        waiting, self._flush_waiting = self._flush_waiting, []
        for group in waiting:
            tell(group.waiters, self, error)

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def segment_of(self, offset: int) -> int:
        """The position in `segments` of the one that holds `offset`."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        low, high = 0, len(segments)
        while high - low > 1:
            middle = (low + high) // 2
            if segments[middle].base_offset <= offset:
                low = middle
            else:
                high = middle
        return low

    def check_offset(self, offset: int) -> None:
        if not self.start_offset <= offset <= self.high_watermark:
            raise PeerError(
                OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset} is outside [{self.start_offset}, {self.high_watermark}];"
                f" start from {self.start_offset}",
            )

    def read(
        self, offset: int, bytes_max: int, *, whole_first: bool, copy: bool = False, end: int | None = None
    ) -> Run | None:
        """Whole batches from `offset` on, below `end` or what is visible; see LogReader."""
        if end is None:
            end = self.high_watermark
        if offset >= end:
            return None
        reader = self._reader
        if reader is None:
            reader = self._reader = LogReader(self)
        return reader.read(offset, bytes_max, end, whole_first=whole_first, copy=copy)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        if epoch == self.leader_epoch:
            return epoch, self.end_offset
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def leader_epoch_at(self, offset: int) -> int:
        epoch = self.epochs.epoch_for(offset)
        return epoch if epoch is not None else self.leader_epoch

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int, int] | None:
        """The first record at or after that time: its offset, its timestamp and its leader epoch."""
        found = time_lookup.first_at_or_after(self, timestamp_ms)
        return (*found, self.leader_epoch_at(found[0])) if found is not None else None

    def max_timestamp(self) -> tuple[int, int, int] | None:
        """The record with the largest timestamp: its offset, that timestamp and its leader epoch."""
        found = time_lookup.latest(self)
        return (*found, self.leader_epoch_at(found[0])) if found is not None else None

    def delete_records_before(self, offset: int) -> int:
        """Readers see nothing below `offset` any more; -1 means all that is visible. Returns the new start."""
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            self.check_offset(max(offset, self.high_watermark + 1))
        if offset > self.start_offset:
            self.start_offset = offset
            if self.epochs.truncate_from_start(offset):
                self.save_epochs()
        return self.start_offset

    def read_batch_at(self, segment: Segment, position: int, size: int) -> bytes:
        data = segment.head(position, size)
        if len(data) < min(size, HEADER_BYTES):
            raise StorageError(f"{self.name}: {segment.log_path} ends within a batch at byte {position}")
        return data


_CODECS: Final = {"producer": -1, "uncompressed": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

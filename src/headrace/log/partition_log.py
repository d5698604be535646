"""One partition's log on this broker: bytes and offsets, what is written, what may be seen.

    start_offset ≤ high_watermark ≤ settled_offset ≤ end_offset ≤ next_offset
    (kept)         (committed)      (ours to count)  (written)    (staged: see `Appender`)

`settled_offset` is what this replica vouches for: written and, where the topic asks for it, flushed. The high watermark
is what consumers may see and what acks=all waits for. Where there is no other replica it follows the settled offset by
itself; otherwise (`share`) whoever knows the other replicas moves it with `commit_to`. Who wants to know is told when
either moves.

Only the event loop touches this object; threads get file descriptors and bytes, never the log itself.
"""

import logging
import os
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.core.errors import InvariantError, PeerError, StorageError
from headrace.core.files import OpenFiles
from headrace.log import time_lookup
from headrace.log.append_set import AppendSet, Waiter, tell
from headrace.log.appender import Appender
from headrace.log.config import NEVER, LogConfig
from headrace.log.flush_state import FlushState
from headrace.log.leader_epochs import LeaderEpochs
from headrace.log.producer_state import ProducerState
from headrace.log.reader import LogReader, Run
from headrace.log.segment import Segment
from headrace.log.snapshots import Snapshots
from headrace.log.transactions import Aborted, Marker, aborted_between
from headrace.protocol.batch import CODEC_MASK, HEADER_BYTES
from headrace.protocol.error_codes import OFFSET_OUT_OF_RANGE

if TYPE_CHECKING:
    from headrace.log.log_writer import LogWriter
    from headrace.log.store import LogDirectory

logger = logging.getLogger(__name__)

SMALL_BYTES_MAX: Final = 256 << 10
NO_EPOCH: Final = -1


class PartitionLog:
    __slots__ = (
        "_commit_waiting",
        "_reader",
        "active",
        "appender",
        "commits_alone",
        "config",
        "deleted",
        "directory",
        "end_offset",
        "epochs",
        "files",
        "flush_state",
        "high_watermark",
        "index",
        "leader_epoch",
        "name",
        "on_high_watermark",
        "on_settled",
        "open_transactions",
        "path",
        "saved_high_watermark",
        "segments",
        "settled_offset",
        "snapshots",
        "staged_epoch",
        "start_offset",
        "surveys",
        "topic",
        "touched",
        "writer",
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
        writer: "LogWriter",
        segments: list[Segment],
        start_offset: int,
        end_offset: int,
        flushed_offset: int,
        epochs: LeaderEpochs,
        snapshots: Snapshots,
        open_transactions: dict[int, int] | None = None,
        high_watermark: int = 0,
    ) -> None:
        """`high_watermark` is the one of the checkpoint; it counts when there are other replicas."""
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
        self.end_offset = self.settled_offset = self.high_watermark = end_offset
        self.saved_high_watermark = min(max(high_watermark, start_offset), end_offset)
        self.commits_alone = True  # no other replica is in sync: what is settled is committed
        self.flush_state = FlushState(flushed_offset)
        self.deleted = False
        self.touched = False  # something was appended since it was opened
        self.epochs = epochs
        self.leader_epoch = epochs.latest or 0
        self.snapshots = snapshots
        self.open_transactions = open_transactions if open_transactions is not None else {}  # producer, first offset
        self.staged_epoch = self.written_epoch  # of the last batch that has its place
        self.appender = Appender(self, end_offset)
        self.on_settled: list[Callable[[], None]] = []
        self.on_high_watermark: list[Callable[[], None]] = []
        self.surveys: list[Segment] = []  # whose batches a thread looks at
        self._commit_waiting: deque[tuple[int, list[Waiter]]] = deque()  # end offset, and who waits for it
        self._reader: LogReader | None = None  # made on first use

    @property
    def producers(self) -> ProducerState:
        return self.snapshots.state()

    @property
    def next_offset(self) -> int:
        """What the next batch gets: all below it is written or staged."""
        return self.appender.next_offset

    @property
    def written_epoch(self) -> int:
        latest = self.epochs.latest
        return latest if latest is not None else NO_EPOCH

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
    def recovery_point(self) -> int:
        """All below it is on the disk for certain, with all that belongs to it."""
        return self.flush_state.recovery_point

    @property
    def is_at_rest(self) -> bool:
        """Nothing of it is staged, written, flushed or looked at: it may be cut."""
        state = self.flush_state
        return self.appender.is_idle and not (state.is_under_way or self.surveys or state.waiting)

    @property
    def is_small(self) -> bool:
        """Reading it through costs next to nothing."""
        return len(self.segments) == 1 and self.active.size <= SMALL_BYTES_MAX

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config
        self.active.roll_after_timestamp = NEVER  # to be computed again

    # ── what is written ──────────────────────────────────────────────────────────────────────────────────────────

    def written(self, append_set: AppendSet) -> None:
        """Its bytes are in the file."""
        segment = append_set.segment
        self.end_offset = append_set.end_offset  # first: what follows may fail
        self.touched = True
        interval = self.config.index_interval_bytes
        if segment.bytes_since_entry + append_set.size <= interval:
            segment.appended(append_set.size, append_set.max_timestamp_offset, append_set.max_timestamp, interval)
        else:
            for size, last_offset, max_timestamp in append_set.batches:
                segment.appended(size, last_offset, max_timestamp, interval)
        for marker, offset in append_set.markers:
            self._end_transaction(marker, offset, segment)
        if append_set.epochs:
            for epoch, first_offset in append_set.epochs:
                self.epochs.assign(epoch, first_offset)
            self.save_epochs()
        if segment is not self.active and segment.size == segment.reserved:
            self.seal(segment)

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

    def seal(self, segment: Segment) -> None:
        """All of it is written, and the next one has begun."""
        try:
            self.spill()
            self.snapshots.roll_committed(self)
            self.flush_state.want_spilled(self.segments[self.segments.index(segment) + 1].base_offset)
        except OSError as error:
            # What it could not write stays in memory, and the recovery point below it: the next checkpoint tries again.
            logger.warning("a segment could not be sealed: %s", self.writer.on_failure(self, error))
            return
        segment.forget_files()
        self.writer.flush_later(self)

    def spill(self) -> None:
        """Writes the index entries that are in memory only, of all segments above the spilled offset."""
        for segment in reversed(self.segments):
            if segment.size:
                segment.spill()
            if segment.base_offset <= self.flush_state.spilled_offset:
                break

    def checkpoint(self) -> None:
        """Writes all that a start would need to begin from here: the next flush makes it the recovery point."""
        self.spill()
        self.snapshots.take(self.end_offset, small=self.is_small)
        self.flush_state.want_spilled(self.end_offset)

    def begin_epoch(self, epoch: int) -> None:
        """This broker leads from now on, in that epoch. On disk before anything is served: a follower that asks where
        an older epoch ended must never be told of what this one writes."""
        self.leader_epoch = epoch
        if epoch != self.written_epoch:
            self.epochs.assign(epoch, self.end_offset)
            self.staged_epoch = epoch
            self.save_epochs()

    def save_epochs(self) -> None:
        path = os.path.join(self.path, "leader-epoch-checkpoint")
        self.files.disk.replace_file(path, self.epochs.encode().encode(), sync=False)

    # ── what is committed ────────────────────────────────────────────────────────────────────────────────────────

    def settle(self, append_set: AppendSet) -> None:
        """This replica vouches for it: who waits for nothing else is answered."""
        self.settled_offset = append_set.end_offset
        if self.commits_alone:
            self.high_watermark = append_set.end_offset
        for heard in self.on_settled:
            heard()
        tell(append_set.waiters, self, None)
        if append_set.commit_waiters:
            self.await_commit(append_set.end_offset, append_set.commit_waiters)
        if self.commits_alone:
            for heard in self.on_high_watermark:
                heard()

    def await_commit(self, end_offset: int, waiters: list[Waiter]) -> None:
        """They are answered when the high watermark is there."""
        if end_offset <= self.high_watermark:
            tell(waiters, self, None)
            return
        self._commit_waiting.append((end_offset, waiters))
        for waiter in waiters:
            waiter.written(self)

    def share(self, *, is_alone_so_far: bool = False) -> None:
        """There are other replicas: the high watermark is what they have, from the last checkpoint on; or from now on,
        where this one was the only one until now and so committed by itself."""
        self.commits_alone = False
        if not is_alone_so_far:
            self.high_watermark = self.saved_high_watermark

    def commit_alone(self) -> None:
        """There is no other replica any more: what is settled here is committed."""
        self.commits_alone = True
        self.commit_to(self.settled_offset)

    def commit_to(self, offset: int) -> None:
        """The replicas in sync have all below `offset`. It never falls."""
        if offset > self.end_offset:
            raise InvariantError(f"{self.name}: commit of {offset}, beyond the end {self.end_offset}")
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        waiting = self._commit_waiting
        while waiting and waiting[0][0] <= offset:
            tell(waiting.popleft()[1], self, None)
        for heard in self.on_high_watermark:
            heard()

    def fail_uncommitted(self, error: Exception) -> None:
        """Nobody here will learn whether what is written gets committed: another broker leads, or the log is gone."""
        waiting, self._commit_waiting = self._commit_waiting, deque()
        for _, waiters in waiting:
            tell(waiters, self, error)

    def let_go(self) -> None:
        """Deleted: as soon as nothing of it is under way, all that refers back to it goes, so that its memory is free
        at once. The collector of cycles would find it only when it goes through everything that is old."""
        if self.appender.is_idle and not self.appender.queued:
            self._reader = None
            self.on_settled.clear()
            self.on_high_watermark.clear()
            self.appender.let_go()

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
        """What is written and not committed yet is no error: a reader that saw it elsewhere waits for it."""
        if not self.start_offset <= offset <= self.end_offset:
            raise self._out_of_range(offset)

    def _out_of_range(self, offset: int) -> PeerError:
        return PeerError(
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

    def forget_reader(self) -> None:
        """Where it was in the log is not where those bytes are any more."""
        self._reader = None

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
            raise self._out_of_range(offset)
        if offset > self.start_offset:
            self.start_offset = offset
            if self.epochs.truncate_from_start(offset):
                self.save_epochs()
        return self.start_offset

    def aborted_in_last_read(self, start: int) -> tuple[tuple[int, int], ...]:
        """(producer id, first offset) of what was aborted and has records in what was just read from `start` on."""
        return self.aborted_between(start, self._reader.upper if self._reader is not None else start)

    def aborted_between(self, start: int, end: int) -> tuple[tuple[int, int], ...]:
        """The same for [start, end)."""
        return aborted_between((s.aborted for s in self.segments[self.segment_of(start) :]), start, end)

    def needs_conversion(self, attributes: int) -> int | None:
        """The codec that a batch must be packed again with, where the topic names one and it differs."""
        wanted = _CODECS[self.config.compression_type]
        return wanted if wanted >= 0 and wanted != attributes & CODEC_MASK else None

    def read_batch_at(self, segment: Segment, position: int, size: int) -> bytes:
        data = segment.head(position, size)
        if len(data) < min(size, HEADER_BYTES):
            raise StorageError(f"{self.name}: {segment.log_path} ends within a batch at byte {position}")
        return data


_CODECS: Final = {"producer": -1, "uncompressed": 0, "none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

"""Compaction (`cleanup.policy=compact`): of each key the last record stays, at its offset.

The decisions are made here, on the loop: which log is the dirtiest, which segments are written again, whether what
was written may still take their place. The work is done in another process, a request at a time. Between two answers
anything may have happened to the log (appended to, cut by retention, deleted): it is looked at again each time, and a
round that no longer fits is dropped, with nothing lost but its work.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from headrace.core.clock import Clock
from headrace.log import detour
from headrace.log.compaction import plan
from headrace.log.compaction.checkpoint import CleanOffsets
from headrace.log.compaction.requests import (
    Answer,
    CompactionRefused,
    MapAnswer,
    MapRequest,
    MergeAnswer,
    MergeRequest,
    Request,
)
from headrace.log.compaction.swap import agree, discard_cleaned, take_place
from headrace.log.config import NEVER
from headrace.log.housekeeping import Housekeeping
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.log.store import LogStore

RETRY_AFTER_MS = 300_000  # a log that could not be compacted is left alone for so long

RunWorker = Callable[[Request, Callable[[Answer], None]], None]

logger = logging.getLogger(__name__)


class CompactionSettings(NamedTuple):
    enabled: bool = True
    dedupe_bytes: int = 128 << 20
    load_factor: float = 0.9
    io_buffer_bytes: int = 512 << 10
    bytes_per_second_max: float = 1.7976931348623157e308


class _Round:
    """One compaction of one log."""

    __slots__ = ("before", "due", "kept", "log", "merged", "merges", "number", "records", "size", "sizes", "through")

    def __init__(self, number: int, log: PartitionLog, due: plan.Due) -> None:
        self.number = number
        self.log = log
        self.due = due
        self.merges: Iterator[list[Segment]] = iter(())
        self.merged: list[Segment] = []  # what is being written again, and how large it was when that began
        self.sizes: list[int] = []
        self.through = due.first_dirty  # all below it was taken into account
        self.before = self.size = self.records = self.kept = 0


class Compactor:
    def __init__(
        self,
        store: LogStore,
        housekeeping: Housekeeping,
        clock: Clock,
        run_worker: RunWorker,
        settings: CompactionSettings,
    ) -> None:
        self._store = store
        self._housekeeping = housekeeping
        self._clock = clock
        self._run_worker = run_worker
        self.settings = settings
        self._clean_offsets = CleanOffsets()
        self._left_alone: dict[PartitionLog, int] = {}  # until when
        self._number = 0
        self._round: _Round | None = None
        self._closed = False
        self.rounds_done = 0

    @property
    def busy(self) -> bool:
        return self._round is not None

    def open(self) -> None:
        """Once the store is open: how far each log came before."""
        self._clean_offsets.load(self._store.logs, self._store.directories)

    def clean_offset(self, log: PartitionLog) -> int | None:
        """All below it was compacted."""
        return self._clean_offsets.get(log)

    def tick(self) -> None:
        """Begins with the log that needs it most, if one does; when it is done, with the next."""
        if self._closed or self._round is not None or not self.settings.enabled:
            return
        self._clean_offsets.forget_deleted()
        now_ms = self._clock.now_ms()
        self._left_alone = {log: until for log, until in self._left_alone.items() if until > now_ms and not log.deleted}
        best: tuple[plan.Due, PartitionLog] | None = None
        for log in self._store.logs.values():
            if not log.config.cleanup_compact or not log.directory.online or log in self._left_alone:
                continue
            try:
                found = self._due(log, now_ms)
            except OSError as error:
                logger.warning("compaction: %s", self._store.failed(log, error))
                continue
            if found is not None and (best is None or found.dirty_ratio > best[0].dirty_ratio):
                best = found, log
        if best is not None:
            self._begin(best[1], best[0], now_ms)

    def close(self) -> None:
        """No more of it. What is being written is left behind; the next start removes it."""
        self._closed = True
        self._round = None

    # ── deciding ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _due(self, log: PartitionLog, now_ms: int) -> plan.Due | None:
        config = log.config
        can_seal = log.active.size and log.appender.is_idle
        if can_seal and plan.must_seal(log.active.rolling_timestamp(), config, now_ms):
            log.appender.roll_now(now_ms)
        if len(log.segments) == 1:
            return None
        first_dirty = plan.first_dirty_offset(self.clean_offset(log), log.start_offset, log.end_offset)
        if first_dirty >= log.active.base_offset:
            return None
        return plan.due(
            self._parts(log, log.segments[:-1]),
            log.active.base_offset,
            config,
            first_dirty=first_dirty,
            # Below the recovery point, so that after a crash nothing that was compacted has to be read again.
            stable_offset=min(log.last_stable_offset, log.recovery_point),
            now_ms=now_ms,
        )

    def _parts(self, log: PartitionLog, segments: list[Segment]) -> list[plan.Part]:
        config = log.config
        wants_last, wants_first = config.min_compaction_lag_ms > 0, config.max_compaction_lag_ms != NEVER
        return [
            plan.Part(
                segment.base_offset,
                segment.size,
                segment.max_timestamp if wants_last else -1,
                segment.rolling_timestamp() if wants_first else -1,
                segment.index_bytes,
            )
            for segment in segments
        ]

    # ── a round ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin(self, log: PartitionLog, due: plan.Due, now_ms: int) -> None:
        self._number += 1
        this = self._round = _Round(self._number, log, due)
        settings, end_offset = self.settings, due.first_uncleanable
        ends = [segment.base_offset for segment in log.segments[1:]]
        request = MapRequest(
            round=this.number,
            segments=[
                (segment.log_path, segment.size, end)
                for segment, end in zip(log.segments[:-1], ends, strict=True)
                if end > due.first_dirty and segment.base_offset < end_offset
            ],
            aborted=[
                entry
                for segment in log.segments
                for entry in segment.aborted.entries()
                if entry.first_offset < end_offset
            ],
            start_offset=due.first_dirty,
            end_offset=end_offset,
            keys_max=plan.keys_max(settings.dedupe_bytes, settings.load_factor),
            piece_bytes=max(settings.io_buffer_bytes // 2, 4096),
            bytes_per_second_max=settings.bytes_per_second_max,
            now_ms=now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
        )
        self._run_worker(request, partial(self._answered, this))

    def _answered(self, this: _Round, answer: Answer) -> None:
        log = this.log
        if self._closed or self._round is not this:
            return
        if log.deleted or not log.directory.online:
            self._drop(this)
        elif isinstance(answer, CompactionRefused):
            self._refused(this, answer)
        elif isinstance(answer, MapAnswer):
            this.through = answer.end_offset
            segments = [segment for segment in log.segments[:-1] if segment.base_offset < this.through]
            found = plan.merges(self._parts(log, segments), log.config, this.due.first_uncleanable)
            this.merges = iter([segments[first:last] for first, last in found])
            self._next_merge(this)
        elif self._swap(this, answer):
            self._next_merge(this)

    def _next_merge(self, this: _Round) -> None:
        log = this.log
        for merged in this.merges:
            if not any(segment.size for segment in merged):
                continue
            if not self._fits(log, merged):
                self._drop(this)
                return
            this.merged, this.sizes = merged, [segment.size for segment in merged]
            end_offset = log.segments[log.segments.index(merged[-1]) + 1].base_offset
            request = MergeRequest(
                round=this.number,
                sources=[(segment.log_path, segment.size) for segment in merged],
                path=merged[0].path,
                base_offset=merged[0].base_offset,
                index_interval_bytes=log.config.index_interval_bytes,
                producers=_producers(log, merged[0].base_offset, end_offset),
            )
            self._run_worker(request, partial(self._answered, this))
            return
        self._done(this)

    def _fits(self, log: PartitionLog, merged: list[Segment]) -> bool:
        """Whether these are still segments of the log, one behind the other, and none of them is the active one."""
        segments = log.segments
        if merged[0] not in segments:
            return False
        at = segments.index(merged[0])
        return segments[at : at + len(merged)] == merged and at + len(merged) < len(segments)

    def _swap(self, this: _Round, answer: MergeAnswer) -> bool:
        """The compacted segment takes the place of its sources. False: it did not, and the round is over."""
        log, merged = this.log, this.merged
        disk = self._store.files.disk
        if not self._fits(log, merged) or [segment.size for segment in merged] != this.sizes:
            self._drop(this)
            return False
        path = merged[0].path
        try:
            agree(disk, path)
        except OSError as error:
            self._refused(this, CompactionRefused(why=str(self._store.failed(log, error))))
            return False
        try:
            self._housekeeping.doom(log, merged, self._clock.now_ms())
            take_place(disk, path)
        except OSError as error:
            # Half of it is done: the next start does the rest.
            self._store.take_offline(log.directory, f"{path}: a compacted segment could not be put in place: {error}")
            self._round = None
            return False
        new = Segment(log.path, merged[0].base_offset, self._store.files, merged[-1].created_ms, answer.size)
        at = log.segments.index(merged[0])
        log.segments = [*log.segments[:at], new, *log.segments[at + len(merged) :]]
        this.before += sum(this.sizes)
        this.size += answer.size
        this.records += answer.records
        this.kept += answer.records_kept
        return True

    def _done(self, this: _Round) -> None:
        log = this.log
        self._round = None
        self.rounds_done += 1
        self._clean_offsets.put(log, this.through)
        self._store.writer.in_background(partial(self._store.files.disk.sync_directory, log.path))
        logger.info(
            "%s: compacted up to %d: %d of %d records and %d of %d bytes are left",
            log.name, this.through, this.kept, this.records, this.size, this.before,
        )  # fmt: skip
        self.tick()

    def _refused(self, this: _Round, refused: CompactionRefused) -> None:
        log = this.log
        if not this.merged or self._fits(log, this.merged):  # otherwise retention was faster
            self._left_alone[log] = NEVER if refused.damaged else self._clock.now_ms() + RETRY_AFTER_MS
            what = "is not compacted any more" if refused.damaged else "could not be compacted, and is tried later"
            logger.warning("%s: %s: %s", log.name, what, refused.why)
            for segment in log.segments if refused.path else ():
                if segment.log_path == refused.path:
                    detour.suspect(log, segment)  # so that its readers, metrics and /health know, too
        self._drop(this)

    def _drop(self, this: _Round) -> None:
        self._round = None
        if this.merged and not this.log.deleted and this.log.directory.online:
            try:
                discard_cleaned(self._store.files.disk, this.merged[0].path)
            except OSError as error:
                logger.warning("%s: its *.cleaned could not be removed: %s", this.log.name, error.strerror)


def _producers(log: PartitionLog, start: int, end: int) -> list[tuple[int, int, int]]:
    """(id, last offset with records or -1, epoch) of those whose last sequence or epoch may lie in [start, end)."""
    found = []
    for producer_id, entry in log.producers.items():
        last_offset = entry.batches[-1].last_offset if entry.batches else -1
        if last_offset < 0 or start <= last_offset < end:
            found.append((producer_id, last_offset, entry.epoch))
    return found

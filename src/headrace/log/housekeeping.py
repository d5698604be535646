"""What a broker does to its logs now and then: delete what has expired, flush what is due, move recovery points."""

import logging
import os
from collections.abc import Iterable
from functools import partial

from headrace.core.files import Disk
from headrace.log.config import NEVER
from headrace.log.partition_log import PartitionLog
from headrace.log.recovered import DELETED_SUFFIX
from headrace.log.retention import Age, expired
from headrace.log.segment import SUFFIXES, Segment
from headrace.log.store import LogStore

logger = logging.getLogger(__name__)


class Housekeeping:
    def __init__(self, store: LogStore, producer_expiration_ms: int) -> None:
        self._store = store
        self.producer_expiration_ms = producer_expiration_ms
        self._doomed: list[tuple[int, list[str]]] = []  # when, and which files

    # ── retention ────────────────────────────────────────────────────────────────────────────────────────────────

    def delete_expired(self, logs: Iterable[PartitionLog] | None = None) -> int:
        """One pass over these logs, or over all; returns how many segments went."""
        count = 0
        now_ms = self._store.clock.now_ms()
        for log in self._online(logs):
            try:
                count += self.delete_expired_of(log, now_ms)
            except OSError as error:
                logger.warning("retention: %s", self._store.failed(log, error))
        self.remove_doomed()
        return count

    def _online(self, logs: Iterable[PartitionLog] | None) -> list[PartitionLog]:
        chosen = self._store.logs.values() if logs is None else logs
        return [log for log in chosen if log.directory.online and not log.deleted]

    def delete_expired_of(self, log: PartitionLog, now_ms: int) -> int:
        segments = log.segments
        if len(segments) == 1 and segments[0].size == 0:
            return 0
        ends = [segment.base_offset for segment in segments[1:]] + [log.end_offset]
        ages = [Age(end, s.size, self._timestamp(s)) for s, end in zip(segments, ends, strict=True)]
        count = expired(
            ages, log.config, start_offset=log.start_offset, high_watermark=log.high_watermark, now_ms=now_ms
        )
        if count == len(segments):
            if not log.appender.is_idle:
                count -= 1  # being written to: the next pass takes it
            else:
                log.appender.roll_now(now_ms)
        if count:
            self._delete(log, count, now_ms)
        return count

    def _timestamp(self, segment: Segment) -> int:
        largest = segment.max_timestamp
        if largest < 0 or not segment.timestamp_is_certain:
            return max(largest, segment.created_ms)  # newer records may lie in what is damaged
        return largest

    def _delete(self, log: PartitionLog, count: int, now_ms: int) -> None:
        gone, log.segments = log.segments[:count], log.segments[count:]
        log.start_offset = max(log.start_offset, log.segments[0].base_offset)
        if log.epochs.truncate_from_start(log.start_offset):
            log.save_epochs()
        self.doom(log, gone, now_ms)
        logger.info("%s: deleted %d segments; it starts at %d now", log.name, count, log.start_offset)

    def doom(self, log: PartitionLog, segments: Iterable[Segment], now_ms: int) -> None:
        """These belong to the log no more: their files get another name, and go after `file.delete.delay.ms`."""
        disk = self._store.files.disk
        names: list[str] = []
        self._doomed.append((now_ms + log.config.file_delete_delay_ms, names))
        for segment in segments:
            segment.deleted = True
            segment.forget_files()
            for suffix in SUFFIXES:
                name = _doom(disk, segment.path + suffix)
                if name is not None:
                    names.append(name)

    def remove_doomed(self) -> None:
        """Deleted files keep a while for those who still read them, then go."""
        now_ms = self._store.clock.now_ms()
        due = [names for when, names in self._doomed if when <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        for names in due:
            self._store.writer.in_background(partial(_remove, self._store.files.disk, names))

    # ── flushing and recovery points ─────────────────────────────────────────────────────────────────────────────

    def flush_due(self) -> None:
        """`flush.ms`: what has waited longer than that goes to the disk."""
        now_ms = self._store.clock.now_ms()
        for log in self._store.logs.values():
            if (
                log.config.flush_ms == NEVER
                or not log.directory.online
                or log.flush_state.flushed_offset >= log.end_offset
            ):
                continue
            if log.flush_state.unflushed_since_ms == 0:
                log.flush_state.unflushed_since_ms = now_ms
            elif now_ms - log.flush_state.unflushed_since_ms >= log.config.flush_ms:
                log.flush_state.unflushed_since_ms = 0
                self._store.writer.flush(log)

    def checkpoint(self) -> None:
        """Moves recovery points forward, so that a start after a crash has little to read."""
        self.flush_for_checkpoint()
        self._store.save_checkpoints()

    def flush_for_checkpoint(self, logs: Iterable[PartitionLog] | None = None) -> None:
        for log in self._online(logs):
            if log.recovery_point < log.end_offset and log.appender.is_idle:
                try:
                    log.checkpoint()
                except OSError as error:
                    logger.warning("checkpoint: %s", self._store.failed(log, error))
                else:
                    self._store.writer.flush(log)

    def expire_producers(self) -> None:
        now_ms = self._store.clock.now_ms()
        for log in self._store.logs.values():
            log.snapshots.expire(now_ms, self.producer_expiration_ms)


def _remove(disk: Disk, names: list[str]) -> None:
    for name in names:
        disk.unlink(name)


def _doom(disk: Disk, path: str) -> str | None:
    if not os.path.exists(path):
        return None
    disk.rename(path, path + DELETED_SUFFIX)
    return path + DELETED_SUFFIX

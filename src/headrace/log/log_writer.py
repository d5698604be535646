"""Writes what each turn of the loop staged: one writev per partition, then the answers.

Small append sets are written at once, on the loop: a system call into the page cache costs less than handing it over.
So is what is large for one log but not much in all: a hand-over costs a dozen system calls and as much time as copying
100 KB. Much goes to writer threads, since the copy into the page cache releases the GIL and the loop can read the next
requests meanwhile; what arrives while all of them are busy gathers into larger ones. A log is written by one thread at
a time, and different logs by several: copying into fresh pages is what bulk produce waits for. A flush (fdatasync)
always runs in a thread, one at a time for a log, and everything written before it began is answered by it: group
commit.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.core.errors import InvariantError, StorageError
from headrace.core.files import Disk, OpenFile
from headrace.log.append_set import AppendSet
from headrace.log.partition_log import PartitionLog

INLINE_BYTES_MAX: Final = 48 << 10  # of a log
HAND_OVER_BYTES_MIN: Final = 256 << 10  # in a turn: less is written sooner than a thread is woken and heard again
SPLIT_BYTES_MIN: Final = 128 << 10  # a hand-over below this is not worth a second thread
FLUSHES_MAX: Final = 4  # logs at a time: a log that is being flushed keeps its files open, one that waits does not

Job = Callable[[], object]
Submit = Callable[[Job, Callable[[object, BaseException | None], None]], None]
Taken = tuple[PartitionLog, list[AppendSet], list[OpenFile]]

logger = logging.getLogger(__name__)


class HandOver:
    """What one writer thread has to write, of one or several logs."""

    __slots__ = ("_writer", "size", "taken")

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self.taken: list[Taken] = []
        self.size = 0

    def write(self) -> object:
        """On the thread."""
        return [self._writer.write(taken) for taken in self.taken]

    def written(self, results: object, error: BaseException | None) -> None:
        """On the loop again."""
        self._writer.handed_back(self, results, error)


class LogWriter:
    __slots__ = (
        "_dirty",
        "_disk",
        "_flushers",
        "_flushes",
        "_in_flight",
        "_threads",
        "_to_flush",
        "_writers",
        "batches_written",
        "bytes_written",
        "closing",
        "fresh",
        "hand_over_bytes_min",
        "on_failure",
    )

    def __init__(self, disk: Disk, writers: Submit, flushers: Submit, threads: int = 1) -> None:
        """`threads` is how many writers there are."""
        self._disk = disk
        self._writers = writers
        self._threads = threads
        self._flushers = flushers
        self._dirty: list[PartitionLog] = []
        self._in_flight: list[HandOver] = []
        self._to_flush: deque[PartitionLog] = deque()
        self._flushes = 0  # under way
        self.batches_written = 0
        self.bytes_written = 0
        self.hand_over_bytes_min = HAND_OVER_BYTES_MIN  # a test may ask for less
        self.fresh = False  # something was staged since the last end of a turn
        self.closing = False  # the writer threads have ended: everything is written at once
        self.on_failure: Callable[[PartitionLog, OSError], StorageError] = lambda log, error: StorageError(str(error))

    def staged(self, log: PartitionLog) -> None:
        """The log has append sets to write at the end of this turn."""
        self.fresh = True
        if not log.appender.queued:
            log.appender.queued = True
            self._dirty.append(log)

    def end_of_turn(self) -> None:
        self.fresh = False
        if not self._dirty:
            return
        dirty, self._dirty = self._dirty, []
        bulk: list[PartitionLog] = []
        size = 0
        for log in dirty:
            if log.appender.writing:
                self._dirty.append(log)
            elif (last := log.appender.last_size) > INLINE_BYTES_MAX and not self.closing:
                bulk.append(log)
                size += last
            else:
                self._write_now(log)
        if not bulk:
            return
        if len(self._in_flight) >= self._threads:
            self._dirty += bulk
        elif self._in_flight or size >= self.hand_over_bytes_min:
            self._hand_over(bulk)
        else:
            for log in bulk:
                self._write_now(log)

    def drain(self) -> None:
        """Writes all that is staged, here and now: the broker stops, and the writer threads have ended."""
        self.closing = True
        while self._dirty:
            self._write_now(self._dirty.pop())
        self._begin_flushes()

    def _write_now(self, log: PartitionLog) -> None:
        log.appender.queued = False
        taken = self._take(log)
        if taken is not None:
            self._finish(taken, self.write(taken))

    def _take(self, log: PartitionLog) -> Taken | None:
        """The log's append sets and their files, pinned; None if there are none, or if they cannot be written."""
        appender = log.appender
        append_sets, appender.append_sets = appender.append_sets, []
        if not log.directory.online:
            log.appender.undo(append_sets, StorageError(f"{log.name}: {log.directory.error}"))
            return None
        files: list[OpenFile] = []
        try:
            for append_set in append_sets:
                file = append_set.segment.file()
                file.pins += 1
                files.append(file)
        except OSError as error:
            for file in files:
                file.unpin()
            self._failed(log, append_sets, error)
            return None
        return log, append_sets, files

    def _hand_over(self, logs: list[PartitionLog]) -> None:
        """To as many threads as are free, each with about as much to write."""
        found: list[Taken] = []
        total = 0
        for log in logs:
            log.appender.queued = False
            taken = self._take(log)
            if taken is not None:
                log.appender.writing = True
                found.append(taken)
                total += _bytes_of(taken)
        if not found:
            return
        free = self._threads - len(self._in_flight)
        parts = min(free, len(found), max(1, total // SPLIT_BYTES_MIN))
        shares = [HandOver(self) for _ in range(parts)]
        if parts > 1:
            found.sort(key=_bytes_of, reverse=True)
        for taken in found:
            lightest = shares[0]
            for share in shares:
                if share.size < lightest.size:
                    lightest = share
            lightest.taken.append(taken)
            lightest.size += _bytes_of(taken)
        self._in_flight.extend(shares)
        for share in shares:
            self._writers(share.write, share.written)

    def handed_back(self, share: HandOver, results: object, error: BaseException | None) -> None:
        if error is not None or not isinstance(results, list):
            raise InvariantError(f"a writer thread failed outside a write: {error!r}")
        try:
            self._in_flight.remove(share)
            for taken, (written, failure) in zip(share.taken, results, strict=True):
                taken[0].appender.writing = False
                self._finish(taken, (written, failure))
            self.end_of_turn()
        except InvariantError:
            raise
        except Exception as unexpected:
            # It is not known what of it is in the logs: going on could answer what was never written.
            what = f"{type(unexpected).__name__}: {unexpected}"
            raise InvariantError(f"what a thread wrote could not be taken over: {what}") from unexpected

    def write(self, taken: Taken) -> tuple[int, OSError | None]:
        """How many append sets were written, and why the next one was not. Runs on the loop or on a writer thread."""
        written = 0
        for append_set, file in zip(taken[1], taken[2], strict=True):
            try:
                self._disk.write(file.fd, append_set.views, append_set.position)
            except OSError as error:
                return written, self._cut(file, append_set) or error
            written += 1
        return written, None

    def _cut(self, file: OpenFile, append_set: AppendSet) -> OSError | None:
        """Takes away what a failed write left. If that fails too the disk is broken, whatever it says."""
        try:
            self._disk.truncate(file.fd, append_set.position)
        except OSError as error:
            return OSError(errno.EIO, f"a failed write could not be cut: {error.strerror}")
        return None

    def _finish(self, taken: Taken, result: tuple[int, OSError | None]) -> None:
        log, append_sets, files = taken
        written, failure = result
        for file in files:
            file.unpin()
        if log.deleted or not log.directory.online:
            log.appender.undo(append_sets, StorageError(f"{log.name}: {log.directory.error or 'was deleted'}"))
            if log.deleted:
                log.let_go()
            return
        for append_set in append_sets[:written]:
            append_set.views.clear()
            self.batches_written += len(append_set.batches)
            self.bytes_written += append_set.size
            self._written(log, append_set)
            if log.flush_state.holds_back(append_set, log.config.flush_messages):
                log.flush_state.waiting.append(append_set)  # and what comes behind it, which must not be seen before it
                self.flush(log)
            else:
                log.settle(append_set)
        if failure is not None:
            self._failed(log, append_sets[written:], failure)

    def _written(self, log: PartitionLog, append_set: AppendSet) -> None:
        """The records are in the file. If what belongs to them cannot be written, recovery makes it again."""
        try:
            log.written(append_set)
        except OSError as error:
            logger.warning("its indexes could not be written: %s", self.on_failure(log, error))

    def _failed(self, log: PartitionLog, append_sets: list[AppendSet], failure: OSError) -> None:
        error = self.on_failure(log, failure)
        log.appender.undo(append_sets, error)
        logger.warning("%s", error)

    def in_flight(self, log: PartitionLog, offset: int) -> AppendSet:
        """The append set, now being written, that holds `offset`."""
        for share in self._in_flight:
            for each, append_sets, _ in share.taken:
                if each is log:
                    for append_set in append_sets:
                        if append_set.end_offset > offset:
                            return append_set
        raise InvariantError(f"{log.name}: offset {offset} is neither written nor staged")

    def flush(self, log: PartitionLog) -> None:
        """Everything written by the time it begins goes to the disk for certain."""
        if log.flush_state.is_under_way:
            return  # it has yet to begin, or when it ends what has come since is flushed
        log.flush_state.is_under_way = True
        self._to_flush.append(log)
        self._begin_flushes()

    def _begin_flushes(self) -> None:
        while self._to_flush and (self._flushes < FLUSHES_MAX or self.closing):
            log = self._to_flush.popleft()
            log.flush_state.is_under_way = False
            self._begin_flush(log)

    def _begin_flush(self, log: PartitionLog) -> None:
        if log.deleted or not log.directory.online:
            log.flush_state.failed(log, StorageError(f"{log.name}: {log.directory.error or 'was deleted'}"))
            return
        target, spilled = log.end_offset, log.flush_state.spill_wanted_offset
        try:
            files = log.flush_state.files(log)
        except OSError as error:
            log.flush_state.failed(log, self.on_failure(log, error))
            return
        log.flush_state.is_under_way = True
        self._flushes += 1

        def sync() -> None:
            for file in files:
                self._disk.sync(file.fd)

        def synced(_: object, error: BaseException | None) -> None:
            log.flush_state.is_under_way = False
            self._flushes -= 1
            for file in files:
                file.unpin()
            if log.deleted:
                pass
            elif isinstance(error, OSError):
                log.flush_state.failed(log, self.on_failure(log, error))
            elif error is not None:
                raise InvariantError(f"{log.name}: flush failed: {error!r}")
            else:
                log.flush_state.spilled(spilled)
                if log.flush_state.flushed(log, target):
                    self.flush(log)
            self._begin_flushes()

        self._flushers(sync, synced)

    def flush_later(self, log: PartitionLog) -> None:
        """A sealed segment is flushed soon, so that recovery does not have to read it."""
        self.flush(log)

    def in_thread(self, job: Job, done: Callable[[object, BaseException | None], None]) -> None:
        """Something slow that reads only; `done` gets its result on the loop."""
        self._flushers(job, done)

    def in_background(self, job: Job) -> None:
        """Something slow that nobody waits for. If it fails, it says so and nothing else happens."""

        def done(_: object, error: BaseException | None) -> None:
            if error is not None:
                logger.warning("in the background: %s", error)

        self._flushers(job, done)


def _bytes_of(taken: Taken) -> int:
    return sum([append_set.size for append_set in taken[1]])

"""A LogStore without a broker: its threads run when told, its disk fails when told, its clock stands still."""

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from headrace.core.clock import ManualClock
from headrace.core.file_slice import Slice
from headrace.core.files import Disk, OpenFiles
from headrace.log.config import LogConfig
from headrace.log.housekeeping import Housekeeping
from headrace.log.log_writer import LogWriter
from headrace.log.partition_log import PartitionLog
from headrace.log.reader import Run
from headrace.log.store import LogStore
from headrace.protocol.batch import HEADER_BYTES, BatchHeader, read_header
from headrace.protocol.records import Record, build_batch

NOW_MS = 1_700_000_000_000
TOPIC_ID = UUID(int=7)
NODE_ID = 1
BULK_BYTES = 60_000  # more than the group writer writes on the loop itself


@dataclass
class Fault:
    """`operation` fails, `times` times, after `skip` that go well.

    `path` is a part of the file's name, or the directory (with a slash) that it is in.
    """

    operation: str
    code: int = errno.EIO
    path: str = ""
    times: int = 1 << 30
    skip: int = 0
    torn_bytes: int | None = None  # so much of a failing write is written all the same
    hits: int = 0


class FaultyDisk(Disk):
    """Fails when told, and flushes nothing: it only notes what would have been."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.bytes_read = 0
        self.synced: list[str] = []
        self.unsynced: set[str] = set()  # what a loss of power would take
        self._paths: dict[int, str] = {}

    def fail(self, operation: str, code: int = errno.EIO, **details: Any) -> Fault:
        fault = Fault(operation, code, **details)
        self.faults.append(fault)
        return fault

    def repair(self) -> None:
        self.faults.clear()

    @property
    def open_count(self) -> int:
        return len(self._paths)

    def _check(self, operation: str, path: str) -> None:
        fault = self._due(operation, path)
        if fault is not None:
            raise OSError(fault.code, os.strerror(fault.code), path)

    def _due(self, operation: str, path: str) -> Fault | None:
        for fault in self.faults:
            place = path if "/" in fault.path else os.path.basename(path)
            if fault.operation == operation and fault.path in place and fault.times > 0:
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                fault.hits += 1
                return fault
        return None

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC) -> int:
        self._check("open", path)
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def close(self, fd: int) -> None:
        del self._paths[fd]
        super().close(fd)

    def write(self, fd: int, pieces: Any, at: int) -> None:
        self.unsynced.add(self._paths[fd])
        fault = self._due("write", self._paths[fd])
        if fault is None:
            super().write(fd, pieces, at)
            return
        if fault.torn_bytes:
            os.pwrite(fd, b"".join(pieces)[: fault.torn_bytes], at)
        raise OSError(fault.code, os.strerror(fault.code))

    def read(self, fd: int, size: int, at: int) -> bytes:
        self._check("read", self._paths[fd])
        data = super().read(fd, size, at)
        self.bytes_read += len(data)
        return data

    def sync(self, fd: int) -> None:
        self._check("sync", self._paths[fd])
        self.synced.append(os.path.basename(self._paths[fd]))
        self.unsynced.discard(self._paths[fd])

    def sync_file_system(self, path: str) -> None:
        self._check("sync_file_system", path)
        self.unsynced = {each for each in self.unsynced if not each.startswith(path)}

    def truncate(self, fd: int, size: int) -> None:
        self._check("truncate", self._paths[fd])
        super().truncate(fd, size)

    def rename(self, old: str, new: str) -> None:
        self._check("rename", old)
        super().rename(old, new)
        if old in self.unsynced:
            self.unsynced = {new if each == old else each for each in self.unsynced}

    def unlink(self, path: str) -> None:
        self._check("unlink", path)
        self.unsynced.discard(path)
        super().unlink(path)

    def make_directory(self, path: str) -> None:
        self._check("make_directory", path)
        super().make_directory(path)


class Lane:
    """Stands for a worker thread: runs a job at once, or, when `held`, on `run`; when `ended`, never."""

    def __init__(self) -> None:
        self.held = False
        self.ended = False
        self.jobs: list[tuple[Callable[[], object], Callable[[object, BaseException | None], None]]] = []

    def submit(self, job: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        self.jobs.append((job, done))
        if not self.held:
            self.run()

    def run(self, count: int = 1 << 30) -> None:
        while self.jobs and count and not self.ended:
            job, done = self.jobs.pop(0)
            result, error = None, None
            try:
                result = job()
            except BaseException as failure:
                error = failure
            done(result, error)
            count -= 1

    def end(self) -> None:
        """As Workers.close: what was submitted is done and comes back, what comes later is never begun."""
        jobs, self.jobs = self.jobs, []
        self.held = self.ended = True
        results = [(done, job()) for job, done in jobs]
        for done, result in results:
            done(result, None)


class Answer:
    """Waits for a batch as a produce request does."""

    def __init__(self) -> None:
        self.calls: list[Exception | None] = []
        self.is_written = False  # here, and not committed yet

    def done(self, log: PartitionLog, error: Exception | None) -> None:
        self.calls.append(error)

    def written(self, log: PartitionLog) -> None:
        self.is_written = True

    @property
    def pending(self) -> bool:
        return not self.calls

    @property
    def ok(self) -> bool:
        return self.calls == [None]

    @property
    def failed(self) -> bool:
        return len(self.calls) == 1 and self.calls[0] is not None


class Bench:
    """One store and what it stands on. `crash` and `stop` end it; `start` opens the same directories again."""

    def __init__(self, *paths: Path | str) -> None:
        self.paths = tuple(str(path) for path in paths)
        self.clock = ManualClock(NOW_MS)
        self.disk = FaultyDisk()
        self.start()

    def start(self, *, files_max: int = 64) -> "Bench":
        self.disk.bytes_read = 0
        self.writers, self.flushers = Lane(), Lane()
        self.files = OpenFiles(self.disk, files_max)
        self.writer = LogWriter(self.disk, self.writers.submit, self.flushers.submit)
        self.writer.hand_over_bytes_min = 0
        self.store = LogStore(self.paths, self.files, self.writer, self.clock)
        self.housekeeping = Housekeeping(self.store, 86_400_000)
        self.store.open(NODE_ID)
        return self

    def crash(self) -> None:
        """kill -9: what was written stays, what was only in memory is gone."""
        self.files.close()
        self.store.close_locks()

    def stop(self) -> None:
        self.writer.drain()
        self.store.close()

    def restart(self, *, clean: bool, **config: Any) -> PartitionLog:
        """The one log `t-0`, after a stop or a crash and a start."""
        if clean:
            self.stop()
        else:
            self.crash()
        self.start()
        log = self.log
        log.reconfigure(LogConfig(**config))
        return log

    @property
    def log(self) -> PartitionLog:
        log = self.store.find("t", 0)
        assert log is not None
        return log

    def create(self, topic: str = "t", index: int = 0, **config: Any) -> PartitionLog:
        return self.store.create(topic, index, TOPIC_ID, LogConfig(**config))

    def stage(self, log: PartitionLog, data: bytes | bytearray) -> tuple[int, Answer]:
        answer = Answer()
        view = memoryview(bytearray(data))
        return log.appender.stage(view, 0, len(view), self.clock.now_ms(), answer)[0], answer

    def append(self, log: PartitionLog, *batches: bytes | bytearray) -> list[int]:
        """Each in a turn of its own. Returns the offsets; all must have been answered well."""
        offsets = []
        for data in batches:
            offset, answer = self.stage(log, data)
            self.writer.end_of_turn()
            assert answer.ok, answer.calls
            offsets.append(offset)
        return offsets


def batch(
    count: int = 1,
    *,
    size: int = 20,
    timestamp: int = NOW_MS,
    producer: int = -1,
    sequence: int = -1,
    epoch: int = 0,
    fill: int | None = None,
    step_ms: int = 0,
) -> bytearray:
    """`count` records with values of `size` bytes."""
    value = os.urandom(size) if fill is None else bytes([fill]) * size
    records = [Record(i, timestamp + i * step_ms, None, value) for i in range(count)]
    if producer < 0:
        return build_batch(records)
    return build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def headers(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    """The whole batches of some bytes; what is left over must be less than a batch."""
    at = 0
    while at + HEADER_BYTES <= len(data):
        header = read_header(data, at)
        if at + header.size > len(data):
            break
        yield header, data[at : at + header.size]
        at += header.size


def run_bytes(found: Run | None) -> bytes:
    """What a reader would be sent."""
    if not isinstance(found, Slice):
        return bytes(found or b"")
    try:
        return os.pread(found.file.fd, found.size, found.position)
    finally:
        found.close()


def read_all(log: PartitionLog, bytes_max: int = 1 << 20, *, copy: bool = False) -> list[tuple[BatchHeader, bytes]]:
    """Every visible batch, read as a consumer reads."""
    found: list[tuple[BatchHeader, bytes]] = []
    offset = log.start_offset
    while offset < log.high_watermark:
        some = list(headers(run_bytes(log.read(offset, bytes_max, whole_first=True, copy=copy))))
        assert some, f"nothing at {offset} of [{log.start_offset}, {log.high_watermark})"
        found += some
        offset = some[-1][0].last_offset + 1
    return found


def payloads(found: list[tuple[BatchHeader, bytes]]) -> list[bytes]:
    """What the CRC covers: a batch without the offset and epoch that the broker stamps."""
    return [data[21:] for _, data in found]


def offsets_of(log: PartitionLog) -> list[int]:
    return [offset for header, _ in read_all(log) for offset in range(header.base_offset, header.last_offset + 1)]


def log_state(log: PartitionLog) -> tuple[object, ...]:
    """What an append that is refused or fails must leave as it was."""
    return (
        log.start_offset,
        log.high_watermark,
        log.end_offset,
        log.next_offset,
        log.size_bytes,
        [segment.base_offset for segment in log.segments],
        [segment.reserved for segment in log.segments],
        log.producers.encode_snapshot(),
        log.max_timestamp(),
    )

"""Compaction without another process: the worker is called, by way of JSON, and may be made to fail."""

import json
from collections.abc import Callable, Sequence

from harness import NOW_MS, Bench, read_all

from headrace.core.files import Disk
from headrace.log.compaction.compactor import CompactionSettings, Compactor
from headrace.log.compaction.requests import Answer, Request, from_plain, to_plain
from headrace.log.compaction.worker import CompactionWorker
from headrace.log.partition_log import PartitionLog
from headrace.log.transactions import Marker, build_marker
from headrace.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader
from headrace.protocol.records import Record, build_batch, iter_records

EAGER = {"cleanup_compact": True, "cleanup_delete": False, "min_cleanable_dirty_ratio": 0.0}

Pair = tuple[bytes | None, bytes | None]


class Cleaner:
    """A Compactor over the store of a Bench."""

    def __init__(self, bench: Bench, settings: CompactionSettings | None = None, disk: Disk | None = None) -> None:
        self.bench = bench
        self.requests: list[Request] = []
        self.before: Callable[[Request], None] = lambda request: None
        self.after: Callable[[Request, Answer], Answer] = lambda request, answer: answer
        self.worker = CompactionWorker(disk or Disk())
        self.compactor = Compactor(
            bench.store, bench.housekeeping, bench.clock, self.run, settings or CompactionSettings()
        )
        self.compactor.open()

    def run(self, request: Request, answered: Callable[[Answer], None]) -> None:
        self.requests.append(request)
        self.before(request)
        plain = json.loads(json.dumps(to_plain(request)))
        answer = from_plain(json.loads(json.dumps(self.worker.answer(plain))))
        answered(self.after(request, answer))

    def tick(self) -> int:
        """Returns how many rounds were done."""
        before = self.compactor.rounds_done
        self.compactor.tick()
        return self.compactor.rounds_done - before


def keyed(
    pairs: Sequence[Pair],
    *,
    timestamp: int = NOW_MS,
    codec: int = 0,
    producer: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    transactional: bool = False,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    step_ms: int = 0,
) -> bytearray:
    records = [Record(i, timestamp + i * step_ms, key, value, headers) for i, (key, value) in enumerate(pairs)]
    identity = {"producer_id": producer, "producer_epoch": epoch if producer >= 0 else -1, "base_sequence": sequence}
    return build_batch(records, codec=codec, transactional=transactional, **identity)


def put(bench: Bench, log: PartitionLog, data: bytes | bytearray) -> int:
    """One batch, transactional or not, in a turn of its own."""
    from harness import Answer as Waiter

    waiter = Waiter()
    view = memoryview(bytearray(data))
    offset, _ = log.appender.stage(view, 0, len(view), bench.clock.now_ms(), waiter, transactional=True)
    bench.writer.end_of_turn()
    assert waiter.ok
    return offset


def end_transaction(bench: Bench, log: PartitionLog, producer: int, *, commit: bool, epoch: int = 0) -> int:
    from harness import Answer as Waiter

    marker = Marker(producer, epoch, 0, commit)
    waiter = Waiter()
    offset = log.appender.stage_own(build_marker(marker, bench.clock.now_ms()), bench.clock.now_ms(), waiter, marker)
    bench.writer.end_of_turn()
    assert waiter.ok
    return offset


def seal(bench: Bench, log: PartitionLog) -> None:
    log.appender.roll_now(bench.clock.now_ms())


def committed(log: PartitionLog, *, bytes_max: int = 1 << 20) -> list[Record]:
    """What a `read_committed` reader sees: he skips what the log tells him was aborted."""
    aborted = sorted(log.aborted_between(log.start_offset, log.high_watermark), key=lambda entry: entry[1])
    open_aborts: set[int] = set()
    records = []
    for header, data in batches(log, bytes_max):
        while aborted and aborted[0][1] <= header.last_offset:
            open_aborts.add(aborted.pop(0)[0])
        if header.attributes & CONTROL:
            open_aborts.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in open_aborts):
            records += iter_records(data)
    return [record for record in records if record.offset >= log.start_offset]


def batches(log: PartitionLog, bytes_max: int = 1 << 20) -> list[tuple[BatchHeader, bytes]]:
    return read_all(log, bytes_max) if log.high_watermark > log.start_offset else []


def table(log: PartitionLog) -> dict[bytes, bytes]:
    """Key to last value; a tombstone takes the key away."""
    found: dict[bytes, bytes] = {}
    for record in committed(log):
        assert record.key is not None
        if record.value is None:
            found.pop(record.key, None)
        else:
            found[record.key] = record.value
    return found

"""How long produce and fetch take while a log is compacted, against an idle broker; on Headrace alone.

One client asks for one thing at a time and rests in between, so that it measures how long it is made to wait and not
how much fits through. The rewriting of the log must last as long as the measurement, or the figures are not kept.
"""

import socket
import statistics
import time

import brokers
import wire
from book import Book
from processes import MeasurementError, descendants
from shared_tools import SharedTools
from turns import Side, Workload, turn_about
from workspace import Workspace, remove_topics, rest

NAME = "compaction"
IDLE, BUSY = "idle", "busy"
LOADS = {"produce": "produce, 1 record", "fetch": "fetch 64 KB"}
BACKOFF_MS = 100  # log.cleaner.backoff.ms: how soon the broker sees that there is something to compact
_DIRTY, _READ = "dirty", "read"
_SEGMENT_BYTES, _BATCH_RECORDS, _KEYS, _VALUE = 8 << 20, 500, 100_000, b"v" * 100
_RECORDS_PER_SECOND = 1_200_000  # more than is compacted meanwhile
_BEGIN_S_MAX, _STILL_S, _END_S_MAX, _QUIET_S, _PAUSE_S = 30.0, 2.0, 120.0, 1.0, 0.0005
_FETCH = 1


def run(tools: SharedTools, book: Book, workspace: Workspace, *, rounds: int, seconds: float) -> None:
    with brokers.headrace(workspace, NAME, f"log.cleaner.backoff.ms={BACKOFF_MS}") as broker:

        def sides(number: int) -> tuple[Side, Side]:
            workspace.check_space()
            return Side(IDLE, broker, f"idle-{number}"), Side(BUSY, broker, f"busy-{number}")

        def between() -> None:
            remove_topics(broker.port, broker.data)
            rest()

        turn_about(tools, book, [_workload(tools, seconds)], sides, rounds=rounds, between=between)


def _workload(tools: SharedTools, seconds: float) -> Workload:
    def prepare(side: Side) -> None:
        port = side.broker.port
        wire.create_topics(port, [side.topic], 1)
        tools.raw(port, "produce", f"{side.topic}-{_READ}", 1, 5, 590, 1, 1, 1, 0.2)
        if side.name == BUSY:
            _fill(port, f"{side.topic}-{_DIRTY}", int(_RECORDS_PER_SECOND * seconds))

    def load(side: Side) -> dict[str, float]:
        if side.name == IDLE:
            return _wait_times(side, seconds)
        broker, dirty = side.broker, f"{side.topic}-{_DIRTY}"
        wire.set_topic_config(broker.port, dirty, "cleanup.policy", "compact")
        try:
            _await_work(broker.pid, _BEGIN_S_MAX, "no compaction began")
            figures = _wait_times(side, seconds)
            _await_work(broker.pid, _STILL_S, "the compaction ended before the measurement did")
        finally:
            wire.delete_topics(broker.port, [dirty])
            _await_rest(broker.pid)
        return figures

    return Workload(name=NAME, prepare=prepare, run=load)


def _fill(port: int, topic: str, records: int) -> None:
    """Keyed records, of which each key comes again and again; nothing is compacted yet."""
    wire.create_topics(port, [topic], 1, {"segment.bytes": str(_SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01"})
    frames = []
    for first in range(0, _KEYS, _BATCH_RECORDS):
        pairs: list[tuple[bytes | None, bytes]] = [
            (b"%08d" % key, _VALUE) for key in range(first, first + _BATCH_RECORDS)
        ]
        frames.append(wire.request(wire.PRODUCE, 7, wire.produce_body(topic, wire.batch(pairs))))
    with socket.create_connection(("127.0.0.1", port), timeout=wire.ANSWER_S_MAX) as connection:
        for number in range(records // _BATCH_RECORDS):
            code = wire.produce_code(wire.ask_over(connection, frames[number % len(frames)]))
            if code:
                raise MeasurementError(f"filling {topic}: error {code}")


def _await_work(pid: int, seconds_max: float, otherwise: str) -> None:
    """Until the broker's other process is seen to work."""
    deadline = time.monotonic() + seconds_max
    before = _children_cpu_ticks(pid)
    while _children_cpu_ticks(pid) <= before:
        if time.monotonic() > deadline:
            raise MeasurementError(otherwise)
        time.sleep(0.01)


def _await_rest(pid: int) -> None:
    """What it had begun of a log that is gone it does to its end, for nobody; the idle side must not feel that."""
    deadline = time.monotonic() + _END_S_MAX
    before = -1
    while (now := _children_cpu_ticks(pid)) != before:
        if time.monotonic() > deadline:
            raise MeasurementError("the compaction of a deleted log did not end")
        before = now
        time.sleep(_QUIET_S)


def _children_cpu_ticks(pid: int) -> int:
    return sum(map(_cpu_ticks, (child.pid for child in descendants(pid))))


def _cpu_ticks(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def _wait_times(side: Side, seconds: float) -> dict[str, float]:
    one = wire.batch([(None, _VALUE)])
    produce = wire.request(wire.PRODUCE, 7, wire.produce_body(side.topic, one))
    fetch = wire.request(_FETCH, 4, wire.fetch_body(f"{side.topic}-{_READ}", 1 << 16))
    took: dict[str, list[float]] = {name: [] for name in LOADS}
    with socket.create_connection(("127.0.0.1", side.broker.port), timeout=wire.ANSWER_S_MAX) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for name, frame, check in (("produce", produce, _produced), ("fetch", fetch, _fetched)):
                began = time.perf_counter()
                answer = wire.ask_over(connection, frame)
                took[name].append(time.perf_counter() - began)
                check(answer)
                time.sleep(_PAUSE_S)
    return {
        "records": float(len(took["produce"])),
        **{f"{name}_p99_us": 1e6 * statistics.quantiles(times, n=100)[98] for name, times in took.items()},
        **{f"{name}_p50_us": 1e6 * statistics.median(times) for name, times in took.items()},
    }


def _produced(answer: bytes) -> None:
    if code := wire.produce_code(answer):
        raise MeasurementError(f"Produce: error {code}")


def _fetched(answer: bytes) -> None:
    if len(answer) < 1 << 15:
        raise MeasurementError(f"Fetch: {len(answer)} bytes, where 64 KB are stored")

"""A pipeline on Headrace against the same job written by hand in PySpark on Apache Kafka: topic to Delta table.

Both are read by the table's own log: when each commit was made, how many rows it added, when those rows were sent.
Nothing of the job itself is asked, so nothing in it can flatter.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import brokers
import pyarrow.parquet as pq
from book import Book
from confluent_kafka import Producer
from processes import MeasurementError, call
from shared_tools import SharedTools
from turns import HEADRACE, KAFKA
from workspace import Workspace, remove_topics, rest

NAME = "pipeline"
LATENCY, QUERY = f"{NAME}_latency", f"{NAME}_query"
TOPIC, TABLE = "events", "landed"
ROWS, ROWS_PER_BATCH, WARM_BATCHES = 6_000_000, 1_000_000, 2
STEADY_ROWS_S, WARM_S, MEASURED_S = 1_000, 25.0, 30.0
_RUN_S_MAX, _COMMIT_S_MAX, _STOP_S_MAX = 600.0, 60.0, 60.0
_CODE = f"""
import headrace as hr

{TOPIC} = hr.topic("{TOPIC}", schema="id long, customer string, amount double, at timestamp, note string"%s)

@hr.table
def {TABLE}({TOPIC}):
    return {TOPIC}
"""


@dataclass(frozen=True, slots=True)
class Commit:
    at_s: float
    rows: int
    files: tuple[Path, ...]


def run(tools: SharedTools, book: Book, workspace: Workspace, *, rounds: int, rows: int) -> None:
    with brokers.apache_kafka(tools, workspace) as kafka, brokers.headrace(workspace) as headrace:
        sides = ((KAFKA, kafka), (HEADRACE, headrace))
        for _, broker in sides:
            _fill(broker, rows)
        for number in range(rounds):
            for side, broker in sides if number % 2 else sides[::-1]:
                directory = workspace.fresh("job")
                directory.mkdir(parents=True)
                book.add(NAME, side, rec_s=_throughput(side, broker, directory, rows))
                if side == HEADRACE:
                    book.add(QUERY, side, seconds=_query_s(directory))
                workspace.remove("job")
                rest()
        for _, broker in sides:
            remove_topics(broker.port, broker.data)
        for number in range(rounds):
            for side, broker in sides if number % 2 else sides[::-1]:
                directory = workspace.fresh("job")
                directory.mkdir(parents=True)
                book.add(LATENCY, side, **_latency(side, broker, directory, f"{TOPIC}-{number}"))
                workspace.remove("job")


def _row(number: int) -> bytes:
    """About a hundred bytes."""
    at = datetime.now(UTC).isoformat(timespec="microseconds")[:26]
    customer = number % 5000
    return b'{"id":%d,"customer":"c%d","amount":%d.25,"at":"%sZ","note":"%s"}' % (
        number, customer, customer, at.encode(), b"x" * (9 + 8 - len(str(number))),
    )  # fmt: skip


def _fill(broker: brokers.Broker, rows: int) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    for number in range(rows):
        while True:
            try:
                producer.produce(TOPIC, _row(number))
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(60):
        raise MeasurementError(f"{broker.name}: not every row was acknowledged")


def _command(side: str, broker: brokers.Broker, directory: Path, topic: str, rows_per_batch: int) -> list[str]:
    if side == KAFKA:
        script = str(Path(__file__).with_name("plain_job.py"))
        return [sys.executable, script, broker.address, topic, str(directory), str(rows_per_batch)]
    file = directory / "job.py"
    bound = f", max_offsets_per_trigger={rows_per_batch}" if rows_per_batch else ""
    file.write_text(_CODE.replace(f'hr.topic("{TOPIC}"', f'hr.topic("{topic}"') % bound)
    words = [str(Path(sys.executable).with_name("headrace")), "pipeline", "run", str(file)]
    words += ["--bootstrap", broker.address, "--tables", str(directory / "tables")]
    return [*words, *(["--once"] if rows_per_batch else [])]


def _table(side: str, directory: Path) -> Path:
    return directory / "table" if side == KAFKA else directory / "tables" / TABLE


def _throughput(side: str, broker: brokers.Broker, directory: Path, rows: int) -> float:
    """Rows a second over the commits after the first few: what a stream does that has run for a while."""
    call(_command(side, broker, directory, TOPIC, rows // (ROWS // ROWS_PER_BATCH)), seconds_max=_RUN_S_MAX)
    commits = [commit for commit in _commits(_table(side, directory)) if commit.rows]
    if sum(commit.rows for commit in commits) != rows:
        raise MeasurementError(f"{side}: {sum(commit.rows for commit in commits):,} of {rows:,} rows in the table")
    if len(commits) <= WARM_BATCHES:
        raise MeasurementError(f"{side}: {len(commits)} commits, more than {WARM_BATCHES} are needed")
    steady = commits[WARM_BATCHES:]
    return sum(commit.rows for commit in steady) / (steady[-1].at_s - commits[WARM_BATCHES - 1].at_s)


def _latency(side: str, broker: brokers.Broker, directory: Path, topic: str) -> dict[str, float]:
    """From the moment a row is sent to the commit that holds it."""
    log_path = directory / "job.log"
    with _sending(broker, topic), open(log_path, "wb") as log:
        job = subprocess.Popen(_command(side, broker, directory, topic, 0), stdout=log, stderr=log)
        try:
            _await_commit(side, directory, job)
            measured_from = time.time() + WARM_S
            time.sleep(WARM_S + MEASURED_S)
        finally:
            job.terminate()
            job.wait(_STOP_S_MAX)
    waits = []
    for commit in _commits(_table(side, directory)):
        if measured_from <= commit.at_s:
            for file in commit.files:
                sent = pq.read_table(file, columns=["at"])["at"].to_pylist()
                waits += [commit.at_s - at.timestamp() for at in sent]
    if len(waits) < STEADY_ROWS_S:
        raise MeasurementError(f"{side}: {len(waits)} rows were committed in {MEASURED_S:g} s")
    points = statistics.quantiles(waits, n=100)
    return {"p50_ms": 1e3 * points[49], "p95_ms": 1e3 * points[94]}


@contextmanager
def _sending(broker: brokers.Broker, topic: str) -> Iterator[None]:
    """So many rows a second, on a thread, for the length of the block."""
    stopped = threading.Event()
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 1})

    def send() -> None:
        began, sent = time.monotonic(), 0
        while not stopped.wait(0.01):
            while sent < (time.monotonic() - began) * STEADY_ROWS_S:
                producer.produce(topic, _row(sent))
                sent += 1
            producer.poll(0)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()
        producer.flush(30)


def _await_commit(side: str, directory: Path, job: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _COMMIT_S_MAX
    first = _table(side, directory) / "_delta_log" / f"{1:020}.json"
    while not first.exists():
        if job.poll() is not None or time.monotonic() > deadline:
            raise MeasurementError(f"{side}: no commit: {(directory / 'job.log').read_text(errors='replace')[-300:]}")
        time.sleep(0.1)


def _commits(table: Path) -> list[Commit]:
    found = []
    for path in sorted((table / "_delta_log").glob("*.json")):
        added = [line["add"] for line in map(json.loads, path.read_text().splitlines()) if "add" in line]
        rows = sum(json.loads(add["stats"])["numRecords"] for add in added)
        files = tuple(table / add["path"] for add in added)
        found.append(Commit(at_s=os.stat(path).st_mtime, rows=rows, files=files))
    return found


def _query_s(directory: Path) -> float:
    command = [str(Path(sys.executable).with_name("headrace")), "table", "query"]
    command += [f"select count(*), sum(amount) from {TABLE}", "--tables", str(directory / "tables")]
    began = time.monotonic()
    call(command, seconds_max=60)
    return time.monotonic() - began

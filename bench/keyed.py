"""Time per batch of a keyed table as it grows: 1,000 changes of random keys per batch, into 10,000 to 1,000,000 rows.

Read from the table's own log: the time between its commits; and the CPU time of the whole job, which is steadier on a
busy machine and begins with the start of Spark. With deletion vectors a merge marks the rows that it replaces; without,
it writes every file again that holds one of them, which of random keys is every file. To find the rows it reads the
keys of the whole table either way.
"""

import itertools
import json
import random
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import brokers
from book import Book
from confluent_kafka import Producer
from processes import MeasurementError, call
from turns import HEADRACE
from workspace import Workspace, rest

NAME = "keyed"
KEYS = (10_000, 100_000, 1_000_000)
KINDS = {"plain": "", "vectors": ', properties={"delta.enableDeletionVectors": "true"}'}
CHANGES_PER_BATCH, BATCHES, WARM_BATCHES = 1_000, 12, 4
_RUN_S_MAX = 1_200.0
_CODE = """
import headrace as hr

SCHEMA = "id long, lsn long, op string, name string, amount long"
base = hr.topic("{topic}-base", schema=SCHEMA)
changes = hr.topic("{topic}-changes", schema=SCHEMA, max_offsets_per_trigger={changes})


@hr.table(key="id", order_by="lsn", delete="op = 'd'"{more})
def kept(base, changes):
    return base.unionByName(changes)
"""


def run(book: Book, workspace: Workspace, *, rounds: int) -> None:
    with brokers.headrace(workspace) as broker:
        for number in range(rounds):
            for kind, more in KINDS.items():
                for keys in KEYS:
                    directory = workspace.fresh("job")
                    directory.mkdir(parents=True)
                    topic = f"keyed-{number}-{kind}-{keys}"
                    book.add(workload(kind, keys), HEADRACE, **measured(broker.address, directory, topic, keys, more))
                    workspace.remove("job")
                    rest()


def workload(kind: str, keys: int) -> str:
    return f"{NAME}_{kind}_{keys}"


def measured(address: str, directory: Path, topic: str, keys: int, more: str) -> dict[str, float]:
    """Seconds per batch, the median of those after the first few; CPU seconds of the job; seconds of a query."""
    file, tables = directory / "job.py", directory / "tables"
    file.write_text(_CODE.format(topic=topic, changes=CHANGES_PER_BATCH, more=more))
    words = [str(Path(sys.executable).with_name("headrace")), "pipeline", "run", str(file), "--once"]
    words += ["--bootstrap", address, "--tables", str(tables)]
    _send(address, f"{topic}-base", (_row(number, number, "c") for number in range(keys)))
    _send(address, f"{topic}-changes", [_row(0, keys, "u")])  # the topic must be there
    call(words, seconds_max=_RUN_S_MAX)
    chance = random.Random(keys)
    ops = (("d" if chance.random() < 0.1 else "u") for _ in range(CHANGES_PER_BATCH * BATCHES))
    rows = (_row(chance.randrange(keys), keys + 1 + number, op) for number, op in enumerate(ops))
    _send(address, f"{topic}-changes", rows)
    before = len(list(_times(tables / "kept")))
    timer = [sys.executable, str(Path(__file__).with_name("timed_job.py")), str(directory / "job.log")]
    took: dict[str, float] = json.loads(call([*timer, *words], seconds_max=_RUN_S_MAX))
    times = list(_times(tables / "kept"))[before:]
    if len(times) < BATCHES:
        raise MeasurementError(f"{topic}: {len(times)} commits, {BATCHES} are needed")
    gaps = [after - at for at, after in itertools.pairwise(times)]
    asking = [words[0], "table", "query", "select sum(amount) from kept", "--tables", str(tables)]
    asked: dict[str, float] = json.loads(call([*timer, *asking], seconds_max=_RUN_S_MAX))
    return {"seconds": statistics.median(gaps[WARM_BATCHES:]), "cpu_s": took["cpu_s"], "query_s": asked["seconds"]}


def _row(key: int, lsn: int, op: str) -> bytes:
    return b'{"id":%d,"lsn":%d,"op":"%s","name":"name of %d","amount":%d}' % (key, lsn, op.encode(), key, lsn % 997)


def _send(address: str, topic: str, rows: "Iterator[bytes] | list[bytes]") -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    for row in rows:
        while True:
            try:
                producer.produce(topic, row)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(60):
        raise MeasurementError(f"{topic}: not every row was acknowledged")


def _times(table: Path) -> Iterator[float]:
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            if "commitInfo" in (action := json.loads(line)):
                yield action["commitInfo"]["timestamp"] / 1e3

"""`kill -9` of the driver, of the broker, of both: each input is counted exactly once in every output.

The control, which differs only in that its writes carry no transaction, must show what would happen without.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from broker_process import BrokerProcess
from conftest import QUICK_JAVA, QUICK_SPARK
from pipeline_runs import Bench, read_topic
from ports import reserved_port
from waits import WAIT_S_MAX, eventually

from headrace.streaming.progress import read_progress
from headrace.tables.provenance import TopicSource, decode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 7
DOOMED_S_MAX = 300.0
CODE = """
from delta.tables import DeltaTable
events = hr.topic("events", schema="id int, k int", max_offsets_per_trigger={batch})

@hr.table
def kept(events):
    return events

@hr.table(key="k")
def summed(events):
    return events.groupBy("k").agg(F.count("*").alias("n"), F.sum("id").alias("total"))

@hr.for_each_batch
def tallied(events, batch):
    news = events.groupBy("k").agg(F.count("*").alias("n"))
    path = batch.path("tally")
    DeltaTable.createIfNotExists(events.sparkSession).location(path).addColumns(news.schema).execute()
    (DeltaTable.forPath(events.sparkSession, path).alias("t").merge(news.alias("s"), "t.k = s.k")
     .whenMatchedUpdate(set={{"n": "t.n + s.n"}}).whenNotMatchedInsertAll().execute())

@hr.to_topic("{out}", key="k", tasks=2)
def out(events):
    return events
"""

PARTED = """
events = hr.topic("events", schema="id int, k int", max_offsets_per_trigger={batch})

@hr.to_topic("parted", key="id", tasks={tasks})
def parted(events):
    return events
"""


class World:
    """A broker in a process, the pipeline's file, and what must come out of it."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, directory: Path, batch: int) -> None:
        self.directory = directory
        self.broker = broker
        self.ids = 0
        self.batch = batch
        address = cast(Any, SimpleNamespace(bootstrap_servers=broker.bootstrap))
        self.bench = Bench(spark, address, directory)

    def file(self, out: str) -> str:
        return self.bench.file(CODE.format(batch=self.batch, out=out), f"{out}.py")

    def parted(self, tasks: int) -> str:
        return self.bench.file(PARTED.format(batch=self.batch, tasks=tasks), "parted.py")

    def broker_again(self) -> None:
        """At the same address, after it was killed."""
        self.broker = start_broker(self.directory, int(self.broker.bootstrap.rpartition(":")[2]))

    def send(self, count: int) -> None:
        values = [{"id": number, "k": number % KEYS} for number in range(self.ids, self.ids + count)]
        self.bench.send("events", values, key=lambda value: str(value["k"]))
        self.ids += count

    def surplus(self, out: str, tables: str) -> dict[str, int]:
        """How many rows too many (or too few) each output has."""
        self.bench.tables = tables
        expected = Counter(number % KEYS for number in range(self.ids))
        wrong = {}
        kept = [row.id for row in self.bench.frame("kept").collect()]
        assert set(kept) == set(range(self.ids))
        wrong["kept"] = len(kept) - self.ids
        summed = {row.k: (row.n, row.total) for row in self.bench.frame("summed").collect()}
        exact = {k: (expected[k], sum(range(k, self.ids, KEYS))) for k in range(KEYS)}
        wrong["summed"] = sum(summed[k][0] for k in summed) - self.ids
        assert summed == exact, f"{summed} is not {exact}"
        tally = self.bench.spark.read.format("delta").load(self.bench.version_path("tally", pipeline=out)).collect()
        wrong["tallied"] = sum(row.n for row in tally) - self.ids
        written = _ids(self, out)
        assert set(written) == set(range(self.ids))
        wrong["out"] = len(written) - self.ids
        return wrong


@contextmanager
def world_of(spark: SparkSession, directory: Path, batch: int) -> Iterator[World]:
    with reserved_port() as port:
        world = World(spark, start_broker(directory, port), directory, batch)
        try:
            yield world
        finally:
            world.broker.stop()


def start_broker(directory: Path, port: int) -> BrokerProcess:
    return BrokerProcess(str(directory / "log"), {"num.partitions": "2"}, port=port)


@contextmanager
def doomed(world: World, batch: int, *files: tuple[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    script = str(Path(__file__).with_name("doomed_driver.py"))
    arguments = [part for pair in files for part in pair]
    command = [sys.executable, script, world.broker.bootstrap, str(batch), *arguments]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    try:
        yield driver
    finally:
        driver.kill()  # its JVM ends with it
        driver.wait()


def test_a_driver_that_is_killed_between_write_and_commit_doubles_nothing_and_the_control_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    real, control, parted = (str(tmp_path / name) for name in ("tables", "control", "parted"))
    with world_of(spark, tmp_path, batch=60) as world:
        world.send(150)
        files = ((world.file("real"), real), (world.file("control"), control), (world.parted(3), parted))
        with doomed(world, 1, *files) as driver:
            _, stderr = driver.communicate(timeout=DOOMED_S_MAX)
        assert driver.returncode == -signal.SIGKILL, stderr.decode()[-2000:]
        _finish_in_other_parts(world, parted)
        world.send(50)
        world.bench.tables = real
        world.bench.once(world.file("real"))
        world.bench.tables = control
        world.bench.once(world.file("control"), transaction_options=False)
        assert world.surplus("real", real) == {"kept": 0, "summed": 0, "tallied": 0, "out": 0}
        assert _commits_by_batch(spark, f"{real}/summed") == dict.fromkeys(range(4), 1)
        surplus = world.surplus("control", control)
        # The batch that was written and not noted is there twice; only an aggregate's state knows its batch.
        twice = _rows_of_batch(spark, f"{control}/kept", 1)
        assert twice > 0
        assert surplus == {"kept": twice, "summed": 0, "tallied": twice, "out": twice}
        assert _commits_by_batch(spark, f"{control}/summed")[1] == 2


def test_a_broker_that_is_killed_while_the_pipeline_streams_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    seed = int.from_bytes(os.urandom(4))
    chance = random.Random(seed)
    with world_of(spark, tmp_path, batch=70) as world:
        world.send(100)
        tables = str(tmp_path / "tables")
        file = world.file("streamed")
        with world.bench.running(file, restarts_max=30, backoff_s_max=1.0) as runner:
            nodes = runner.progress.nodes
            eventually(lambda: any(node.batches for node in nodes.values()), "a first batch")
            time.sleep(chance.uniform(0, 1))
            world.broker.kill()
            world.broker_again()
            world.send(100)
            eventually(
                lambda: all(_end(node.offsets) == world.ids for node in nodes.values()),
                f"all nodes at {world.ids}, seed {seed}: {nodes}",
                3 * WAIT_S_MAX,
            )
        world.bench.once(file)
        surplus = world.surplus("streamed", tables)
        assert surplus == {"kept": 0, "summed": 0, "tallied": 0, "out": 0}, f"seed {seed}"


def test_driver_and_broker_killed_together_at_a_random_moment_lose_and_double_nothing(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--minutes") is None:
        pytest.skip("another kill of the same kind; make chaos runs it")
    seed = int.from_bytes(os.urandom(4))
    chance = random.Random(seed)
    tables = str(tmp_path / "tables")
    with world_of(spark, tmp_path, batch=60) as world:
        world.send(200)
        file = world.file("both")
        command = [sys.executable, "-m", "headrace.cli.main", "pipeline", "run", file, "--tables", tables,
                   "--bootstrap", world.broker.bootstrap, "--master", "local[2]",
                   "--conf", f"spark.driver.extraJavaOptions={QUICK_JAVA}",
                   *(part for key, value in QUICK_SPARK.items() for part in ("--conf", f"{key}={value}"))]  # fmt: skip
        with open(tmp_path / "run.log", "wb") as log:
            driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        status = f"{tables}/.headrace/both/v1/run.json"

        def begun() -> bool:
            assert driver.poll() is None, (tmp_path / "run.log").read_text()[-2000:]
            progress = read_progress(status)
            return progress is not None and any(node.batches for node in progress.nodes.values())

        eventually(begun, "a first batch", 2 * WAIT_S_MAX)
        time.sleep(chance.uniform(0, 2))
        os.kill(driver.pid, signal.SIGKILL)
        world.broker.kill()
        driver.wait(WAIT_S_MAX)
        world.broker_again()
        world.send(50)
        world.bench.once(file)
        surplus = world.surplus("both", tables)
        assert surplus == {"kept": 0, "summed": 0, "tallied": 0, "out": 0}, f"seed {seed}"


def _finish_in_other_parts(world: World, tables: str) -> None:
    """Some parts of a batch are in the topic; the code that comes again wants another number of them."""
    before = _ids(world, "parted")
    assert len(before) == len(set(before))
    assert world.batch < len(before) < 2 * world.batch, "the second batch is there in part"
    world.bench.tables = tables
    world.bench.once(world.parted(4), accept_change=True)
    assert Counter(_ids(world, "parted")) == Counter(range(world.ids))


def _ids(world: World, topic: str) -> list[int]:
    return [json.loads(record.value())["id"] for record in read_topic(world.broker.bootstrap, topic)]


def _end(offsets: dict[str, dict[str, int]]) -> int:
    return sum(offsets.get("events", {}).values())


def _commits_by_batch(spark: SparkSession, path: str) -> dict[int, int]:
    from delta.tables import DeltaTable

    made = [decode(row.userMetadata) for row in DeltaTable.forPath(spark, path).history().collect()]
    return dict(sorted(Counter(commit.batch for commit in made if commit is not None).items()))


def _rows_of_batch(spark: SparkSession, path: str, batch: int) -> int:
    """How many records the batch had, by the offsets that its commit names."""
    from delta.tables import DeltaTable

    for row in DeltaTable.forPath(spark, path).history().collect():
        made = decode(row.userMetadata)
        if made is not None and made.batch == batch and isinstance(made.sources[0], TopicSource):
            return sum(end - start for start, end in made.sources[0].ranges.values())
    raise AssertionError(f"{path} has no batch {batch}")

"""A pipeline in a test: its file, its broker, its tables, and runs of it in the shared session."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from waits import WAIT_S_MAX, eventually

from headrace.streaming.launching import Launch, exclusive, launch_live, launch_next
from headrace.streaming.node_locks import NodeLocks
from headrace.streaming.operation import LiveWatch
from headrace.streaming.progress import RunProgress
from headrace.streaming.run_settings import RunSettings
from headrace.streaming.runner import Runner
from headrace.streaming.sources import without_hidden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    import headrace

DRIVER_S_MAX = 15 * WAIT_S_MAX  # a Spark that starts and runs batches beside twenty others; it only ends a hang
HEAD = "import headrace as hr\nfrom pyspark.sql import functions as F\n"


class Bench:
    """One directory of tables and one broker; the pipeline is named `shop` unless it says otherwise."""

    def __init__(self, spark: SparkSession, broker: headrace.Broker, directory: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.directory = directory
        self.tables = str(directory / "tables")
        self.said: list[str] = []
        self.locks_of: dict[int, NodeLocks] = {}  # of the last run of each version

    def file(self, code: str, name: str = "shop.py") -> str:
        path = self.directory / name
        path.write_text(HEAD + dedent(code))
        return str(path)

    def send(self, topic: str, values: list[Any], *, key: Callable[[Any], str | None] = lambda value: None) -> None:
        """JSON of what is not bytes or None; headers and partition are left to other helpers."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        for value in values:
            body = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            producer.produce(topic, body, key(value))
        assert producer.flush(WAIT_S_MAX) == 0

    def one_partition(self, topic: str) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S_MAX)

    def settings(self, **more: Any) -> RunSettings:
        given: dict[str, Any] = {"once": True, "progress_s": 0.25, "backoff_s_min": 0.2, "restarts_max": 3, **more}
        return RunSettings(tables_dir=self.tables, bootstrap=self.broker.bootstrap_servers, **given)

    def once(self, path: str, **more: Any) -> RunProgress:
        """Everything that is there, and no node may fail."""
        progress = self.try_once(path, **more)
        assert progress.status == "finished", {name: node.message for name, node in progress.nodes.items()}
        return progress

    def try_once(self, path: str, accept_change: bool = False, **more: Any) -> RunProgress:
        launch = launch_live(path, self.tables, accept_change=accept_change)
        return self.run(launch, **more)

    def replay_once(
        self, path: str, start: str | None = None, refresh: tuple[str, ...] = (), **more: Any
    ) -> RunProgress:
        launch, starting = launch_next(path, self.tables, start, refresh)
        progress = self.run(launch, starting=starting, **more)
        assert progress.status == "finished", {name: node.message for name, node in progress.nodes.items()}
        return progress

    def run(self, launch: Launch, **more: Any) -> RunProgress:
        with exclusive(launch.catalog, launch.version), self.locks(launch) as locks:
            runner = self.runner(launch, locks, **more)
            runner.prepare()
            return runner.run()

    def locks(self, launch: Launch) -> NodeLocks:
        self.locks_of[launch.version] = NodeLocks(launch.catalog.layout, launch.version, launch.taken)
        return self.locks_of[launch.version]

    def runner(self, launch: Launch, locks: NodeLocks | None = None, **more: Any) -> Runner:
        return Runner(
            self.spark, launch.loaded, launch.graph, launch.catalog.layout, launch.version, self.settings(**more),
            taken=launch.taken, mine=locks.mine if locks is not None else lambda node: True, say=self.said.append,
        )  # fmt: skip

    @contextmanager
    def running(self, path: str, **more: Any) -> Iterator[Runner]:
        """The pipeline streams on another thread for the length of a block."""
        with self.streaming(launch_live(path, self.tables), **more) as runner:
            yield runner

    @contextmanager
    def streaming(self, launch: Launch, **more: Any) -> Iterator[Runner]:
        with exclusive(launch.catalog, launch.version), self.locks(launch) as locks:
            runner = self.runner(launch, locks, once=False, **more)
            runner.prepare()
            watch = LiveWatch(launch.catalog, launch.version)
            thread = threading.Thread(target=runner.run, kwargs={"until": watch}, daemon=True)
            thread.start()
            try:
                yield runner
            finally:
                runner.stop()
                thread.join(WAIT_S_MAX)
                assert not thread.is_alive()

    def frame(self, table: str) -> DataFrame:
        """As Headrace's own readers show it."""
        return without_hidden(self.spark.read.format("delta").load(f"{self.tables}/{table}"))

    def rows(self, table: str, *columns: str) -> list[Row]:
        frame = self.frame(table)
        return sorted(frame.select(*columns).collect() if columns else frame.collect(), key=str)

    def version_path(self, name: str, version: int = 1, pipeline: str = "shop") -> str:
        return f"{self.tables}/.headrace/{pipeline}/v{version}/{name}"

    def quarantine(self, node: str, version: int = 1) -> list[Row]:
        return sorted(
            self.spark.read.format("delta").load(self.version_path(f"_quarantine/{node}", version)).collect(), key=str
        )

    def records(self, topic: str) -> list[Any]:
        """All committed records of a topic, partition by partition."""
        return read_topic(self.broker.bootstrap_servers, topic)


def commits(bench: Bench, table: str, pipeline: str = "shop", version: int = 1) -> int:
    """Of a table's Delta log, without a look into it."""
    log = Path(bench.version_path(table, version, pipeline)) / "_delta_log"
    return len([name for name in os.listdir(log) if name.endswith(".json")]) if log.is_dir() else 0


class Driver:
    """A pipeline's command in a process of its own, JVM and all, which ends with `kill -9`."""

    def __init__(self, bench: Bench, *words: str) -> None:
        """`words` come behind `headrace pipeline`."""
        command = [str(Path(sys.executable).with_name("headrace")), "pipeline", *words, "--tables", bench.tables,
                   "--bootstrap", bench.broker.bootstrap_servers]  # fmt: skip
        self._log = bench.directory / f"driver-{words[0]}-{time.monotonic_ns()}.log"
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def until(self, ready: Callable[[], bool], what: str) -> None:
        """Waits for it; a process that ends by itself meanwhile has failed."""
        eventually(lambda: ready() or self.process.poll() is not None, what, DRIVER_S_MAX)
        assert self.process.poll() is None, f"{what}: the process ended by itself: {self.said()}"

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-2000:]


def kill_when(bench: Bench, path: str, ready: Callable[[], bool]) -> None:
    """Runs the pipeline in a process of its own and kills that, JVM and all, as soon as `ready`."""
    with Driver(bench, "run", path) as driver:
        driver.until(ready, "a pipeline to kill")


def read_topic(bootstrap: str, topic: str) -> list[Any]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        partitions = list(consumer.list_topics(topic, timeout=WAIT_S_MAX).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found, ended = [], 0
        while ended < len(partitions):
            message = consumer.poll(WAIT_S_MAX)
            assert message is not None, f"{topic}: no answer"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended += 1
            else:
                found.append(message)
        return sorted(found, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()

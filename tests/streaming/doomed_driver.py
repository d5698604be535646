"""A driver that kills itself, JVM and all, in the worst moment: every node has written its batch, none has noted it.

A node whose pipeline is named `parted` has written all but the last of its parts by then.

    python doomed_driver.py BOOTSTRAP BATCH FILE TABLES [FILE TABLES ...]

Each FILE is run into its TABLES; one whose directory is named `control` runs without the transaction options.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.streaming import session, topic_sink
from headrace.streaming.batch_writer import BatchWriter
from headrace.streaming.launching import exclusive, launch_live
from headrace.streaming.run_settings import RunSettings
from headrace.streaming.runner import Runner
from headrace.streaming.session import SparkSettings
from headrace.streaming.topic_task import TopicTask

BARRIER_S_MAX = 240.0
PARTED = "parted"
PARTS_WRITTEN = 2


def main(bootstrap: str, batch: int, pipelines: list[tuple[str, str]]) -> None:
    settings = SparkSettings(
        master="local[2]",
        driver_memory="1g",
        parallelism=1,
        extra={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
               "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
    )  # fmt: skip
    with session.running(settings) as spark:
        runners = []
        for file, tables in pipelines:
            launch = launch_live(file, tables)
            given = RunSettings(
                tables_dir=tables,
                bootstrap=bootstrap,
                once=True,
                progress_s=0.05,
                transaction_options=os.path.basename(tables) != "control",
            )
            runner = Runner(spark, launch.loaded, launch.graph, launch.catalog.layout, launch.version, given, say=print)
            exclusive(launch.catalog, launch.version).__enter__()
            runner.prepare()
            runners.append(runner)
        die_after(batch, sum(len(runner.progress.nodes) for runner in runners))
        for _, tables in pipelines:
            if os.path.basename(tables) == PARTED:
                stop_between_parts(batch, Path(tables).with_name("parts-done"))
        threads = [threading.Thread(target=runner.run) for runner in runners]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def die_after(batch: int, nodes: int) -> None:
    """What could not be parsed is looked for after writing: there, all wait for each other, and then everything is
    gone."""
    global together
    together = threading.Barrier(nodes, action=die)
    look = BatchWriter._unparsed

    def look_together(self: BatchWriter, spark: Any, names: Any, stamp: Any) -> Any:
        if stamp.batch == batch:
            together.wait(BARRIER_S_MAX)
        return look(self, spark, names, stamp)

    BatchWriter._unparsed = look_together  # type: ignore[method-assign]


def stop_between_parts(batch: int, done: Path) -> None:
    """The node itself never gets to the others: a thread goes for it, when its first parts are in the topic. It begins
    when the others are there, for a part that waits takes a core from them."""
    done.mkdir()

    class PartlyDone(TopicTask):
        def run(self, batches: Iterator[Any]) -> int:
            if PARTED in self.name and self.batch == batch and self.task >= PARTS_WRITTEN:
                while os.getppid() != 1:  # until Spark is gone
                    time.sleep(0.05)
            written = TopicTask.run(self, batches)
            if PARTED in self.name and self.batch == batch:
                (done / str(self.task)).touch()
            return written

    write = topic_sink.TopicSink.write

    def write_last(self: topic_sink.TopicSink, frame: Any, stamp: Any) -> None:
        while PARTED in stamp.app_id and stamp.batch == batch and together.n_waiting < together.parties - 1:
            time.sleep(0.02)
        write(self, frame, stamp)

    def go() -> None:
        while len(list(done.iterdir())) < PARTS_WRITTEN:
            time.sleep(0.02)
        together.wait(BARRIER_S_MAX)

    topic_sink.TopicSink.write = write_last  # type: ignore[method-assign]
    topic_sink.TopicTask = PartlyDone  # type: ignore[misc]  # it goes to the workers by value, with this file
    threading.Thread(target=go, daemon=True).start()


def die() -> None:
    running = session._running
    assert running is not None
    assert running.gateway.process is not None
    os.kill(running.gateway.process.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    given = sys.argv[3:]
    main(sys.argv[1], int(sys.argv[2]), list(zip(given[::2], given[1::2], strict=True)))

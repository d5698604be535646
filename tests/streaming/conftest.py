"""One Spark session for every test under tests/streaming that the same worker runs.

`make test` runs this directory in a pytest of its own with two workers, so that there are two JVMs and two starts.
Tests share the session: they use paths of their own, name their queries and views after themselves, and stop the
queries that they start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(1, str(Path(__file__).parent.parent / "tools"))  # screens
sys.path.insert(1, str(Path(__file__).parent.parent / "wire"))
sys.path.insert(1, str(Path(__file__).parent.parent / "faults"))  # a broker in a process of its own

from pipeline_runs import Bench

import headrace
from headrace.streaming.session import SparkSettings, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Tests run each piece of code a few times only: the second compiler would cost more than it gives back. With the first
# alone Java keeps 48 MB for what it compiled, which these tests fill: it would throw code out and compile it again.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
# And a query over a few rows is over before code for it is generated and compiled.
QUICK_SPARK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.stats.collect": "false",
    "spark.sql.streaming.pollingDelay": "5ms",
}


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the JVM of the shared session prints: the console sink writes there."""
    return tmp_path_factory.mktemp("console") / "stdout.txt"


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory, console: Path) -> Iterator[SparkSession]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    settings = SparkSettings(
        master="local[2]",
        driver_memory="2g",
        log_path=str(log),
        parallelism=1,
        extra={"spark.driver.extraJavaOptions": QUICK_JAVA, **QUICK_SPARK},
    )
    with ExitStack() as stack:
        with stdout_into(console):
            spark = stack.enter_context(running(settings))
        yield spark


@pytest.fixture
def spark(shared_spark: SparkSession) -> Iterator[SparkSession]:
    """The shared session; a query that the test left running is stopped, and fails it."""
    yield shared_spark
    left = [query.name or str(query.id) for query in shared_spark.streams.active]
    for query in shared_spark.streams.active:
        query.stop()
    assert not left, f"queries left running: {left}"


@pytest.fixture(scope="session")
def broker() -> Iterator[headrace.Broker]:
    """One broker for all; a test uses topics of its own."""
    with headrace.Broker() as broker:
        yield broker


@contextmanager
def stdout_into(path: Path) -> Iterator[None]:
    """What is started inside the block inherits the file as its stdout."""
    before = os.dup(1)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)
        os.close(file)


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[headrace.Broker]:
    with headrace.Broker(num_partitions=2) as broker:
        yield broker


@pytest.fixture
def bench(spark: SparkSession, shared_broker: headrace.Broker, tmp_path: Path) -> Bench:
    """A pipeline's surroundings. The broker is shared: a test names its topics after itself."""
    return Bench(spark, shared_broker, tmp_path)

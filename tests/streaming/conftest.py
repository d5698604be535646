"""One Spark session for every test under tests/streaming.

`make test` runs this directory in a pytest of its own, without xdist, so that there is one JVM and one start of it.
Tests share the session: they use paths of their own, name their queries and views after themselves, and stop the
queries that they start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.streaming.session import SparkSettings, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Tests run each piece of code a few times only: the second compiler would cost more than it gives back.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def console(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the JVM of the shared session prints: the console sink writes there."""
    return tmp_path_factory.mktemp("console") / "stdout.txt"


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory, console: Path) -> Iterator[SparkSession]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    settings = SparkSettings(
        master="local[2]",
        driver_memory="1536m",
        log_path=str(log),
        extra={"spark.driver.extraJavaOptions": QUICK_JAVA},
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

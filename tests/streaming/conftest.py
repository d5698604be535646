"""One Spark session for every test under tests/streaming.

`make test` runs this directory in a pytest of its own, without xdist, so that there is one JVM and one start of it.
Tests share the session: they use paths of their own, name their queries and views after themselves, and stop the
queries that they start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from headrace.streaming.session import SparkSettings, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    with running(SparkSettings(master="local[2]", driver_memory="1536m", log_path=str(log))) as spark:
        yield spark


@pytest.fixture
def spark(shared_spark: SparkSession) -> Iterator[SparkSession]:
    """The shared session; a query that the test left running is stopped, and fails it."""
    yield shared_spark
    left = [query.name or str(query.id) for query in shared_spark.streams.active]
    for query in shared_spark.streams.active:
        query.stop()
    assert not left, f"queries left running: {left}"

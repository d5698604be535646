"""The pytest plugin. It is loaded by every run of pytest where Headrace is installed, so it imports nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.testing.broker import Broker
    from headrace.testing.keeper import Keeper
    from headrace.testing.pipeline import PipelineUnderTest, Rows

MARKER = "headrace(**settings): settings of the headrace_broker of this test, such as num_partitions=3"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


@pytest.fixture(scope="session")
def headrace_settings() -> dict[str, Any]:
    """Settings of all brokers in the session: override it in your conftest.py."""
    return {}


@pytest.fixture
def headrace_broker(request: pytest.FixtureRequest, headrace_settings: dict[str, Any]) -> Iterator[Broker]:
    """A real broker on a free port, new for this test: `headrace_broker.bootstrap_servers`."""
    from headrace.testing.broker import Broker

    own: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers("headrace"))):  # what stands nearest to the test wins
        own |= marker.kwargs
    with Broker(**{**headrace_settings, **own}) as broker:
        yield broker


@pytest.fixture(scope="session")
def headrace_shared_broker(headrace_settings: dict[str, Any]) -> Iterator[Broker]:
    """One broker for all tests of a session (of each worker, with pytest-xdist); give each test a topic of its own."""
    from headrace.testing.broker import Broker

    with Broker(**headrace_settings) as broker:
        yield broker


@pytest.fixture
def headrace_keeper() -> Iterator[Keeper]:
    """A real keeper on a free port, new for this test: `headrace_keeper.hosts` is for a ZooKeeper client."""
    from headrace.testing.keeper import Keeper

    with Keeper() as keeper:
        yield keeper


@pytest.fixture(scope="session")
def headrace_spark_settings() -> dict[str, Any]:
    """Settings of headrace_spark: fields of SparkSettings, or Spark's own names. Override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def headrace_spark(headrace_spark_settings: dict[str, Any]) -> Iterator[SparkSession]:
    """One Spark session for all tests (of each worker, with pytest-xdist), with Delta and Kafka ready."""
    from headrace.testing.spark import spark_for_tests

    with spark_for_tests(headrace_spark_settings) as spark:
        yield spark


@pytest.fixture
def headrace_pipeline(headrace_spark: SparkSession, tmp_path: Path) -> Iterator[OpenPipeline]:
    """Runs a pipeline over rows of the test's own: `headrace_pipeline("shop.py", {"orders": [{…}, {…}]})`."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield OpenPipeline(headrace_spark, tmp_path, stack)


class OpenPipeline:
    """What `headrace_pipeline` is: called with a pipeline, it makes tables of rows. Each call has a broker and tables
    of its own, so that one test can compare two pipelines, or two ways to split the same rows."""

    def __init__(self, spark: SparkSession, directory: Path, stack: ExitStack) -> None:
        self._spark = spark
        self._directory = directory
        self._stack = stack
        self._count = 0

    def __call__(
        self,
        pipeline: Any,
        rows: Rows | None = None,
        *,
        batches: Sequence[Rows] | None = None,
        partitions: int = 1,
        name: str | None = None,
        allow_failures: bool = False,
    ) -> PipelineUnderTest:
        """`pipeline` is a file, a module or functions, as for `hr.run`; `rows` are per topic, all in one batch;
        `batches` is a list of such rows, one per batch. `partitions` is how many each topic has. A node that fails
        is an error, unless failures are allowed."""
        from headrace.broker.embedded import Broker
        from headrace.testing.pipeline import PipelineUnderTest

        if rows is not None and batches is not None:
            raise TypeError("headrace_pipeline: give rows or batches, not both")
        self._count += 1
        broker = self._stack.enter_context(Broker(num_partitions=partitions))
        tables = self._directory / f"headrace-tables-{self._count}"
        made = PipelineUnderTest(pipeline, spark=self._spark, broker=broker, tables=tables, name=name)
        for each in batches if batches is not None else [] if rows is None else [rows]:
            made.batch(each, allow_failures=allow_failures)
        return made

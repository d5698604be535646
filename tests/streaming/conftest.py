"""One Spark session for every test under tests/streaming that the same worker runs.

`make test` runs this directory in a pytest of its own with two workers, so that there are two JVMs and two starts.
Tests share the session: they use paths of their own, name their queries and views after themselves, and stop the
queries that they start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(1, str(Path(__file__).parent.parent / "tools"))  # screens
sys.path.insert(1, str(Path(__file__).parent.parent / "wire"))
sys.path.insert(1, str(Path(__file__).parent.parent / "docs"))  # blocks
sys.path.insert(1, str(Path(__file__).parent.parent / "stores"))
sys.path.insert(1, str(Path(__file__).parent.parent / "faults"))  # a broker in a process of its own
sys.path.insert(1, str(Path(__file__).parents[2] / "examples" / "nexmark"))  # events

from pipeline_runs import Bench
from s3_server import BUCKET, KEYS, s3_server
from waits import NEVER_MS, WAIT_S_MAX

import headrace
from headrace.streaming.s3 import s3_settings
from headrace.streaming.session import SparkSettings, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Tests run each piece of code a few times only: the second compiler would cost more than it gives back. With the first
# alone Java keeps 48 MB for what it compiled, which these tests fill: it would throw code out and compile it again.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
# With the 128 MB that Java begins with for what is new, a sixth of the shared session's CPU time went into collecting.
ROOM = "-Xms1500m -Xmn700m"
# And a query over a few rows is over before code for it is generated and compiled.
QUICK_SPARK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.stats.collect": "false",
    "spark.sql.streaming.pollingDelay": "5ms",
    "spark.sql.adaptive.enabled": "false",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    with suppress(ValueError):  # other suites have it too
        parser.addoption("--seed", type=int, default=None, metavar="N", help="replay the choices of a test")
    parser.addoption("--events", type=int, default=None, metavar="N", help="events of NEXMark (make nexmark)")
    parser.addoption("--logs", type=int, default=None, metavar="N", help="logs that are split (make independence)")
    parser.addoption("--changes", type=int, default=None, metavar="N", help="of a database (make database)")


# Files whose tests share what is expensive to make: one worker runs all of each.
WHOLE = {"test_pipeline_nodes.py", "test_pipeline_s3.py", "test_session_end.py"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests are shared out one by one: the slowest file would keep one worker busy long after the other has ended.

    (xdist 3.8 has `--dist loadgroup` for this; it does not see its groups under pytest 9.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByTest(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if Path(file).name in WHOLE else nodeid

    return ByTest(config, log)


@pytest.fixture(scope="session", autouse=True)
def patient() -> Iterator[None]:
    """Beside a Spark that starts, a broker on a busy machine may need longer than an operator would wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.streaming.kafka.ASK_S_MAX", WAIT_S_MAX)
        patch.setattr("headrace.streaming.kafka.SAMPLE_S_MAX", WAIT_S_MAX)
        patch.setattr("headrace.streaming.lease.HELD_S", NEVER_MS / 1000)
        yield


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
        s3=True,
        extra={"spark.driver.extraJavaOptions": f"{QUICK_JAVA} {ROOM}", **QUICK_SPARK},
    )
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in KEYS.items():
            patch.setenv(name, value)
        with stdout_into(console):
            spark = stack.enter_context(running(settings))
        yield spark


@pytest.fixture(scope="session")
def headrace_spark(shared_spark: SparkSession) -> SparkSession:
    """The test kit's own session is this one, whichever test comes first."""
    return shared_spark


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


@pytest.fixture(scope="module")
def s3_endpoint(shared_spark: SparkSession) -> Iterator[str]:
    """An S3 that the shared session reaches as well, though it was started before."""
    with s3_server() as endpoint:
        hadoop = shared_spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
        for key, value in s3_settings({**KEYS, "AWS_ENDPOINT_URL": endpoint}).items():
            hadoop.set(key.removeprefix("spark.hadoop."), value)
        yield endpoint


@pytest.fixture
def s3_bench(bench: Bench, s3_endpoint: str, request: pytest.FixtureRequest) -> Bench:
    """The same, with the tables in an object store."""
    bench.tables = f"s3://{BUCKET}/{request.node.name}"
    return bench

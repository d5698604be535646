"""Wire tests run real clients against a real broker.

By default that is a Headrace broker of our own, in a process of its own. `--bootstrap host:port` points the
same tests at another one: a test that also passes on Apache Kafka proves itself.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import headrace_process
import pytest
import raw_groups
import recording
from confluent_kafka.admin import AdminClient, ConfigResource
from headrace_process import HeadraceProcess, StartHeadrace
from java import JavaTools, missing_program, shared_tools
from ports import reserved_port
from raw import Client
from recording_broker import RECORD_VARIABLE, served_by_name
from topic_setup import create_topic, fresh_name
from waits import NEVER_MS, SESSION_MS, WAIT_MS_MAX, WAIT_S_MAX

RECORDING_BROKER = Path(__file__).parent / "recording_broker.py"
MakeTopic = Callable[..., str]
SETTINGS = {
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": str(SESSION_MS),  # no member loses its place because the machine is slow
}
_RECORD = pytest.StashKey[tuple[Path, Path]]()
_BROKER = pytest.StashKey[HeadraceProcess]()


def pytest_configure(config: pytest.Config) -> None:
    file = config.getoption("--record-requests")
    if file is None:
        return
    record = Path(tempfile.mkdtemp(prefix="headrace-record-")) / "requests.tsv"
    os.environ[RECORD_VARIABLE] = str(record)
    headrace_process.HEADRACE[:] = [str(RECORDING_BROKER)]
    config.stash[_RECORD] = record, Path(file).resolve()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _RECORD not in session.config.stash:
        return
    record, file = session.config.stash[_RECORD]
    try:
        if exitstatus != 0:
            raise recording.IncompleteError("not every test passed")
        recording.write(record, file, served_by_name())
    except recording.IncompleteError as error:
        session.exitstatus = 1
        print(f"\n{file.name} is not written: {error}", file=sys.stderr)
    finally:
        shutil.rmtree(record.parent)


@pytest.fixture(scope="session")
def is_headrace(request: pytest.FixtureRequest) -> bool:
    """Whether the broker is our own; with --bootstrap its settings are somebody else's choice."""
    return request.config.getoption("--bootstrap") is None


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the broker under test, host:port."""
    given = request.config.getoption("--bootstrap")
    if given is not None:
        yield given
        return
    data = tmp_path_factory.mktemp("headrace") / "data"
    with HeadraceProcess(str(data), SETTINGS) as broker:
        request.config.stash[_BROKER] = broker
        yield broker.bootstrap


@pytest.fixture(scope="session", autouse=True)
def patient_kafka_python() -> Iterator[None]:
    """kafka-python gives up after 30 s, which a busy machine may need."""
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer  # here: its warnings are filtered by now

    with pytest.MonkeyPatch.context() as patch:
        for client in (KafkaProducer, KafkaConsumer, KafkaAdminClient):
            for name in ("bootstrap_timeout_ms", "request_timeout_ms"):
                patch.setitem(client.DEFAULT_CONFIG, name, WAIT_MS_MAX)
        patch.setitem(KafkaProducer.DEFAULT_CONFIG, "delivery_timeout_ms", 2 * WAIT_MS_MAX)
        patch.setitem(KafkaProducer.DEFAULT_CONFIG, "transaction_timeout_ms", NEVER_MS)
        yield


@pytest.fixture(autouse=True)
def broker_lives(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test during which the broker died fails; later ones fail at once, not at their deadline."""
    broker = request.config.stash.get(_BROKER, None)
    if broker is not None:
        broker.check()
    yield
    broker = request.config.stash.get(_BROKER, None)
    if broker is not None and not broker.stopped:
        broker.check()


@pytest.fixture
def start_headrace(is_headrace: bool, tmp_path: Path) -> Iterator[StartHeadrace]:
    """Starts a broker with settings of the test's own: `start_headrace({"log.retention.ms": "1000"})`."""
    if not is_headrace:
        pytest.skip("needs a broker with settings of its own; the one given with --bootstrap has others")
    started: list[HeadraceProcess] = []

    def start(settings: Mapping[str, str] | None = None, *, data: str | None = None) -> HeadraceProcess:
        broker = HeadraceProcess(data or str(tmp_path / f"data-{len(started)}"), settings)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        if not broker.stopped:
            broker.stop()


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": bootstrap}) as client:  # closed before its broker is
        yield client


@pytest.fixture(scope="session")
def default_partitions(is_headrace: bool, admin: AdminClient) -> int:
    """How many partitions a topic gets that is made on first use: one, or what another broker is set to."""
    if is_headrace:
        return 1
    (node,) = admin.describe_cluster().result(WAIT_S_MAX).nodes
    broker = ConfigResource(ConfigResource.Type.BROKER, str(node.id))
    return int(admin.describe_configs([broker])[broker].result(WAIT_S_MAX)["num.partitions"].value)


@pytest.fixture(scope="session")
def java() -> Iterator[JavaTools]:
    """Apache Kafka's Java tools, in one JVM per worker, which tests/tools shares."""
    if (absent := missing_program()) is not None:
        pytest.skip(f"`{absent}` is not installed: Kafka's own Java tools need a JDK (java, javac) and mvn")
    with shared_tools() as tools:
        yield tools


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port on which nothing listens."""
    with reserved_port() as port:
        yield port


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no topic has yet; it tells which test made it."""
    return fresh_name(request.node.name)


@pytest.fixture
def make_topic(request: pytest.FixtureRequest, admin: AdminClient) -> MakeTopic:
    """Creates a topic and returns its name: `make_topic(partitions=3, config={"retention.ms": "1000"})`."""

    def make(*, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = fresh_name(request.node.name)
        create_topic(admin, name, partitions=partitions, config=config)
        return name

    return make


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    """A connection that sends what a test makes, byte for byte."""
    with Client(bootstrap) as connected:
        yield connected


@pytest.fixture(scope="module")
def warm_coordinators(bootstrap: str) -> None:
    """The topics of the coordinators are made on first use; that is over when this returns."""
    with Client(bootstrap) as connected:
        raw_groups.warm_up(connected)

"""The tools under Kafka's names, run as real processes against a real broker.

By default that is one Headrace broker a worker; `--bootstrap host:port` points the same tests at another one, as in
tests/wire: what also passes on Apache Kafka proves itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

sys.path.insert(1, str(Path(__file__).parent.parent / "wire"))  # java, headrace_process, topic_setup

from confluent_kafka.admin import AdminClient
from headrace_cli import Cli
from headrace_process import HeadraceProcess
from java import JavaTools, missing_program, shared_tools
from ports import reserved_port
from topic_setup import create_topic, fresh_name
from waits import SESSION_MS, WAIT_MS_MAX, WAIT_S_MAX

MakeTopic = Callable[..., str]
StartHeadrace = Callable[..., HeadraceProcess]
SETTINGS = {
    "num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": str(SESSION_MS),  # no member loses its place because the machine is slow
}


@pytest.fixture(scope="session")
def is_headrace(request: pytest.FixtureRequest) -> bool:
    return request.config.getoption("--bootstrap") is None


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    given = request.config.getoption("--bootstrap")
    if given is not None:
        yield given
        return
    with HeadraceProcess(str(tmp_path_factory.mktemp("headrace") / "data"), SETTINGS) as broker:
        yield broker.bootstrap


@pytest.fixture
def start_headrace(is_headrace: bool, tmp_path: Path) -> Iterator[StartHeadrace]:
    """A broker of the test's own, which it may stop or kill."""
    if not is_headrace:
        pytest.skip("needs a broker of its own; the one given with --bootstrap is not ours to stop")
    started: list[HeadraceProcess] = []

    def start(settings: Mapping[str, str] | None = None, **more: object) -> HeadraceProcess:
        data = str(more.pop("data", tmp_path / f"data-{len(started)}"))
        broker = HeadraceProcess(data, SETTINGS | dict(settings or {}), **more)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        if not broker.stopped:
            broker.stop()


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> Iterator[AdminClient]:
    with AdminClient({"log_level": 0, "bootstrap.servers": bootstrap}) as client:  # closed before its broker is
        yield client


@pytest.fixture(scope="session")
def java() -> Iterator[JavaTools]:
    """Apache Kafka's own tools, in one JVM per worker, which tests/wire shares."""
    if (absent := missing_program()) is not None:
        pytest.skip(f"`{absent}` is not installed: Kafka's own Java tools need a JDK (java, javac) and mvn")
    with shared_tools() as tools:
        yield tools


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port on which nothing listens, unless the test starts a broker there."""
    with reserved_port() as port:
        yield port


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no topic has yet."""
    return fresh_name(request.node.name)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return fresh_name(f"group-{request.node.name}")


@pytest.fixture
def make_topic(request: pytest.FixtureRequest, admin: AdminClient) -> MakeTopic:
    def make(*, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = fresh_name(request.node.name)
        create_topic(admin, name, partitions=partitions, config=config)
        return name

    return make


@pytest.fixture
def cli(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """It waits as long as a test does: how soon it gives up on a broker is no matter of these tests."""
    monkeypatch.setattr("headrace.cli.reaching.REQUEST_MS_MAX", WAIT_MS_MAX)
    monkeypatch.setattr("headrace.cli.kafka.consuming.CLOSE_S_MAX", WAIT_S_MAX)
    for module in ("bench.consume.QUIET_S_MAX", "bench.latency.LOST_S_MAX"):
        monkeypatch.setattr(f"headrace.cli.{module}", WAIT_S_MAX)
    return Cli(bootstrap)

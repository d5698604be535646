"""Offsets, groups and transactions after the broker was stopped, or killed, and started again on its data."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from headrace_process import HeadraceProcess
from memberships import consumer_of, crew_of, send, take
from ports import reserved_port
from test_transactions_confluent import producer_of, read
from topic_setup import create_topic
from waits import SESSION_MS, WAIT_S_MAX, eventually

SETTINGS = {"group.initial.rebalance.delay.ms": "0", "group.consumer.session.timeout.ms": str(SESSION_MS)}


def kill(broker: HeadraceProcess) -> None:
    """kill -9; the process then tells that it did not stop cleanly, as it must."""
    os.kill(broker.pid, signal.SIGKILL)
    with pytest.raises(AssertionError, match="died by itself"):
        eventually(lambda: broker.check(), "the end of the process")
    with pytest.raises(AssertionError):
        broker.stop()


def topic_in(broker: HeadraceProcess, name: str, partitions: int = 1) -> str:
    create_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), name, partitions=partitions)
    return name


@pytest.fixture
def port() -> Iterator[int]:
    """Where the broker comes back; nobody takes it meanwhile."""
    with reserved_port() as port:
        yield port


@pytest.fixture
def data(is_headrace: bool, tmp_path: Path) -> str:
    if not is_headrace:
        pytest.skip("needs a broker that may be stopped and killed")
    return str(tmp_path / "data")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_committed_offsets_and_transactions_survive(data: str, port: int, end: str) -> None:
    broker = HeadraceProcess(data, SETTINGS, port=port)
    topic = topic_in(broker, "events")
    send(broker.bootstrap, topic, range(10))
    with consumer_of(broker.bootstrap, "group") as consumer:
        consumer.subscribe([topic])
        assert len(take(consumer, 4)) == 4
        consumer.commit(offsets=[TopicPartition(topic, 0, 4, metadata="of four")], asynchronous=False)
    ended = producer_of(broker.bootstrap, "ended")
    ended.begin_transaction()
    ended.produce(topic, "committed")
    ended.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], _metadata(broker, "other"), WAIT_S_MAX)
    ended.commit_transaction(WAIT_S_MAX)
    ended.close()
    left = producer_of(broker.bootstrap, "left", log_level=0)
    left.begin_transaction()
    left.produce(topic, "left open")
    assert left.flush(WAIT_S_MAX) == 0
    broker.stop() if end == "stop" else kill(broker)
    with HeadraceProcess(data, SETTINGS, port=port) as broker:
        for group, offset, metadata in (("group", 4, "of four"), ("other", 7, "")):
            with consumer_of(broker.bootstrap, group) as consumer:
                (kept,) = consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S_MAX)
                assert (kept.offset, kept.metadata or "") == (offset, metadata)
        with consumer_of(broker.bootstrap, "group") as consumer:
            consumer.subscribe([topic])
            assert take(consumer, 6) == [str(n) for n in range(4, 10)]
        assert read(broker.bootstrap, topic)[-1] == "committed"
        # The transaction that was open is still open: its producer may go on with it.
        left.commit_transaction(WAIT_S_MAX)
        eventually(lambda: read(broker.bootstrap, topic)[-1] == "left open", "the last transaction is committed")


def _metadata(broker: HeadraceProcess, group: str) -> object:
    with consumer_of(broker.bootstrap, group) as consumer:
        return consumer.consumer_group_metadata()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_after_the_broker_was_killed(data: str, port: int, protocol: str) -> None:
    broker = HeadraceProcess(data, SETTINGS, port=port)
    topic = topic_in(broker, "events", partitions=2)
    with crew_of(broker.bootstrap, "group", topic, group_protocol=protocol, log_level=0) as crew:
        crew.join()
        crew.settle(2)
        send(broker.bootstrap, topic, range(4), partitions=2)
        crew.receive(4)
        crew.members[0].commit(asynchronous=False)
        kill(broker)
        with HeadraceProcess(data, SETTINGS, port=port) as broker:
            send(broker.bootstrap, topic, range(4, 8), partitions=2)
            found = [int(message.value()) for message in crew.receive(8)]
            assert sorted(found) == list(range(8))
            crew.members[0].commit(asynchronous=False)
            crew.close()

"""A cluster of three: what is acknowledged is on all of them, whoever dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import raw
from brokers import Brokers
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from waits import WAIT_S_MAX, eventually

from headrace.protocol import error_codes as codes
from headrace.testing import Keeper


@pytest.fixture
def brokers(tmp_path: Path, headrace_keeper: Keeper) -> Iterator[Brokers]:
    made = Brokers(tmp_path, headrace_keeper)
    yield made
    made.close()


class Sent:
    """What a producer sent, and what of it was acknowledged."""

    def __init__(self, brokers: Brokers, **settings: object) -> None:
        self.acknowledged: list[bytes] = []
        self.failed: list[KafkaError] = []
        self._count = 0
        self._producer = Producer(
            {
                "bootstrap.servers": brokers.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": int(WAIT_S_MAX * 1000),
                **settings,
            }
        )

    def send(self, topic: str, count: int) -> None:
        for _ in range(count):
            value = b"%d" % self._count
            self._count += 1
            self._producer.produce(topic, value, on_delivery=self._told, partition=0)
            self._producer.poll(0)

    def _told(self, error: KafkaError | None, message) -> None:
        if error is None:
            self.acknowledged.append(message.value())
        else:
            self.failed.append(error)

    def flush(self) -> None:
        assert not self._producer.flush(WAIT_S_MAX)
        assert not self.failed, self.failed[0]


def read_all(brokers: Brokers, topic: str, count: int, **settings: object) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": brokers.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest", **settings}
    )
    consumer.subscribe([topic])
    found: list[bytes] = []

    def read() -> bool:
        for message in consumer.consume(1000, 0.2):
            if message.error() is None:
                found.append(message.value())
        return len(found) >= count

    try:
        eventually(read, f"{count} records of {topic} are read")
    finally:
        consumer.close()
    return found


def produce(client: raw.Client, topic: raw.Topic, *, acks: int) -> int:
    body = raw.produce_body((topic, 0, raw.batch(raw.values(b"x"))), acks=acks)
    return client.call(raw.PRODUCE, 13, body).responses[0].partition_responses[0].error_code


def test_what_is_acknowledged_is_on_every_replica_byte_for_byte(brokers: Brokers) -> None:
    brokers.create("orders")
    sent = Sent(brokers)
    sent.send("orders", 2000)
    sent.flush()
    brokers.until_equal("orders")
    assert set(brokers.logs("orders")) == {1, 2, 3}
    assert read_all(brokers, "orders", 2000) == sent.acknowledged


def test_a_killed_leader_loses_nothing_and_catches_up_when_it_is_back(brokers: Brokers) -> None:
    brokers.create("orders", min_insync_replicas="2")
    sent = Sent(brokers)
    sent.send("orders", 500)
    sent.flush()
    first = brokers.leader_of("orders")
    sent.send("orders", 500)
    brokers.kill(first)
    sent.send("orders", 500)
    sent.flush()
    assert brokers.leader_of("orders") != first
    assert brokers.isr_of("orders") == {1, 2, 3} - {first}
    brokers.start(first)
    sent.send("orders", 500)
    sent.flush()
    brokers.until("it is in sync again", lambda node: len(node.cluster.image.topics["orders"].partitions[0].isr) == 3)
    brokers.until_equal("orders")
    assert read_all(brokers, "orders", 2000) == [b"%d" % each for each in range(2000)]


def test_a_broker_that_lost_its_disk_fetches_everything_again(brokers: Brokers) -> None:
    brokers.create("orders")
    sent = Sent(brokers)
    sent.send("orders", 300)
    sent.flush()
    gone = brokers.leader_of("orders")
    brokers.kill(gone)
    brokers.replace_disk(gone)
    sent.send("orders", 300)
    sent.flush()
    brokers.start(gone)
    brokers.until("it is in sync again", lambda node: len(node.cluster.image.topics["orders"].partitions[0].isr) == 3)
    brokers.until_equal("orders")
    assert set(brokers.logs("orders")) == {1, 2, 3}


def test_with_too_few_replicas_in_sync_acks_all_is_refused_and_acks_one_is_not(brokers: Brokers) -> None:
    brokers.create("orders", min_insync_replicas="2")
    leader = brokers.leader_of("orders")
    for number in {1, 2, 3} - {leader}:
        brokers.stop(number)
    eventually(lambda: brokers.isr_of("orders") == {leader}, "only the leader is in sync")
    with brokers.client(leader) as client:
        topic = raw.Topic("orders", brokers.on_loop(leader, lambda node: node.cluster.image.topics["orders"].id))
        assert produce(client, topic, acks=-1) == codes.NOT_ENOUGH_REPLICAS
        assert produce(client, topic, acks=1) == codes.NONE
        nothing = raw.fetch(client, topic, 0)
        assert (nothing.error_code, nothing.high_watermark) == (codes.NONE, 0)


def test_a_restart_of_the_keeper_stops_neither_produce_nor_fetch(brokers: Brokers) -> None:
    brokers.create("orders")
    sent = Sent(brokers)
    sent.send("orders", 100)
    sent.flush()
    assert len(read_all(brokers, "orders", 100)) == 100
    brokers.keeper.kill()
    sent.send("orders", 100)
    sent.flush()
    assert read_all(brokers, "orders", 100) == sent.acknowledged[100:]
    brokers.keeper.restart()
    brokers.create("users")
    assert brokers.leader_of("orders") in brokers.running


def test_what_only_a_dead_leader_had_is_cut_from_its_log_when_it_is_back(brokers: Brokers) -> None:
    brokers.create("orders")
    sent = Sent(brokers)
    sent.send("orders", 100)
    sent.flush()
    brokers.until_equal("orders")
    leader = brokers.leader_of("orders")
    followers = [number for number in brokers.running if number != leader]
    for number in followers:
        brokers.pause(number)
    with brokers.client(leader) as client:
        topic = raw.Topic("orders", brokers.on_loop(leader, lambda node: node.cluster.image.topics["orders"].id))
        for _ in range(10):
            assert produce(client, topic, acks=1) == codes.NONE
    assert brokers.on_loop(leader, lambda node: node.store.find("orders", 0).end_offset) == 110
    brokers.kill(leader)
    for number in followers:
        brokers.resume(number)
    sent.send("orders", 100)
    sent.flush()
    brokers.start(leader)
    brokers.until("it is in sync again", lambda node: len(node.cluster.image.topics["orders"].partitions[0].isr) == 3)
    brokers.until_equal("orders")
    found = read_all(brokers, "orders", 200)
    assert [each for each in found if each != b"x"] == sent.acknowledged
    # The answer to a fetch that was waiting already may have brought the first of them to a follower: that one stays.
    assert found.count(b"x") <= 1
    assert brokers.on_loop(leader, lambda node: node.store.find("orders", 0).end_offset) == len(found)


def test_a_group_goes_on_where_it_was_when_its_coordinator_dies(brokers: Brokers) -> None:
    brokers.create("orders")
    sent = Sent(brokers)
    sent.send("orders", 100)
    sent.flush()
    assert len(read_all(brokers, "orders", 100)) == 100
    for number in (1, 2):
        brokers.kill(number)
        sent.send("orders", 100)
        sent.flush()
        assert read_all(brokers, "orders", 100) == sent.acknowledged[-100:]
        brokers.start(number)
        brokers.until(
            "all are in sync",
            lambda node: all(
                len(each.isr) == 3 for topic in node.cluster.image.topics.values() for each in topic.partitions
            ),
        )


def test_transactions_over_partitions_of_all_brokers_are_all_or_nothing_through_kills(brokers: Brokers) -> None:
    brokers.create("orders", 6, min_insync_replicas="2")
    producer = Producer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "transactional.id": "t",
            "transaction.timeout.ms": int(WAIT_S_MAX * 1000),
        }
    )
    producer.init_transactions(WAIT_S_MAX)
    committed: set[bytes] = set()
    for number in range(12):
        producer.begin_transaction()
        values = [b"%d-%d" % (number, index) for index in range(6)]
        for index, value in enumerate(values):
            producer.produce("orders", value, partition=index)
        if number in (3, 7):
            brokers.kill(number % 3 + 1)
        if number % 4 == 1:
            producer.abort_transaction(WAIT_S_MAX)
        else:
            commit(producer)
            committed.update(values)
        if number in (3, 7):
            brokers.start(number % 3 + 1)
    found = read_all(brokers, "orders", len(committed), **{"isolation.level": "read_committed"})
    assert sorted(found) == sorted(committed)


def commit(producer: Producer) -> None:
    """Again, as a client is told to, while brokers change their roles."""

    def is_committed() -> bool:
        try:
            producer.commit_transaction(WAIT_S_MAX)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return False
        return True

    eventually(is_committed, "the transaction is committed")

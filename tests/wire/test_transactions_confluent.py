"""Transactions with confluent-kafka (librdkafka): all or nothing, for readers who ask for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from memberships import consumer_of, send, take
from topic_setup import fresh_name
from waits import NEVER_MS, WAIT_S_MAX, eventually

MakeTopic = Callable[..., str]


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A transactional id, or a group, of the test's own."""
    return fresh_name(request.node.name)


def producer_of(bootstrap: str, name: str, **config: Any) -> Producer:
    own = {key if key == "log_level" else key.replace("_", "."): value for key, value in config.items()}
    patient = {"transactional.id": name, "transaction.timeout.ms": NEVER_MS, "message.timeout.ms": NEVER_MS}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0} | patient | own)
    producer.init_transactions(WAIT_S_MAX)
    return producer


def read(bootstrap: str, topic: str, isolation: str = "read_committed", partition: int = 0) -> list[str]:
    """Everything up to the end as this reader sees it, which for a committed one is the last stable offset."""
    config = {"isolation.level": isolation, "enable.partition.eof": True, "fetch.wait.max.ms": 50}
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"} | config)) as consumer:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        values: list[str] = []
        while True:
            message = consumer.poll(WAIT_S_MAX)
            assert message is not None, f"no end within {WAIT_S_MAX:g} s; {values}"
            if message.error() is None:
                values.append(message.value().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return values


def test_a_commit_shows_everything_and_an_abort_nothing_in_several_topics(
    bootstrap: str, make_topic: MakeTopic, name: str
) -> None:
    one, two = make_topic(partitions=2), make_topic()
    producer = producer_of(bootstrap, name)
    commit, abort = producer.commit_transaction, producer.abort_transaction
    for number, end in enumerate((commit, abort, commit)):
        producer.begin_transaction()
        for topic, partition in ((one, 0), (one, 1), (two, 0)):
            producer.produce(topic, str(number), partition=partition)
        assert producer.flush(WAIT_S_MAX) == 0
        if number == 0:
            assert read(bootstrap, one) == []
            assert read(bootstrap, one, "read_uncommitted") == ["0"]
        end(WAIT_S_MAX)
    for topic, partition in ((one, 0), (one, 1), (two, 0)):
        eventually(lambda at=(topic, partition): read(bootstrap, at[0], partition=at[1]) == ["0", "2"], "0 and 2")
        assert read(bootstrap, topic, "read_uncommitted", partition) == ["0", "1", "2"]


def test_many_transactions_of_several_producers_are_told_apart(
    bootstrap: str, make_topic: MakeTopic, name: str
) -> None:
    topic = make_topic()
    producers = [producer_of(bootstrap, f"{name}-{number}") for number in range(3)]
    for number in range(9):
        for which, producer in enumerate(producers):
            producer.begin_transaction()
            producer.produce(topic, f"{which} {number}")
            producer.flush(WAIT_S_MAX)
        for which, producer in enumerate(producers):
            if (number + which) % 3 == 0:
                producer.abort_transaction(WAIT_S_MAX)
            else:
                producer.commit_transaction(WAIT_S_MAX)
    expected = sorted(f"{which} {number}" for number in range(9) for which in range(3) if (number + which) % 3)
    eventually(lambda: sorted(read(bootstrap, topic)) == expected, "what was committed")


def test_a_zombie_is_fenced_and_what_it_left_open_is_aborted(bootstrap: str, make_topic: MakeTopic, name: str) -> None:
    topic = make_topic()
    zombie = producer_of(bootstrap, name)
    zombie.begin_transaction()
    zombie.produce(topic, "of the zombie")
    zombie.flush(WAIT_S_MAX)
    successor = producer_of(bootstrap, name)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(WAIT_S_MAX)
    assert refused.value.args[0].code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError._FATAL}
    assert refused.value.args[0].fatal()
    successor.begin_transaction()
    successor.produce(topic, "of the successor")
    successor.commit_transaction(WAIT_S_MAX)
    eventually(lambda: read(bootstrap, topic) == ["of the successor"], "only the successor's")


def test_offsets_are_committed_with_what_was_made_of_them(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic, name: str
) -> None:
    """Consume, transform, produce: an aborted round is read again, and nothing is there twice."""
    source, target = make_topic(), make_topic()
    send(bootstrap, source, range(20))
    producer = producer_of(bootstrap, name)
    with consumer_of(bootstrap, name, isolation_level="read_committed") as consumer:
        consumer.subscribe([source])
        for round_number in range(6):
            first = round_number // 3 * 10 + (5 if round_number % 3 == 2 else 0)
            values = take(consumer, 5)
            assert values == [str(n) for n in range(first, first + 5)]
            producer.begin_transaction()
            for value in values:
                producer.produce(target, f"2 x {value}")
            position = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), WAIT_S_MAX)
            if round_number % 3 == 0:
                producer.abort_transaction(WAIT_S_MAX)
                (kept,) = consumer.committed([TopicPartition(source, 0)], timeout=WAIT_S_MAX)
                consumer.seek(TopicPartition(source, 0, max(kept.offset, 0)))
            else:
                producer.commit_transaction(WAIT_S_MAX)
        (kept,) = consumer.committed([TopicPartition(source, 0)], timeout=WAIT_S_MAX)
    assert kept.offset == 20
    eventually(lambda: read(bootstrap, target) == [f"2 x {n}" for n in range(20)], "each once")


def test_offsets_of_a_member_that_lost_its_place_abort_the_transaction(
    bootstrap: str, make_topic: MakeTopic, name: str
) -> None:
    source, target = make_topic(), make_topic()
    send(bootstrap, source, range(5))
    producer = producer_of(bootstrap, name)
    with consumer_of(bootstrap, name) as consumer:
        consumer.subscribe([source])
        take(consumer, 5)
        metadata, position = consumer.consumer_group_metadata(), consumer.position(consumer.assignment())
    producer.begin_transaction()
    producer.produce(target, "too late")
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction(position, metadata, WAIT_S_MAX)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(WAIT_S_MAX)
    assert read(bootstrap, target) == []


def test_a_transaction_that_takes_too_long_is_aborted_by_the_broker(
    bootstrap: str, make_topic: MakeTopic, name: str
) -> None:
    """Apache Kafka looks for such transactions every ten seconds."""
    topic = make_topic()
    producer = producer_of(bootstrap, name, transaction_timeout_ms=1000, message_timeout_ms=1000)
    producer.begin_transaction()
    producer.produce(topic, "too slow")
    producer.flush(WAIT_S_MAX)
    send(bootstrap, topic, ["plain"])
    # While it is open the plain record cannot be seen; on a slow machine it has been aborted by now.
    eventually(lambda: read(bootstrap, topic) == ["plain"], "the way is free")
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S_MAX)

"""Records for the tests to look at, written without the tools under test."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from waits import WAIT_S_MAX


def send(bootstrap: str, topic: str, values: Iterable[str], **fields: object) -> None:
    producer = Producer({"log_level": 0, "bootstrap.servers": bootstrap, "linger.ms": 0})
    failures = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None, **fields)
    assert producer.flush(WAIT_S_MAX) == 0
    assert failures == []


def read(bootstrap: str, topic: str, count: int, partition: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of the first records of a partition."""
    consumer = Consumer(
        {"log_level": 0, "bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = consumer.consume(count, timeout=WAIT_S_MAX)
        assert len(found) == count, f"{len(found)} of {count} records came"
        assert all(each.error() is None for each in found), [each.error() for each in found]
        return [(each.key(), each.value()) for each in found]
    finally:
        consumer.close()


def end_of(bootstrap: str, topic: str, partition: int = 0) -> int:
    """Where the partition ends; 0 if there is no such topic."""
    consumer = Consumer({"log_level": 0, "bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S_MAX)[1]
    except KafkaException:
        return 0
    finally:
        consumer.close()


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer(
        {"log_level": 0, "bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    try:
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
    finally:
        consumer.close()


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """Where the group stands, in those partitions for which it has said so."""
    consumer = Consumer({"log_level": 0, "bootstrap.servers": bootstrap, "group.id": group})
    try:
        found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], timeout=WAIT_S_MAX)
        assert all(each.error is None for each in found), found
        return {each.partition: each.offset for each in found if each.offset >= 0}
    finally:
        consumer.close()

"""Rows 6, 10 and 40 to 51 of the documents' index: what the texts claim of a broker, on one node."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from headrace_process import HeadraceProcess
from kafka import KafkaAdminClient
from lost_answers import lost_answers
from topic_setup import create_topic, delete_topic, describe
from waits import WAIT_MS_MAX, WAIT_S_MAX, eventually

MakeTopic = Callable[..., str]
StartHeadrace = Callable[..., HeadraceProcess]
HOUR_MS = 3_600_000


def produce(bootstrap: str, records: Iterable[dict[str, Any]], **config: Any) -> list[Message]:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5} | settings)
    delivered: list[Message] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        delivered.append(message)

    for record in records:
        producer.produce(on_delivery=on_delivery, **record)
        producer.poll(0)
    assert producer.flush(WAIT_S_MAX) == 0
    return delivered


def consumer_at(bootstrap: str, *places: TopicPartition) -> closing[Consumer]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "fetch.wait.max.ms": 50})
    consumer.assign(list(places))
    return closing(consumer)


def take(consumer: Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + WAIT_S_MAX
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.consume(min(count - len(messages), 10_000), timeout=0.5)
    assert [message.error() for message in messages if message.error()] == []
    return messages


def watermarks(bootstrap: str, topic: str) -> tuple[int, int]:
    with consumer_at(bootstrap) as consumer:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S_MAX)


def test_row_6_a_replication_factor_above_the_live_brokers_is_refused(admin: AdminClient, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 1, replication_factor=2)])[topic].result(WAIT_S_MAX)
    assert refused.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
    assert "replication factor" in refused.value.args[0].str().lower()
    assert describe(admin, topic) is None


def test_row_10_producing_to_an_unknown_topic_makes_it_with_one_partition_and_one_replica(
    bootstrap: str, admin: AdminClient, topic: str, default_partitions: int
) -> None:
    produce(bootstrap, [{"topic": topic, "value": b"first"}])
    partitions = describe(admin, topic).partitions
    assert len(partitions) == default_partitions
    assert all(len(partition.replicas) == len(partition.isr) == 1 for partition in partitions)


def test_row_40_order_is_kept_within_a_partition(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    records = ({"topic": topic, "value": b"%d" % n, "partition": n % 3} for n in range(3000))
    produce(bootstrap, records, enable_idempotence=True)
    for partition in range(3):
        with consumer_at(bootstrap, TopicPartition(topic, partition, OFFSET_BEGINNING)) as consumer:
            messages = take(consumer, 1000)
        assert [message.offset() for message in messages] == list(range(1000))
        assert [int(message.value()) for message in messages] == list(range(partition, 3000, 3))


def test_row_42_records_are_kept_for_a_week_by_default(admin: AdminClient, make_topic: MakeTopic) -> None:
    resource = ConfigResource(ResourceType.TOPIC, make_topic())
    settings = admin.describe_configs([resource])[resource].result(WAIT_S_MAX)
    assert int(settings["retention.ms"].value) == 7 * 24 * HOUR_MS
    assert settings["cleanup.policy"].value == "delete"


def test_row_42_records_stay_for_the_retention_time_read_or_not_and_go_after_it(
    start_headrace: StartHeadrace, topic: str
) -> None:
    broker = start_headrace(
        {
            "log.retention.ms": str(HOUR_MS),
            "log.roll.ms": str(HOUR_MS),
            "log.retention.check.interval.ms": "100",
            "log.segment.delete.delay.ms": "100",
        }
    )
    create_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), topic)
    now = int(time.time() * 1000)
    # One record at a time: what is younger than the roll time by its own clock begins a segment of its own.
    for age_ms in (2 * HOUR_MS, 2 * HOUR_MS, HOUR_MS // 2, 0):
        produce(broker.bootstrap, [{"topic": topic, "value": b"x", "timestamp": now - age_ms}])
    eventually(lambda: watermarks(broker.bootstrap, topic) == (2, 4), "the two old records are gone")
    for _ in range(2):  # reading takes nothing away
        with consumer_at(broker.bootstrap, TopicPartition(topic, 0, OFFSET_BEGINNING)) as consumer:
            assert [message.offset() for message in take(consumer, 2)] == [2, 3]
    eventually(lambda: not old_segments(broker, topic), "the files of the old records are gone")


def old_segments(broker: HeadraceProcess, topic: str) -> list[str]:
    """Files of the segment that began at offset 0, also those renamed to be deleted."""
    directory = os.path.join(broker.data, f"{topic}-0")
    return [name for name in os.listdir(directory) if name.startswith("00000000000000000000.")]


def test_row_43_any_offset_is_found_however_much_is_stored(bootstrap: str, make_topic: MakeTopic) -> None:
    # A megabyte a segment: eight of them, each with an index of its own. What it costs is for the benchmark.
    topic = make_topic(config={"segment.bytes": str(1 << 20)})
    record_bytes, count = 4096, 2048
    filler = os.urandom(record_bytes)
    sent = produce(bootstrap, ({"topic": topic, "value": b"%06d" % n + filler} for n in range(count)))
    assert [message.offset() for message in sent] == list(range(count))
    with consumer_at(bootstrap, TopicPartition(topic, 0, 0)) as consumer:
        for offset in (0, 1, 255, 256, 257, 1000, 1535, 2000, count - 1):
            consumer.assign([TopicPartition(topic, 0, offset)])
            (message,) = take(consumer, 1)
            assert (message.offset(), message.value()[:6]) == (offset, b"%06d" % offset)
    (last,) = produce(bootstrap, [{"topic": topic, "value": b"after all that"}])
    assert last.offset() == count


def test_row_44_a_broker_handles_thousands_of_partitions_and_many_messages(
    bootstrap: str, admin: AdminClient, topic: str, is_headrace: bool
) -> None:
    # Apache Kafka takes 5 ms to make a partition; with thousands, tests that run beside this one would wait.
    partitions, messages = 2000 if is_headrace else 200, 20_000
    create_topic(admin, topic, partitions=partitions)
    try:
        one_each = ({"topic": topic, "value": b"%d" % p, "partition": p} for p in range(partitions))
        sent = produce(bootstrap, one_each)
        assert {(message.partition(), message.offset()) for message in sent} == {(p, 0) for p in range(partitions)}
        busy = ({"topic": topic, "value": b"x" * 100, "partition": n % 3} for n in range(messages))
        assert len(produce(bootstrap, busy, linger_ms=50, queue_buffering_max_messages=messages)) == messages
        places = [TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)]
        with consumer_at(bootstrap, *places) as consumer:
            received = take(consumer, partitions + messages)
        assert len(received) == partitions + messages
        assert {message.partition() for message in received} == set(range(partitions))
    finally:
        delete_topic(admin, topic)


@pytest.mark.parametrize("acks", ["0", "1", "-1"])
def test_row_46_every_level_of_acks_is_answered_within_the_request_timeout(
    bootstrap: str, make_topic: MakeTopic, acks: str
) -> None:
    topic = make_topic()
    records = ({"topic": topic, "value": b"%d" % n} for n in range(10))
    sent = produce(bootstrap, records, acks=acks, request_timeout_ms=WAIT_MS_MAX, message_timeout_ms=WAIT_MS_MAX)
    if acks != "0":  # without an answer there is no offset
        assert [message.offset() for message in sent] == list(range(10))
    with consumer_at(bootstrap, TopicPartition(topic, 0, OFFSET_BEGINNING)) as consumer:
        assert [message.value() for message in take(consumer, 10)] == [b"%d" % n for n in range(10)]


def test_row_46_acks_all_needs_no_more_replicas_in_sync_than_the_topic_has(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(config={"min.insync.replicas": "2"})
    (sent,) = produce(bootstrap, [{"topic": topic, "value": b"x"}], acks="all", message_timeout_ms=WAIT_MS_MAX)
    assert sent.offset() == 0


def test_row_49_a_resent_batch_is_not_written_twice(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()

    async def send() -> None:
        async with (
            asyncio.timeout(WAIT_S_MAX),
            AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer,
        ):
            with lost_answers(producer) as requests:
                assert [(await producer.send_and_wait(topic, b"%d" % n)).offset for n in range(3)] == [
                    0,
                    1,
                    2,
                ]
            assert len(requests) == 6

    asyncio.run(send())
    assert watermarks(bootstrap, topic) == (0, 3)


def test_row_51_messages_are_kept_as_bytes_in_batches_compressed_as_they_were_sent(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    value = bytes(range(256)) * 4
    stored_bytes = {}
    for codec in ("none", "gzip", "snappy", "lz4"):
        topic = make_topic()
        records = ({"topic": topic, "value": value, "partition": 0} for _ in range(500))
        # One batch, however long it takes to fill it: the flush is what sends it.
        produce(bootstrap, records, compression_type=codec, linger_ms=WAIT_MS_MAX)
        with consumer_at(bootstrap, TopicPartition(topic, 0, OFFSET_BEGINNING)) as consumer:
            assert [message.value() for message in take(consumer, 500)] == [value] * 500
        with closing(KafkaAdminClient(bootstrap_servers=[bootstrap])) as client:
            (broker,) = client.describe_log_dirs({topic: [0]})
        stored_bytes[codec] = sum(
            partition["partition_size"]
            for directory in broker["log_dirs"]
            for described in directory["topics"]
            for partition in described["partitions"]
        )
    sent_bytes = 500 * len(value)
    assert sent_bytes < stored_bytes["none"] < sent_bytes + 500 * 20  # a batch's header is shared by many records
    for codec in ("gzip", "snappy", "lz4"):
        assert stored_bytes[codec] < sent_bytes / 10

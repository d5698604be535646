"""confluent-kafka (librdkafka): what it produces comes back as it was sent, idempotently and by any codec."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import msgpack
import pytest
from compressions import CONFLUENT_CODECS
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.serialization import (
    MessageField,
    SerializationContext,
    StringDeserializer,
    StringSerializer,
)
from murmur2 import partition_of
from topic_setup import partition_count
from waits import WAIT_S_MAX

MakeTopic = Callable[..., str]


def produce(bootstrap: str, records: Iterable[dict[str, Any]], **config: Any) -> list[Message]:
    """Sends the records and returns them as delivered; a refused one fails the test."""
    delivered: list[Message] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        delivered.append(message)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5} | dotted(config))
    count = 0
    for record in records:
        producer.produce(on_delivery=on_delivery, **record)
        producer.poll(0)
        count += 1
    assert producer.flush(WAIT_S_MAX) == 0
    assert len(delivered) == count
    return delivered


def dotted(config: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in config.items()}


@contextmanager
def consumer_of(bootstrap: str, **config: Any) -> Iterator[Consumer]:
    # librdkafka wants a group's name also where none is used.
    fixed = {"group.id": "unused", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    with closing(Consumer({"bootstrap.servers": bootstrap} | fixed | dotted(config))) as consumer:
        yield consumer


def take(consumer: Consumer, count: int) -> list[Message]:
    """The next `count` messages; fewer at the deadline, which the caller's comparison then shows."""
    messages: list[Message] = []
    deadline = time.monotonic() + WAIT_S_MAX
    while len(messages) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(messages), timeout=0.5):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def read(bootstrap: str, topic: str, count: int, partition: int = 0, **config: Any) -> list[Message]:
    with consumer_of(bootstrap, **config) as consumer:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        return take(consumer, count)


def test_a_record_comes_back_with_key_value_headers_and_timestamp(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    headers = [("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b""), ("none", None)]
    record = {"key": b"key", "value": b"value", "headers": headers, "timestamp": 1_600_000_000_123}
    (sent,) = produce(bootstrap, [{"topic": topic, **record}])
    assert (sent.topic(), sent.partition(), sent.offset()) == (topic, 0, 0)
    (message,) = read(bootstrap, topic, 1)
    assert (message.key(), message.value(), message.headers()) == (b"key", b"value", headers)
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 1_600_000_000_123)
    assert message.leader_epoch() == 0


def test_log_append_time_replaces_the_senders_timestamp(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    produce(bootstrap, ({"topic": topic, "value": b"x", "timestamp": 1000 + n} for n in range(3)))
    after = int(time.time() * 1000)
    for message in read(bootstrap, topic, 3):
        kind, timestamp = message.timestamp()
        assert kind == TIMESTAMP_LOG_APPEND_TIME
        assert before <= timestamp <= after


def test_none_and_empty_keys_and_values_stay_apart(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    pairs = [(None, b"only a value"), (b"tombstone", None), (b"", b""), (b"k", b"v")]
    produce(bootstrap, ({"topic": topic, "key": key, "value": value} for key, value in pairs))
    assert [(message.key(), message.value()) for message in read(bootstrap, topic, 4)] == pairs


def test_a_record_goes_to_the_partition_that_the_sender_chose(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    sent = produce(bootstrap, ({"topic": topic, "value": b"%d" % p, "partition": p} for p in (2, 0, 2)))
    assert sorted((message.partition(), message.offset()) for message in sent) == [(0, 0), (2, 0), (2, 1)]


def test_keys_are_placed_by_murmur2_where_asked_and_else_by_crc32(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=7)
    keys = [b"a", b"ping", b"foobar", bytes(range(256)), *(b"%d" % n for n in range(50))]
    records = [{"topic": topic, "key": key, "value": b"x"} for key in keys]
    as_java_does = produce(bootstrap, records, partitioner="murmur2_random")
    assert {m.key(): m.partition() for m in as_java_does} == {key: partition_of(key, 7) for key in keys}
    by_default = produce(bootstrap, records)
    assert {m.key(): m.partition() for m in by_default} == {key: zlib.crc32(key) % 7 for key in keys}


@pytest.mark.parametrize("codec", CONFLUENT_CODECS)
def test_each_compression_comes_back_whole(bootstrap: str, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic()
    values = [b"%06d" % n * 20 for n in range(300)]
    records = ({"topic": topic, "key": b"k", "value": value, "headers": {"h": b"1"}} for value in values)
    produce(bootstrap, records, compression_type=codec)
    messages = read(bootstrap, topic, 300, check_crcs=True)
    assert [message.value() for message in messages] == values
    assert [message.offset() for message in messages] == list(range(300))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_level_writes_the_records(bootstrap: str, make_topic: MakeTopic, acks: str) -> None:
    topic = make_topic()
    produce(bootstrap, ({"topic": topic, "value": b"%d" % n} for n in range(100)), acks=acks)
    assert [message.value() for message in read(bootstrap, topic, 100)] == [b"%d" % n for n in range(100)]


def test_an_idempotent_producer_writes_each_record_once_and_in_order(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    records = ({"topic": topic, "value": b"%d" % n, "partition": n % 2} for n in range(10_000))
    # Small batches keep five requests in flight, each with its own sequence number.
    produce(bootstrap, records, enable_idempotence=True, batch_num_messages=50, linger_ms=0)
    for partition in (0, 1):
        messages = read(bootstrap, topic, 5000, partition=partition)
        assert [message.offset() for message in messages] == list(range(5000))
        assert [int(message.value()) for message in messages] == list(range(partition, 10_000, 2))


def test_serializers_of_strings_json_and_msgpack_round_trip(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    document = {"name": "Zoë", "n": [1, 2.5, None], "ok": True}
    context = SerializationContext(topic, MessageField.VALUE)
    values = [StringSerializer()("Zoë", context), json.dumps(document).encode(), msgpack.dumps(document)]
    produce(bootstrap, ({"topic": topic, "value": value} for value in values))
    text, as_json, packed = (message.value() for message in read(bootstrap, topic, 3))
    assert StringDeserializer()(text, context) == "Zoë"
    assert json.loads(as_json) == msgpack.loads(packed) == document


@pytest.mark.parametrize("idempotence", [True, False])
def test_a_record_above_the_brokers_limit_is_refused_and_not_written(
    bootstrap: str, make_topic: MakeTopic, idempotence: bool
) -> None:
    topic = make_topic(config={"max.message.bytes": "2000"})
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": idempotence, "linger.ms": 0})
    for size in (1000, 2001, 1000):
        producer.produce(topic, b"x" * size, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(WAIT_S_MAX) == 0
    assert [error and error.code() for error in errors] == [None, KafkaError.MSG_SIZE_TOO_LARGE, None]
    assert [message.offset() for message in read(bootstrap, topic, 2)] == [0, 1]


def test_a_consumer_starts_at_the_offset_that_it_seeks(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    produce(bootstrap, ({"topic": topic, "value": b"%d" % n, "partition": n % 2} for n in range(100)))
    with consumer_of(bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0, 37)])
        (message,) = take(consumer, 1)
        assert (message.offset(), message.value()) == (37, b"74")
        consumer.seek(TopicPartition(topic, 0, 12))
        (message,) = take(consumer, 1)
        assert (message.offset(), message.value()) == (12, b"24")
        assert [each.offset for each in consumer.position([TopicPartition(topic, 0)])] == [13]
        consumer.assign([TopicPartition(topic, 0, OFFSET_END), TopicPartition(topic, 1, 49)])
        (message,) = take(consumer, 1)
        assert (message.partition(), message.value()) == (1, b"99")
        produce(bootstrap, [{"topic": topic, "value": b"fresh", "partition": 0}])
        (message,) = take(consumer, 1)
        assert (message.partition(), message.offset(), message.value()) == (0, 50, b"fresh")


def test_an_offset_outside_the_log_is_reset_as_configured(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    produce(bootstrap, ({"topic": topic, "value": b"%d" % n} for n in range(3)))
    with consumer_of(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        assert [message.offset() for message in take(consumer, 3)] == [0, 1, 2]
    with consumer_of(bootstrap, auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        message = consumer.poll(WAIT_S_MAX)
        assert message is not None
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
        assert "Offset out of range" in message.error().str()


def test_the_end_of_a_partition_is_told_to_who_asks(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    produce(bootstrap, [{"topic": topic, "value": b"x"}])
    with consumer_of(bootstrap, enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        first, end = consumer.poll(WAIT_S_MAX), consumer.poll(WAIT_S_MAX)
        assert (first.value(), first.error()) == (b"x", None)
        assert (end.error().code(), end.offset()) == (KafkaError._PARTITION_EOF, 1)


def test_watermarks_and_offsets_for_times_follow_what_is_written(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    base = 1_600_000_000_000
    with consumer_of(bootstrap) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S_MAX) == (0, 0)
        produce(bootstrap, ({"topic": topic, "value": b"x", "timestamp": base + 1000 * n} for n in range(5)))
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S_MAX) == (0, 5)
        for timestamp, offset in {
            0: 0,
            base: 0,
            base + 1: 1,
            base + 3500: 4,
            base + 5000: OFFSET_END,
        }.items():
            (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=WAIT_S_MAX)
            assert found.offset == offset, timestamp


def test_the_first_produce_creates_a_topic(
    bootstrap: str, admin: AdminClient, topic: str, default_partitions: int
) -> None:
    produce(bootstrap, [{"topic": topic, "value": b"first"}])
    assert partition_count(admin, topic) == default_partitions


def test_a_consumer_that_asks_for_an_unknown_topic_is_told_and_creates_none(
    bootstrap: str, admin: AdminClient, topic: str
) -> None:
    with consumer_of(bootstrap) as consumer:
        asked = consumer.list_topics(topic, timeout=WAIT_S_MAX).topics[topic]
        assert asked.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert partition_count(admin, topic) == 0


def test_without_a_broker_the_record_times_out_with_an_error(unused_port: int) -> None:
    errors: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{unused_port}",
            "message.timeout.ms": 300,
            "logger": None,
            "log_level": 0,
        }
    )
    producer.produce("nowhere", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S_MAX) == 0
    assert [error.code() for error in errors] == [KafkaError._MSG_TIMED_OUT]

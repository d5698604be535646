"""kafka-python: what it produces comes back as it was sent, and every way of choosing where to read works."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import msgpack
import pytest
from compressions import KAFKA_PYTHON_CODECS
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError
from murmur2 import partition_of
from topic_setup import partition_count
from waits import WAIT_S_MAX, eventually

MakeTopic = Callable[..., str]
BATCHING = {"linger_ms": 5}  # else a loop of sends makes a request of every record


def producer_of(bootstrap: str, **config: Any) -> closing[KafkaProducer]:
    return closing(KafkaProducer(bootstrap_servers=[bootstrap], **config))


def consumer_of(bootstrap: str, **config: Any) -> closing[KafkaConsumer]:
    # A short fetch wait: a consumer's close waits for its last fetch.
    return closing(KafkaConsumer(bootstrap_servers=[bootstrap], fetch_max_wait_ms=100, **config))


def take(consumer: KafkaConsumer, count: int) -> list[ConsumerRecord]:
    """The next `count` records; fewer at the deadline, which the caller's comparison then shows."""
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + WAIT_S_MAX
    while len(records) < count and time.monotonic() < deadline:
        for batch in consumer.poll(timeout_ms=500, max_records=count - len(records)).values():
            records += batch
    return records


def read(bootstrap: str, topic: str, count: int, partition: int = 0, **config: Any) -> list[ConsumerRecord]:
    with consumer_of(bootstrap, **config) as consumer:
        here = TopicPartition(topic, partition)
        consumer.assign([here])
        consumer.seek_to_beginning(here)
        return take(consumer, count)


def test_a_record_comes_back_with_key_value_headers_and_timestamp(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    headers = [("trace", b"\x00\xff"), ("trace", b"again"), ("empty", b"")]
    with producer_of(bootstrap) as producer:
        sent = producer.send(topic, b"value", key=b"key", headers=headers, timestamp_ms=1_600_000_000_123)
        metadata = sent.get(WAIT_S_MAX)
    assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, 0)
    assert metadata.timestamp == 1_600_000_000_123
    (record,) = read(bootstrap, topic, 1)
    assert (record.topic, record.partition, record.offset) == (topic, 0, 0)
    assert (record.key, record.value, record.headers) == (b"key", b"value", headers)
    assert (record.timestamp, record.timestamp_type) == (1_600_000_000_123, 0)


def test_none_and_empty_keys_and_values_stay_apart(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    pairs = [(None, b"only a value"), (b"tombstone", None), (b"", b""), (b"k", b"v")]
    with producer_of(bootstrap, **BATCHING) as producer:
        for key, value in pairs:
            producer.send(topic, value, key=key)
    assert [(record.key, record.value) for record in read(bootstrap, topic, 4)] == pairs


def test_a_record_goes_to_the_partition_that_the_sender_chose(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    with producer_of(bootstrap) as producer:
        sent = [producer.send(topic, b"to %d" % p, partition=p) for p in (2, 0, 2)]
        placed = [(future.get(WAIT_S_MAX).partition, future.get().offset) for future in sent]
    assert placed == [(2, 0), (0, 0), (2, 1)]
    assert [record.value for record in read(bootstrap, topic, 2, partition=2)] == [b"to 2", b"to 2"]


def test_keys_are_placed_by_murmur2(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=7)
    keys = [
        b"",
        b"a",
        b"ping",
        b"21",
        b"foobar",
        "clé".encode(),
        bytes(range(256)),
        *(b"%d" % n for n in range(50)),
    ]
    with producer_of(bootstrap, **BATCHING) as producer:
        sent = {key: producer.send(topic, b"x", key=key) for key in keys}
        placed = {key: future.get(WAIT_S_MAX).partition for key, future in sent.items()}
    assert placed == {key: partition_of(key, 7) for key in keys}


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_each_compression_comes_back_whole(bootstrap: str, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic()
    values = [b"%06d" % n * 20 for n in range(300)]
    compression = None if codec == "none" else codec
    with producer_of(bootstrap, compression_type=compression, **BATCHING) as producer:
        for value in values:
            producer.send(topic, value, key=b"k", headers=[("h", b"1")])
    records = read(bootstrap, topic, 300)
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == list(range(300))


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_level_writes_the_records(bootstrap: str, make_topic: MakeTopic, acks: int | str) -> None:
    topic = make_topic()
    with producer_of(bootstrap, acks=acks, enable_idempotence=acks == "all") as producer:
        offsets = [producer.send(topic, b"%d" % n).get(WAIT_S_MAX).offset for n in range(3)]
    assert acks == 0 or offsets == [0, 1, 2]
    assert [record.value for record in read(bootstrap, topic, 3)] == [b"0", b"1", b"2"]


def test_a_thousand_records_keep_their_order_within_a_partition(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with producer_of(bootstrap) as producer:
        for n in range(1000):
            producer.send(topic, b"%d" % n)
        producer.flush(WAIT_S_MAX)
    records = read(bootstrap, topic, 1000)
    assert [(record.offset, record.value) for record in records] == [(n, b"%d" % n) for n in range(1000)]


def test_json_and_msgpack_serializers_round_trip(bootstrap: str, make_topic: MakeTopic) -> None:
    document = {"name": "Zoë", "n": [1, 2.5, None], "ok": True}
    for dumps, loads in ((lambda v: json.dumps(v).encode(), json.loads), (msgpack.dumps, msgpack.loads)):
        topic = make_topic()
        with producer_of(bootstrap, key_serializer=str.encode, value_serializer=dumps) as producer:
            producer.send(topic, document, key="ping")
        (record,) = read(bootstrap, topic, 1, key_deserializer=bytes.decode, value_deserializer=loads)
        assert (record.key, record.value) == ("ping", document)


def test_a_record_above_the_brokers_limit_is_refused_and_not_written(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"max.message.bytes": "2000"})
    large = producer_of(bootstrap, max_request_size=10_000_000)
    with large as producer, pytest.raises(MessageSizeTooLargeError):
        producer.send(topic, b"x" * 2001).get(WAIT_S_MAX)
    with producer_of(bootstrap) as producer:  # a refusal is fatal to an idempotent producer of kafka-python
        assert producer.send(topic, b"x" * 1000).get(WAIT_S_MAX).offset == 0
    assert len(read(bootstrap, topic, 1)) == 1


def test_a_consumer_starts_at_the_offset_that_it_seeks(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    with producer_of(bootstrap, **BATCHING) as producer:
        for n in range(100):
            producer.send(topic, b"%d" % n, partition=n % 2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with consumer_of(bootstrap) as consumer:
        consumer.assign([zero])
        assert consumer.assignment() == {zero}
        consumer.seek(zero, 37)
        (record,) = take(consumer, 1)
        assert (record.offset, record.value) == (37, b"74")
        assert consumer.position(zero) == 38
        consumer.seek(zero, 0)
        assert [record.offset for record in take(consumer, 50)] == list(range(50))
        consumer.assign([zero, one])
        consumer.seek_to_end(zero)
        consumer.seek(one, 49)
        (record,) = take(consumer, 1)
        assert (record.partition, record.value) == (1, b"99")
        assert consumer.highwater(one) == 50


def test_beginning_and_end_offsets_follow_what_is_written(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with consumer_of(bootstrap) as consumer, producer_of(bootstrap) as producer:
        assert consumer.beginning_offsets(both) == dict.fromkeys(both, 0)
        assert consumer.end_offsets(both) == dict.fromkeys(both, 0)
        for _ in range(5):
            producer.send(topic, b"x", partition=1).get(WAIT_S_MAX)
        assert consumer.beginning_offsets(both) == dict.fromkeys(both, 0)
        assert consumer.end_offsets(both) == {both[0]: 0, both[1]: 5}


def test_offsets_for_times_gives_the_first_record_not_older(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    here, base = TopicPartition(topic, 0), 1_600_000_000_000
    with producer_of(bootstrap) as producer:
        for n in range(5):
            producer.send(topic, b"x", timestamp_ms=base + 1000 * n).get(WAIT_S_MAX)
    with consumer_of(bootstrap) as consumer:
        expected = {0: 0, base: 0, base + 1: 1, base + 3000: 3, base + 3500: 4}
        for timestamp, offset in expected.items():
            found = consumer.offsets_for_times({here: timestamp})[here]
            assert (found.offset, found.timestamp) == (offset, base + 1000 * offset), timestamp
        assert consumer.offsets_for_times({here: base + 5000}) == {here: None}


def test_a_consumer_with_a_timeout_ends_its_loop_when_nothing_comes(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with producer_of(bootstrap) as producer:
        producer.send(topic, b"only one").get(WAIT_S_MAX)

    def values() -> list[bytes]:
        config = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 500}
        with closing(KafkaConsumer(topic, bootstrap_servers=[bootstrap], **config)) as consumer:
            return [record.value for record in consumer]

    # On a slow machine the timeout may pass before the record is there: then another consumer tries.
    assert eventually(values, "a record") == [b"only one"]


def test_a_consumer_that_waits_gets_a_record_when_it_is_written(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    here = TopicPartition(topic, 0)
    with consumer_of(bootstrap, auto_offset_reset="latest") as consumer, producer_of(bootstrap) as producer:
        consumer.assign([here])
        assert consumer.position(here) == 0
        assert consumer.poll(timeout_ms=50) == {}
        producer.send(topic, b"fresh").get(WAIT_S_MAX)
        assert [record.value for record in take(consumer, 1)] == [b"fresh"]


def test_the_first_send_creates_a_topic(
    bootstrap: str, admin: AdminClient, topic: str, default_partitions: int
) -> None:
    with producer_of(bootstrap) as producer:
        assert producer.send(topic, b"first").get(WAIT_S_MAX).offset == 0
        assert producer.partitions_for(topic) == set(range(default_partitions))
    assert partition_count(admin, topic) == default_partitions


def test_an_explicitly_idempotent_producer_writes_each_record_once(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    with producer_of(bootstrap, enable_idempotence=True, acks="all", **BATCHING) as producer:
        for n in range(400):
            producer.send(topic, b"%d" % n, partition=n % 2)
    for partition in (0, 1):
        values = [int(record.value) for record in read(bootstrap, topic, 200, partition=partition)]
        assert values == list(range(partition, 400, 2))


def test_without_a_broker_the_producer_says_so(unused_port: int) -> None:
    with pytest.raises(KafkaTimeoutError, match="Unable to bootstrap"):
        KafkaProducer(bootstrap_servers=[f"127.0.0.1:{unused_port}"], bootstrap_timeout_ms=300)

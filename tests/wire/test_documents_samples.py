"""Rows 20 to 28 of the documents' index: every Python sample runs as printed and does what the text says."""

from __future__ import annotations

import contextlib
import fcntl
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import TypeVar

import documents
import kafka
import msgpack
import pytest
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError
from murmur2 import partition_of
from topic_setup import create_topic, delete_topic
from waits import WAIT_MS_MAX, WAIT_S_MAX, eventually

PrintedTopic = Callable[..., str]
Shown = TypeVar("Shown")
LOOP_MS = 1000  # as in the sample that has a timeout


@pytest.fixture(autouse=True)
def local_broker(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some samples name no broker and so mean the default, localhost:9092; some loops have no end.

    What may pass before a slow machine has shown a record, as this timeout, is no failure: `shown_by` runs it again.
    """
    monkeypatch.setitem(KafkaProducer.DEFAULT_CONFIG, "bootstrap_servers", bootstrap)
    monkeypatch.setitem(KafkaConsumer.DEFAULT_CONFIG, "bootstrap_servers", bootstrap)
    monkeypatch.setitem(KafkaConsumer.DEFAULT_CONFIG, "consumer_timeout_ms", LOOP_MS)


@pytest.fixture
def printed_topic(bootstrap: str, admin: AdminClient) -> Iterator[PrintedTopic]:
    """Makes sure that a topic of the texts does not exist, or exists again with so many partitions."""
    with contextlib.ExitStack() as stack:
        # Two workers with the same broker would delete each other's topics: one of them at a time.
        turn = stack.enter_context(open(f"{tempfile.gettempdir()}/headrace-documents-{bootstrap}.lock", "w"))
        fcntl.flock(turn, fcntl.LOCK_EX)

        def make(name: str, partitions: int | None = None) -> str:
            delete_topic(admin, name)
            stack.callback(delete_topic, admin, name)
            if partitions is not None:
                create_topic(admin, name, partitions=partitions)
            return name

        yield make


@pytest.fixture
def producer(bootstrap: str) -> Iterator[KafkaProducer]:
    with closing(KafkaProducer(bootstrap_servers=[bootstrap])) as producer:
        yield producer


def records_of(bootstrap: str, topic: str, count: int) -> list[ConsumerRecord]:
    patient = {"auto_offset_reset": "earliest", "consumer_timeout_ms": WAIT_MS_MAX}
    with closing(KafkaConsumer(topic, bootstrap_servers=[bootstrap], **patient)) as consumer:
        return [next(consumer) for _ in range(count)]


def values_of(bootstrap: str, topic: str, count: int) -> list[bytes]:
    return [record.value for record in records_of(bootstrap, topic, count)]


def shown_by(run: Callable[[], list[Shown]], count: int) -> list[Shown]:
    """What a run of a sample shows; again from its start while its timeout passed before all of it was there."""
    seen: list[Shown] = []

    def all_seen() -> bool:
        seen[:] = run()
        return len(seen) >= count

    eventually(all_seen, f"a run in which all {count} are shown")
    return seen


def test_row_20_a_producer_with_defaults_sends_bytes_and_closes(
    bootstrap: str, printed_topic: PrintedTopic, producer: KafkaProducer
) -> None:
    topic = printed_topic("sample3")
    documents.run(documents.SIMPLE_PRODUCER, bootstrap)
    assert values_of(bootstrap, topic, 1) == [b"a_value"]
    topic = printed_topic("test")
    documents.run(documents.SEND_STRING_AND_INT, bootstrap, producer=producer)
    assert sorted(values_of(bootstrap, topic, 2)) == [bytes(5), b"a_string_value"]


def test_row_21_a_producer_without_a_broker_prints_the_exception_and_is_none(
    bootstrap: str, unused_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(KafkaProducer.DEFAULT_CONFIG, "bootstrap_timeout_ms", 300)
    sample = documents.run(documents.CONNECT_KAFKA_PRODUCER, f"localhost:{unused_port}")
    assert sample["connect_kafka_producer"]() is None
    title, reason = capsys.readouterr().out.splitlines()
    assert title == "Exception while connecting Kafka"
    assert f"localhost:{unused_port}" in reason
    monkeypatch.setitem(KafkaProducer.DEFAULT_CONFIG, "bootstrap_timeout_ms", WAIT_MS_MAX)
    sample = documents.run(documents.CONNECT_KAFKA_PRODUCER, bootstrap)
    with closing(sample["connect_kafka_producer"]()) as producer:
        assert isinstance(producer, KafkaProducer)
    assert capsys.readouterr().out == ""


def test_row_22_a_loop_sends_a_thousand_json_numbers(bootstrap: str, printed_topic: PrintedTopic) -> None:
    topic = printed_topic("test")
    documents.run(documents.THOUSAND_JSON_NUMBERS, bootstrap)["producer"].close()
    numbers = [json.loads(value)["number"] for value in values_of(bootstrap, topic, 1000)]
    assert sorted(numbers) == list(range(1000))


def test_row_22_json_values_and_string_keys_are_serialized(bootstrap: str, printed_topic: PrintedTopic) -> None:
    topic = printed_topic("fizzbuzz")
    documents.run(documents.JSON_MESSAGES, bootstrap, KafkaProducer=KafkaProducer)["producer"].close()
    assert [json.loads(value) for value in values_of(bootstrap, topic, 1)] == [{"foo": "bar"}]
    topic = printed_topic("flipflap")
    documents.run(documents.STRING_KEYS, bootstrap, KafkaProducer=KafkaProducer)["producer"].close()
    (record,) = records_of(bootstrap, topic, 1)
    assert (record.key, record.value) == (b"ping", b"1234")


def test_row_23_a_send_that_is_waited_for_gives_topic_partition_and_offset(
    bootstrap: str, printed_topic: PrintedTopic, producer: KafkaProducer, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = printed_topic("test", 1)

    def send(*record: object) -> object:
        """The ten seconds that the sample waits begin when the record is acknowledged."""
        future = producer.send(*record)
        future.get(WAIT_S_MAX)
        return future

    for offset in (0, 1):
        given = {"producer": SimpleNamespace(send=send), "KafkaError": KafkaError}
        documents.run(documents.RECORD_METADATA, bootstrap, **given)
        assert capsys.readouterr().out.splitlines() == [topic, "0", str(offset)]


def test_row_23_publish_message_flushes_and_says_so(
    bootstrap: str, printed_topic: PrintedTopic, producer: KafkaProducer, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = printed_topic("test", 1)
    sample = documents.run(documents.PUBLISH_MESSAGE, bootstrap)
    sample["publish_message"](producer, topic, "raw", "value")
    assert capsys.readouterr().out == "Message published successfully.\n"
    assert values_of(bootstrap, topic, 1) == [b"value"]
    sample["publish_message"](producer, topic, None, "value")
    assert capsys.readouterr().out.startswith("Exception in publishing message\n")


def test_row_24_the_same_key_lands_in_the_same_partition(
    bootstrap: str, printed_topic: PrintedTopic, producer: KafkaProducer
) -> None:
    topic = printed_topic("test", 6)
    for _ in range(3):
        documents.run(documents.SEND_VALUE_AND_KEY, bootstrap, producer=producer)
    producer.flush(WAIT_S_MAX)
    records = records_of(bootstrap, topic, 6)
    keyed = {record.partition for record in records if record.key == b"a_key"}
    assert keyed == {partition_of(b"a_key", 6)}


def test_row_25_acks_1_and_a_thousand_gzip_messages_arrive(bootstrap: str, printed_topic: PrintedTopic) -> None:
    topic = printed_topic("test-topic")
    documents.run(documents.BASIC_PRODUCER, bootstrap)
    assert values_of(bootstrap, topic, 10) == [b"some_message_bytes"] * 10
    topic = printed_topic("foobar")
    documents.run(documents.GZIP_MESSAGES, bootstrap, KafkaProducer=KafkaProducer)["producer"].close()
    assert sorted(values_of(bootstrap, topic, 1000)) == sorted(b"msg %d" % i for i in range(1000))


def test_row_26_a_consumer_prints_from_the_earliest_and_ends_after_its_timeout(
    bootstrap: str, printed_topic: PrintedTopic, producer: KafkaProducer, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = printed_topic("sample3", 1)
    producer.send(topic, b"a_value")
    producer.send(topic, b"b_value", key=b"k").get(WAIT_S_MAX)

    def printed_by_sample() -> list[str]:
        documents.run(documents.SIMPLE_CONSUMER, bootstrap)
        return capsys.readouterr().out.splitlines()

    assert shown_by(printed_by_sample, 2) == [
        "sample3:0:0: key=None value=b'a_value'",
        "sample3:0:1: key=b'k' value=b'b_value'",
    ]
    topic = printed_topic("first_topic", 1)
    producer.send(topic, b"basic").get(WAIT_S_MAX)

    def printed_by_loop() -> list[str]:
        documents.run(documents.BASIC_CONSUMER, bootstrap)["consumer"].close()
        return capsys.readouterr().out.splitlines()

    assert shown_by(printed_by_loop, 1) == ["b'basic'"]


def test_row_28_assign_seek_assignment_and_offsets(printed_topic: PrintedTopic, producer: KafkaProducer) -> None:
    topic = printed_topic("first_topic", 2)
    for n in range(10):
        producer.send(topic, b"%d" % n, partition=1)
    producer.flush(WAIT_S_MAX)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]

    def run() -> list[tuple[int, int]]:
        with closing(KafkaConsumer()) as consumer:
            consumer.assign(partitions)
            assert consumer.assignment() == set(partitions)
            assert consumer.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
            assert consumer.end_offsets(partitions) == {partitions[0]: 0, partitions[1]: 10}
            consumer.seek(partitions[0], 0)
            consumer.seek(partitions[1], 7)
            return [(record.partition, record.offset) for record in consumer]

    assert shown_by(run, 3) == [(1, 7), (1, 8), (1, 9)]


def test_row_28_msgpack_values_are_read_by_subscription_without_a_group(
    bootstrap: str, printed_topic: PrintedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = printed_topic("msgpackfoo", 2)
    monkeypatch.setitem(KafkaConsumer.DEFAULT_CONFIG, "auto_offset_reset", "earliest")
    with closing(KafkaProducer(value_serializer=msgpack.dumps)) as producer:
        for n in range(4):
            producer.send(topic, {"n": n}, partition=n % 2)
    partitions = {kafka.TopicPartition(topic, 0), kafka.TopicPartition(topic, 1)}

    def positions() -> list[int]:
        """Behind what it read; it is at the end of its loop."""
        sample = documents.run(documents.MSGPACK_VALUES, bootstrap, KafkaConsumer=KafkaConsumer, msgpack=msgpack)
        with closing(sample["consumer"]) as consumer:
            found = [consumer.position(each) for each in consumer.assignment() & partitions]
            if sum(found) < 4:
                return []
            assert sample["msg"].value["n"] in (2, 3)
            assert consumer.assignment() == partitions
            return found

    assert shown_by(positions, 2) == [2, 2]

"""The Java producer, consumer and admin client, and what the other clients make of what they wrote."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pytest
from compressions import JAVA_CODECS
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from java import JavaTools
from murmur2 import partition_of
from waits import WAIT_S_MAX

pytestmark = pytest.mark.xdist_group("java")

MakeTopic = Callable[..., str]
BASE_MS = 1_600_000_000_000


def value(n: int) -> str:
    return f"value-{n}" + "é" * 20


@pytest.mark.parametrize("codec", JAVA_CODECS)
def test_what_java_sends_by_each_codec_java_and_librdkafka_read(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(partitions=3)
    sent = java.ok("JavaClient", "produce", bootstrap, topic, codec, 200).objects
    assert {each["key"]: each["partition"] for each in sent} == {
        f"key-{n}": partition_of(b"key-%d" % n, 3) for n in range(200)
    }
    records = java.ok("JavaClient", "consume", bootstrap, topic, 200).objects
    by_key = {record.pop("key"): record for record in records}
    assert len(by_key) == len(records) == 200
    for n, placed in enumerate(sent):
        assert by_key[f"key-{n}"] == {
            "partition": placed["partition"],
            "offset": placed["offset"],
            "timestamp": BASE_MS + n,
            "timestampType": "CreateTime",
            "value": value(n),
            "headers": {"n": str(n)},
            "leaderEpoch": 0,
        }
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "check.crcs": True})) as consumer:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(3)])
        messages = [consumer.poll(WAIT_S_MAX) for _ in range(200)]
    assert {message.value().decode() for message in messages} == {value(n) for n in range(200)}


@pytest.mark.parametrize("codec", JAVA_CODECS)
def test_what_librdkafka_sends_by_each_codec_java_reads(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
    for n in range(200):
        producer.produce(topic, value(n), timestamp=BASE_MS + n, headers={"n": str(n)})
    assert producer.flush(WAIT_S_MAX) == 0
    records = java.ok("JavaClient", "consume", bootstrap, topic, 200).objects
    assert [record["value"] for record in records] == [value(n) for n in range(200)]
    assert [record["timestamp"] for record in records] == [BASE_MS + n for n in range(200)]
    assert [record["headers"] for record in records] == [{"n": str(n)} for n in range(200)]


def test_a_java_consumer_finds_offsets_and_times_and_seeks(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    java.ok("JavaClient", "produce", bootstrap, topic, "none", 10)
    ends, by_time, *sought = java.ok("JavaClient", "offsets", bootstrap, topic).objects
    assert ends == {"beginning": 0, "end": 10}
    assert by_time == {"-1": 0, "0": 0, "1": 1, "5": 5, "1000000": None}
    for seen in sought:
        assert seen["found"] == seen["sought"]
        assert seen["position"] == seen["sought"] + seen["count"] == 10


def test_a_java_producer_is_told_which_record_is_too_large_and_goes_on(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic
) -> None:
    assert java.ok("JavaClient", "too-large", bootstrap, make_topic()).objects == [
        {"size": 100, "offset": 0},
        {"size": 2_000_000, "refused": "RecordTooLargeException"},
        {"size": 100, "offset": 1},
    ]


def test_the_java_admin_client_creates_describes_grows_alters_and_deletes_a_topic(
    bootstrap: str, java: JavaTools, topic: str
) -> None:
    steps = {step.pop("step"): step for step in java.ok("JavaAdmin", "life-of-a-topic", bootstrap, topic).objects}
    assert steps["created"].pop("id") != "AAAAAAAAAAAAAAAAAAAAAA"
    assert steps == {
        "created": {"partitions": 3, "replicationFactor": 1, "retention.ms": "7000"},
        "listed": {"there": True},
        "described": {"byName": [0, 1, 2], "nameById": topic, "leaders": 1},
        "grown": {"partitions": [0, 1, 2, 3, 4]},
        "altered": {"segment.ms": "DYNAMIC_TOPIC_CONFIG", "retention.ms": "604800000"},
        "deleted": {"describeById": "UnknownTopicIdException"},
    }


def test_the_java_admin_client_lists_offsets_and_deletes_records(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    java.ok("JavaClient", "produce", bootstrap, topic, "none", 10)
    offsets, deleted = java.ok("JavaAdmin", "records-and-offsets", bootstrap, topic).objects
    assert offsets == {
        "step": "offsets",
        "earliest": 0,
        "latest": 10,
        "maxTimestamp": 9,
        "byTime": 4,
        "earliestLocal": 0,
    }
    assert deleted == {"step": "deleted", "lowWatermark": 6, "earliest": 6}


def test_the_java_admin_client_is_refused_with_the_right_exceptions(
    bootstrap: str, java: JavaTools, make_topic: MakeTopic
) -> None:
    (refused,) = java.ok("JavaAdmin", "refusals", bootstrap, make_topic(partitions=2)).objects
    assert refused == {
        "step": "refused",
        "exists": "TopicExistsException",
        "name": "InvalidTopicException",
        "partitions": "InvalidPartitionsException",
        "replicas": "InvalidReplicationFactorException",
        "setting": "InvalidConfigurationException",
        "shrink": "InvalidPartitionsException",
        "unknown": "UnknownTopicOrPartitionException",
        "beyond": "OffsetOutOfRangeException",
    }


def test_the_java_admin_client_describes_the_cluster(bootstrap: str, java: JavaTools, make_topic: MakeTopic) -> None:
    topic = make_topic()
    java.ok("JavaClient", "produce", bootstrap, topic, "none", 10)
    steps = {step.pop("step"): step for step in java.ok("JavaAdmin", "cluster", bootstrap, topic).objects}
    cluster = steps["cluster"]
    assert (cluster["nodes"], cluster["address"]) == (1, bootstrap)
    assert cluster["controller"] == cluster["node"]
    assert cluster["id"]
    assert steps["settings"] == {"message.max.bytes": "1048588", "log.retention.hours": "168"}
    assert steps["directories"]["usable"]
    assert steps["directories"]["size"] > 0

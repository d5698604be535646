"""kafka-python's admin client: topics, partitions, settings, records, offsets and the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from waits import WAIT_S_MAX, eventually

MakeTopic = Callable[..., str]


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=[bootstrap])) as client:
        yield client


def fill(bootstrap: str, topic: str, count: int) -> None:
    with closing(KafkaProducer(bootstrap_servers=[bootstrap], linger_ms=5)) as producer:
        for n in range(count):
            producer.send(topic, b"%d" % n, partition=0, timestamp_ms=1_600_000_000_000 + n)


def settings_of(client: KafkaAdminClient, topic: str) -> dict[str, dict[str, Any]]:
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic)]
    return client.describe_configs(asked, include_synonyms=True, config_filter="all")["topic"][topic]


def await_setting(client: KafkaAdminClient, topic: str, name: str, value: str) -> None:
    eventually(lambda: settings_of(client, topic)[name]["value"] == value, f"{name} is {value}")


def alter(client: KafkaAdminClient, topic: str, settings: dict[str, str], *, incremental: bool) -> str:
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, configs=settings)
    return client.alter_configs([changed], incremental=incremental)["topic"][topic]


def test_a_created_topic_is_listed_and_described_and_goes_when_deleted(client: KafkaAdminClient, topic: str) -> None:
    wanted = {"num_partitions": 3, "replication_factor": 1, "configs": {"retention.ms": "1000000"}}
    (made,) = client.create_topics({topic: wanted}, wait_for_metadata=True)["topics"]
    assert (made["error_code"], made["num_partitions"], made["replication_factor"]) == (0, 3, 1)
    assert made["configs"]["retention.ms"]["value"] == "1000000"
    assert topic in client.list_topics()
    (described,) = client.describe_topics([topic])
    assert described["topic_id"] == made["topic_id"]
    assert sorted(partition["partition_index"] for partition in described["partitions"]) == [0, 1, 2]
    for partition in described["partitions"]:
        assert partition["leader_id"] == partition["replica_nodes"][0] == partition["isr_nodes"][0]
    client.delete_topics([topic])
    eventually(lambda: topic not in client.list_topics(), f"{topic} is no longer listed")


def test_validate_only_checks_a_topic_and_creates_none(client: KafkaAdminClient, topic: str) -> None:
    client.create_topics({topic: {"num_partitions": 2, "replication_factor": 1}}, validate_only=True)
    assert topic not in client.list_topics()


def test_a_topic_is_not_created_twice(client: KafkaAdminClient, make_topic: MakeTopic) -> None:
    with pytest.raises(TopicAlreadyExistsError, match="already exists"):
        client.create_topics({make_topic(): {"num_partitions": 1, "replication_factor": 1}})


@pytest.mark.parametrize("name", ["a b", "..", "x" * 250, "", "a/b"])
def test_a_bad_topic_name_is_refused(client: KafkaAdminClient, name: str) -> None:
    with pytest.raises(InvalidTopicError):
        client.create_topics({name: {"num_partitions": 1, "replication_factor": 1}})


def test_a_replication_factor_above_the_brokers_is_refused(client: KafkaAdminClient, topic: str) -> None:
    with pytest.raises(InvalidReplicationFactorError, match="replication factor"):
        client.create_topics({topic: {"num_partitions": 1, "replication_factor": 2}})
    assert topic not in client.list_topics()


def test_no_partitions_at_all_are_refused(client: KafkaAdminClient, topic: str) -> None:
    with pytest.raises(InvalidPartitionsError):
        client.create_topics({topic: {"num_partitions": 0, "replication_factor": 1}})


def test_deleting_an_unknown_topic_is_refused(client: KafkaAdminClient, topic: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        client.delete_topics([topic])


def test_partitions_can_be_added_but_not_taken_away(client: KafkaAdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    client.create_partitions({topic: 5})
    client.wait_for_topics([topic])
    eventually(lambda: len(client.describe_topics([topic])[0]["partitions"]) == 5, f"{topic} has 5 partitions")
    with pytest.raises(InvalidPartitionsError):
        client.create_partitions({topic: 3})


def test_settings_of_a_topic_are_described_altered_and_reset(client: KafkaAdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"max.message.bytes": "5000"})
    before = settings_of(client, topic)
    assert before["max.message.bytes"]["value"] == "5000"
    assert before["max.message.bytes"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert before["retention.ms"]["value"] == "604800000"
    # Both of Kafka's calls; before the older one, which replaces everything, the client fills in what is set.
    assert alter(client, topic, {"retention.ms": "7000"}, incremental=True) == "OK"
    await_setting(client, topic, "retention.ms", "7000")
    assert alter(client, topic, {"segment.ms": "9000"}, incremental=False) == "OK"
    await_setting(client, topic, "segment.ms", "9000")
    after = settings_of(client, topic)
    assert (after["retention.ms"]["value"], after["max.message.bytes"]["value"]) == ("7000", "5000")
    client.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=["max.message.bytes"])])
    await_setting(client, topic, "max.message.bytes", before["max.message.bytes"]["synonyms"][-1]["value"])


def test_a_bad_setting_is_refused_by_name(client: KafkaAdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    answer = alter(client, topic, {"retention.ms": "soon"}, incremental=True)
    assert "InvalidConfig" in answer
    assert "retention.ms" in answer
    assert "soon" in answer
    assert settings_of(client, topic)["retention.ms"]["value"] == "604800000"


def test_deleted_records_move_the_beginning(bootstrap: str, client: KafkaAdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    here = TopicPartition(topic, 0)
    fill(bootstrap, topic, 10)
    assert client.delete_records({here: 4})[here]["low_watermark"] == 4
    with closing(KafkaConsumer(bootstrap_servers=[bootstrap], auto_offset_reset="earliest")) as consumer:
        assert consumer.beginning_offsets([here]) == {here: 4}
        consumer.assign([here])
        records = consumer.poll(timeout_ms=int(WAIT_S_MAX * 1000), max_records=1)[here]
        assert records[0].offset == 4
    with pytest.raises(OffsetOutOfRangeError):
        client.delete_records({here: 11})
    assert client.delete_records({here: -1})[here]["low_watermark"] == 10


def test_offsets_are_listed_by_specification(bootstrap: str, client: KafkaAdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    here = TopicPartition(topic, 0)
    fill(bootstrap, topic, 10)

    def offset(specification: OffsetSpec | int) -> int:
        return client.list_partition_offsets({here: specification})[here].offset

    assert offset(OffsetSpec.EARLIEST) == 0
    assert offset(OffsetSpec.LATEST) == 10
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 9
    assert offset(1_600_000_000_003) == 3


def test_the_cluster_and_its_log_directories_are_described(
    bootstrap: str, client: KafkaAdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    fill(bootstrap, topic, 10)
    cluster = client.describe_cluster()
    (broker,) = cluster["brokers"]
    assert f"{broker['host']}:{broker['port']}" == bootstrap
    assert cluster["controller_id"] == broker["broker_id"]
    assert cluster["cluster_id"]
    (directories,) = client.describe_log_dirs({topic: [0]})
    sizes = [
        partition["partition_size"]
        for directory in directories["log_dirs"]
        for described in directory["topics"]
        if described["name"] == topic
        for partition in described["partitions"]
    ]
    assert len(sizes) == 1
    assert sizes[0] > 0
    assert all(0 < each["usable_bytes"] <= each["total_bytes"] for each in directories["log_dirs"])

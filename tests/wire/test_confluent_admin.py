"""confluent-kafka's admin client: topics, partitions, settings, records, offsets and the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TypeVar

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from topic_setup import delete_topic, describe, partition_count
from waits import WAIT_S_MAX, eventually

MakeTopic = Callable[..., str]
Result = TypeVar("Result")


def only(futures: Mapping[object, Future[Result]]) -> Result:
    (future,) = futures.values()
    return future.result(WAIT_S_MAX)


def refusal_of(futures: Mapping[object, Future[object]]) -> KafkaError:
    with pytest.raises(KafkaException) as refused:
        only(futures)
    return refused.value.args[0]


def settings_of(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    return only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))


def await_setting(admin: AdminClient, topic: str, name: str, value: str) -> None:
    eventually(lambda: settings_of(admin, topic)[name].value == value, f"{name} is {value}")


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(count):
        producer.produce(topic, b"%d" % n, partition=0, timestamp=1_600_000_000_000 + n)
    assert producer.flush(WAIT_S_MAX) == 0


def test_a_created_topic_is_listed_and_described_and_goes_when_deleted(admin: AdminClient, topic: str) -> None:
    assert only(admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])) is None
    eventually(lambda: partition_count(admin, topic) == 3, f"{topic} has 3 partitions")
    listed = admin.list_topics(timeout=WAIT_S_MAX).topics
    assert sorted(listed[topic].partitions) == [0, 1, 2]
    described = only(admin.describe_topics(TopicCollection([topic])))
    assert (described.name, described.is_internal) == (topic, False)
    for partition in described.partitions:
        assert partition.leader.id == partition.replicas[0].id == partition.isr[0].id
    delete_topic(admin, topic)
    assert topic not in admin.list_topics(timeout=WAIT_S_MAX).topics


def test_a_topic_made_again_is_another_topic(bootstrap: str, admin: AdminClient, topic: str) -> None:
    ids = []
    for _ in range(2):
        only(admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)]))
        eventually(lambda: partition_count(admin, topic) == 1, f"{topic} exists")
        ids.append(str(describe(admin, topic).topic_id))
        here = TopicPartition(topic, 0)
        assert only(admin.list_offsets({here: OffsetSpec.latest()})).offset == 0
        fill(bootstrap, topic, 3)
        delete_topic(admin, topic)
    assert ids[0] != ids[1]


def test_defaults_of_the_broker_fill_in_what_a_new_topic_leaves_open(
    admin: AdminClient, topic: str, default_partitions: int
) -> None:
    only(admin.create_topics([NewTopic(topic)]))
    eventually(lambda: partition_count(admin, topic) == default_partitions, f"{topic} exists")


def test_validate_only_checks_a_topic_and_creates_none(admin: AdminClient, topic: str) -> None:
    only(admin.create_topics([NewTopic(topic, num_partitions=2)], validate_only=True))
    refused = refusal_of(admin.create_topics([NewTopic(topic, num_partitions=0)], validate_only=True))
    assert refused.code() == KafkaError.INVALID_PARTITIONS
    assert describe(admin, topic) is None


def test_a_replication_factor_above_the_brokers_is_refused_clearly(admin: AdminClient, topic: str) -> None:
    refused = refusal_of(admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=3)]))
    assert refused.code() == KafkaError.INVALID_REPLICATION_FACTOR
    message = refused.str().lower()
    assert "replication factor" in message
    assert "3" in message
    assert "1 broker" in message
    assert describe(admin, topic) is None


def test_a_topic_is_not_created_twice(admin: AdminClient, make_topic: MakeTopic) -> None:
    refused = refusal_of(admin.create_topics([NewTopic(make_topic(), num_partitions=1)]))
    assert refused.code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_one_bad_topic_of_a_request_does_not_stop_the_others(admin: AdminClient, topic: str) -> None:
    answers = admin.create_topics([NewTopic("no good", num_partitions=1), NewTopic(topic, num_partitions=1)])
    with pytest.raises(KafkaException) as refused:
        answers["no good"].result(WAIT_S_MAX)
    assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION
    answers[topic].result(WAIT_S_MAX)
    eventually(lambda: partition_count(admin, topic) == 1, f"{topic} exists")


def test_partitions_can_be_added_but_not_taken_away(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    only(admin.create_partitions([NewPartitions(topic, 5)]))
    eventually(lambda: partition_count(admin, topic) == 5, f"{topic} has 5 partitions")
    refused = refusal_of(admin.create_partitions([NewPartitions(topic, 4)]))
    assert refused.code() == KafkaError.INVALID_PARTITIONS


def test_settings_of_a_topic_show_their_value_and_where_it_comes_from(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    settings = settings_of(admin, make_topic(config={"retention.ms": "7000"}))
    assert settings["retention.ms"].value == "7000"
    assert settings["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert settings["segment.bytes"].value == "1073741824"
    assert settings["segment.bytes"].is_default
    assert settings["compression.type"].value == "producer"
    assert not settings["cleanup.policy"].is_read_only


def test_incremental_alter_sets_and_deletes_one_setting(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"retention.ms": "7000", "segment.ms": "9000"})

    def alter(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry("retention.ms", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        only(admin.incremental_alter_configs([resource]))

    alter(AlterConfigOpType.SET, "8000")
    await_setting(admin, topic, "retention.ms", "8000")
    alter(AlterConfigOpType.DELETE, None)
    await_setting(admin, topic, "retention.ms", "604800000")
    assert settings_of(admin, topic)["segment.ms"].value == "9000"


@pytest.mark.filterwarnings("ignore:.*alter_configs.*:DeprecationWarning")
def test_alter_configs_replaces_every_setting(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(config={"retention.ms": "7000"})
    only(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "9000"})]))
    await_setting(admin, topic, "segment.ms", "9000")
    assert settings_of(admin, topic)["retention.ms"].value == "604800000"


def test_a_bad_setting_is_refused_by_name_and_value(admin: AdminClient, topic: str) -> None:
    refused = refusal_of(admin.create_topics([NewTopic(topic, num_partitions=1, config={"retention.ms": "soon"})]))
    assert refused.code() == KafkaError.INVALID_CONFIG
    assert "retention.ms" in refused.str()
    assert "soon" in refused.str()
    refused = refusal_of(admin.create_topics([NewTopic(topic, num_partitions=1, config={"retention.mz": "1"})]))
    assert refused.code() == KafkaError.INVALID_CONFIG
    assert "retention.mz" in refused.str()


def test_settings_of_the_broker_are_described(admin: AdminClient) -> None:
    (node,) = admin.describe_cluster().result(WAIT_S_MAX).nodes
    settings = only(admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node.id))]))
    assert settings["message.max.bytes"].value == "1048588"
    assert settings["auto.create.topics.enable"].value == "true"
    assert settings["log.retention.hours"].value == "168"
    assert settings["log.dirs"].is_read_only


def test_deleted_records_move_the_beginning_and_not_the_end(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    here = TopicPartition(topic, 0)
    fill(bootstrap, topic, 10)
    assert only(admin.delete_records([TopicPartition(topic, 0, 4)])).low_watermark == 4
    assert only(admin.list_offsets({here: OffsetSpec.earliest()})).offset == 4
    assert only(admin.list_offsets({here: OffsetSpec.latest()})).offset == 10
    refused = refusal_of(admin.delete_records([TopicPartition(topic, 0, 11)]))
    assert refused.code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_offsets_are_listed_by_specification(bootstrap: str, admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    here = TopicPartition(topic, 0)
    fill(bootstrap, topic, 10)

    def offset(specification: OffsetSpec) -> int:
        return only(admin.list_offsets({here: specification})).offset

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 10
    assert offset(OffsetSpec.for_timestamp(1_600_000_000_003)) == 3
    assert offset(OffsetSpec.for_timestamp(1_600_000_001_000)) == -1
    newest = only(admin.list_offsets({here: OffsetSpec.max_timestamp()}))
    assert (newest.offset, newest.timestamp) == (9, 1_600_000_000_009)


def test_the_cluster_is_described(bootstrap: str, admin: AdminClient) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(WAIT_S_MAX)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == bootstrap
    assert cluster.controller.id == node.id
    assert cluster.cluster_id
    assert cluster.authorized_operations

"""Looking at groups and moving them with confluent-kafka's admin client: lag, reset, deletion."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from memberships import consumer_of, crew_of, send, take
from topic_setup import fresh_name
from waits import WAIT_S_MAX

MakeTopic = Callable[..., str]


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return fresh_name(request.node.name)


def offsets_of(admin: AdminClient, group: str) -> dict[int, int]:
    asked = [ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(asked)[group].result(WAIT_S_MAX)
    return {each.partition: each.offset for each in found.topic_partitions}


def alter(admin: AdminClient, group: str, *offsets: TopicPartition) -> None:
    moved = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, list(offsets))])
    for each in moved[group].result(WAIT_S_MAX).topic_partitions:
        assert each.error is None, each.error


def code_of(future: object) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(WAIT_S_MAX)  # type: ignore[attr-defined]
    return refused.value.args[0].code()


def test_the_lag_of_a_group_is_the_end_less_what_it_committed(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=2)
    send(bootstrap, topic, range(20), partitions=2)
    with consumer_of(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        take(consumer, 20)
        done = [TopicPartition(topic, 0, 10), TopicPartition(topic, 1, 4)]
        consumer.commit(offsets=done, asynchronous=False)
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(2)}
    ends = {at.partition: found.result(WAIT_S_MAX).offset for at, found in admin.list_offsets(asked).items()}
    lag = {partition: ends[partition] - offset for partition, offset in offsets_of(admin, group).items()}
    assert lag == {0: 0, 1: 6}


def test_a_group_is_reset_when_nobody_is_in_it(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    send(bootstrap, topic, range(5))
    alter(admin, group, TopicPartition(topic, 0, 3))
    with crew_of(bootstrap, group, topic) as crew:
        crew.join()
        assert [message.value() for message in crew.receive(2)] == [b"3", b"4"]
        refused = admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 0)])]
        )[group]
        (part,) = refused.result(WAIT_S_MAX).topic_partitions
        assert part.error is not None
        assert part.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    alter(admin, group, TopicPartition(topic, 0, 0))
    with consumer_of(bootstrap, group) as consumer:
        consumer.subscribe([topic])
        assert take(consumer, 5) == ["0", "1", "2", "3", "4"]


def test_groups_are_listed_by_state_and_type_and_described(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic(partitions=2)

    def listed(**filters: object) -> bool:
        found = admin.list_consumer_groups(**filters).result(WAIT_S_MAX)
        assert found.errors == []
        return group in {each.group_id for each in found.valid}

    with crew_of(bootstrap, group, topic, client_id="the-client") as crew:
        crew.join()
        crew.settle(2)
        assert listed()
        assert listed(states={ConsumerGroupState.STABLE})
        assert not listed(states={ConsumerGroupState.EMPTY})
        assert listed(types={ConsumerGroupType.CLASSIC})
        assert not listed(types={ConsumerGroupType.CONSUMER})
        described = admin.describe_consumer_groups([group])[group].result(WAIT_S_MAX)
        assert (described.group_id, described.state, described.partition_assignor) == (
            group,
            ConsumerGroupState.STABLE,
            "range",
        )
        (member,) = described.members
        assert (member.client_id, member.host) == ("the-client", "/127.0.0.1")
        owned = {(each.topic, each.partition) for each in member.assignment.topic_partitions}
        assert owned == {(topic, 0), (topic, 1)}
    assert listed(states={ConsumerGroupState.EMPTY})


def test_a_group_is_deleted_when_nobody_is_in_it_and_its_offsets_with_it(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    with crew_of(bootstrap, group, topic) as crew:
        member = crew.join()
        crew.settle(1)
        member.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        refused = code_of(admin.delete_consumer_groups([group])[group])
        assert refused == KafkaError.NON_EMPTY_GROUP
    assert offsets_of(admin, group) == {0: 0}
    admin.delete_consumer_groups([group])[group].result(WAIT_S_MAX)
    assert code_of(admin.delete_consumer_groups([group])[group]) == KafkaError.GROUP_ID_NOT_FOUND
    assert offsets_of(admin, group) == {}


def test_a_group_by_assignment_only_commits_without_members(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic, group: str
) -> None:
    topic = make_topic()
    send(bootstrap, topic, range(3))
    with consumer_of(bootstrap, group) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert take(consumer, 3) == ["0", "1", "2"]
        consumer.commit(asynchronous=False)
    assert offsets_of(admin, group) == {0: 3}
    described = admin.describe_consumer_groups([group])[group].result(WAIT_S_MAX)
    assert (described.state, described.members) == (ConsumerGroupState.EMPTY, [])

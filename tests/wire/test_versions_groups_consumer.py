"""Groups of the new protocol (KIP-848), request by request: ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from contextlib import ExitStack

import pytest
import raw
import raw_groups
from raw import ErrorCode
from raw_groups import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    LIST_GROUPS,
    ConsumerMember,
    Member,
    assignment,
    commit,
    committed,
    fetch_offsets,
    subscription,
)

each_heartbeat = pytest.mark.parametrize("version", raw_groups.versions(CONSUMER_GROUP_HEARTBEAT))
each_describe = pytest.mark.parametrize("version", raw_groups.versions(CONSUMER_GROUP_DESCRIBE))


pytestmark = pytest.mark.usefixtures("warm_coordinators")


@pytest.fixture
def group():
    return raw.fresh_name("group")


@pytest.fixture
def member(bootstrap, group):
    """A member of the classic protocol."""
    with ExitStack() as stack:
        yield lambda **fields: stack.enter_context(Member(bootstrap, group, **fields))


def describe(client, group, version=1):
    (found,) = client.call(CONSUMER_GROUP_DESCRIBE, version, {"group_ids": [group]}).groups
    return found


def joined(client, group, *topics, version=1, **fields):
    """A member that holds what it was given."""
    one = ConsumerMember(client, group, version=version)
    answer = one.join(*topics, **fields)
    assert answer.error_code == 0, answer
    one.acknowledge()
    return one


def reconcile(condition, *members):
    """Heartbeats of each, acknowledged, until it is so: what clients do, without the seconds between.

    Apache Kafka makes a new assignment at most once a second."""

    def so():
        for one in members:
            before = one.assigned
            one.heartbeat()
            if one.assigned != before:
                one.acknowledge()
        return condition()

    raw.eventually(so)


@each_heartbeat
def test_partitions_move_to_a_second_member_when_the_first_has_given_them_up(client, group, version):
    topic = raw.make_topic(client, partitions=4)
    first = ConsumerMember(client, group, version=version)
    answer = first.join(topic.name)
    assert (answer.error_code, answer.heartbeat_interval.total_seconds()) == (0, 5)
    assert first.id
    assert (first.epoch > 0, first.partitions(topic)) == (True, [0, 1, 2, 3])
    first.acknowledge()
    second = ConsumerMember(client, group, version=version)
    second.join(topic.name)
    assert second.partitions(topic) == []
    raw.eventually(lambda: first.heartbeat().error_code == 0 and len(first.partitions(topic)) == 2)
    kept = first.partitions(topic)
    second.heartbeat()
    assert second.partitions(topic) == [], "the first still holds them"
    first.acknowledge()
    reconcile(lambda: sorted(kept + second.partitions(topic)) == [0, 1, 2, 3], second)
    assert first.heartbeat().member_epoch == second.epoch
    assert second.leave().member_epoch == -1
    reconcile(lambda: first.partitions(topic) == [0, 1, 2, 3], first)


def test_a_heartbeat_with_nothing_new_is_answered_with_nothing_new(client, group):
    topic = raw.make_topic(client, partitions=2)
    one = joined(client, group, topic.name)
    again = one.heartbeat()
    assert (again.error_code, again.member_epoch, again.assignment) == (0, one.epoch, None)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_assignor_that_a_member_names_is_used(client, group, assignor):
    topics = [raw.make_topic(client, partitions=3) for _ in range(2)]
    names = [topic.name for topic in topics]
    first = joined(client, group, *names, server_assignor=assignor)
    second = joined(client, group, *names, server_assignor=assignor)
    # Range divides topic by topic, so one member gets two of three twice.
    expected = [3, 3] if assignor == "uniform" else [2, 4]
    sizes = lambda: sorted(sum(map(len, each.assigned.values())) for each in (first, second))  # noqa: E731
    reconcile(lambda: sizes() == expected, first, second)
    assert describe(client, group).assignor_name == assignor


@each_heartbeat
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, ErrorCode.invalid_request),
        ({"member_epoch": 5, "member_id": "never-seen"}, ErrorCode.group_id_not_found),
        ({"server_assignor": "unheard-of"}, ErrorCode.unsupported_assignor),
        ({"rebalance_timeout": -1}, ErrorCode.invalid_request),
        ({"topic_partitions": None}, ErrorCode.invalid_request),
        ({"subscribed_topic_names": None}, ErrorCode.invalid_request),
        ({"member_epoch": -3}, ErrorCode.invalid_request),
        ({"instance_id": ""}, ErrorCode.invalid_request),
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused(client, group, version, fields, error):
    topic = raw.make_topic(client)
    one = ConsumerMember(client, group, version=version)
    assert one.join(topic.name, **fields).error_code == error


def test_a_member_without_an_id_is_refused_from_version_1_on(client, group):
    one = ConsumerMember(client, group, member_id="")
    assert one.join("any").error_code == ErrorCode.invalid_request


@each_heartbeat
def test_a_member_of_another_epoch_or_none_is_told(client, group, version):
    topic = raw.make_topic(client)
    one = joined(client, group, topic.name, version=version)
    assert one.heartbeat(member_epoch=one.epoch + 5).error_code == ErrorCode.fenced_member_epoch
    assert one.heartbeat(member_id="never-seen").error_code == ErrorCode.unknown_member_id
    one.leave()
    assert one.heartbeat(member_epoch=1).error_code == ErrorCode.unknown_member_id


def test_a_static_member_keeps_its_partitions_while_it_is_away(client, group):
    topic = raw.make_topic(client, partitions=2)
    old = joined(client, group, topic.name, instance_id="one")
    other = joined(client, group, topic.name)
    reconcile(lambda: len(old.partitions(topic)) == len(other.partitions(topic)) == 1, old, other)
    held = old.partitions(topic)
    early = ConsumerMember(client, group)
    assert early.join(topic.name, instance_id="one").error_code == ErrorCode.unreleased_instance_id
    assert old.heartbeat(member_epoch=-2, instance_id="one").member_epoch == -2
    other.heartbeat()
    assert len(other.partitions(topic)) == 1
    new = joined(client, group, topic.name, instance_id="one")
    assert new.partitions(topic) == held
    assert old.heartbeat(instance_id="one").error_code == ErrorCode.fenced_instance_id


def test_the_broker_resolves_a_regular_expression_or_refuses_it(client, group):
    stem = raw.fresh_name("regex")
    first = raw.make_topic(client, name=f"{stem}-a")
    raw.make_topic(client, name=f"not-{stem}")
    one = ConsumerMember(client, group)
    assert one.join(subscribed_topic_names=None, subscribed_topic_regex=f"{stem}-.*").error_code == 0

    def holds(*topics):
        one.heartbeat()
        one.acknowledge()
        return set(one.assigned) == {topic.id for topic in topics}

    raw.eventually(lambda: holds(first))
    assert describe(client, group).members[0].subscribed_topic_regex == f"{stem}-.*"
    refused = ConsumerMember(client, group).join(subscribed_topic_names=None, subscribed_topic_regex="(unclosed")
    assert refused.error_code == ErrorCode.invalid_regular_expression


def test_a_topic_made_after_the_subscription_is_assigned(client, group):
    name = raw.fresh_name("later")
    one = joined(client, group, name)
    assert one.assigned == {}
    topic = raw.make_topic(client, partitions=2, name=name)

    def holds():
        one.heartbeat()
        one.acknowledge()
        return one.partitions(topic) == [0, 1]

    raw.eventually(holds)


@each_describe
def test_a_group_is_described_with_its_members_and_their_targets(client, group, version):
    topic = raw.make_topic(client, partitions=2)
    one = joined(client, group, topic.name)
    found = describe(client, group, version)
    assert (found.error_code, found.group_id, found.group_state) == (0, group, "Stable")
    assert found.group_epoch == found.assignment_epoch == one.epoch
    assert found.assignor_name == "uniform"
    (seen,) = found.members
    assert (seen.member_id, seen.member_epoch) == (one.id, one.epoch)
    assert (seen.client_id, seen.client_host, seen.subscribed_topic_names) == ("raw", "/127.0.0.1", (topic.name,))
    for given in (seen.assignment, seen.target_assignment):
        (part,) = given.topic_partitions
        assert (part.topic_id, part.topic_name, sorted(part.partitions)) == (topic.id, topic.name, [0, 1])
    if version >= 1:
        assert seen.member_type == 1
    missing = describe(client, raw.fresh_name("missing"), version)
    assert missing.error_code == ErrorCode.group_id_not_found


def test_the_group_is_listed_by_its_type_and_deleted_when_empty(client, group):
    topic = raw.make_topic(client)
    one = joined(client, group, topic.name)

    def listed():
        every = client.call(LIST_GROUPS, 5, {"types_filter": ["consumer"], "states_filter": ["stable"]}).groups
        return [(each.protocol_type, each.group_type) for each in every if each.group_id == group]

    raw.eventually(lambda: listed() == [("consumer", "consumer")])

    def delete():
        answer = client.call(raw_groups.DELETE_GROUPS, 2, {"groups_names": [group]})
        return answer.results[0].error_code

    assert delete() == ErrorCode.non_empty_group
    one.leave()
    assert describe(client, group).group_state == "Empty"
    assert delete() == 0
    assert describe(client, group).error_code == ErrorCode.group_id_not_found


def test_offsets_are_committed_and_fetched_by_members_of_the_epoch(client, group):
    topic = raw.make_topic(client)
    one = joined(client, group, topic.name)
    mine = {"generation_id_or_member_epoch": one.epoch, "member_id": one.id}
    assert commit(client, 9, group, topic, {0: 5}, **mine) == [0]
    for fields, error in (
        ({"generation_id_or_member_epoch": one.epoch + 1}, ErrorCode.stale_member_epoch),
        ({"member_id": "never-seen"}, ErrorCode.unknown_member_id),
        ({"generation_id_or_member_epoch": -1, "member_id": ""}, ErrorCode.unknown_member_id),
    ):
        assert commit(client, 9, group, topic, {0: 6}, **(mine | fields)) == [error]
    assert committed(client, 9, group, topic, member_id=one.id, member_epoch=one.epoch).offset == 5
    for fields, error in (
        ({"member_id": one.id, "member_epoch": one.epoch + 1}, ErrorCode.stale_member_epoch),
        ({"member_id": "never-seen", "member_epoch": one.epoch}, ErrorCode.unknown_member_id),
    ):
        assert fetch_offsets(client, 9, group, {topic: [0]}, **fields).error_code == error


def test_a_classic_group_becomes_a_consumer_group_and_one_again_when_the_last_new_member_leaves(client, group, member):
    topic = raw.make_topic(client, partitions=2)
    both = [{"name": "range", "metadata": subscription(topic.name)}]
    old = member(protocols=both)
    old.join()
    assert old.sync(given={old.id: assignment((topic.name, [0, 1]))}).error_code == 0
    new = ConsumerMember(client, group)
    assert new.join(topic.name).error_code == 0
    found = describe(client, group)
    types = {each.member_id: each.member_type for each in found.members}
    assert (found.error_code, types) == (0, {old.id: 0, new.id: 1})
    # The old member learns of its new assignment as it knows to: by a rebalance.
    old.await_rebalance()
    kept = [{"name": "range", "metadata": subscription(topic.name)}]
    answer = old.join(protocols=kept)
    assert answer.error_code == 0
    half = old.sync().assignment
    # Up to version 3 of the assignment; the partitions come after the version and the topic's name.
    assert topic.name.encode() in half
    new.heartbeat()
    new.acknowledge()
    assert len(new.partitions(topic)) == 1
    assert old.heartbeat() == 0
    new.leave()
    listed = client.call(LIST_GROUPS, 5, {}).groups
    assert next(each.group_type for each in listed if each.group_id == group) == "classic"
    old.await_rebalance()
    assert old.join(protocols=both).error_code == 0
    assert old.sync(given={old.id: assignment((topic.name, [0, 1]))}).error_code == 0
    assert old.heartbeat() == 0


def test_an_empty_classic_group_with_offsets_becomes_a_consumer_group_that_keeps_them(client, group):
    topic = raw.make_topic(client)
    assert commit(client, 8, group, topic, {0: 5}) == [0]
    one = joined(client, group, topic.name)
    assert committed(client, 9, group, topic, member_id=one.id, member_epoch=one.epoch).offset == 5
    one.leave()
    assert committed(client, 8, group, topic).offset == 5


def test_a_classic_member_without_the_consumer_protocol_keeps_the_new_protocol_out(client, group, member):
    member(protocol_type="connect").settle()
    refused = ConsumerMember(client, group).join("any")
    assert refused.error_code == ErrorCode.group_id_not_found

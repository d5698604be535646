"""Committed offsets over every version: OffsetCommit, OffsetFetch, OffsetDelete."""

import uuid
from contextlib import ExitStack

import pytest
import raw
import raw_groups
from raw import Client, ErrorCode, Topic
from raw_groups import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH, Member, Offset, commit, committed, fetch_offsets

each_commit = pytest.mark.parametrize("version", raw_groups.versions(OFFSET_COMMIT))
each_fetch = pytest.mark.parametrize("version", raw_groups.versions(OFFSET_FETCH))
NOTHING = Offset(0, -1, -1, "")


pytestmark = pytest.mark.usefixtures("warm_coordinators")


@pytest.fixture(scope="module")
def topic(bootstrap):
    with Client(bootstrap) as connected:
        return raw.make_topic(connected, partitions=3)


@pytest.fixture
def group():
    return raw.fresh_name("group")


@pytest.fixture
def member(bootstrap, group):
    with ExitStack() as stack:
        yield lambda **fields: stack.enter_context(Member(bootstrap, group, **fields))


@each_commit
def test_what_is_committed_is_kept_and_replaced(client, topic, group, version):
    assert commit(client, version, group, topic, {0: 5, 2: 7}, metadata="note", epoch=3) == [0, 0]
    epoch = 3 if version >= 6 else -1
    assert committed(client, 10, group, topic) == Offset(0, 5, epoch, "note")
    assert committed(client, 10, group, topic, 1) == NOTHING
    assert committed(client, 10, group, topic, 2) == Offset(0, 7, epoch, "note")
    assert commit(client, version, group, topic, {0: 2}, metadata=None) == [0]
    assert committed(client, 10, group, topic) == Offset(0, 2, -1, "")


@each_commit
def test_a_commit_to_what_does_not_exist_is_refused_and_the_rest_kept(client, topic, group, version):
    unknown = ErrorCode.unknown_topic_or_partition
    assert commit(client, version, group, topic, {0: 1, 3: 1}) == [0, unknown]
    missing = Topic(raw.fresh_name("missing"), uuid.uuid4())
    expected = ErrorCode.unknown_topic_id if version >= 10 else unknown
    assert commit(client, version, group, missing, {0: 1}) == [expected]
    assert committed(client, 10, group, topic).offset == 1


@each_commit
def test_metadata_longer_than_4096_bytes_is_refused(client, topic, group, version):
    assert commit(client, version, group, topic, {0: 1}, metadata="m" * 4096) == [0]
    too_large = ErrorCode.offset_metadata_too_large
    assert commit(client, version, group, topic, {0: 2}, metadata="m" * 4097) == [too_large]
    assert committed(client, 10, group, topic).offset == 1


@each_commit
def test_only_members_of_the_generation_commit_to_a_group_that_has_members(client, topic, group, member, version):
    settled = member().settle()
    as_member = {"generation_id_or_member_epoch": settled.generation, "member_id": settled.id}
    assert commit(client, version, group, topic, {0: 1}, **as_member) == [0]
    for fields, error in (
        ({"generation_id_or_member_epoch": -1, "member_id": ""}, ErrorCode.unknown_member_id),
        ({"member_id": "never seen"}, ErrorCode.unknown_member_id),
        ({"generation_id_or_member_epoch": 9}, ErrorCode.illegal_generation),
    ):
        assert commit(client, version, group, topic, {0: 9}, **(as_member | fields)) == [error]
    assert committed(client, 10, group, topic).offset == 1
    refused = ErrorCode.group_id_not_found if version >= 9 else ErrorCode.illegal_generation
    assert commit(client, version, raw.fresh_name("missing"), topic, {0: 9}, **as_member) == [refused]


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_a_fenced_static_member_does_not_commit(client, topic, group, member, version):
    old, new = member(group_instance_id="one"), member(group_instance_id="one")
    old.settle(), new.join()
    as_old = {"generation_id_or_member_epoch": old.generation, "member_id": old.id, "group_instance_id": "one"}
    assert commit(client, version, group, topic, {0: 1}, **as_old) == [ErrorCode.fenced_instance_id]
    assert commit(client, version, group, topic, {0: 1}, **(as_old | {"member_id": new.id})) == [0]


def test_a_commit_while_the_group_rebalances_is_answered_so(client, topic, group, member):
    first, second = member().settle(), member()
    second.ask_for_id()
    second.send_join()
    first.await_rebalance()
    as_first = {"generation_id_or_member_epoch": first.generation, "member_id": first.id}
    assert commit(client, 8, group, topic, {0: 1}, **as_first) == [0]  # the members still hold their partitions
    first.join(), second.read_join()
    as_first = {"generation_id_or_member_epoch": first.generation, "member_id": first.id}
    assert commit(client, 8, group, topic, {0: 2}, **as_first) == [ErrorCode.rebalance_in_progress]
    assert committed(client, 10, group, topic).offset == 1


@each_fetch
def test_offsets_are_fetched_by_partition_or_all_at_once(client, topic, group, version):
    commit(client, 8, group, topic, {0: 5, 2: 7}, metadata="note", epoch=3)
    epoch = 3 if version >= 5 else -1
    assert committed(client, version, group, topic) == Offset(0, 5, epoch, "note")
    assert committed(client, version, group, topic, 1) == NOTHING
    if version >= 2:
        found = fetch_offsets(client, version, group, None)
        (about,) = found.topics
        assert (about.topic_id == topic.id) if version >= 10 else (about.name == topic.name)
        offsets = {each.partition_index: each.committed_offset for each in about.partitions}
        assert (found.error_code, offsets) == (0, {0: 5, 2: 7})


@each_fetch
def test_a_missing_group_or_partition_has_no_offset_and_is_no_error(client, topic, version):
    missing = raw.fresh_name("missing")
    assert committed(client, version, missing, topic) == NOTHING
    assert committed(client, version, missing, topic, 99) == NOTHING
    if version >= 2:
        assert fetch_offsets(client, version, missing, None).topics == ()


@pytest.mark.parametrize("version", [8, 9, 10])
def test_several_groups_are_asked_at_once(client, topic, version):
    groups = [raw.fresh_name("group") for _ in range(3)]
    for offset, name in enumerate(groups):
        commit(client, 8, name, topic, {0: offset})
    asked = [{"group_id": name, "topics": [topic.ref | {"partition_indexes": [0]}]} for name in groups]
    found = client.call(OFFSET_FETCH, version, {"groups": asked}).groups
    offsets = {each.group_id: each.topics[0].partitions[0].committed_offset for each in found}
    assert offsets == {name: offset for offset, name in enumerate(groups)}


def test_an_unknown_topic_id_is_told_from_a_partition_without_an_offset(client, topic, group):
    commit(client, 10, group, topic, {0: 5})
    unknown = committed(client, 10, group, Topic("", uuid.uuid4()))
    assert (unknown.error, unknown.offset) == (ErrorCode.unknown_topic_id, -1)


def delete(client, group, topic, *partitions):
    parts = [{"partition_index": index} for index in partitions]
    return client.call(OFFSET_DELETE, 0, {"group_id": group, "topics": [topic.ref | {"partitions": parts}]})


def test_deleted_offsets_are_gone_and_the_rest_stays(client, topic, group):
    commit(client, 8, group, topic, {0: 5, 1: 6})
    answer = delete(client, group, topic, 0, 2)
    errors = {each.partition_index: each.error_code for each in answer.topics[0].partitions}
    assert (answer.error_code, errors) == (0, {0: 0, 2: 0})
    assert committed(client, 10, group, topic) == NOTHING
    assert committed(client, 10, group, topic, 1).offset == 6
    assert delete(client, raw.fresh_name("missing"), topic, 0).error_code == ErrorCode.group_id_not_found


def test_offsets_of_a_topic_that_is_subscribed_are_not_deleted(client, topic, group, member):
    subscribed = [{"name": "range", "metadata": raw_groups.subscription(topic.name)}]
    settled = member(protocols=subscribed).settle()
    as_member = {"generation_id_or_member_epoch": settled.generation, "member_id": settled.id}
    commit(client, 8, group, topic, {0: 5}, **as_member)
    other = raw.make_topic(client)
    commit(client, 8, group, other, {0: 5}, **as_member)
    refused = delete(client, group, topic, 0).topics[0].partitions[0].error_code
    assert refused == ErrorCode.group_subscribed_to_topic
    assert delete(client, group, other, 0).topics[0].partitions[0].error_code == 0
    assert (committed(client, 10, group, topic).offset, committed(client, 10, group, other)) == (5, NOTHING)


def test_offsets_go_with_their_group(client, topic, group):
    commit(client, 8, group, topic, {0: 5})
    answer = client.call(raw_groups.DELETE_GROUPS, 2, {"groups_names": [group]})
    assert answer.results[0].error_code == 0
    assert committed(client, 10, group, topic) == NOTHING


def test_offsets_go_with_their_topic(client, group):
    topic = raw.make_topic(client)
    commit(client, 8, group, topic, {0: 5})
    gone = {"topics": [topic.ref], "topic_names": [topic.name], "timeout": 10000}
    client.call(raw.DELETE_TOPICS, 5, gone)
    raw.eventually(lambda: committed(client, 8, group, topic) == NOTHING)

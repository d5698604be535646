"""Metadata, over every version: who serves what, by name and by id, and topics made on first use."""

import uuid

import pytest
import raw
from raw import METADATA, Client, ErrorCode, make_topic

each_version = pytest.mark.parametrize("version", raw.versions(METADATA))
versions_with_ids = pytest.mark.parametrize("version", [12, 13])
NOT_ASKED = -(2**31)
BAD_NAMES = ["", ".", "..", "bad name", "a/b", "é", "a" * 250]


@pytest.fixture(scope="module")
def topic(bootstrap):
    with Client(bootstrap) as connected:
        return make_topic(connected, partitions=2)


def named(*names):
    return [{"name": name, "topic_id": None} for name in names]


def ask(client, version, topics, create=False, **fields):
    body = {"topics": topics, "allow_auto_topic_creation": create}
    answer = client.call(METADATA, version, body | fields)
    if version >= 13:
        assert answer.error_code == 0
    return answer


@each_version
def test_tells_the_brokers_and_the_cluster(client, bootstrap, version):
    answer = ask(client, version, [])
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == bootstrap
    if version >= 1:
        assert (broker.rack, answer.controller_id) == (None, broker.node_id)
    if version >= 2:
        assert answer.cluster_id == client.call(raw.DESCRIBE_CLUSTER, 0, {}).cluster_id
    if version >= 3:
        assert answer.throttle_time.total_seconds() == 0


@each_version
def test_tells_a_topic_and_its_partitions(client, topic, version):
    answer = ask(client, version, named(topic.name))
    (found,) = answer.topics
    node = answer.brokers[0].node_id
    assert (found.error_code, found.name) == (0, topic.name)
    assert sorted(each.partition_index for each in found.partitions) == [0, 1]
    for each in found.partitions:
        assert (each.error_code, each.leader_id, each.replica_nodes, each.isr_nodes) == (
            0,
            node,
            (node,),
            (node,),
        )
        if version >= 5:
            assert each.offline_replicas == ()
        if version >= 7:
            assert each.leader_epoch == 0
    if version >= 1:
        assert found.is_internal is False
    if version >= 8:
        assert found.topic_authorized_operations == NOT_ASKED
    if version >= 10:
        assert found.topic_id == topic.id


@each_version
def test_all_topics_are_asked_with_null_and_in_version_0_with_an_empty_list(client, topic, version):
    assert topic.name in {each.name for each in ask(client, version, None if version else []).topics}


@pytest.mark.parametrize("version", raw.versions(METADATA)[1:])
def test_empty_list_asks_for_no_topic(client, topic, version):
    assert ask(client, version, []).topics == ()


@pytest.mark.parametrize("version", raw.versions(METADATA)[4:])
def test_unknown_topic_is_not_created_unless_allowed(client, version):
    name = raw.fresh_name("missing")
    for _ in range(2):
        (found,) = ask(client, version, named(name)).topics
        assert (found.error_code, found.name, found.partitions) == (
            ErrorCode.unknown_topic_or_partition,
            name,
            (),
        )
        if version >= 10:
            assert found.topic_id is None


@each_version
def test_topic_is_created_on_first_use(client, version):
    """Before version 4 that cannot be refused. Apache Kafka creates it a moment after the first answer."""
    name = raw.fresh_name("auto")

    def is_there():
        (found,) = ask(client, version, named(name), create=True).topics
        assert found.error_code in (0, ErrorCode.unknown_topic_or_partition, ErrorCode.leader_not_available)
        return found.error_code == 0 and len(found.partitions) >= 1

    raw.eventually(is_there)


@pytest.mark.parametrize("version", [0, 4, 9, 13])
@pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: name[:10] or "empty")
def test_invalid_name_is_refused(client, version, name):
    (found,) = ask(client, version, named(name), create=True).topics
    assert (found.error_code, found.name, found.partitions) == (ErrorCode.invalid_topic_exception, name, ())


@each_version
def test_topics_are_answered_once_each_and_bad_ones_do_not_spoil_good_ones(client, topic, version):
    second = make_topic(client)
    answer = ask(client, version, named("a/b", topic.name, second.name, topic.name))
    assert {each.name: each.error_code for each in answer.topics} == {
        "a/b": ErrorCode.invalid_topic_exception,
        topic.name: 0,
        second.name: 0,
    }
    assert len(answer.topics) == 3


@versions_with_ids
def test_topic_is_found_by_its_id(client, topic, version):
    (found,) = ask(client, version, [{"name": None, "topic_id": topic.id}]).topics
    assert (found.error_code, found.name, found.topic_id, len(found.partitions)) == (
        0,
        topic.name,
        topic.id,
        2,
    )


@versions_with_ids
def test_unknown_id_is_refused_beside_a_known_one(client, topic, version):
    missing = uuid.uuid4()
    asked = [{"name": None, "topic_id": each} for each in (missing, topic.id)]
    found = {each.topic_id: (each.error_code, each.name) for each in ask(client, version, asked).topics}
    assert found == {missing: (ErrorCode.unknown_topic_id, None), topic.id: (0, topic.name)}


@versions_with_ids
def test_id_decides_where_the_name_differs(client, topic, version):
    (found,) = ask(client, version, [{"name": "other", "topic_id": topic.id}]).topics
    assert (found.error_code, found.name) == (0, topic.name)


@pytest.mark.parametrize("version", [10, 11])
def test_id_is_refused_before_version_12(client, topic, version):
    (found,) = ask(client, version, [{"name": topic.name, "topic_id": topic.id}]).topics
    assert (found.error_code, found.partitions) == (ErrorCode.invalid_request, ())


@pytest.mark.parametrize("version", raw.versions(METADATA)[8:])
def test_authorized_operations_are_told_when_asked_for(client, topic, version):
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    answer = ask(client, version, named(topic.name), **asked)
    assert answer.topics[0].topic_authorized_operations == 3576
    if version <= 10:
        assert answer.cluster_authorized_operations == 8096
        assert ask(client, version, []).cluster_authorized_operations == NOT_ASKED


@each_version
def test_deleted_topic_is_gone_and_a_new_one_of_its_name_has_another_id(client, version):
    first = make_topic(client)
    client.call(raw.DELETE_TOPICS, 6, {"topics": named(first.name), "timeout": 10000})
    raw.eventually(lambda: first.name not in {t.name for t in ask(client, version, None if version else []).topics})
    second = make_topic(client, name=first.name)
    assert second.id != first.id
    if version >= 10:
        assert ask(client, version, named(first.name)).topics[0].topic_id == second.id

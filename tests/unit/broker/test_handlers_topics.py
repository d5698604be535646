"""CreateTopics, CreatePartitions, DeleteTopics, Metadata, DescribeTopicPartitions."""

import tracemalloc
import uuid

import pytest

from headrace.protocol import error_codes as codes

METADATA, CREATE, DELETE, PARTITIONS, DESCRIBE = 3, 19, 20, 37, 75


def new(name, partitions=1, replicas=1, assignments=(), configs=()):
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [{"partition_index": index, "broker_ids": ids} for index, ids in assignments],
        "configs": [{"name": key, "value": value} for key, value in configs],
    }


@pytest.fixture
def create(node, client):
    def call(*topics, **more):
        answer = client.ask(node, CREATE, topics=topics, **{"timeout": 1000, **more})
        return [(topic.error_code, topic.error_message) for topic in answer.topics]

    return call


@pytest.fixture
def metadata(node, client):
    def call(topics, version=13, **more):
        flags = {
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
            "include_cluster_authorized_operations": False,
        }
        return client.ask(node, METADATA, version, topics=topics, **(flags | more))

    return call


def by_name(*names):
    return [{"name": name, "topic_id": None} for name in names]


def by_id(*ids):
    return [{"name": None, "topic_id": topic_id} for topic_id in ids]


@pytest.mark.parametrize("version", range(2, 8))
def test_create_topics_over_all_versions(node, client, version):
    topics = [new("orders", 2, configs=[("retention.ms", "+5")])]
    (made,) = client.ask(node, CREATE, version, topics=topics, timeout=1000).topics
    assert (made.name, made.error_code) == ("orders", codes.NONE)
    if version >= 5:
        assert (made.num_partitions, made.replication_factor, len(made.configs)) == (2, 1, 33)
        shown = {config.name: (config.value, config.config_source) for config in made.configs}
        assert (shown["retention.ms"], shown["segment.bytes"]) == (("+5", 1), ("1073741824", 5))
    if version >= 7:
        assert made.topic_id == node.topics.get("orders").id


def test_minus_one_stands_for_the_brokers_numbers(make_node, client):
    node = make_node(num_partitions=4)
    (made,) = client.ask(node, CREATE, topics=[new("orders", -1, -1)], timeout=1000).topics
    assert (made.num_partitions, made.replication_factor) == (4, 1)


def test_the_default_is_one_replica_whatever_the_settings_ask_for(make_node, client):
    node = make_node(default_replication_factor=3)
    (made,) = client.ask(node, CREATE, topics=[new("orders", -1, -1)], timeout=1000).topics
    assert (made.error_code, made.replication_factor) == (codes.NONE, 1)


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (
            new("x", 0),
            codes.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            new("x", 1, 2),
            codes.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be"
            " reached because only 1 broker(s) are registered or some brokers have all their log directories"
            " cordoned.",
        ),
        (
            new("x", 1, 0),
            codes.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            new("x", 10_001),
            codes.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
        (new("x", 0, 5, configs=[("foo", "1")]), codes.INVALID_CONFIG, "Unknown topic config name: foo"),
        (
            new("x", 2, -1, assignments=[(0, [1])]),
            codes.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            new("x", -1, 1, assignments=[(0, [1])]),
            codes.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            new("x", -1, -1, assignments=[(0, [1, 2])]),
            codes.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (
            new("x", -1, -1, assignments=[(0, [1, 1])]),
            codes.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            new("x", -1, -1, assignments=[(0, [])]),
            codes.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            new("x", -1, -1, assignments=[(1, [1])]),
            codes.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            new("x", -1, -1, assignments=[(0, [1]), (0, [1])]),
            codes.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused_in_kafkas_words_and_not_made(node, create, topic, code, message):
    assert create(topic) == [(code, message)]
    assert node.topics.get("x") is None


def test_one_bad_topic_does_not_stop_the_others(node, create):
    assert [code for code, _ in create(new("a b"), new("good"), new("good2", 3))] == [17, 0, 0]
    assert node.topics.get("good") is not None


def test_a_topic_named_twice_is_refused_once(node, create):
    assert create(new("x"), new("x")) == [(codes.INVALID_REQUEST, "Duplicate topic name.")]
    assert node.topics.get("x") is None


def test_a_number_of_partitions_that_is_refused_takes_no_memory(node, client):
    tracemalloc.start()
    try:
        topics = [new("x", 10_000_000), new("y", 1)]
        answers = client.ask(node, CREATE, topics=topics, timeout=1000).topics
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(each.name, each.error_code) for each in answers] == [
        ("x", codes.POLICY_VIOLATION),
        ("y", codes.POLICY_VIOLATION),
    ]
    assert peak_bytes < 10_000_000, f"{peak_bytes} bytes for a request that is refused"


def test_a_manual_assignment_to_this_broker_is_honoured(node, create):
    assert create(new("x", -1, -1, assignments=[(1, [1]), (0, [1])])) == [(0, None)]
    assert len(node.topics.get("x").partitions) == 2


def test_validate_only_answers_as_if_and_makes_nothing(node, create):
    assert create(new("x"), validate_only=True) == [(0, None)]
    assert node.topics.get("x") is None


def test_no_time_means_timed_out_and_nothing_done(node, client, create):
    assert create(new("x"), timeout=0) == [(codes.REQUEST_TIMED_OUT, None)]
    assert node.topics.get("x") is None
    create(new("x"))
    grow = client.ask(
        node,
        PARTITIONS,
        topics=[{"name": "x", "count": 3, "assignments": None}],
        timeout=0,
        validate_only=False,
    )
    assert grow.results[0].error_code == codes.REQUEST_TIMED_OUT
    deleted = client.ask(node, DELETE, topics=by_name("x"), timeout=0)
    assert deleted.responses[0].error_code == codes.REQUEST_TIMED_OUT
    assert len(node.topics.get("x").partitions) == 1


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize(
    ("count", "assignments", "code", "message"),
    [
        (4, None, 0, None),
        (3, [[1]], 0, None),
        (2, None, codes.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        (
            1,
            None,
            codes.INVALID_PARTITIONS,
            "The topic x currently has 2 partition(s); 1 would not be an increase.",
        ),
        (
            4,
            [[1]],
            codes.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            3,
            [[2]],
            codes.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 2, but no such broker is registered.",
        ),
        (20_000, None, codes.POLICY_VIOLATION, "Excessively large number of partitions per request."),
    ],
)
def test_create_partitions(node, client, version, count, assignments, code, message):
    client.create(node, "x", 2)
    topic = {
        "name": "x",
        "count": count,
        "assignments": assignments and [{"broker_ids": ids} for ids in assignments],
    }
    (result,) = client.ask(node, PARTITIONS, version, topics=[topic], timeout=1000, validate_only=False).results
    assert (result.error_code, result.error_message) == (code, message)
    assert len(node.topics.get("x").partitions) == (count if code == 0 else 2)


def test_partitions_of_an_unknown_or_twice_named_topic_are_not_made(node, client):
    def grow(*names):
        topics = [{"name": name, "count": 3, "assignments": None} for name in names]
        answer = client.ask(node, PARTITIONS, topics=topics, timeout=1000, validate_only=False)
        return [(result.error_code, result.error_message) for result in answer.results]

    client.create(node, "x")
    assert grow("nope") == [(codes.UNKNOWN_TOPIC_OR_PARTITION, None)]
    assert grow("x", "x") == [(codes.INVALID_REQUEST, "Duplicate topic name.")]


@pytest.mark.parametrize("version", range(1, 7))
def test_delete_topics_over_all_versions(node, client, version):
    client.create(node, "x")
    topics = by_name("x", "nope") if version >= 6 else ()
    answer = client.ask(node, DELETE, version, topics=topics, topic_names=["x", "nope"], timeout=1000)
    assert [(each.name, each.error_code) for each in answer.responses] == [("x", 0), ("nope", 3)]
    assert node.topics.get("x") is None


def test_delete_topics_by_id(node, client):
    topic_id = client.create(node, "x").topic_id
    gone, unknown = client.ask(node, DELETE, topics=by_id(topic_id, uuid.UUID(int=5)), timeout=9).responses
    assert (gone.name, gone.topic_id, gone.error_code) == ("x", topic_id, 0)
    assert (unknown.name, unknown.error_code) == (None, codes.UNKNOWN_TOPIC_ID)
    assert unknown.error_message == "This server does not host this topic ID."


def test_a_topic_must_be_named_in_one_way_and_once(node, client):
    topic_id = client.create(node, "x").topic_id

    def delete(*topics):
        answer = client.ask(node, DELETE, topics=topics, timeout=1000)
        return [(each.error_code, each.error_message) for each in answer.responses]

    both, none = {"name": "x", "topic_id": topic_id}, {"name": None, "topic_id": None}
    assert delete(both) == [(42, "You may not specify both topic name and topic id.")]
    assert delete(none) == [(42, "Neither topic name nor id were specified.")]
    assert delete(*by_name("x", "x")) == [(42, "Duplicate topic name.")]
    assert delete(*by_id(topic_id, topic_id)) == [(42, "Duplicate topic id.")]
    supplied = "The provided topic name maps to an ID that was already supplied."
    assert delete(*by_name("x"), *by_id(topic_id)) == [(42, supplied)]
    assert node.topics.get("x") is not None


def test_deleting_can_be_switched_off(make_node, client):
    node = make_node(delete_topic_enable=False)
    client.create(node, "x")
    (answer,) = client.ask(node, DELETE, topics=by_name("x"), timeout=1000).responses
    assert (answer.error_code, answer.error_message) == (73, "Topic deletion is disabled.")


@pytest.mark.parametrize("version", range(14))
def test_metadata_over_all_versions(node, client, metadata, version):
    client.create(node, "x", 2)
    answer = metadata(by_name("x"), version)
    (topic,) = answer.topics
    assert (topic.name, topic.error_code, len(topic.partitions)) == ("x", 0, 2)
    assert (answer.brokers[0].node_id, answer.brokers[0].host) == (1, "127.0.0.1")
    assert answer.brokers[0].port == node.port
    assert [(p.partition_index, p.leader_id, p.error_code) for p in topic.partitions] == [
        (0, 1, 0),
        (1, 1, 0),
    ]
    if version >= 10:
        assert topic.topic_id == node.topics.get("x").id
    if version >= 2:
        assert answer.cluster_id == node.cluster_id


def test_all_topics_are_asked_for_with_null_and_in_version_0_with_nothing(node, client, metadata):
    for name in ("x", "y"):
        client.create(node, name)
    assert len(metadata(None, 13).topics) == 2
    assert len(metadata((), 0).topics) == 2
    assert metadata((), 1).topics == ()


def test_a_missing_topic_is_made_only_if_the_client_allows_it(node, metadata):
    assert [t.error_code for t in metadata(by_name("x")).topics] == [codes.UNKNOWN_TOPIC_OR_PARTITION]
    (made,) = metadata(by_name("x"), allow_auto_topic_creation=True).topics
    assert (made.error_code, made.topic_id) == (0, node.topics.get("x").id)


def test_metadata_by_id(node, client, metadata):
    topic_id = client.create(node, "x").topic_id
    known, unknown = metadata(by_id(topic_id, uuid.UUID(int=9))).topics
    assert (known.name, known.error_code) == ("x", 0)
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, uuid.UUID(int=9), 100)
    assert len(metadata(by_name("x") + by_id(topic_id)).topics) == 1


def test_ids_are_refused_where_the_version_has_none_to_ask_by(node, client, metadata):
    topic_id = client.create(node, "x").topic_id
    answer = metadata(by_id(topic_id), 11)
    assert (answer.brokers, answer.topics[0].error_code) == ((), codes.INVALID_REQUEST)


def test_authorized_operations_are_told_if_asked_for(node, client, metadata):
    client.create(node, "x")
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    answer = metadata(by_name("x"), 8, **asked)
    assert (answer.topics[0].topic_authorized_operations, answer.cluster_authorized_operations) == (
        3576,
        8096,
    )
    answer = metadata(by_name("x"), 8)
    assert answer.topics[0].topic_authorized_operations == answer.cluster_authorized_operations == -(1 << 31)


def test_the_same_question_is_answered_from_the_cache_until_something_changes(node, client, metadata, monkeypatch):
    from headrace.broker.handlers import metadata as handler

    calls = []
    monkeypatch.setattr(
        handler, "encode_body_in_steps", lambda *a, real=handler.encode_body_in_steps: calls.append(1) or real(*a)
    )
    client.create(node, "x")
    assert metadata(by_name("x")) == metadata(by_name("x"))
    assert len(calls) == 1
    metadata(by_name("x"), 9)
    assert len(calls) == 2
    node.controller.grow("x", 2)
    assert len(metadata(by_name("x")).topics[0].partitions) == 2
    assert len(calls) == 3


def test_the_partitions_of_an_offline_directory_have_no_leader(node, client, metadata):
    client.create(node, "x")
    metadata(by_name("x"))
    node.store.take_offline(node.store.directories[0], "broken")
    (partition,) = metadata(by_name("x")).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (codes.LEADER_NOT_AVAILABLE, -1)
    assert partition.offline_replicas == (1,)
    (described,) = client.ask(node, DESCRIBE, topics=[{"name": "x"}], response_partition_limit=9, cursor=None).topics
    assert described.partitions[0].error_code == codes.LEADER_NOT_AVAILABLE


@pytest.fixture
def pages(node, client):
    def call(names, limit, cursor=None):
        cursor = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
        topics = [{"name": name} for name in names]
        answer = client.ask(node, DESCRIBE, topics=topics, response_partition_limit=limit, cursor=cursor)
        shown = [(t.name, int(t.error_code), [p.partition_index for p in t.partitions]) for t in answer.topics]
        end = answer.next_cursor
        return shown, end and (end.topic_name, end.partition_index)

    return call


def test_topics_are_described_page_by_page_in_order_of_their_names(node, client, pages):
    client.create(node, "b", 2)
    client.create(node, "a", 3)
    assert pages([], 2) == ([("a", 0, [0, 1])], ("a", 2))
    assert pages([], 2, ("a", 2)) == ([("a", 0, [2]), ("b", 0, [0])], ("b", 1))
    assert pages([], 2, ("b", 1)) == ([("b", 0, [1])], None)
    assert pages(["b", "a"], 3) == ([("a", 0, [0, 1, 2])], ("b", 0))
    assert pages(["b", "nope", "b c"], 9) == ([("b", 0, [0, 1]), ("b c", 17, []), ("nope", 3, [])], None)
    assert pages(["b"], 0) == ([("b", 0, [0])], ("b", 1))


def test_a_cursor_that_points_nowhere_is_refused(node, client, pages):
    client.create(node, "a", 3)
    assert pages(["a"], 2, ("a", -1)) == ([("a", codes.INVALID_REQUEST, [])], None)
    assert pages(["a"], 2, ("z", 0)) == ([("a", codes.INVALID_REQUEST, [])], None)


def test_of_two_names_in_one_request_that_look_alike_the_second_is_refused(node, create):
    first, second, third = create(new("a.b"), new("a_b"), new("c"))
    assert first[0] == third[0] == 0
    assert second == (codes.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b")
    assert set(node.topics.by_name) == {"a.b", "c"}

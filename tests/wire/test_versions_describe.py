"""DescribeTopicPartitions, with its cursor, and DescribeLogDirs."""

import uuid

import pytest
import raw
from raw import DESCRIBE_LOG_DIRS, DESCRIBE_TOPIC_PARTITIONS, Client, ErrorCode, batch, make_topic, values

each_log_dirs = pytest.mark.parametrize("version", raw.versions(DESCRIBE_LOG_DIRS))


@pytest.fixture(scope="module")
def topics(bootstrap):
    """Three of three partitions, by name."""
    with Client(bootstrap) as connected:
        return sorted(make_topic(connected, partitions=3) for _ in range(3))


def page(client, topics, limit=2000, cursor=None):
    """([(name, error, partitions)], the next cursor)"""
    at = {"topic_name": cursor[0], "partition_index": cursor[1]} if cursor else None
    body = {"topics": [{"name": name} for name in topics], "response_partition_limit": limit, "cursor": at}
    answer = client.call(DESCRIBE_TOPIC_PARTITIONS, 0, body)
    assert answer.throttle_time.total_seconds() == 0
    rows = [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics]
    following = answer.next_cursor
    return rows, (following.topic_name, following.partition_index) if following else None


def test_describes_a_topic(client, topics):
    node = client.call(raw.METADATA, 12, {"topics": []}).brokers[0].node_id
    body = {"topics": [{"name": topics[0].name}], "response_partition_limit": 2000}
    (found,) = client.call(DESCRIBE_TOPIC_PARTITIONS, 0, body).topics
    assert (found.error_code, found.name, found.topic_id) == (0, topics[0].name, topics[0].id)
    assert (found.is_internal, found.topic_authorized_operations) == (False, 3576)
    assert [each.partition_index for each in found.partitions] == [0, 1, 2]
    for each in found.partitions:
        assert (each.error_code, each.leader_id, each.leader_epoch) == (0, node, 0)
        assert (each.replica_nodes, each.isr_nodes, each.offline_replicas) == ((node,), (node,), ())
        assert (each.eligible_leader_replicas, each.last_known_elr) == ((), ())


def test_topics_come_by_name_and_once(client, topics):
    names = [topic.name for topic in topics]
    expected = ([(name, 0, [0, 1, 2]) for name in names], None)
    assert page(client, [*reversed(names), names[0]]) == expected


def test_no_names_are_all_topics(client, topics):
    found = [name for name, _, _ in page(client, [], cursor=(topics[0].name, 0), limit=9)[0]]
    assert found[0] == topics[0].name
    assert found == sorted(found)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 8, 9, 2000])
def test_cursor_leads_through_all_partitions(client, topics, limit):
    names = [topic.name for topic in topics]
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        rows, cursor = page(client, names, limit, cursor)
        assert all(code == 0 for _, code, _ in rows)
        seen += [(name, index) for name, _, indexes in rows for index in indexes]
        pages += 1
    assert seen == [(name, index) for name in names for index in range(3)]
    assert pages == -(-9 // limit)


def test_cursor_is_the_next_partition(client, topics):
    names = [topic.name for topic in topics]
    assert page(client, names, 2) == ([(names[0], 0, [0, 1])], (names[0], 2))
    assert page(client, names, 3) == ([(names[0], 0, [0, 1, 2])], (names[1], 0))


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_below_1_is_1(client, topics, limit):
    assert page(client, [topics[0].name], limit) == ([(topics[0].name, 0, [0])], (topics[0].name, 1))


def test_cursor_in_the_middle(client, topics):
    names = [topic.name for topic in topics]
    rest = (names[2], 0, [0, 1, 2])
    assert page(client, names, cursor=(names[1], 1)) == ([(names[1], 0, [1, 2]), rest], None)
    assert page(client, names, cursor=(names[1], 7)) == ([(names[1], 0, []), rest], None)


@pytest.mark.parametrize("wrong", ["topic", "partition"])
def test_wrong_cursor_is_refused(client, topics, wrong):
    names = [topic.name for topic in topics]
    cursor = (names[0] + "x", 0) if wrong == "topic" else (names[0], -1)
    assert page(client, names, cursor=cursor) == (
        [(name, ErrorCode.invalid_request, []) for name in names],
        None,
    )


def test_unknown_and_invalid_names_are_refused_beside_the_others(client, topics):
    missing = f"a-{uuid.uuid4()}"
    rows, cursor = page(client, [topics[0].name, missing, "a/b"])
    assert sorted(rows) == [
        (missing, ErrorCode.unknown_topic_or_partition, []),
        ("a/b", ErrorCode.invalid_topic_exception, []),
        (topics[0].name, 0, [0, 1, 2]),
    ]
    assert cursor is None


# DescribeLogDirs.


def log_dirs(client, version, topics):
    answer = client.call(DESCRIBE_LOG_DIRS, version, {"topics": topics})
    assert answer.throttle_time.total_seconds() == 0
    if version >= 3:
        assert answer.error_code == 0
    return answer.results


def sizes(results):
    """{(topic, partition): bytes} over all directories."""
    found = {}
    for each in results:
        for topic in each.topics:
            for partition in topic.partitions:
                assert (partition.offset_lag, partition.is_future_key) == (0, False)
                assert (topic.name, partition.partition_index) not in found
                found[topic.name, partition.partition_index] = partition.partition_size
    return found


@each_log_dirs
def test_tells_the_bytes_of_each_partition(client, version):
    topic = make_topic(client, partitions=2)
    sent = batch(values(b"x" * 100))
    raw.produce(client, topic, sent)
    found = sizes(log_dirs(client, version, [{"topic": topic.name, "partitions": [0, 1]}]))
    assert found == {(topic.name, 0): len(sent), (topic.name, 1): 0}
    assert sizes(log_dirs(client, version, [{"topic": topic.name, "partitions": [1, 1]}])) == {(topic.name, 1): 0}


@each_log_dirs
def test_tells_the_directories(client, version):
    results = log_dirs(client, version, [])
    assert results
    for each in results:
        assert (each.error_code, each.topics) == (0, ())
        assert each.log_dir.startswith("/")
        if version >= 4:
            assert 0 < each.usable_bytes <= each.total_bytes
        if version >= 5:
            assert each.is_cordoned is False


@each_log_dirs
def test_null_is_all_topics(client, topics, version):
    found = sizes(log_dirs(client, version, None))
    assert {(topic.name, index) for topic in topics for index in range(3)} <= set(found)


@each_log_dirs
def test_unknown_topics_and_partitions_are_left_out(client, topics, version):
    asked = [
        {"topic": raw.fresh_name("missing"), "partitions": [0]},
        {"topic": topics[0].name, "partitions": [9]},
        {"topic": topics[1].name, "partitions": []},
    ]
    assert sizes(log_dirs(client, version, asked)) == {}

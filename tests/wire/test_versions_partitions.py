"""CreatePartitions and DeleteRecords, over every version."""

from typing import NamedTuple

import pytest
import raw
from raw import (
    CREATE_PARTITIONS,
    DELETE_RECORDS,
    METADATA,
    Client,
    ErrorCode,
    Topic,
    batch,
    list_offset,
    make_topic,
    values,
)

each_grow = pytest.mark.parametrize("version", raw.versions(CREATE_PARTITIONS))
each_cut = pytest.mark.parametrize("version", raw.versions(DELETE_RECORDS))


@pytest.fixture(scope="module")
def topic(bootstrap):
    """Shared by the tests in which nothing grows."""
    with Client(bootstrap) as connected:
        return make_topic(connected, partitions=2)


def grow(client, version, *topics, **fields):
    body = {"topics": list(topics), "timeout": 10000}
    return {each.name: each for each in client.call(CREATE_PARTITIONS, version, body | fields).results}


def total(topic, count, *assignments):
    rows = [{"broker_ids": brokers} for brokers in assignments] if assignments else None
    return {"name": topic.name, "count": count, "assignments": rows}


def partition_count(client, topic):
    asked = {"topics": [{"name": topic.name, "topic_id": None}], "allow_auto_topic_creation": False}
    return len(client.call(METADATA, 12, asked).topics[0].partitions)


@each_grow
def test_adds_partitions_that_can_be_used_and_keeps_the_old_ones(client, version):
    topic = make_topic(client)
    raw.produce(client, topic, batch(values(b"kept")))
    result = grow(client, version, total(topic, 3))[topic.name]
    assert (result.error_code, result.error_message) == (0, None)
    raw.eventually(lambda: partition_count(client, topic) == 3)
    raw.wait_for_partitions(client, topic.name, 3)
    assert raw.produce(client, topic, batch(values(b"new")), partition=2).base_offset == 0
    assert raw.values_of(raw.fetch(client, topic).records) == [b"kept"]


@each_grow
def test_validate_only_adds_nothing(client, version):
    topic = make_topic(client)
    assert grow(client, version, total(topic, 3), validate_only=True)[topic.name].error_code == 0
    assert grow(client, version, total(topic, 1), validate_only=True)[topic.name].error_code != 0
    assert partition_count(client, topic) == 1


@each_grow
def test_assignment_of_the_new_partitions_may_be_given(client, version):
    topic = make_topic(client)
    node = client.call(METADATA, 12, {"topics": []}).brokers[0].node_id
    assert grow(client, version, total(topic, 3, [node], [node]))[topic.name].error_code == 0
    raw.eventually(lambda: partition_count(client, topic) == 3)


@each_grow
def test_topic_twice_in_a_request_is_refused(client, version):
    topic = make_topic(client)
    result = grow(client, version, total(topic, 2), total(topic, 3))[topic.name]
    assert (result.error_code, result.error_message) == (ErrorCode.invalid_request, "Duplicate topic name.")
    assert partition_count(client, topic) == 1


@each_grow
def test_unknown_topic_is_refused_and_the_rest_grown(client, version):
    topic, missing = make_topic(client), Topic(raw.fresh_name("missing"), None)
    found = grow(client, version, total(missing, 2), total(topic, 2))
    assert found[missing.name].error_code == ErrorCode.unknown_topic_or_partition
    assert found[missing.name].error_message is None
    assert found[topic.name].error_code == 0


class Wrong(NamedTuple):
    count: int
    assignments: list
    code: ErrorCode
    message: str


PARTITIONS, ASSIGNMENT = ErrorCode.invalid_partitions, ErrorCode.invalid_replica_assignment
LESS = "The topic {name} currently has 2 partition(s); {count} would not be an increase."
WRONG = {
    "as many": Wrong(2, [], PARTITIONS, "Topic already has 2 partition(s)."),
    "fewer": Wrong(1, [], PARTITIONS, LESS),
    "none": Wrong(0, [], PARTITIONS, LESS),
    "negative": Wrong(-1, [], PARTITIONS, LESS),
    "too few assignments": Wrong(
        4,
        [[1]],
        ASSIGNMENT,
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
    ),
    "unknown broker": Wrong(
        3,
        [[99]],
        ASSIGNMENT,
        "The manual partition assignment includes broker 99, but no such broker is registered.",
    ),
    "broker twice": Wrong(
        3, [[1, 1]], ASSIGNMENT, "The manual partition assignment includes the broker 1 more than once."
    ),
    "no broker": Wrong(3, [[]], ASSIGNMENT, "The manual partition assignment includes an empty replica list."),
}


@each_grow
@pytest.mark.parametrize("case", WRONG)
def test_wrong_growth_is_refused_with_its_reason(client, topic, version, case):
    wrong = WRONG[case]
    result = grow(client, version, total(topic, wrong.count, *wrong.assignments))[topic.name]
    assert result.error_code == wrong.code
    assert result.error_message == wrong.message.format(name=topic.name, count=wrong.count)
    assert partition_count(client, topic) == 2


# DeleteRecords moves the start of a partition; it never goes back.


def cut(client, version, topic, *where):
    """(low watermark, error) by partition."""
    asked = [{"partition_index": index, "offset": offset} for index, offset in where]
    body = {"topics": [topic.ref | {"partitions": asked}], "timeout": 10000}
    (found,) = client.call(DELETE_RECORDS, version, body).topics
    assert found.name == topic.name
    return {each.partition_index: (each.low_watermark, each.error_code) for each in found.partitions}


@pytest.fixture
def filled(client):
    topic = make_topic(client, partitions=2)
    for _ in range(2):
        raw.produce(client, topic, batch(values(b"a", b"b")))
    return topic


@each_cut
def test_start_of_the_log_moves_to_the_offset(client, filled, version):
    assert cut(client, version, filled, (0, 3)) == {0: (3, 0)}
    assert (list_offset(client, filled, timestamp=-2), list_offset(client, filled)) == (3, 4)
    assert cut(client, version, filled, (0, 1)) == {0: (3, 0)}, "a lower offset changes nothing"
    assert list_offset(client, filled, timestamp=-2) == 3


@each_cut
def test_minus_1_deletes_all_records_and_offsets_go_on(client, filled, version):
    assert cut(client, version, filled, (0, -1)) == {0: (4, 0)}
    assert raw.produce(client, filled, batch(values(b"c"))).base_offset == 4


@each_cut
def test_offsets_beyond_the_end_and_unknown_partitions_are_refused(client, filled, version):
    out_of_range = (-1, ErrorCode.offset_out_of_range)
    assert cut(client, version, filled, (0, 5), (1, 0), (9, 0)) == {
        0: out_of_range,
        1: (0, 0),
        9: (-1, ErrorCode.unknown_topic_or_partition),
    }
    assert cut(client, version, filled, (0, -2)) == {0: out_of_range}
    missing = Topic(raw.fresh_name("missing"), None)
    assert cut(client, version, missing, (0, 0)) == {0: (-1, ErrorCode.unknown_topic_or_partition)}
    assert list_offset(client, filled, timestamp=-2) == 0

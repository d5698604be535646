"""CreateTopics and DeleteTopics, over every version: what is made, what is refused and with which words."""

import uuid
from typing import NamedTuple

import pytest
import raw
from raw import CREATE_TOPICS, DELETE_TOPICS, METADATA, ErrorCode, make_topic

each_create = pytest.mark.parametrize("version", raw.versions(CREATE_TOPICS))
each_delete = pytest.mark.parametrize("version", raw.versions(DELETE_TOPICS))
DEFAULT_CONFIG, TOPIC_CONFIG = 5, 1


def spec(name=None, partitions=1, replicas=1, **fields):
    name = raw.fresh_name() if name is None else name
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas} | fields


def create(client, version, *topics, **fields):
    body = {"topics": list(topics), "timeout": 10000}
    return {each.name: each for each in client.call(CREATE_TOPICS, version, body | fields).topics}


def partition_count(client, name):
    """None: there is no such topic."""
    asked = {"topics": [{"name": name, "topic_id": None}], "allow_auto_topic_creation": False}
    (found,) = client.call(METADATA, 12, asked).topics
    return None if found.error_code == ErrorCode.unknown_topic_or_partition else len(found.partitions)


def assert_exists(client, name, partitions):
    raw.eventually(lambda: partition_count(client, name) == partitions)


@each_create
def test_creates_topics(client, version):
    first, second = spec(partitions=3), spec(configs=[{"name": "retention.ms", "value": "1000"}])
    answer = create(client, version, first, second)
    for asked, partitions in ((first, 3), (second, 1)):
        result = answer[asked["name"]]
        assert (result.error_code, result.error_message) == (0, None)
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (partitions, 1)
        if version >= 7:
            assert result.topic_id is not None
        assert_exists(client, asked["name"], partitions)
        raw.wait_for_partitions(client, asked["name"], partitions)


@pytest.mark.parametrize("version", [5, 6, 7])
def test_settings_of_the_new_topic_are_answered(client, version):
    asked = spec(configs=[{"name": "retention.ms", "value": "1000"}])
    result = create(client, version, asked)[asked["name"]]
    found = {each.name: each for each in result.configs}
    assert list(found) == sorted(found)
    assert len(found) == 33
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("1000", TOPIC_CONFIG)
    assert (found["segment.ms"].value, found["segment.ms"].config_source) == ("604800000", DEFAULT_CONFIG)
    assert not any(each.read_only or each.is_sensitive for each in found.values())
    assert result.topic_config_error_code == 0


@each_create
def test_minus_1_means_the_brokers_defaults(client, version):
    asked = spec(partitions=-1, replicas=-1)
    assert create(client, version, asked)[asked["name"]].error_code == 0
    broker = {
        "resource_type": 4,
        "resource_name": str(ask_node(client)),
        "configuration_keys": ["num.partitions"],
    }
    (setting,) = client.call(raw.DESCRIBE_CONFIGS, 4, {"resources": [broker]}).results[0].configs
    assert_exists(client, asked["name"], int(setting.value))


def ask_node(client):
    return client.call(METADATA, 12, {"topics": []}).brokers[0].node_id


@each_create
def test_validate_only_creates_nothing(client, version):
    asked = spec(partitions=2)
    result = create(client, version, asked, validate_only=True)[asked["name"]]
    assert result.error_code == 0
    if version >= 5:
        assert (result.num_partitions, len(result.configs)) == (2, 33)
    assert partition_count(client, asked["name"]) is None
    assert create(client, version, asked)[asked["name"]].error_code == 0
    again = create(client, version, asked, validate_only=True)[asked["name"]]
    assert again.error_code == ErrorCode.topic_already_exists


@each_create
def test_existing_topic_is_refused(client, version):
    topic = make_topic(client)
    result = create(client, version, spec(topic.name))[topic.name]
    assert result.error_code == ErrorCode.topic_already_exists
    assert result.error_message == f"Topic '{topic.name}' already exists."
    if version >= 5:
        assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, ())
    if version >= 7:
        assert result.topic_id is None


@each_create
def test_name_twice_in_a_request_is_refused_and_the_rest_created(client, version):
    twice, once = raw.fresh_name(), spec()
    answer = create(client, version, spec(twice), spec(twice, partitions=2), once)
    assert {name: each.error_code for name, each in answer.items()} == {
        twice: ErrorCode.invalid_request,
        once["name"]: 0,
    }
    assert answer[twice].error_message == "Duplicate topic name."
    assert_exists(client, once["name"], 1)
    assert partition_count(client, twice) is None


@each_create
def test_one_refused_topic_leaves_the_others_created(client, version):
    good, bad = spec(), spec(partitions=0)
    answer = create(client, version, good, bad)
    assert answer[good["name"]].error_code == 0
    assert answer[bad["name"]].error_code == ErrorCode.invalid_partitions
    assert_exists(client, good["name"], 1)


def test_request_without_topics_is_answered_without_topics(client):
    assert create(client, 7) == {}


def test_names_that_differ_only_in_dots_and_underscores_collide(client):
    first = make_topic(client, name=raw.fresh_name("a.b"))
    second = first.name.replace(".", "_")
    result = create(client, 7, spec(second))[second]
    assert result.error_code == ErrorCode.invalid_topic_exception
    assert result.error_message == f"Topic '{second}' collides with existing topic: {first.name}"


def test_longest_name_is_249_characters(client):
    name = raw.fresh_name().ljust(249, "x")
    assert create(client, 7, spec(name))[name].error_code == 0


class Wrong(NamedTuple):
    spec: dict
    code: ErrorCode
    message: str


def manual(*partitions, **fields):
    rows = [{"partition_index": index, "broker_ids": brokers} for index, brokers in partitions]
    return {"num_partitions": -1, "replication_factor": -1, "assignments": rows} | fields


def setting(name, value):
    return {"configs": [{"name": name, "value": value}]}


NAME, PARTITIONS = ErrorCode.invalid_topic_exception, ErrorCode.invalid_partitions
REPLICAS, ASSIGNMENT = ErrorCode.invalid_replication_factor, ErrorCode.invalid_replica_assignment
CONFIG = ErrorCode.invalid_config
CHARACTERS = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
TOO_FEW = "Replication factor must be larger than 0, or -1 to use the default value."
NONE_PARTITIONS = "Number of partitions was set to an invalid non-positive value."
LONG = "x" * 250
CODECS = "uncompressed, zstd, lz4, snappy, gzip, producer"
WRONG = {
    "empty name": Wrong({"name": ""}, NAME, "Topic name is invalid: the empty string is not allowed"),
    "dot": Wrong({"name": "."}, NAME, "Topic name is invalid: '.' is not allowed"),
    "two dots": Wrong({"name": ".."}, NAME, "Topic name is invalid: '..' is not allowed"),
    "space": Wrong({"name": "a b"}, NAME, f"Topic name is invalid: 'a b' {CHARACTERS}"),
    "slash": Wrong({"name": "a/b"}, NAME, f"Topic name is invalid: 'a/b' {CHARACTERS}"),
    "long name": Wrong(
        {"name": LONG},
        NAME,
        f"Topic name is invalid: the length of '{LONG}' is longer than the max allowed length 249",
    ),
    "no partitions": Wrong({"num_partitions": 0}, PARTITIONS, NONE_PARTITIONS),
    "partitions -2": Wrong({"num_partitions": -2}, PARTITIONS, NONE_PARTITIONS),
    "no replicas": Wrong({"replication_factor": 0}, REPLICAS, TOO_FEW),
    "replicas -2": Wrong({"replication_factor": -2}, REPLICAS, TOO_FEW),
    "neither partitions nor replicas": Wrong({"num_partitions": 0, "replication_factor": 0}, REPLICAS, TOO_FEW),
    "more replicas than brokers": Wrong(
        {"replication_factor": 3},
        REPLICAS,
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached "
        "because only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
    ),
    "assignment and partitions": Wrong(
        manual((0, [1]), num_partitions=1),
        ErrorCode.invalid_request,
        "A manual partition assignment was specified, but numPartitions was not set to -1.",
    ),
    "assignment and replicas": Wrong(
        manual((0, [1]), replication_factor=1),
        ErrorCode.invalid_request,
        "A manual partition assignment was specified, but replication factor was not set to -1.",
    ),
    "assignment with a gap": Wrong(
        manual((0, [1]), (2, [1])), ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
    ),
    "assignment of a partition twice": Wrong(
        manual((0, [1]), (0, [1])), ASSIGNMENT, "Found multiple manual partition assignments for partition 0"
    ),
    "assignment to an unknown broker": Wrong(
        manual((0, [99])),
        ASSIGNMENT,
        "The manual partition assignment includes broker 99, but no such broker is registered.",
    ),
    "assignment to a broker twice": Wrong(
        manual((0, [1, 1])),
        ASSIGNMENT,
        "The manual partition assignment includes the broker 1 more than once.",
    ),
    "assignment to nobody": Wrong(
        manual((0, [])), ASSIGNMENT, "The manual partition assignment includes an empty replica list."
    ),
    "unknown setting": Wrong(setting("no.such", "1"), CONFIG, "Unknown topic config name: no.such"),
    "null setting": Wrong(
        setting("retention.ms", None), CONFIG, "Null value not supported for topic configs: retention.ms"
    ),
    "number": Wrong(
        setting("retention.ms", "x"),
        CONFIG,
        "Invalid value x for configuration retention.ms: Not a number of type LONG",
    ),
    "range": Wrong(
        setting("segment.bytes", "1"),
        CONFIG,
        "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576",
    ),
    "choice": Wrong(
        setting("compression.type", "brotli"),
        CONFIG,
        f"Invalid value brotli for configuration compression.type: String must be one of: {CODECS}",
    ),
    "list": Wrong(
        setting("cleanup.policy", "foo"),
        CONFIG,
        "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    "boolean": Wrong(
        setting("preallocate", "maybe"),
        CONFIG,
        "Invalid value maybe for configuration preallocate: Expected value to be either true or false",
    ),
}


@pytest.mark.parametrize("version", [2, 5, 7])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_topic_is_refused_with_its_reason(client, version, case):
    asked = spec() | WRONG[case].spec
    for validate_only in (True, False):
        (result,) = create(client, version, asked, validate_only=validate_only).values()
        assert (result.error_code, result.error_message) == (WRONG[case].code, WRONG[case].message)
        if version >= 5:
            assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, ())


@each_create
def test_manual_assignment_decides_the_number_of_partitions(client, version):
    node = ask_node(client)
    asked = spec() | manual((0, [node]), (1, [node]))
    assert create(client, version, asked)[asked["name"]].error_code == 0
    assert_exists(client, asked["name"], 2)


# Deleting: by name, and from version 6 by id.


def delete(client, version, *names, **fields):
    topics = [{"name": name, "topic_id": None} for name in names]
    body = {"topic_names": names, "topics": topics, "timeout": 10000}
    return client.call(DELETE_TOPICS, version, body | fields).responses


@each_delete
def test_deletes_topics(client, version):
    topics = [make_topic(client, partitions=2), make_topic(client)]
    found = {each.name: each for each in delete(client, version, *(topic.name for topic in topics))}
    for topic in topics:
        assert found[topic.name].error_code == 0
        if version >= 5:
            assert found[topic.name].error_message is None
        if version >= 6:
            assert found[topic.name].topic_id == topic.id
        raw.eventually(lambda topic=topic: partition_count(client, topic.name) is None)


@each_delete
def test_unknown_topic_is_refused_and_the_rest_deleted(client, version):
    topic, missing = make_topic(client), raw.fresh_name("missing")
    found = {each.name: each for each in delete(client, version, missing, topic.name)}
    assert (found[missing].error_code, found[topic.name].error_code) == (
        ErrorCode.unknown_topic_or_partition,
        0,
    )
    if version >= 5:
        assert found[missing].error_message == "This server does not host this topic-partition."


@each_delete
def test_name_twice_in_a_deletion_is_refused_and_nothing_deleted(client, version):
    topic = make_topic(client)
    (result,) = delete(client, version, topic.name, topic.name)
    assert (result.name, result.error_code) == (topic.name, ErrorCode.invalid_request)
    if version >= 5:
        assert result.error_message == "Duplicate topic name."
    assert partition_count(client, topic.name) == 1


def test_deletes_by_id(client):
    topic = make_topic(client)
    (result,) = delete(client, 6, topics=[{"name": None, "topic_id": topic.id}])
    assert (result.error_code, result.name, result.topic_id) == (0, topic.name, topic.id)
    raw.eventually(lambda: partition_count(client, topic.name) is None)


def test_deletion_names_a_topic_in_one_way(client):
    topic, missing = make_topic(client), uuid.uuid4()
    by_name, by_id = {"name": topic.name, "topic_id": None}, {"name": None, "topic_id": topic.id}
    cases = {
        "This server does not host this topic ID.": [{"name": None, "topic_id": missing}],
        "You may not specify both topic name and topic id.": [{"name": topic.name, "topic_id": topic.id}],
        "Neither topic name nor id were specified.": [{"name": None, "topic_id": None}],
        "The provided topic name maps to an ID that was already supplied.": [by_name, by_id],
        "Duplicate topic id.": [by_id, by_id],
    }
    for message, topics in cases.items():
        (result,) = delete(client, 6, topics=topics)
        assert result.error_message == message
        unknown = message.startswith("This server")
        assert result.error_code == (ErrorCode.unknown_topic_id if unknown else ErrorCode.invalid_request)
    assert partition_count(client, topic.name) == 1

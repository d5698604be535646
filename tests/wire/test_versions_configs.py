"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of topics, over every version."""

import pytest
import raw
from raw import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS, ErrorCode, make_topic

each_describe = pytest.mark.parametrize("version", raw.versions(DESCRIBE_CONFIGS))
each_alter = pytest.mark.parametrize("version", raw.versions(ALTER_CONFIGS))
each_incremental = pytest.mark.parametrize("version", raw.versions(INCREMENTAL_ALTER_CONFIGS))
TOPIC, BROKER, LOGGER = 2, 4, 8
FROM_TOPIC, FROM_BROKER, FROM_BROKERS, FROM_FILE, FROM_DEFAULT = 1, 2, 3, 4, 5
BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST = range(1, 8)
SET, DELETE, APPEND, SUBTRACT = range(4)
A_LIST = "leader.replication.throttled.replicas"

# Every setting of a topic: type, default, and the broker's setting behind it, if it is a plain one.
SETTINGS = {
    "cleanup.policy": (LIST, "delete", "log.cleanup.policy"),
    "compression.gzip.level": (INT, "-1", "compression.gzip.level"),
    "compression.lz4.level": (INT, "9", "compression.lz4.level"),
    "compression.type": (STRING, "producer", "compression.type"),
    "compression.zstd.level": (INT, "3", "compression.zstd.level"),
    "delete.retention.ms": (LONG, "86400000", "log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": (LONG, "60000", "log.segment.delete.delay.ms"),
    "flush.messages": (LONG, "9223372036854775807", "log.flush.interval.messages"),
    "flush.ms": (LONG, "9223372036854775807", None),
    "follower.replication.throttled.replicas": (LIST, "", None),
    "index.interval.bytes": (INT, "4096", "log.index.interval.bytes"),
    "leader.replication.throttled.replicas": (LIST, "", None),
    "local.retention.bytes": (LONG, "-2", "log.local.retention.bytes"),
    "local.retention.ms": (LONG, "-2", "log.local.retention.ms"),
    "max.compaction.lag.ms": (LONG, "9223372036854775807", "log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": (INT, "1048588", "message.max.bytes"),
    "message.timestamp.after.max.ms": (LONG, "3600000", "log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": (LONG, "9223372036854775807", "log.message.timestamp.before.max.ms"),
    "message.timestamp.type": (STRING, "CreateTime", "log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": (DOUBLE, "0.5", "log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": (LONG, "0", "log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": (INT, "1", "min.insync.replicas"),
    "preallocate": (BOOLEAN, "false", "log.preallocate"),
    "remote.log.copy.disable": (BOOLEAN, "false", None),
    "remote.log.delete.on.disable": (BOOLEAN, "false", None),
    "remote.storage.enable": (BOOLEAN, "false", None),
    "retention.bytes": (LONG, "-1", "log.retention.bytes"),
    "retention.ms": (LONG, "604800000", None),
    "segment.bytes": (INT, "1073741824", "log.segment.bytes"),
    "segment.index.bytes": (INT, "10485760", "log.index.size.max.bytes"),
    "segment.jitter.ms": (LONG, "0", None),
    "segment.ms": (LONG, "604800000", None),
    "unclean.leader.election.enable": (BOOLEAN, "false", "unclean.leader.election.enable"),
}


def describe(client, version, kind, name, keys=None, **fields):
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (result,) = client.call(DESCRIBE_CONFIGS, version, {"resources": [asked]} | fields).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def own_settings(client, topic):
    """What the topic itself has set."""
    found = describe(client, 4, TOPIC, topic.name).configs
    return {each.name: each.value for each in found if each.config_source == FROM_TOPIC}


def assert_becomes(client, topic, expected):
    """Apache Kafka acknowledges a change a moment before it can be seen."""
    raw.eventually(lambda: own_settings(client, topic) == expected)


@each_describe
def test_describes_every_setting_of_a_topic(client, version):
    topic = make_topic(client, retention_ms=1000)
    result = describe(client, version, TOPIC, topic.name)
    assert (result.error_code, result.error_message) == (0, "")
    found = {each.name: each for each in result.configs}
    assert set(found) == set(SETTINGS)
    assert {name: each.value for name, each in found.items()} == {
        name: default for name, (_, default, _) in SETTINGS.items()
    } | {"retention.ms": "1000"}
    assert found["retention.ms"].config_source == FROM_TOPIC
    assert found["segment.ms"].config_source == FROM_DEFAULT
    assert not any(each.read_only or each.is_sensitive or each.synonyms for each in found.values())
    if version >= 3:
        assert {name: each.config_type for name, each in found.items()} == {
            name: kind for name, (kind, _, _) in SETTINGS.items()
        }
        assert {each.documentation for each in found.values()} == {None}


@each_describe
def test_describes_selected_settings_and_leaves_out_unknown_ones(client, version):
    topic = make_topic(client)
    found = describe(client, version, TOPIC, topic.name, ["segment.ms", "no.such", "cleanup.policy"]).configs
    assert sorted(each.name for each in found) == ["cleanup.policy", "segment.ms"]
    assert len(describe(client, version, TOPIC, topic.name, []).configs) == 33, "an empty list is all of them"


@each_describe
def test_synonyms_tell_where_a_value_comes_from(client, version):
    topic = make_topic(client, max_message_bytes=5000)
    result = describe(client, version, TOPIC, topic.name, include_synonyms=True)
    found = {each.name: [(s.name, s.value, s.source) for s in each.synonyms] for each in result.configs}
    assert found["max.message.bytes"] == [
        ("max.message.bytes", "5000", FROM_TOPIC),
        ("message.max.bytes", "1048588", FROM_DEFAULT),
    ]
    # Kafka itself sets min.insync.replicas; local.retention is of tiered storage, which Headrace has not.
    other = {"max.message.bytes", "min.insync.replicas", "local.retention.bytes", "local.retention.ms"}
    for name, (_, default, behind) in SETTINGS.items():
        if name not in other:
            assert found[name] == ([(behind, default, FROM_DEFAULT)] if behind else [])


@pytest.mark.parametrize("version", [3, 4])
def test_documentation_is_told_when_asked_for(client, version):
    topic = make_topic(client)
    result = describe(client, version, TOPIC, topic.name, include_documentation=True)
    assert all(each.documentation for each in result.configs)


@each_describe
def test_unknown_and_invalid_topics_are_refused(client, version):
    result = describe(client, version, TOPIC, raw.fresh_name("missing"))
    assert (result.error_code, result.error_message) == (ErrorCode.unknown_topic_or_partition, "")
    assert result.configs == ()
    result = describe(client, version, TOPIC, "a/b")
    assert result.error_code == ErrorCode.invalid_topic_exception
    assert result.error_message.startswith("Topic name is invalid: 'a/b' contains")


@each_describe
def test_several_resources_are_answered_in_order(client, version):
    topic = make_topic(client)
    names = [topic.name, raw.fresh_name("missing"), topic.name]
    asked = [{"resource_type": TOPIC, "resource_name": each, "configuration_keys": None} for each in names]
    results = client.call(DESCRIBE_CONFIGS, version, {"resources": asked}).results
    assert [each.resource_name for each in results] == names
    assert [each.error_code for each in results] == [0, ErrorCode.unknown_topic_or_partition, 0]


@each_describe
def test_unknown_kind_of_resource_is_refused(client, version):
    assert describe(client, version, 77, "x").error_code == ErrorCode.invalid_request


# AlterConfigs: what is not in the request goes back to its default.


def alter(client, version, name, settings, *, kind=TOPIC, validate_only=False):
    rows = [{"name": key, "value": value} for key, value in settings.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    body = {"resources": [resource], "validate_only": validate_only}
    (result,) = client.call(ALTER_CONFIGS, version, body).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


@each_alter
def test_alter_replaces_all_settings_of_the_topic(client, version):
    topic = make_topic(client, retention_ms=1000)
    assert alter(client, version, topic.name, {"segment.ms": "9000"}) == (0, None)
    assert_becomes(client, topic, {"segment.ms": "9000"})
    assert alter(client, version, topic.name, {}) == (0, None)
    assert_becomes(client, topic, {})


@each_alter
def test_alter_with_validate_only_changes_nothing(client, version):
    topic = make_topic(client, retention_ms=1000)
    assert alter(client, version, topic.name, {"segment.ms": "9000"}, validate_only=True) == (0, None)
    refused = alter(client, version, topic.name, {"segment.ms": "x"}, validate_only=True)
    assert refused[0] == ErrorCode.invalid_config
    assert own_settings(client, topic) == {"retention.ms": "1000"}


@each_alter
def test_wrong_alteration_is_refused_with_its_reason(client, version):
    topic = make_topic(client, retention_ms=1000)
    config, request = ErrorCode.invalid_config, ErrorCode.invalid_request
    number = "Invalid value x for configuration segment.ms: Not a number of type LONG"
    missing = raw.fresh_name("missing")
    assert alter(client, version, topic.name, {"segment.ms": "x"}) == (config, number)
    assert alter(client, version, topic.name, {"segment.ms": "5", "no.such": "1"}) == (
        config,
        "Unknown topic config name: no.such",
    )
    assert alter(client, version, topic.name, {"segment.ms": None}) == (
        request,
        "Null value not supported for : segment.ms",
    )
    assert alter(client, version, missing, {"segment.ms": "5"}) == (
        ErrorCode.unknown_topic_or_partition,
        f"The topic '{missing}' does not exist.",
    )
    assert alter(client, version, "", {"segment.ms": "5"}) == (
        request,
        "Default topic resources are not allowed.",
    )
    assert alter(client, version, "x", {}, kind=77) == (request, "Unknown resource type 77")
    assert own_settings(client, topic) == {"retention.ms": "1000"}


# IncrementalAlterConfigs: only what is named changes.


def change(client, version, name, *operations, kind=TOPIC, validate_only=False):
    rows = [{"config_operation": op, "name": key, "value": value} for op, key, value in operations]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    body = {"resources": [resource], "validate_only": validate_only}
    (result,) = client.call(INCREMENTAL_ALTER_CONFIGS, version, body).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


@each_incremental
def test_set_and_delete_touch_one_setting(client, version):
    topic = make_topic(client, retention_ms=1000)
    assert change(client, version, topic.name, (SET, "segment.ms", "9000")) == (0, None)
    assert_becomes(client, topic, {"retention.ms": "1000", "segment.ms": "9000"})
    assert change(client, version, topic.name, (DELETE, "retention.ms", None)) == (0, None)
    assert_becomes(client, topic, {"segment.ms": "9000"})
    assert change(client, version, topic.name, (DELETE, "retention.bytes", None)) == (0, None)
    assert change(client, version, topic.name) == (0, None)
    assert own_settings(client, topic) == {"segment.ms": "9000"}


@each_incremental
def test_append_and_subtract_change_a_list(client, version):
    topic = make_topic(client)
    for operation, value, expected in (
        (APPEND, "0:1", "0:1"),
        (APPEND, "1:1,2:1", "0:1,1:1,2:1"),
        (APPEND, "1:1", "0:1,1:1,2:1"),
        (SUBTRACT, "1:1", "0:1,2:1"),
        (SUBTRACT, "7:7", "0:1,2:1"),
        (SUBTRACT, "0:1,2:1", ""),
    ):
        assert change(client, version, topic.name, (operation, A_LIST, value)) == (0, None)
        assert_becomes(client, topic, {A_LIST: expected})


@each_incremental
def test_append_of_what_the_default_list_holds_adds_nothing(client, version):
    topic = make_topic(client)
    assert change(client, version, topic.name, (APPEND, "cleanup.policy", "delete")) == (0, None)
    found = describe(client, 4, TOPIC, topic.name, ["cleanup.policy"]).configs
    assert [each.value for each in found] == ["delete"]


@each_incremental
def test_incremental_change_with_validate_only_changes_nothing(client, version):
    topic = make_topic(client)
    assert change(client, version, topic.name, (SET, "segment.ms", "9000"), validate_only=True) == (0, None)
    refused = change(client, version, topic.name, (SET, "segment.ms", "x"), validate_only=True)
    assert refused[0] == ErrorCode.invalid_config
    assert own_settings(client, topic) == {}


@each_incremental
def test_wrong_incremental_change_is_refused_with_its_reason_and_nothing_changed(client, version):
    topic = make_topic(client, retention_ms=1000)
    config, request = ErrorCode.invalid_config, ErrorCode.invalid_request
    number = "Invalid value x for configuration segment.ms: Not a number of type LONG"
    missing = raw.fresh_name("missing")
    good = (SET, "retention.ms", "2000")
    for operations, expected in (
        ([good, (SET, "segment.ms", "x")], (config, number)),
        ([good, (SET, "no.such", "1")], (config, "Unknown topic config name: no.such")),
        (
            [(APPEND, "retention.ms", "5")],
            (config, "Can't APPEND to key retention.ms because its type is not LIST."),
        ),
        (
            [(SUBTRACT, "retention.ms", "5")],
            (config, "Can't SUBTRACT to key retention.ms because its type is not LIST."),
        ),
        ([(SET, "segment.ms", None)], (request, "Null value not supported for : segment.ms")),
        ([good, (DELETE, "retention.ms", None)], (request, "Error due to duplicate config keys")),
    ):
        assert change(client, version, topic.name, *operations) == expected
    assert change(client, version, missing, good) == (
        ErrorCode.unknown_topic_or_partition,
        f"The topic '{missing}' does not exist.",
    )
    assert own_settings(client, topic) == {"retention.ms": "1000"}


@each_incremental
def test_refused_resource_leaves_the_others_changed(client, version):
    topic, missing = make_topic(client), raw.fresh_name("missing")
    rows = [{"config_operation": SET, "name": "retention.ms", "value": "42"}]
    resources = [{"resource_type": TOPIC, "resource_name": each, "configs": rows} for each in (missing, topic.name)]
    answer = client.call(INCREMENTAL_ALTER_CONFIGS, version, {"resources": resources, "validate_only": False})
    assert {each.resource_name: each.error_code for each in answer.responses} == {
        missing: ErrorCode.unknown_topic_or_partition,
        topic.name: 0,
    }
    assert_becomes(client, topic, {"retention.ms": "42"})


@each_incremental
def test_resource_twice_in_a_request_is_refused(client, version):
    topic = make_topic(client)
    resource = {"resource_type": TOPIC, "resource_name": topic.name, "configs": []}
    body = {"resources": [resource, resource], "validate_only": False}
    found = client.call(INCREMENTAL_ALTER_CONFIGS, version, body).responses
    assert {(each.error_code, each.error_message) for each in found} == {
        (ErrorCode.invalid_request, "Each resource must appear at most once.")
    }


@each_incremental
def test_new_setting_takes_effect_without_a_restart(client, version):
    topic = make_topic(client)
    large = raw.batch(raw.values(bytes(500)))
    assert raw.produce(client, topic, large).error_code == 0
    change(client, version, topic.name, (SET, "max.message.bytes", "200"))
    raw.eventually(lambda: raw.produce(client, topic, large).error_code == ErrorCode.message_too_large)
    change(client, version, topic.name, (DELETE, "max.message.bytes", None))
    raw.eventually(lambda: raw.produce(client, topic, large).error_code == 0)

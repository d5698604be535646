"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: topics, the broker, its loggers."""

import logging
from types import SimpleNamespace

import pytest

from headrace.broker.handlers.incremental_alter_configs import _apply
from headrace.protocol import error_codes as codes

DESCRIBE, ALTER, INCREMENTAL = 32, 33, 44
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_SOURCE, BROKER_SOURCE, CLUSTER_SOURCE, STATIC_SOURCE, DEFAULT_SOURCE, LOGGER_SOURCE = 1, 2, 3, 4, 5, 6


@pytest.fixture
def describe(node, client):
    def call(kind, name, keys=None, version=4, at=node, **more):
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        flags = {"include_synonyms": True, "include_documentation": False} | more
        (result,) = client.ask(at, DESCRIBE, version, resources=[resource], **flags).results
        assert (result.resource_type, result.resource_name) == (kind, name)
        return result

    return call


@pytest.fixture
def value(describe):
    def call(kind, name, key):
        (config,) = describe(kind, name, [key]).configs
        return config.value, config.config_source

    return call


@pytest.fixture
def alter(node, client):
    def call(kind, name, configs, version=2, validate_only=False):
        resource = {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": key, "value": text} for key, text in configs],
        }
        (answer,) = client.ask(node, ALTER, version, resources=[resource], validate_only=validate_only).responses
        return answer.error_code, answer.error_message

    return call


@pytest.fixture
def change(node, client):
    def call(kind, name, *configs, version=1, validate_only=False):
        resource = {
            "resource_type": kind,
            "resource_name": name,
            "configs": [
                {"name": key, "config_operation": operation, "value": text} for key, operation, text in configs
            ],
        }
        (answer,) = client.ask(node, INCREMENTAL, version, resources=[resource], validate_only=validate_only).responses
        return answer.error_code, answer.error_message

    return call


@pytest.fixture(autouse=True)
def topic(node, client):
    client.create(node, "orders", 1, retention_ms="5000")


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_over_all_versions(describe, version):
    result = describe(TOPIC, "orders", version=version, include_documentation=True)
    assert (result.error_code, result.error_message, len(result.configs)) == (0, "", 33)
    config = {config.name: config for config in result.configs}["retention.ms"]
    assert (config.value, config.config_source, config.read_only, config.is_sensitive) == (
        "5000",
        1,
        False,
        False,
    )
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [("retention.ms", "5000", 1)]
    if version >= 3:
        assert (config.config_type, config.documentation) == (5, "How long records are kept; -1: forever.")


def test_keys_narrow_the_answer_and_unknown_ones_are_left_out(describe):
    assert [config.name for config in describe(TOPIC, "orders", ["segment.ms", "foo"]).configs] == ["segment.ms"]
    assert len(describe(TOPIC, "orders", []).configs) == 33


def test_synonyms_and_documentation_come_only_if_asked_for(describe):
    (config,) = describe(TOPIC, "orders", ["retention.ms"], include_synonyms=False).configs
    assert (config.synonyms, config.documentation) == ((), None)


def test_the_chain_of_values_goes_from_topic_to_default(node, change, describe):
    change(BROKER, "1", ("message.max.bytes", SET, "7000000"))
    change(BROKER, "", ("message.max.bytes", SET, "6000000"))
    change(TOPIC, "orders", ("max.message.bytes", SET, "8000000"))
    (config,) = describe(TOPIC, "orders", ["max.message.bytes"]).configs
    assert [(s.name, s.value, s.source) for s in config.synonyms] == [
        ("max.message.bytes", "8000000", TOPIC_SOURCE),
        ("message.max.bytes", "7000000", BROKER_SOURCE),
        ("message.max.bytes", "6000000", CLUSTER_SOURCE),
        ("message.max.bytes", "1048588", DEFAULT_SOURCE),
    ]


def test_a_static_setting_is_told_from_a_default(make_node, node, describe):
    node.close()
    other = make_node(num_partitions=3)
    configs = {config.name: config for config in describe(BROKER, "1", at=other).configs}
    assert (configs["num.partitions"].value, configs["num.partitions"].config_source) == ("3", STATIC_SOURCE)
    assert configs["num.partitions"].read_only
    assert (configs["log.retention.ms"].value, configs["log.retention.hours"].value) == (None, "168")
    assert not configs["log.retention.ms"].read_only


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nope", codes.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "", codes.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (BROKER, "2", 42, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "x", 42, "Broker id must be an integer, but it is: x"),
        (LOGGER, "", 42, "Broker id must not be empty"),
        (LOGGER, "5", 42, "Unexpected broker id, expected 1 but received 5"),
    ],
)
def test_what_cannot_be_described_says_why(describe, kind, name, code, message):
    result = describe(kind, name)
    assert (result.error_code, result.error_message, result.configs) == (code, message, ())


def test_a_kind_of_resource_that_is_not_served_is_refused(describe, alter, change):
    assert describe(99, "x").error_code == codes.INVALID_REQUEST
    assert alter(99, "x", []) == change(99, "x") == (42, "Unknown resource type 99")


@pytest.mark.parametrize("version", range(3))
def test_alter_replaces_all_that_a_topic_sets(alter, value, version):
    assert alter(TOPIC, "orders", [("segment.ms", "7000")], version) == (0, None)
    assert value(TOPIC, "orders", "segment.ms") == ("7000", TOPIC_SOURCE)
    assert value(TOPIC, "orders", "retention.ms") == ("604800000", DEFAULT_SOURCE)


@pytest.mark.parametrize("version", range(2))
def test_incremental_alter_leaves_the_rest_alone(change, value, version):
    assert change(TOPIC, "orders", ("segment.ms", SET, " 7000 "), version=version) == (0, None)
    assert value(TOPIC, "orders", "segment.ms") == ("7000", TOPIC_SOURCE)
    assert value(TOPIC, "orders", "retention.ms") == ("5000", TOPIC_SOURCE)
    assert change(TOPIC, "orders", ("retention.ms", DELETE, None), ("foo", DELETE, None)) == (0, None)
    assert value(TOPIC, "orders", "retention.ms") == ("604800000", DEFAULT_SOURCE)


def test_lists_are_added_to_and_taken_from(change, value):
    key = "leader.replication.throttled.replicas"
    change(TOPIC, "orders", (key, APPEND, "0:1"))
    change(TOPIC, "orders", (key, APPEND, "1:1,0:1,1:1"))
    assert value(TOPIC, "orders", key) == ("0:1,1:1", TOPIC_SOURCE)
    change(TOPIC, "orders", (key, SUBTRACT, "0:1"))
    assert value(TOPIC, "orders", key) == ("1:1", TOPIC_SOURCE)
    change(TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete"))
    assert value(TOPIC, "orders", "cleanup.policy") == ("", TOPIC_SOURCE)


@pytest.mark.parametrize("kind", [BROKER, LOGGER])
@pytest.mark.parametrize("name", ["9" * 5_000, str(1 << 31), "-"])
def test_a_broker_id_that_is_no_number_of_32_bits_is_refused(describe, change, kind, name):
    assert change(kind, name) == (codes.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    described = describe(kind, name)
    assert described.error_code == codes.INVALID_REQUEST
    assert described.error_message == f"Broker id must be an integer, but it is: {name}"


class Listed(str):
    """A list of a setting that counts how often one of its items is compared with another."""

    compared = 0

    def split(self, *_):
        return [Item(each) for each in str.split(self, ",")]


class Item(str):
    def __eq__(self, other):
        Listed.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_very_long_lists_are_not_compared_item_by_item(operation):
    has, given = (Listed(",".join(f"{at}:{broker}" for at in range(1_000))) for broker in (1, 2))
    config = SimpleNamespace(name="list", config_operation=operation, value=given)
    Listed.compared = 0
    _apply({}, config, has, "")
    assert Listed.compared < 10_000


@pytest.mark.parametrize(
    ("key", "operation", "text", "code", "message"),
    [
        ("retention.ms", APPEND, "5", 40, "Can't APPEND to key retention.ms because its type is not LIST."),
        (
            "retention.ms",
            SUBTRACT,
            "5",
            40,
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        ("retention.ms", SET, None, 42, "Null value not supported for : retention.ms"),
        (
            "retention.ms",
            SET,
            "x",
            40,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        ("retention.ms", 9, "5", 42, "Unknown operation 9 for retention.ms; 0 to 3 are known"),
        ("foo", SET, "1", 40, "Unknown topic config name: foo"),
    ],
)
def test_a_bad_change_of_a_topic_is_refused_as_a_whole(change, value, key, operation, text, code, message):
    assert change(TOPIC, "orders", ("segment.ms", SET, "9000"), (key, operation, text)) == (code, message)
    assert value(TOPIC, "orders", "segment.ms") == ("604800000", DEFAULT_SOURCE)


def test_what_is_wrong_with_the_request_itself_is_said_for_both_kinds_of_change(node, client, alter, change):
    twice = (42, "Error due to duplicate config keys")
    assert alter(TOPIC, "orders", [("retention.ms", "1"), ("retention.ms", "2")]) == twice
    assert change(TOPIC, "orders", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")) == twice
    assert alter(TOPIC, "orders", [("retention.ms", None)])[0] == codes.INVALID_REQUEST
    default = (42, "Default topic resources are not allowed.")
    assert alter(TOPIC, "", []) == change(TOPIC, "") == default
    missing = (3, "The topic 'nope' does not exist.")
    assert alter(TOPIC, "nope", []) == change(TOPIC, "nope") == missing
    resources = [{"resource_type": TOPIC, "resource_name": "orders", "configs": []}] * 2
    answer = client.ask(node, INCREMENTAL, resources=resources, validate_only=False)
    assert {each.error_message for each in answer.responses} == {"Each resource must appear at most once."}


def test_validate_only_changes_nothing(alter, change, value):
    assert alter(TOPIC, "orders", [("segment.ms", "7000")], validate_only=True) == (0, None)
    assert change(TOPIC, "orders", ("segment.ms", SET, "7000"), validate_only=True) == (0, None)
    assert change(BROKER, "1", ("log.retention.ms", SET, "7"), validate_only=True) == (0, None)
    assert value(TOPIC, "orders", "segment.ms") == ("604800000", DEFAULT_SOURCE)
    assert value(BROKER, "1", "log.retention.ms") == (None, DEFAULT_SOURCE)


def test_a_dynamic_broker_setting_counts_at_once_and_after_a_restart(make_node, node, client, change, describe):
    client.create(node, "free")
    assert change(BROKER, "", ("log.retention.ms", SET, "6000000")) == (0, None)
    assert node.settings.log_retention_ms == 6_000_000
    assert change(BROKER, "1", ("log.retention.ms", SET, "5000000")) == (0, None)
    assert node.settings.log_retention_ms == 5_000_000
    assert node.topics.get("free").partitions[0].led.config.retention_ms == 5_000_000
    node.close()
    again = make_node()
    assert again.settings.log_retention_ms == 5_000_000
    assert again.topics.get("free").partitions[0].led.config.retention_ms == 5_000_000
    shown = describe(BROKER, "", at=again).configs
    assert [(c.name, c.value, c.config_source) for c in shown] == [("log.retention.ms", "6000000", 3)]


def test_a_removed_dynamic_setting_falls_back(node, change):
    change(BROKER, "1", ("message.max.bytes", SET, "7"))
    assert change(BROKER, "1", ("message.max.bytes", DELETE, None)) == (0, None)
    assert node.settings.message_max_bytes == 1_048_588


def test_alter_configs_replaces_a_brokers_dynamic_settings(node, alter):
    assert alter(BROKER, "1", [("message.max.bytes", "7")]) == (0, None)
    assert alter(BROKER, "1", [("log.retention.bytes", "9")]) == (0, None)
    assert (node.settings.message_max_bytes, node.settings.log_retention_bytes) == (1_048_588, 9)


@pytest.mark.parametrize(
    ("name", "key", "text", "code", "message"),
    [
        ("1", "log.dirs", "/x", 42, "Cannot update these configs dynamically: [log.dirs]"),
        ("1", "num.partitions", "5", 42, "Cannot update these configs dynamically: [num.partitions]"),
        (
            "1",
            "log.retention.hours",
            "5",
            42,
            "Cannot update these configs dynamically: [log.retention.hours]",
        ),
        ("1", "no.such.key", "5", 42, "Cannot update these configs dynamically: [no.such.key]"),
        (
            "1",
            "log.retention.ms",
            "x",
            42,
            "Invalid value x for configuration log.retention.ms: Not a number of type LONG",
        ),
        (
            "",
            "log.segment.bytes",
            "5",
            42,
            "Invalid value 5 for configuration log.segment.bytes: Value must be at least 1048576",
        ),
        ("2", "log.retention.ms", "5", 42, "Unexpected broker id, expected 1, but received 2"),
        ("z", "log.retention.ms", "5", 42, "Node id must be an integer, but it is: z"),
    ],
)
def test_a_bad_change_of_the_broker_is_refused(node, change, name, key, text, code, message):
    before = node.settings
    assert change(BROKER, name, (key, SET, text)) == (code, message)
    assert node.settings is before


def test_a_broker_setting_that_is_no_list_cannot_be_added_to(change):
    message = "Config value append is not allowed for config key: log.retention.ms"
    assert change(BROKER, "1", ("log.retention.ms", APPEND, "5")) == (codes.INVALID_CONFIG, message)


@pytest.fixture
def level():
    logger = logging.getLogger("headrace")
    before = logger.level
    yield logger
    logger.setLevel(before)


def test_log_levels_are_shown_and_set(level, change, describe):
    assert change(LOGGER, "1", ("root", SET, "ERROR")) == (0, None)
    assert level.level == logging.ERROR
    shown = {config.name: config for config in describe(LOGGER, "1").configs}
    assert (shown["root"].value, shown["root"].config_source) == ("ERROR", LOGGER_SOURCE)
    assert shown["headrace.broker.server"].value == "ERROR"
    change(LOGGER, "1", ("headrace.broker.server", SET, "DEBUG"))
    assert logging.getLogger("headrace.broker.server").level == logging.DEBUG
    change(LOGGER, "1", ("headrace.broker.server", DELETE, None))
    assert logging.getLogger("headrace.broker.server").level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "key", "operation", "text", "code", "message"),
    [
        (
            "1",
            "root",
            SET,
            "X",
            40,
            "Cannot set the log level of root to X as it is not a supported log level."
            " Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        ("1", "foo.x", SET, "INFO", 40, "Logger foo.x does not exist!"),
        ("1", "root", DELETE, None, 42, "Removing the log level of the root logger is not allowed"),
        ("1", "root", APPEND, "INFO", 42, "APPEND operation is not allowed for the BROKER_LOGGER resource"),
        ("7", "root", SET, "INFO", 42, "Unexpected node id. Expected 1, but received 7"),
        ("", "root", SET, "INFO", 42, "Node id must be an integer, but it is: "),
    ],
)
def test_a_bad_log_level_is_refused(level, change, name, key, operation, text, code, message):
    before = level.level
    assert change(LOGGER, name, (key, operation, text)) == (code, message)
    assert level.level == before


def test_a_changed_bound_on_connections_reaches_the_server_at_once(change, node):
    assert change(BROKER, "1", ("max.connections", SET, "7")) == (0, None)
    assert node.server._connections_max == 7

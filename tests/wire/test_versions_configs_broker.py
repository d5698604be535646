"""The configs APIs on brokers: what a broker runs with, and what of it can be changed while it runs."""

import pytest
import raw
from raw import ErrorCode
from test_versions_configs import (
    BROKER,
    DELETE,
    FROM_BROKER,
    FROM_BROKERS,
    FROM_DEFAULT,
    INT,
    LONG,
    SET,
    TOPIC,
    alter,
    change,
    describe,
    each_alter,
    each_describe,
    each_incremental,
)

KEY = "log.message.timestamp.after.max.ms"
TOPIC_KEY = "message.timestamp.after.max.ms"


@pytest.fixture
def node(client):
    return str(client.call(raw.METADATA, 12, {"topics": []}).brokers[0].node_id)


@pytest.fixture
def changed_back(client, node):
    """The broker is shared: whatever a test sets is taken back."""
    yield
    for name in (node, ""):
        change(client, 1, name, (DELETE, KEY, None), kind=BROKER)
    raw.eventually(lambda: seen(client, node, KEY)[1] == FROM_DEFAULT)


def seen(client, name, key, kind=BROKER):
    """(value, source, synonyms), or None."""
    found = describe(client, 4, kind, name, [key], include_synonyms=True).configs
    if not found:
        return None
    return found[0].value, found[0].config_source, [(s.name, s.value, s.source) for s in found[0].synonyms]


@each_describe
def test_describes_the_settings_of_the_broker(client, node, version):
    result = describe(client, version, BROKER, node)
    assert (result.error_code, result.error_message) == (0, "")
    found = {each.name: each for each in result.configs}
    assert found["message.max.bytes"].value == "1048588"
    assert (found["num.partitions"].read_only, found["message.max.bytes"].read_only) == (True, False)
    assert found["log.retention.hours"].value == "168"
    assert {"advertised.listeners", "broker.id", "log.dirs", "log.segment.bytes", "node.id"} <= set(found)
    if version >= 3:
        assert (found["message.max.bytes"].config_type, found[KEY].config_type) == (INT, LONG)


@each_describe
def test_describes_selected_settings_of_the_broker(client, node, version):
    found = describe(client, version, BROKER, node, ["num.partitions", "no.such"]).configs
    assert [each.name for each in found] == ["num.partitions"]


@each_describe
def test_other_brokers_are_refused(client, node, version):
    for name, message in (
        ("77", f"Unexpected broker id, expected {node} or empty string, but received 77"),
        ("x", "Broker id must be an integer, but it is: x"),
    ):
        result = describe(client, version, BROKER, name)
        assert (result.error_code, result.error_message) == (ErrorCode.invalid_request, message)


@pytest.mark.usefixtures("changed_back")
@each_incremental
def test_setting_of_a_broker_goes_before_that_of_all_brokers(client, node, version):
    default = seen(client, node, KEY)
    assert default == ("3600000", FROM_DEFAULT, [(KEY, "3600000", FROM_DEFAULT)])
    assert change(client, version, "", (SET, KEY, "7200000"), kind=BROKER) == (0, None)
    for_all, own = (KEY, "7200000", FROM_BROKERS), (KEY, "7300000", FROM_BROKER)
    raw.eventually(lambda: seen(client, node, KEY) == ("7200000", FROM_BROKERS, [for_all, *default[2]]))
    raw.eventually(lambda: seen(client, "", KEY) == ("7200000", FROM_BROKERS, [for_all]))
    assert change(client, version, node, (SET, KEY, "7300000"), kind=BROKER) == (0, None)
    raw.eventually(lambda: seen(client, node, KEY) == ("7300000", FROM_BROKER, [own, for_all, *default[2]]))
    assert change(client, version, node, (DELETE, KEY, None), kind=BROKER) == (0, None)
    raw.eventually(lambda: seen(client, node, KEY)[1] == FROM_BROKERS)


@pytest.mark.usefixtures("changed_back")
@each_incremental
def test_topics_follow_the_broker_where_they_have_no_setting_of_their_own(client, node, version):
    topic = raw.make_topic(client)
    change(client, version, node, (SET, KEY, "7300000"), kind=BROKER)
    expected = [(KEY, "7300000", FROM_BROKER), (KEY, "3600000", FROM_DEFAULT)]
    raw.eventually(lambda: seen(client, topic.name, TOPIC_KEY, TOPIC) == ("7300000", FROM_BROKER, expected))
    later = raw.batch(raw.values(b"x", at_ms=raw.now_ms() + 7_200_000))
    raw.eventually(lambda: raw.produce(client, topic, later).error_code == 0)


@pytest.mark.usefixtures("changed_back")
@each_alter
def test_alter_replaces_all_that_was_set_on_the_broker(client, node, version):
    assert alter(client, version, node, {KEY: "7300000"}, kind=BROKER, validate_only=True) == (0, None)
    assert seen(client, node, KEY)[1] == FROM_DEFAULT
    assert alter(client, version, node, {KEY: "7300000"}, kind=BROKER) == (0, None)
    raw.eventually(lambda: seen(client, node, KEY)[:2] == ("7300000", FROM_BROKER))
    assert alter(client, version, node, {}, kind=BROKER) == (0, None)
    raw.eventually(lambda: seen(client, node, KEY)[1] == FROM_DEFAULT)


@each_incremental
def test_wrong_change_of_a_broker_is_refused(client, node, version):
    for name, operation, message in (
        (node, (SET, "num.partitions", "3"), "Cannot update these configs dynamically: [num.partitions]"),
        (node, (SET, KEY, "x"), f"Invalid value x for configuration {KEY}: Not a number of type LONG"),
        ("77", (SET, KEY, "5"), f"Unexpected broker id, expected {node}, but received 77"),
        ("x", (SET, KEY, "5"), "Node id must be an integer, but it is: x"),
    ):
        refused = change(client, version, name, operation, kind=BROKER)
        assert refused == (ErrorCode.invalid_request, message)

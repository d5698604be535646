import dataclasses

import pytest

from headrace.core.errors import OperatorError
from headrace.core.settings.broker import BrokerSettings, GivenSetting, Kind, flags_source, kafka_items

HOUR_MS = 3_600_000
NEVER = (1 << 63) - 1

KRAFT_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
"""
ZOOKEEPER_FILE = """
broker.id=7
log.dirs=/tmp/kafka-logs-1,/tmp/kafka-logs-2
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
inter.broker.protocol.version=3.5
log.cleaner.enable=true
"""


def load(text: str) -> BrokerSettings:
    settings, warnings = BrokerSettings.from_properties(text, "server.properties")
    assert warnings == []
    return settings


def warned(text: str) -> list[str]:
    return BrokerSettings.from_properties(text, "s")[1]


def refused(text: str) -> str:
    with pytest.raises(OperatorError) as caught:
        BrokerSettings.from_properties(text, "server.properties")
    return str(caught.value)


def items(settings: BrokerSettings) -> dict[str, tuple[str | None, bool]]:
    return {item.key: (item.value, item.is_default) for item in kafka_items(settings)}


ALONE = (
    "clusters are not supported yet, so this broker runs alone and knows no other;"
    " start only one, and remove the {these}"
)
ONE_REPLICA = (
    "one broker keeps one replica, so every topic has replication factor 1 and acks=all waits for this broker alone;"
    " set {these} to 1"
)


def test_kafkas_own_files_load_with_one_warning_that_there_is_no_cluster() -> None:
    kraft, warnings = BrokerSettings.from_properties(KRAFT_FILE, "s")
    keys = "process.roles=broker,controller (s:2), controller.quorum.bootstrap.servers=localhost:9093 (s:4)"
    assert warnings == [f"{keys}: {ALONE.format(these='settings')}"]
    assert (kraft.host, kraft.port) == ("0.0.0.0", 9092)
    assert kraft.told({}) == (("PLAINTEXT", "localhost", 9092),)
    assert kraft.socket_send_buffer_bytes == 102400
    zookeeper, warnings = BrokerSettings.from_properties(ZOOKEEPER_FILE, "s")
    assert warnings == [f"zookeeper.connect=localhost:2181 (s:4): {ALONE.format(these='setting')}"]
    assert zookeeper.node_id == 7
    assert zookeeper.log_dirs == ("/tmp/kafka-logs-1", "/tmp/kafka-logs-2")


def test_keys_without_meaning_are_one_debug_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG"):
        BrokerSettings.from_properties(ZOOKEEPER_FILE, "s")
    (record,) = caplog.records
    assert record.levelname == "DEBUG"
    assert "zookeeper.connect, " in record.getMessage()


def test_defaults_are_kafkas() -> None:
    settings = BrokerSettings()
    assert settings.log_segment_bytes == 1 << 30
    assert settings.log_retention_ms == settings.log_roll_ms == 168 * HOUR_MS
    assert settings.log_flush_interval_messages == settings.log_flush_interval_ms == NEVER
    assert settings.message_max_bytes == 1_048_588
    assert settings.fetch_max_bytes == 57_671_680
    assert settings.connections_max_idle_ms == 600_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("log.retention.hours=2", 2 * HOUR_MS),
        ("log.retention.hours=2\nlog.retention.minutes=3", 180_000),
        ("log.retention.ms=5\nlog.retention.hours=2\nlog.retention.minutes=3", 5),
        ("log.retention.hours=-1", -1),
        ("log.retention.ms=-1\nlog.retention.hours=2", -1),
    ],
)
def test_the_finer_unit_of_retention_wins(text: str, expected_ms: int) -> None:
    assert load(text).log_retention_ms == expected_ms


def test_other_keys_stand_in_for_those_not_given() -> None:
    assert load("log.roll.hours=1").log_roll_ms == HOUR_MS
    assert load("log.roll.hours=1\nlog.roll.ms=9").log_roll_ms == 9
    assert load("log.dir=/one").log_dirs == ("/one",)
    assert load("log.dir=/one\nlog.dirs=/two").log_dirs == ("/two",)
    assert load("broker.id=3\nnode.id=4").node_id == 4
    assert load("log.flush.scheduler.interval.ms=1000").log_flush_interval_ms == 1000
    assert load("log.flush.scheduler.interval.ms=1000\nlog.flush.interval.ms=7").log_flush_interval_ms == 7
    assert load("host.name=10.0.0.1\nport=7\nlisteners=PLAINTEXT://[::1]:8").host == "::1"
    assert load("host.name=10.0.0.1\nport=7").port == 7


def test_a_bad_value_names_file_line_key_value_and_limit() -> None:
    assert refused("# first\nlog.segment.bytes=12") == (
        "server.properties:2: log.segment.bytes=12 is below 1048576; give a whole number of at least 1048576"
    )
    assert refused("num.partitions=three").startswith(
        "server.properties:1: num.partitions=three is not a whole number;"
    )
    assert "is neither true nor false; give true or false" in refused("delete.topic.enable=yes")
    assert "give one of uncompressed, zstd" in refused("compression.type=lzo")
    assert "is above 2147483647" in refused("message.max.bytes=2147483648")
    assert "or -1 for no limit" in refused("log.retention.ms=0")
    assert "server.properties:1: log.roll.hours=0 is below 1" in refused("log.roll.hours=0")
    assert "names no directory" in refused("log.dirs= , ")
    assert "names a directory twice" in refused("log.dirs=/a,/a")


@pytest.mark.parametrize("text", ["1_000", "٣", "0x10", "1.0", "", "1e3"])
def test_whole_numbers_are_what_java_takes_for_whole_numbers(text: str) -> None:
    assert "is not a whole number" in refused(f"num.partitions={text}")


def test_values_are_trimmed_and_truth_has_any_case() -> None:
    assert load("num.partitions= 3  \nauto.create.topics.enable=False ").num_partitions == 3
    assert load("auto.create.topics.enable=False ").auto_create_topics_enable is False


def test_an_unknown_key_is_a_warning_with_the_nearest_name() -> None:
    _, warnings = BrokerSettings.from_properties("num.partitons=3\nxyzzy=1", "s.properties")
    assert warnings == [
        "s.properties:1: num.partitons is not a setting, ignored; did you mean num.partitions?",
        "s.properties:2: xyzzy is not a setting, ignored",
    ]


def test_a_key_given_twice_is_a_warning_and_the_last_counts() -> None:
    settings, warnings = BrokerSettings.from_properties("num.partitions=3\nnum.partitions=4", "s")
    assert settings.num_partitions == 4
    assert warnings == ["s:2: num.partitions is also set at s:1; this one counts"]


def test_a_setting_that_would_be_missed_is_warned_of() -> None:
    _, warnings = BrokerSettings.from_properties("authorizer.class.name=com.example.Guard", "s")
    assert "there is no authorizer" in warnings[0]
    assert BrokerSettings.from_properties("authorizer.class.name=", "s")[1] == []


@pytest.mark.parametrize(
    "key",
    [
        "default.replication.factor",
        "min.insync.replicas",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "share.coordinator.state.topic.min.isr",
    ],
)
def test_more_than_one_replica_is_warned_of_and_one_is_not(key: str) -> None:
    assert warned(f"{key}=3") == [f"{key}=3 (s:1): {ONE_REPLICA.format(these='it')}"]
    assert warned(f"{key}=1") == []


def test_all_replication_settings_share_one_warning() -> None:
    warnings = warned("zookeeper.connect=a:1,b:1,c:1\nmin.insync.replicas=2\ndefault.replication.factor=3")
    assert warnings == [
        f"zookeeper.connect=a:1,b:1,c:1 (s:1): {ALONE.format(these='setting')}",
        f"default.replication.factor=3 (s:3), min.insync.replicas=2 (s:2): {ONE_REPLICA.format(these='them')}",
    ]


@pytest.mark.parametrize("line", ["process.roles=", "zookeeper.connect=", "broker.rack=a", "node.id=3"])
def test_what_asks_for_no_other_broker_is_not_warned_of(line: str) -> None:
    assert warned(line) == []


def test_a_cluster_is_warned_of_wherever_it_was_asked_for() -> None:
    _, warnings = BrokerSettings.from_sources(
        environ={"HEADRACE_ZOOKEEPER_CONNECT": "z:2181", "HEADRACE_MIN_INSYNC_REPLICAS": "2"},
        flags=flags_source("--set", ["offsets.topic.replication.factor=3"]),
    )
    assert [warning.partition(": ")[0] for warning in warnings] == [
        "zookeeper.connect=z:2181 (environment HEADRACE_ZOOKEEPER_CONNECT)",
        "min.insync.replicas=2 (environment HEADRACE_MIN_INSYNC_REPLICAS), offsets.topic.replication.factor=3 (--set)",
    ]


def test_only_the_value_that_counts_is_warned_of() -> None:
    _, warnings = BrokerSettings.from_sources(
        properties="default.replication.factor=3\nzookeeper.connect=z:2181",
        source="s",
        flags=flags_source("--override", ["default.replication.factor=1", "zookeeper.connect="]),
    )
    assert warnings == []


@pytest.mark.parametrize("name", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
def test_a_secure_listener_is_refused(name: str) -> None:
    assert f"{name} is not supported" in refused(f"listeners={name}://:9093")


def test_listeners_follow_the_protocol_map() -> None:
    settings = load("listeners=CLIENT://localhost:9\nlistener.security.protocol.map=CLIENT:PLAINTEXT")
    assert (settings.host, settings.port) == ("localhost", 9)
    assert "SSL is not" in refused("listeners=CLIENT://h:9\nlistener.security.protocol.map=CLIENT:SSL")
    assert "no known security protocol" in refused("listeners=CLIENT://h:9")
    text = "listeners=CTRL://h:8,PLAINTEXT://h:9\ncontroller.listener.names=CTRL"
    assert load(text).port == 9


@pytest.mark.parametrize("value", ["localhost:9092", "PLAINTEXT://h", "PLAINTEXT://h:x", "PLAINTEXT://h:70000"])
def test_a_malformed_listener_is_refused(value: str) -> None:
    assert value in refused(f"listeners={value}")


def test_at_least_one_listener_is_served() -> None:
    assert "no listener for clients" in refused("listeners=CONTROLLER://:1")


NAMED = "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT\n"
TWO = NAMED + "listeners=INTERNAL://h:1,EXTERNAL://:2\n"


def test_several_listeners_are_served_and_told_by_their_names() -> None:
    settings = load(TWO + "advertised.listeners=EXTERNAL://kafka.example:9,INTERNAL://inside:0")
    assert settings.served() == (("INTERNAL", "h", 1), ("EXTERNAL", "0.0.0.0", 2))
    bound = {"INTERNAL": 1, "EXTERNAL": 2}
    assert settings.told(bound) == (("INTERNAL", "inside", 1), ("EXTERNAL", "kafka.example", 9))
    assert load(TWO).told(bound) == (("INTERNAL", "h", 1), ("EXTERNAL", "0.0.0.0", 2))
    assert load(TWO + "advertised.listeners=EXTERNAL://x:9").told(bound) == (("EXTERNAL", "x", 9),)


def test_a_flag_for_host_or_port_means_the_first_listener() -> None:
    settings, _ = BrokerSettings.from_sources(properties=TWO, values={"port": 7, "advertised_host": "told"})
    assert settings.served() == (("INTERNAL", "h", 7), ("EXTERNAL", "0.0.0.0", 2))
    assert settings.told({"INTERNAL": 7, "EXTERNAL": 2})[0] == ("INTERNAL", "told", 7)


def test_other_brokers_use_the_listener_that_is_named_for_them() -> None:
    assert load(TWO + "inter.broker.listener.name=EXTERNAL").inter_broker_listener == "EXTERNAL"
    assert load(TWO).inter_broker_listener == "INTERNAL"
    assert load("").inter_broker_listener == "PLAINTEXT"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("listeners=PLAINTEXT://a:1,PLAINTEXT://b:2", "PLAINTEXT is given 2 times; give each listener a name"),
        ("listeners=INTERNAL://a:5,EXTERNAL://b:5", "port 5 is given 2 times; give each listener a port"),
        ("advertised.listeners=PLAINTEXT://x:1", "PLAINTEXT is not in listeners (INTERNAL, EXTERNAL)"),
        ("inter.broker.listener.name=OTHER", "not in listeners; give one of INTERNAL, EXTERNAL"),
    ],
)
def test_listeners_that_do_not_fit_together_are_refused(text: str, why: str) -> None:
    assert why in refused(TWO + text)


@pytest.mark.parametrize("listeners", ["INTERNAL://a:0,EXTERNAL://b:0", "INTERNAL://1.2.3.4:5,EXTERNAL://[::1]:5"])
def test_listeners_may_share_port_0_and_a_port_of_two_families(listeners: str) -> None:
    assert len(load(NAMED + f"listeners={listeners}").served()) == 2


def test_a_wildcard_cannot_be_advertised() -> None:
    assert "clients can reach" in refused("advertised.listeners=PLAINTEXT://0.0.0.0:9092")


def test_flags_win_over_environment_over_file() -> None:
    settings, warnings = BrokerSettings.from_sources(
        properties="num.partitions=1\nlog.segment.bytes=2000000\nmessage.max.bytes=3",
        environ={"HEADRACE_NUM_PARTITIONS": "2", "HEADRACE_LOG_SEGMENT_BYTES": "3000000", "PATH": "/bin"},
        flags=flags_source("--set", ["num.partitions=5"]),
    )
    assert (settings.num_partitions, settings.log_segment_bytes, settings.message_max_bytes) == (
        5,
        3_000_000,
        3,
    )
    assert warnings == []


def test_a_coarser_key_of_a_stronger_source_wins() -> None:
    settings, _ = BrokerSettings.from_sources(
        properties="log.retention.ms=5", flags=[GivenSetting("log.retention.hours", "1", "--set")]
    )
    assert settings.log_retention_ms == HOUR_MS


def test_a_flag_for_the_port_leaves_the_files_host() -> None:
    settings, _ = BrokerSettings.from_sources(properties="listeners=PLAINTEXT://10.1.1.1:9", values={"port": 11})
    assert (settings.host, settings.port) == ("10.1.1.1", 11)


def test_environment_errors_and_warnings_name_the_variable() -> None:
    with pytest.raises(OperatorError, match="environment HEADRACE_PORT: port=99999 is above 65535"):
        BrokerSettings.from_sources(environ={"HEADRACE_PORT": "99999"})
    _, warnings = BrokerSettings.from_sources(environ={"HEADRACE_LOG_SEGMENT_BITES": "1"})
    assert warnings == [
        "environment: HEADRACE_LOG_SEGMENT_BITES is not a setting, ignored; did you mean HEADRACE_LOG_SEGMENT_BYTES?"
    ]


def test_variables_of_the_other_commands_are_no_mistake() -> None:
    _, warnings = BrokerSettings.from_sources(environ={"HEADRACE_BOOTSTRAP": "h:1", "HEADRACE_TABLES": "/t"})
    assert warnings == []


def test_own_settings_have_short_variables() -> None:
    settings, warnings = BrokerSettings.from_sources(
        environ={
            "HEADRACE_METRICS_PORT": "9308",
            "HEADRACE_DATA": "/d",
            "HEADRACE_LOG_LEVEL": "info",
            "HEADRACE_CACHE": "/c",
        }
    )
    assert (settings.metrics_port, settings.log_dirs) == (9308, ("/d",))
    assert warnings == []


def test_a_flag_without_an_equals_sign_is_refused() -> None:
    with pytest.raises(OperatorError, match="--set num is not key=value"):
        flags_source("--set", ["num"])


def test_values_are_checked_when_made_in_python() -> None:
    with pytest.raises(OperatorError, match=r"num\.partitions=0 is below 1"):
        BrokerSettings(num_partitions=0)
    with pytest.raises(OperatorError, match="is not a whole number"):
        BrokerSettings(port="9092")  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        BrokerSettings().port = 1  # type: ignore[misc]


def test_no_bound_is_a_very_large_one() -> None:
    settings = load("queued.max.request.bytes=-1\nconnections.max.idle.ms=-1")
    assert settings.queued_max_request_bytes == settings.connections_max_idle_ms == NEVER


def test_kafka_items_show_defaults_as_kafka_does() -> None:
    shown = items(BrokerSettings())
    assert shown["log.retention.ms"] == (None, True)
    assert shown["log.retention.hours"] == ("168", True)
    assert shown["log.segment.bytes"] == ("1073741824", True)
    assert shown["broker.rack"] == (None, True)
    assert shown["listeners"] == ("PLAINTEXT://127.0.0.1:9092", True)
    assert shown["advertised.listeners"] == (None, True)
    assert shown["log.cleaner.min.cleanable.ratio"] == ("0.5", True)
    assert "host.name" not in shown


def test_kafka_items_show_what_was_given_under_its_own_key() -> None:
    shown = items(load("log.retention.hours=24\nnum.partitions=1\nbroker.id=4\nlisteners=PLAINTEXT://h:5"))
    assert shown["log.retention.ms"] == (None, True)
    assert shown["log.retention.hours"] == ("24", False)
    assert shown["num.partitions"] == ("1", False)
    assert shown["node.id"][0] == shown["broker.id"][0] == "4"
    assert shown["listeners"] == ("PLAINTEXT://h:5", False)
    assert items(BrokerSettings(log_retention_ms=7))["log.retention.ms"] == ("7", False)


def test_kafka_items_carry_the_wire_numbers_of_types() -> None:
    types = {item.key: int(item.type) for item in kafka_items(BrokerSettings())}
    assert types["auto.create.topics.enable"] == 1
    assert types["log.segment.bytes"] == 3
    assert types["log.retention.ms"] == 5
    assert types["log.dirs"] == Kind.LIST == 7
    assert all(item.doc for item in kafka_items(BrokerSettings()))


def test_altered_settings_keep_the_rest() -> None:
    settings, warnings = load("num.partitions=3\nlog.retention.hours=24").altered({"log.retention.ms": "9"}, "topic")
    assert (settings.num_partitions, settings.log_retention_ms, warnings) == (3, 9, [])
    assert items(settings)["log.retention.ms"] == ("9", False)
    with pytest.raises(OperatorError, match=r"dynamic: log\.retention\.ms=x"):
        settings.altered({"log.retention.ms": "x"}, "dynamic")


def test_every_setting_is_described() -> None:
    rows = {row[0]: row for row in BrokerSettings.describe()}
    assert rows["log.segment.bytes"][1:3] == ("int", "1073741824")
    assert rows["listeners"][2] == "PLAINTEXT://127.0.0.1:9092"
    assert all(len(row) == 4 and row[3] for row in rows.values())


def test_the_advertised_address_is_one_that_clients_reach() -> None:
    assert BrokerSettings(port=0).advertised({"PLAINTEXT": 5000}) == ("127.0.0.1", 5000)
    assert BrokerSettings(host="0.0.0.0").advertised({"PLAINTEXT": 5000}, "10.0.0.2") == ("10.0.0.2", 5000)
    named = BrokerSettings(host="0.0.0.0", advertised_host="kafka", advertised_port=1)
    assert named.advertised({"PLAINTEXT": 5000}, "10.0.0.2") == ("kafka", 1)

import pytest

from headrace.broker.topic_config import TOPIC_SETTINGS, check, log_config
from headrace.core.errors import PeerError
from headrace.core.settings.broker import BrokerSettings
from headrace.log.config import NEVER, LogConfig
from headrace.protocol.error_codes import INVALID_CONFIG

SETTINGS = BrokerSettings()


def refusal(overrides, settings=SETTINGS):
    with pytest.raises(PeerError) as caught:
        check(overrides, settings)
    assert caught.value.code == INVALID_CONFIG
    return caught.value.message


def test_a_topic_without_settings_of_its_own_has_kafkas_defaults():
    assert log_config({}, SETTINGS) == LogConfig()


def test_the_brokers_settings_are_the_topics_defaults():
    settings = BrokerSettings(
        log_retention_ms=5, message_max_bytes=7, log_message_timestamp_type="LogAppendTime", log_roll_ms=9
    )
    config = log_config({}, settings)
    assert (config.retention_ms, config.max_message_bytes, config.segment_ms) == (5, 7, 9)
    assert config.log_append_time


def test_a_topics_own_settings_win():
    overrides = {
        "retention.ms": " 77 ",
        "retention.bytes": "-1",
        "cleanup.policy": "",
        "flush.messages": "1",
        "compression.type": "zstd",
        "compression.zstd.level": "5",
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": "2",
    }
    config = log_config(check(overrides, SETTINGS), BrokerSettings(log_retention_ms=5))
    assert (config.retention_ms, config.retention_bytes, config.cleanup_delete) == (77, -1, False)
    assert (config.flush_messages, config.compression_type, config.compression_level) == (1, "zstd", 5)
    assert (config.log_append_time, config.min_insync_replicas) == (True, 2)
    assert config.flush_ms == NEVER


def test_tests_may_have_segments_below_kafkas_bound():
    assert log_config({"internal.segment.bytes": "500", "segment.bytes": "1048576"}, SETTINGS).segment_bytes == 500
    assert TOPIC_SETTINGS["internal.segment.bytes"].hidden


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("foo", "1", "Unknown topic config name: foo"),
        ("retention.ms", None, "Null value not supported for topic configs: retention.ms"),
        ("retention.ms", "x", "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        (
            "retention.ms",
            "0x10",
            "Invalid value 0x10 for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "retention.ms",
            "99999999999999999999",
            "Invalid value 99999999999999999999 for configuration retention.ms: Not a number of type LONG",
        ),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        (
            "segment.bytes",
            "1.5",
            "Invalid value 1.5 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "segment.bytes",
            "10",
            "Invalid value 10 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            "min.cleanable.dirty.ratio",
            "2",
            "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "compression.gzip.level",
            "33",
            "Invalid value 33 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
        ),
        (
            "compression.lz4.level",
            "18",
            "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17",
        ),
        (
            "compression.type",
            "none",
            "Invalid value none for configuration compression.type:"
            " String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "cleanup.policy",
            "bad",
            "Invalid value bad for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ("cleanup.policy", "delete,,", "Configuration 'cleanup.policy' values must not be empty."),
        (
            "preallocate",
            "maybe",
            "Invalid value maybe for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "leader.replication.throttled.replicas",
            "x",
            "Invalid value [x] for configuration leader.replication.throttled.replicas:"
            " leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the"
            " following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
        (
            "remote.storage.enable",
            "true",
            "Tiered Storage functionality is disabled in the broker."
            " Topic cannot be configured with remote log storage.",
        ),
    ],
)
def test_a_bad_value_is_refused_in_kafkas_words(key, value, message):
    assert refusal({key: value}) == message


def test_unknown_names_are_complained_of_before_bad_values():
    assert refusal({"retention.ms": "-5", "foo": "2"}) == "Unknown topic config name: foo"


def test_lags_that_contradict_each_other_are_refused():
    message = "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)"
    assert refusal({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}) == message


@pytest.mark.parametrize(
    ("policy", "delete", "compact"), [("compact", False, True), ("delete,compact", True, True), ("delete", True, False)]
)
def test_the_cleanup_policy_decides_what_is_cleaned(policy, delete, compact):
    config = log_config(check({"cleanup.policy": policy}, SETTINGS), SETTINGS)
    assert (config.cleanup_delete, config.cleanup_compact) == (delete, compact)


def test_every_broker_field_of_the_table_exists():
    for row in TOPIC_SETTINGS.values():
        assert row.text({}, SETTINGS) is not None
        assert row.broker_field is None or row.broker_keys()

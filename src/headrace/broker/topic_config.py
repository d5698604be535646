"""The settings that a topic can have: Kafka 4.3's names, types, bounds and defaults.

A topic keeps only what was set on it (its overrides, as text). What it does not set comes from the broker
setting that the table names, so a change of the broker's default reaches every topic that did not decide
for itself. Nothing here knows a topic, a log or a file.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.broker.config_values import parse_config
from headrace.core.errors import PeerError
from headrace.core.settings.broker import BrokerSettings
from headrace.core.settings.types import Kind, Setting, format_value, setting_of
from headrace.log.config import LogConfig
from headrace.protocol.error_codes import INVALID_CONFIG

_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = (
    Kind.BOOLEAN,
    Kind.STRING,
    Kind.INT,
    Kind.LONG,
    Kind.DOUBLE,
    Kind.LIST,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    setting: Setting
    broker_field: str | None  # the field of BrokerSettings that holds the default
    fixed_default: str  # the default where no broker setting holds one
    hidden: bool = False  # shown only where it is set
    broker_key: str = ""  # the broker's key in Kafka, where there is no such setting here

    def broker_keys(self) -> tuple[str, ...]:
        """The broker's keys for the default, the strongest first."""
        if self.broker_field is None:
            return (self.broker_key,) if self.broker_key else ()
        described = setting_of(BrokerSettings.__dataclass_fields__[self.broker_field])
        return () if described is None else (described.key, *(alias.key for alias in described.aliases))

    def value(self, overrides: Mapping[str, str], settings: BrokerSettings) -> Any:
        if self.setting.key in overrides:
            return parse_config(self.setting, overrides[self.setting.key])
        if self.broker_field is None:
            return parse_config(self.setting, self.fixed_default)
        value = getattr(settings, self.broker_field)
        return parse_config(self.setting, value) if self.setting.kind is Kind.LIST else value

    def text(self, overrides: Mapping[str, str], settings: BrokerSettings) -> str:
        """The value in force, as Kafka prints it."""
        return format_value(self.value(overrides, settings))


def _row(key: str, kind: Kind, doc: str, broker_field: str | None = None, **more: Any) -> TopicSetting:
    apart = {name: more.pop(name) for name in ("hidden", "broker_key") if name in more}
    default = more.pop("default", "")
    return TopicSetting(
        setting=Setting(key=key, kind=kind, help=doc, **more),
        broker_field=broker_field,
        fixed_default=default,
        **apart,
    )


_THROTTLED = "Replicas whose copying is throttled: partition:broker pairs, or * for all; no effect on one node."
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_ROWS = (
    _row("cleanup.policy", _LIST, "What happens to old segments; empty: they are kept.", "log_cleanup_policy",
         choices=("compact", "delete")),
    _row("compression.gzip.level", _INT, "Level of gzip, where compression.type is gzip; -1: its default.",
         "compression_gzip_level", low=1, high=9, unlimited=-1),
    _row("compression.lz4.level", _INT, "Level of lz4, where compression.type is lz4.",
         "compression_lz4_level", low=1, high=17),
    _row("compression.type", _STRING, "How batches are stored; producer: as they were sent.",
         "compression_type", choices=_CODECS),
    _row("compression.zstd.level", _INT, "Level of zstd, where compression.type is zstd.",
         "compression_zstd_level", low=-131072, high=22),
    _row("delete.retention.ms", _LONG, "How long tombstones of a compacted topic stay.",
         "log_cleaner_delete_retention_ms", low=0),
    _row("file.delete.delay.ms", _LONG, "Wait before a deleted file leaves the disk.",
         "log_segment_delete_delay_ms", low=0),
    _row("flush.messages", _LONG, "Records after which a partition is fsynced; 1: before the answer.",
         "log_flush_interval_messages", low=1),
    _row("flush.ms", _LONG, "Time after which a partition is fsynced.", "log_flush_interval_ms", low=0),
    _row("follower.replication.throttled.replicas", _LIST, _THROTTLED),
    _row("index.interval.bytes", _INT, "Bytes between two entries of the offset index.",
         "log_index_interval_bytes", low=0),
    _row("internal.segment.bytes", _INT, "segment.bytes without its lower bound, for tests.", low=1,
         default="1", hidden=True),
    _row("leader.replication.throttled.replicas", _LIST, _THROTTLED),
    _row("local.retention.bytes", _LONG, "Bytes kept locally under tiered storage (not supported).",
         low=-2, default="-2", broker_key="log.local.retention.bytes"),
    _row("local.retention.ms", _LONG, "Time kept locally under tiered storage (not supported).",
         low=-2, default="-2", broker_key="log.local.retention.ms"),
    _row("max.compaction.lag.ms", _LONG, "When a record of a compacted topic is surely cleaned.",
         "log_cleaner_max_compaction_lag_ms", low=1),
    _row("max.message.bytes", _INT, "The largest record batch, after compression.", "message_max_bytes",
         low=0),
    _row("message.timestamp.after.max.ms", _LONG, "How far a record's timestamp may lie in the future.",
         "log_message_timestamp_after_max_ms", low=0),
    _row("message.timestamp.before.max.ms", _LONG, "How far a record's timestamp may lie in the past.",
         "log_message_timestamp_before_max_ms", low=0),
    _row("message.timestamp.type", _STRING, "Keep the producer's timestamps, or stamp records when appended.",
         "log_message_timestamp_type", choices=("CreateTime", "LogAppendTime")),
    _row("min.cleanable.dirty.ratio", _DOUBLE, "Dirty share of a compacted topic that starts a cleaning.",
         "log_cleaner_min_cleanable_ratio", low=0, high=1),
    _row("min.compaction.lag.ms", _LONG, "How long a record of a compacted topic surely stays.",
         "log_cleaner_min_compaction_lag_ms", low=0),
    _row("min.insync.replicas", _INT, "Replicas that must have a record before acks=all is answered.",
         "min_insync_replicas", low=1),
    _row("preallocate", _BOOLEAN, "No effect: a segment grows as it is written.", "log_preallocate"),
    _row("remote.log.copy.disable", _BOOLEAN, "No effect: tiered storage is not supported.",
         default="false"),
    _row("remote.log.delete.on.disable", _BOOLEAN, "No effect: tiered storage is not supported.",
         default="false"),
    _row("remote.storage.enable", _BOOLEAN, "Tiered storage (not supported); only false.", default="false"),
    _row("retention.bytes", _LONG, "How much a partition keeps; -1: no bound.", "log_retention_bytes"),
    _row("retention.ms", _LONG, "How long records are kept; -1: forever.", "log_retention_ms", low=-1),
    _row("segment.bytes", _INT, "Size at which a segment file is closed.", "log_segment_bytes", low=1 << 20),
    _row("segment.index.bytes", _INT, "The largest offset index.", "log_index_size_max_bytes", low=4),
    _row("segment.jitter.ms", _LONG, "At most this is taken off segment.ms, by chance.", "log_roll_jitter_ms",
         low=0),
    _row("segment.ms", _LONG, "Age at which a segment file is closed.", "log_roll_ms", low=1),
    _row("unclean.leader.election.enable", _BOOLEAN, "Let a replica that lags become leader.",
         "unclean_leader_election_enable"),
)  # fmt: skip
TOPIC_SETTINGS: Mapping[str, TopicSetting] = {row.setting.key: row for row in _ROWS}

_PAIRS = re.compile(r"\d+:\d+")


def internal_overrides(segment_bytes: int) -> dict[str, str]:
    """What an internal topic sets itself: its records are forgotten by key, never by age."""
    return {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(segment_bytes)}


def keep_compacted(name: str, overrides: dict[str, str]) -> None:
    """The state of groups and transactions must never expire with an internal topic's segments, whoever sets what."""
    policy = overrides.setdefault("cleanup.policy", "compact")
    if policy != "compact":
        why = f"cleanup.policy of the internal topic '{name}' must be compact, not {policy}: its state would expire"
        raise PeerError(INVALID_CONFIG, why)


def check(overrides: Mapping[str, str | None], settings: BrokerSettings) -> dict[str, str]:
    """The overrides, if a topic may have them; `PeerError` INVALID_CONFIG in Kafka's words otherwise."""
    unknown = [key for key in overrides if key not in TOPIC_SETTINGS]
    if unknown:
        raise PeerError(INVALID_CONFIG, f"Unknown topic config name: {unknown[0]}")
    nulls = sorted(key for key, value in overrides.items() if value is None)
    if nulls:
        raise PeerError(INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    given = {key: value for key, value in overrides.items() if value is not None}
    try:
        values = {key: row.value(given, settings) for key, row in TOPIC_SETTINGS.items()}
        for side in ("leader", "follower"):
            _check_throttled(f"{side}.replication.throttled.replicas", values)
    except ValueError as error:
        raise PeerError(INVALID_CONFIG, str(error)) from None
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if least > most:
        conflict = f"min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})"
        raise PeerError(INVALID_CONFIG, f"conflict topic config setting {conflict}")
    if values["remote.storage.enable"]:
        why = "Tiered Storage functionality is disabled in the broker."
        raise PeerError(INVALID_CONFIG, f"{why} Topic cannot be configured with remote log storage.")
    return given


def _check_throttled(key: str, values: Mapping[str, Any]) -> None:
    items = values[key]
    if items != ("*",) and not all(_PAIRS.fullmatch(item) for item in items):
        form = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        why = f"{key} must be the literal '*' or a list of replicas in the following format: {form}"
        raise ValueError(f"Invalid value [{', '.join(items)}] for configuration {key}: {why}")


def log_config(overrides: Mapping[str, str], settings: BrokerSettings) -> LogConfig:
    """What the settings in force mean to a log. The overrides have been checked before."""

    def value(key: str) -> Any:
        return TOPIC_SETTINGS[key].value(overrides, settings)

    codec = value("compression.type")
    policies = value("cleanup.policy")
    segment_key = "internal.segment.bytes" if "internal.segment.bytes" in overrides else "segment.bytes"
    segment_ms = value("segment.ms")
    if "compact" in policies:
        segment_ms = min(segment_ms, value("max.compaction.lag.ms"))  # an active segment is never compacted
    return LogConfig(
        segment_bytes=value(segment_key),
        segment_ms=segment_ms,
        segment_jitter_ms=value("segment.jitter.ms"),
        segment_index_bytes=value("segment.index.bytes"),
        index_interval_bytes=value("index.interval.bytes"),
        retention_ms=value("retention.ms"),
        retention_bytes=value("retention.bytes"),
        max_message_bytes=value("max.message.bytes"),
        flush_messages=value("flush.messages"),
        flush_ms=value("flush.ms"),
        file_delete_delay_ms=value("file.delete.delay.ms"),
        cleanup_delete="delete" in policies,
        cleanup_compact="compact" in policies,
        log_append_time=value("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
        compression_type=codec,
        compression_level=value(f"compression.{codec}.level") if codec in ("gzip", "lz4", "zstd") else None,
        min_insync_replicas=value("min.insync.replicas"),
        min_cleanable_dirty_ratio=value("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms=value("min.compaction.lag.ms"),
        max_compaction_lag_ms=value("max.compaction.lag.ms"),
        delete_retention_ms=value("delete.retention.ms"),
    )

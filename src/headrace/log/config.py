"""What a topic's settings mean to one partition's log, already parsed and checked."""

from dataclasses import dataclass

NEVER = (1 << 63) - 1


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class LogConfig:
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3_600_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3_600_000  # -1: keep forever
    retention_bytes: int = -1  # -1: no bound
    max_message_bytes: int = 1_048_588
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    file_delete_delay_ms: int = 60_000
    cleanup_delete: bool = True
    cleanup_compact: bool = False
    log_append_time: bool = False
    timestamp_before_max_ms: int = NEVER
    timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_level: int | None = None
    min_insync_replicas: int = 1
    # Compaction
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    delete_retention_ms: int = 86_400_000

"""The part of a broker's settings that shapes its logs: the defaults that a topic's own settings override."""

from dataclasses import dataclass

from headrace.core.settings.types import LONG_MAX, Alias, Kind, setting

_BOOLEAN, _STRING, _LONG, _DOUBLE, _LIST = Kind.BOOLEAN, Kind.STRING, Kind.LONG, Kind.DOUBLE, Kind.LIST
_HOUR_MS = 3_600_000
_WEEK_MS = 7 * 24 * _HOUR_MS


@dataclass(frozen=True, kw_only=True, slots=True)
class LogSettings:
    # What a batch may be
    message_max_bytes: int = setting(
        1_048_588, "message.max.bytes", "The largest record batch, after compression.", low=0, dynamic=True
    )
    compression_type: str = setting(
        "producer",
        "compression.type",
        "How batches are stored; producer: as they were sent.",
        _STRING,
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=True,
    )
    compression_gzip_level: int = setting(
        -1,
        "compression.gzip.level",
        "Level of gzip; -1: its own default.",
        low=1,
        high=9,
        unlimited=-1,
        dynamic=True,
    )
    compression_lz4_level: int = setting(9, "compression.lz4.level", "Level of lz4.", low=1, high=17, dynamic=True)
    compression_zstd_level: int = setting(
        3, "compression.zstd.level", "Level of zstd.", low=-131_072, high=22, dynamic=True
    )
    log_message_timestamp_type: str = setting(
        "CreateTime",
        "log.message.timestamp.type",
        "Keep the producer's timestamps, or stamp records when they are appended.",
        _STRING,
        choices=("CreateTime", "LogAppendTime"),
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = setting(
        LONG_MAX,
        "log.message.timestamp.before.max.ms",
        "How far a record's timestamp may lie in the past.",
        _LONG,
        low=0,
        dynamic=True,
    )
    log_message_timestamp_after_max_ms: int = setting(
        3_600_000,
        "log.message.timestamp.after.max.ms",
        "How far a record's timestamp may lie in the future.",
        _LONG,
        low=0,
        dynamic=True,
    )
    producer_id_expiration_ms: int = setting(
        86_400_000,
        "producer.id.expiration.ms",
        "Silence after which a producer's state is forgotten.",
        low=1,
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms: int = setting(
        600_000,
        "producer.id.expiration.check.interval.ms",
        "How often silent producers are looked for.",
        low=1,
    )

    # Segments
    log_segment_bytes: int = setting(
        1 << 30, "log.segment.bytes", "Size at which a segment file is closed.", low=1 << 20, dynamic=True
    )
    log_roll_ms: int = setting(
        _WEEK_MS,
        "log.roll.ms",
        "Age at which a segment file is closed.",
        _LONG,
        low=1,
        aliases=(Alias(key="log.roll.hours", low=1, kafka_default="168", scale=_HOUR_MS),),
        null_by_default=True,
        dynamic=True,
    )
    log_roll_jitter_ms: int = setting(
        0,
        "log.roll.jitter.ms",
        "Largest random amount taken off log.roll.ms, so that files do not all close at once.",
        _LONG,
        low=0,
        aliases=(Alias(key="log.roll.jitter.hours", low=0, kafka_default="0", scale=_HOUR_MS),),
        null_by_default=True,
        dynamic=True,
    )
    log_index_size_max_bytes: int = setting(
        10 << 20, "log.index.size.max.bytes", "The largest offset index.", low=4, dynamic=True
    )
    log_index_interval_bytes: int = setting(
        4096,
        "log.index.interval.bytes",
        "Bytes between two entries of the offset index.",
        low=0,
        dynamic=True,
    )
    log_preallocate: bool = setting(
        False, "log.preallocate", "No effect: a segment grows as it is written.", _BOOLEAN, dynamic=True
    )
    log_segment_delete_delay_ms: int = setting(
        60_000,
        "log.segment.delete.delay.ms",
        "Wait before a deleted file is removed.",
        _LONG,
        low=0,
        dynamic=True,
    )

    # Retention and compaction
    log_cleanup_policy: str = setting(
        "delete",
        "log.cleanup.policy",
        "What happens to old segments.",
        _LIST,
        choices=("compact", "delete"),
        dynamic=True,
    )
    log_retention_ms: int = setting(
        _WEEK_MS,
        "log.retention.ms",
        "How long records are kept; -1: forever.",
        _LONG,
        low=1,
        unlimited=-1,
        aliases=(
            Alias(key="log.retention.minutes", scale=60_000, low=1),
            Alias(key="log.retention.hours", low=1, kafka_default="168", scale=_HOUR_MS),
        ),
        null_by_default=True,
        dynamic=True,
    )
    log_retention_bytes: int = setting(
        -1,
        "log.retention.bytes",
        "How much a partition keeps; -1: no bound.",
        _LONG,
        low=0,
        unlimited=-1,
        dynamic=True,
    )
    log_retention_check_interval_ms: int = setting(
        300_000, "log.retention.check.interval.ms", "How often old segments are looked for.", _LONG, low=1
    )
    log_cleaner_delete_retention_ms: int = setting(
        86_400_000, "log.cleaner.delete.retention.ms", "How long tombstones stay.", _LONG, low=0, dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        0.5,
        "log.cleaner.min.cleanable.ratio",
        "Dirty share that starts a cleaning.",
        _DOUBLE,
        low=0,
        high=1,
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        0,
        "log.cleaner.min.compaction.lag.ms",
        "Shortest time before a record may be compacted.",
        _LONG,
        low=0,
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        LONG_MAX,
        "log.cleaner.max.compaction.lag.ms",
        "Longest time before a record is compacted.",
        _LONG,
        low=1,
        dynamic=True,
    )

    log_cleaner_enable: bool = setting(True, "log.cleaner.enable", "Compact the topics whose policy says so.", _BOOLEAN)
    log_cleaner_backoff_ms: int = setting(
        15_000, "log.cleaner.backoff.ms", "Wait when there is nothing to compact.", _LONG, low=0, dynamic=True
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        128 << 20,
        "log.cleaner.dedupe.buffer.size",
        "Memory for the keys of one compaction, some 200 bytes each; more keys take more passes.",
        _LONG,
        dynamic=True,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        0.9, "log.cleaner.io.buffer.load.factor", "How full that memory may become.", _DOUBLE, dynamic=True
    )
    log_cleaner_io_buffer_size: int = setting(
        512 << 10, "log.cleaner.io.buffer.size", "Memory to read and write with.", low=0, dynamic=True
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        1.7976931348623157e308,
        "log.cleaner.io.max.bytes.per.second",
        "Bytes that compaction reads and writes, at most.",
        _DOUBLE,
        dynamic=True,
    )

    # Scrubbing
    log_scrub_bytes_per_second: int = setting(
        -1,
        "headrace.log.scrub.bytes.per.second",
        "Bytes that the scrub reads and checks per second; 0: off; -1: 4 MB, or off on a single core.",
        _LONG,
        low=0,
        unlimited=-1,
    )
    log_scrub_interval_ms: int = setting(
        _WEEK_MS, "headrace.log.scrub.interval.ms", "Time from one pass of the scrub to the next.", _LONG, low=1
    )
    log_scrub_delay_ms: int = setting(
        300_000, "headrace.log.scrub.delay.ms", "Time from the start of the broker to the first pass.", _LONG, low=0
    )

    # Flushing
    log_flush_interval_messages: int = setting(
        LONG_MAX,
        "log.flush.interval.messages",
        "Records after which a partition is fsynced; 1 means before the answer.",
        _LONG,
        low=1,
        dynamic=True,
    )
    log_flush_interval_ms: int = setting(
        LONG_MAX,
        "log.flush.interval.ms",
        "Time after which a partition is fsynced.",
        _LONG,
        low=0,
        aliases=(Alias(key="log.flush.scheduler.interval.ms", kind=_LONG, low=1, describe=False),),
        null_by_default=True,
        dynamic=True,
    )
    log_flush_scheduler_interval_ms: int = setting(
        LONG_MAX,
        "log.flush.scheduler.interval.ms",
        "How often partitions due for fsync are looked for.",
        _LONG,
        low=1,
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        60_000, "log.flush.offset.checkpoint.interval.ms", "How often the recovery point is written.", low=0
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        60_000,
        "log.flush.start.offset.checkpoint.interval.ms",
        "How often log start offsets are written.",
        low=0,
    )

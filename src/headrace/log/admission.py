"""What a log refuses, and whose clock counts: the size of a batch, its keys and its timestamps.

Pure decisions on bytes; a batch that passes may have been stamped with the broker's time. What its header must be is
decided in `protocol/batch`.
"""

from typing import Final

from headrace.core.errors import PeerError, RecordsError
from headrace.log.config import LogConfig
from headrace.protocol.batch import LOG_APPEND_TIME, BatchHeader, stamp_append_time, stamp_attributes
from headrace.protocol.error_codes import INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE
from headrace.protocol.record_spans import inflate, spans
from headrace.protocol.records import iter_records

NAMED_RECORDS_MAX: Final = 3  # in the message for the whole batch


def too_large(name: str, size: int, config: LogConfig) -> PeerError:
    return PeerError(
        MESSAGE_TOO_LARGE,
        f"{name}: a batch of {size} bytes is above the limit of {config.max_message_bytes};"
        " make batches smaller, or raise max.message.bytes",
    )


def check_keys(name: str, batch: memoryview, header: tuple[int, ...]) -> None:
    """A compacted topic keeps the last record of each key: one without a key would be lost. Kafka's words."""
    found = BatchHeader._make(header)
    keyless = [at for at, span in enumerate(spans(inflate(found, batch), found.record_count)) if span[6] is None]
    if keyless:
        why = f"Compacted topic cannot accept message without key in topic partition {name}"
        named = ", ".join(f"RecordError(batchIndex={at}, message='{why}')" for at in keyless[:NAMED_RECORDS_MAX])
        message = (
            f"One or more records have been rejected due to {len(keyless)} record errors in total,"
            f" and only showing the first three errors at most: [{named}]"
        )
        raise RecordsError(INVALID_RECORD, message, tuple((at, why) for at in keyless))


def settle_time(
    name: str, config: LogConfig, data: memoryview, start: int, end: int, header: tuple[int, ...], now_ms: int
) -> tuple[int, int]:
    """(the largest timestamp, the append time or -1) of a batch whose time is not simply the producer's own."""
    attributes, max_timestamp = header[5], header[8]
    if attributes & LOG_APPEND_TIME:
        attributes = _without_append_time(name, config, data, start, end, header)
    if config.log_append_time:
        stamp_append_time(data, start, end, attributes, now_ms)
        return now_ms, now_ms
    if max_timestamp - now_ms > config.timestamp_after_max_ms or now_ms - header[7] > config.timestamp_before_max_ms:
        _check_each_timestamp(name, config, data[start:end], now_ms)
    return max_timestamp, -1


def _without_append_time(
    name: str, config: LogConfig, data: memoryview, start: int, end: int, header: tuple[int, ...]
) -> int:
    """Only a broker gives append times: a producer's claim to one is taken away, or refused where it matters."""
    if config.log_append_time:
        why = f"{name}: the batch says LogAppendTime, which only the broker may; send CreateTime"
        raise RecordsError(INVALID_TIMESTAMP, why, tuple((at, why) for at in range(header[12])))
    return stamp_attributes(data, start, end, header[5] & ~LOG_APPEND_TIME)


def _check_each_timestamp(name: str, config: LogConfig, batch: memoryview, now_ms: int) -> None:
    """The header says that some record may be too old or too new; now each is looked at."""
    oldest, newest = now_ms - config.timestamp_before_max_ms, now_ms + config.timestamp_after_max_ms
    bad: list[tuple[int, str | None]] = []
    for position, record in enumerate(iter_records(batch)):
        if record.timestamp >= 0 and not oldest <= record.timestamp <= newest:
            why = (
                f"{name}: timestamp {record.timestamp} is outside [{oldest}, {newest}]; mend the producer's clock,"
                " or raise message.timestamp.before.max.ms or message.timestamp.after.max.ms"
            )
            bad.append((position, why))
    if bad:
        raise RecordsError(INVALID_TIMESTAMP, str(bad[0][1]), tuple(bad))

"""What a log refuses, and whose clock counts: the size of a batch, its records, their keys and their timestamps.

Pure decisions on bytes; a batch that passes may have been stamped with another time. What its header must be is
decided in `protocol/batch`, what its records must be in `protocol/record_walk`.
"""

from typing import Final

from headrace.core.errors import PeerError, RecordsError
from headrace.log.config import LogConfig
from headrace.protocol.batch import HEADER, LOG_APPEND_TIME, stamp_times
from headrace.protocol.error_codes import INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE
from headrace.protocol.record_check import INT64_MAX, INT64_MIN, Fault, describe, walk_anywhere, walk_here
from headrace.protocol.record_walk import KEYED, RECORD_ERRORS_MAX, RECORDS

NAMED_RECORDS_MAX: Final = 3  # in the message for the whole batch
UNCHECKED: Final = -2  # in place of a largest timestamp, which is -1 or more


def too_large(name: str, size: int, config: LogConfig) -> PeerError:
    return PeerError(
        MESSAGE_TOO_LARGE,
        f"{name}: a batch of {size} bytes is above the limit of {config.max_message_bytes};"
        " make batches smaller, or raise max.message.bytes",
    )


def check_records(
    name: str, config: LogConfig, data: memoryview, start: int, end: int, header: tuple[int, ...], now_ms: int
) -> int:
    """The largest timestamp of the records in a batch whose header is right; PeerError says which of them are wrong.

    UNCHECKED if looking at them would keep the loop: then `check_slowly` is for a worker thread.
    """
    oldest, newest = _time_range(config, now_ms)
    walked = walk_here(data, start, end, header, oldest, newest, KEYED if config.cleanup_compact else 0)
    if walked is None:
        return UNCHECKED
    if isinstance(walked, int):
        return walked
    raise _refusal(name, config, walked, header[12], now_ms)


def check_slowly(name: str, config: LogConfig, data: memoryview, start: int, end: int, now_ms: int) -> int:
    """The same, however long it takes: for threads."""
    header = HEADER.unpack_from(data, start)
    oldest, newest = _time_range(config, now_ms)
    try:
        walked = walk_anywhere(data, start, end, header, oldest, newest, KEYED if config.cleanup_compact else 0)
    except PeerError as error:
        # Kafka answers UNKNOWN_SERVER_ERROR; CORRUPT_MESSAGE would make clients send the same bytes again and again.
        raise PeerError(INVALID_RECORD, f"{name}: {error.message}") from None
    if isinstance(walked, int):
        return walked
    raise _refusal(name, config, walked, header[12], now_ms)


def settle_time(
    name: str,
    config: LogConfig,
    data: memoryview,
    start: int,
    end: int,
    header: tuple[int, ...],
    largest: int,
    now_ms: int,
) -> tuple[int, int]:
    """(the largest timestamp, the append time or -1) of a batch whose time is not simply what its header says."""
    attributes = header[5]
    if config.log_append_time:
        if attributes & LOG_APPEND_TIME:
            why = f"{name}: the batch says LogAppendTime, which only the broker may; send CreateTime"
            records = tuple((at, why) for at in range(min(header[12], RECORD_ERRORS_MAX)))
            raise RecordsError(INVALID_TIMESTAMP, why, records)
        stamp_times(data, start, end, attributes | LOG_APPEND_TIME, now_ms)
        return now_ms, now_ms
    # Only a broker gives append times, and retention and look-ups by time believe the header: both are set right.
    if attributes & LOG_APPEND_TIME or largest != header[8]:
        stamp_times(data, start, end, attributes & ~LOG_APPEND_TIME, largest)
    return largest, -1


def _time_range(config: LogConfig, now_ms: int) -> tuple[int, int]:
    """The oldest and the newest timestamp that a record may have; where the broker's clock counts, any."""
    if config.log_append_time:
        return INT64_MIN, INT64_MAX
    return now_ms - config.timestamp_before_max_ms, min(now_ms + config.timestamp_after_max_ms, INT64_MAX)


def _refusal(name: str, config: LogConfig, fault: Fault, count: int, now_ms: int) -> PeerError:
    kind, _, _, total, bad = fault
    if kind != RECORDS:
        return PeerError(INVALID_RECORD, f"{name}: {describe(fault, count)}; fix the producer")
    oldest, newest = _time_range(config, now_ms)
    records: list[tuple[int, str | None]] = []
    wrong_time = ""
    for at, timestamp in bad:
        if timestamp is None:
            why = f"Compacted topic cannot accept message without key in topic partition {name}"  # Kafka's words
        else:
            why = (
                f"{name}: timestamp {timestamp} is outside [{oldest}, {newest}]; fix the producer's clock,"
                " or raise message.timestamp.before.max.ms or message.timestamp.after.max.ms"
            )
            wrong_time = wrong_time or why
        records.append((at, why))
    if wrong_time:
        return RecordsError(INVALID_TIMESTAMP, wrong_time, tuple(records))
    named = ", ".join(f"RecordError(batchIndex={at}, message='{why}')" for at, why in records[:NAMED_RECORDS_MAX])
    message = (
        f"One or more records have been rejected due to {total} record errors in total,"
        f" and only showing the first three errors at most: [{named}]"
    )
    return RecordsError(INVALID_RECORD, message, tuple(records))

"""The records of one batch, inflated and walked: what is wrong with them, in words.

Small batches are looked at where they are. What takes longer (many bytes, or bytes that inflate to many) is for a
worker thread, and `walk_here` says so by None. Either way the bytes that a batch may inflate to are bounded before
they exist. Nothing is kept: the batch is stored as it came.
"""

import mmap
import threading
from typing import Final

from headrace.core.errors import PeerError
from headrace.protocol.batch import CODEC_MASK, HEADER_BYTES, BatchHeader
from headrace.protocol.compression import INFLATED_BYTES_MAX, LZ4, check_lz4, decompress_into
from headrace.protocol.error_codes import CORRUPT_MESSAGE
from headrace.protocol.record_walk import (
    CUT,
    END,
    GAPS,
    HEADER_COUNT,
    HEADER_KEY,
    HEADER_VALUE,
    IS_NATIVE,
    KEY,
    LEFT_OVER,
    LENGTH,
    NUMBER,
    OFFSET,
    VALUE,
    BadRecords,
    Walked,
    walk,
)

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1

# What the loop does itself: about a millisecond of work at most. Records, and bytes as sent and as inflated.
RECORDS_HERE_MAX: Final = 100_000 if IS_NATIVE else 2_000
PLAIN_HERE_BYTES_MAX: Final = 4 << 20 if IS_NATIVE else 256 << 10
PACKED_HERE_BYTES_MAX: Final = 64 << 10
INFLATED_HERE_BYTES_MAX: Final = 256 << 10 if IS_NATIVE else 32 << 10

Fault = tuple[int, int, int, int, BadRecords]


class _Scratch(threading.local):
    """Where a loop inflates small batches, one after the other. Brokers in one process have a loop each."""

    def __init__(self) -> None:
        self.room = bytearray(INFLATED_HERE_BYTES_MAX)


_scratch = _Scratch()


def walk_here(
    data: memoryview, start: int, end: int, header: tuple[int, ...], oldest: int, newest: int, rules: int
) -> Walked | None:
    """What `walk` says of the records of the batch in data[start:end]; None if that is too much for the loop."""
    codec = header[5] & CODEC_MASK
    if header[12] > RECORDS_HERE_MAX:
        return None
    if not codec:
        if end - start > PLAIN_HERE_BYTES_MAX:
            return None
        return walk(data, start + HEADER_BYTES, end, header[12], header[7], oldest, newest, rules)
    if end - start > PACKED_HERE_BYTES_MAX:
        return None
    packed, room = data[start + HEADER_BYTES : end], _scratch.room
    try:
        if codec == LZ4:
            check_lz4(packed)
        size = decompress_into(codec, packed, room)
    except PeerError:
        return None  # too large, or garbage: the worker finds out, since the codecs do not tell one from the other
    return walk(room, 0, size, header[12], header[7], oldest, newest, rules)


def walk_anywhere(
    data: memoryview, start: int, end: int, header: tuple[int, ...], oldest: int, newest: int, rules: int
) -> Walked:
    """The same, however long it takes. PeerError if the records cannot be inflated within INFLATED_BYTES_MAX."""
    codec = header[5] & CODEC_MASK
    if not codec:
        return walk(data, start + HEADER_BYTES, end, header[12], header[7], oldest, newest, rules)
    packed = data[start + HEADER_BYTES : end]
    if codec == LZ4:
        check_lz4(packed)
    # An anonymous mapping costs memory only where it is written, and gives it back when it is closed.
    with mmap.mmap(-1, INFLATED_BYTES_MAX) as room:
        size = decompress_into(codec, packed, room)
        return walk(room, 0, size, header[12], header[7], oldest, newest, rules)


def fault_of_stored(batch: memoryview, header: BatchHeader) -> str | None:
    """What is wrong with the records of a batch that is in a log already; None if nothing is.

    Compaction leaves gaps between offsets, and batches without records; whose time a record has does not matter here.
    """
    if not header.record_count and len(batch) == HEADER_BYTES:
        return None
    if header.record_count < 0:
        return _negative(header)
    try:
        walked = walk_anywhere(batch, 0, len(batch), header, INT64_MIN, INT64_MAX, GAPS)
    except PeerError as error:
        return error.message
    return None if isinstance(walked, int) else describe(walked, header.record_count)


def check_stored(header: BatchHeader, data: bytes) -> None:
    """The same for records that were inflated already, as a PeerError."""
    if header.record_count < 0:
        raise PeerError(CORRUPT_MESSAGE, _negative(header))
    walked = walk(data, 0, len(data), header.record_count, header.base_timestamp, INT64_MIN, INT64_MAX, GAPS)
    if not isinstance(walked, int):
        raise PeerError(CORRUPT_MESSAGE, describe(walked, header.record_count))


def _negative(header: BatchHeader) -> str:
    return f"a record count of {header.record_count}, which cannot be negative"


def describe(fault: Fault, count: int) -> str:
    """What is wrong, for whoever wrote the producer."""
    kind, record, at, number, _ = fault
    where = f"record {record} of {count}, at byte {at} of the records"
    if kind == LEFT_OVER:
        return f"{number} bytes follow the last of {count} records, at byte {at}"
    what = _WHAT[kind]
    return f"{where}: {what.format(number=number, record=record)}"


_WHAT: Final = {
    CUT: "the bytes end inside a number",
    NUMBER: "a number has too many bits",
    LENGTH: "a length of {number} bytes, which is below 1 or beyond the end of the batch",
    OFFSET: "an offset delta of {number} where {record} is expected",
    KEY: "a key of {number} bytes, which is below -1 (null) or beyond the record",
    VALUE: "a value of {number} bytes, which is below -1 (null) or beyond the record",
    HEADER_COUNT: "{number} headers, which is negative or more than the record has room for",
    HEADER_KEY: "a header's key of {number} bytes, which is negative or beyond the record",
    HEADER_VALUE: "a header's value of {number} bytes, which is below -1 (null) or beyond the record",
    END: "the record goes on for {number} bytes behind its last field",
}

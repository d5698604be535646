"""The walk over the records of a batch: whether each is what its length, its place and the header say it is.

`walk` is the native one (`_record_walk.c`) where the package was built with a C compiler, else the twin below; both
give the same answer for all bytes. It reads numbers and jumps over keys, values and headers: nothing is copied, and
nothing is refused here; what a fault means is said in `protocol/record_check`.

    length varint · attributes i8 · timestamp delta varlong · offset delta varint · key · value · headers

The rules are those of Apache Kafka's LogValidator and DefaultRecord, and four more, since readers differ in what they
make of such bytes, and some stop at them forever: a record is as long as it says (Kafka ignores that in compressed
batches), its offset delta is its place in the batch (Kafka fails over others in compressed batches, and takes them
elsewhere), the only negative length is -1, which is null (Kafka takes any), and a number fits the 32 or 64 bits that it
is read into (Kafka drops the bits that do not).
"""

import mmap
from collections.abc import Callable
from typing import Final

# What can be wrong. The numbers are those of `_record_walk.c`.
RECORDS: Final = 0  # well-formed, but some records have no key, or a timestamp out of range
CUT: Final = 1  # the bytes, or a record, end inside a number
NUMBER: Final = 2  # a number of more than 32 or 64 bits
LENGTH: Final = 3  # of a record: not above 0, or beyond the end
OFFSET: Final = 4  # a delta that is not the record's place
KEY: Final = 5  # a length below -1, or beyond the record; as the next
VALUE: Final = 6
HEADER_COUNT: Final = 7  # negative, or more than there are bytes left
HEADER_KEY: Final = 8  # without a key, or one that reaches beyond its record
HEADER_VALUE: Final = 9
END: Final = 10  # bytes of a record behind its last header
LEFT_OVER: Final = 11  # bytes behind the last record

# Rules, added up.
KEYED: Final = 1  # every record needs a key
GAPS: Final = 2  # offset deltas only rise, as in what compaction left

RECORD_ERRORS_MAX: Final = 1000  # records named in one fault; there may be more
NO_TIMESTAMP: Final = -1

_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1

# Index, timestamp (None: it is the key that is missing) of some of the records that are to blame.
BadRecords = tuple[tuple[int, int | None], ...]
# Kind, index of the record, where in the records, the number that is wrong (0 where there is none), bad records.
Walked = int | tuple[int, int, int, int, BadRecords]
Buffer = bytes | bytearray | memoryview | mmap.mmap


class _Fault(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, kind: int, at: int, number: int = 0) -> None:
        self.kind = kind
        self.at = at
        self.number = number


def walk_interpreted(
    data: Buffer,
    start: int,
    end: int,
    count: int,
    base_timestamp: int,
    oldest: int,
    newest: int,
    rules: int,
) -> Walked:
    """The largest timestamp (at least -1) of the `count` records in data[start:end], or what is wrong with them.

    A record is to blame if it has no key where one is needed (KEYED), or a timestamp outside [oldest, newest].
    """
    if not 0 <= start <= end <= len(data) or count < 0:
        raise ValueError(f"records at [{start}, {end}) of {len(data)} bytes")
    records = bytes(data[start:end])  # of all buffers the one that is quickest to index
    position, size, largest, index, offset_delta = 0, end - start, NO_TIMESTAMP, 0, -1
    keyed, gaps = bool(rules & KEYED), bool(rules & GAPS)
    bad: list[tuple[int, int | None]] = []
    bad_count = 0
    try:
        for index in range(count):
            position, offset_delta, timestamp, has_key = _record(
                records, position, size, offset_delta + 1, gaps, base_timestamp
            )
            if timestamp > largest:
                largest = timestamp
            keyless = keyed and not has_key
            if keyless or (not oldest <= timestamp <= newest and timestamp != NO_TIMESTAMP):
                bad_count += 1
                if bad_count <= RECORD_ERRORS_MAX:
                    bad.append((index, None if keyless else timestamp))
    except _Fault as fault:
        return fault.kind, index, fault.at, fault.number, ()
    if position != size:
        return LEFT_OVER, count, position, size - position, ()
    if bad:
        return RECORDS, bad[0][0], position, bad_count, tuple(bad)
    return largest


def _record(
    data: bytes, at: int, end: int, expected: int, gaps: bool, base_timestamp: int
) -> tuple[int, int, int, bool]:
    """Where the record at `at` ends, its offset delta and timestamp, and whether it has a key.

    Short numbers are read without a call.
    """
    if at < end and (byte := data[at]) < 128:
        length, position = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        length, position = _number(data, at, end, 28)
    if length <= 0 or length > end - position:
        raise _Fault(LENGTH, at, length)
    end = position + length  # from here on, of the record
    at = position + 1  # behind the attributes: no bit of them has a meaning
    if at < end and (byte := data[at]) < 128:
        delta, position = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        delta, position = _number(data, at, end, 63)
    at = position
    if at < end and (byte := data[at]) < 128:
        offset_delta, position = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        offset_delta, position = _number(data, at, end, 28)
    if offset_delta != expected and not (gaps and offset_delta > expected):
        raise _Fault(OFFSET, at, offset_delta)
    key_size, position = _skip(data, position, end, KEY)
    _, position = _skip(data, position, end, VALUE)
    if position < end and data[position] == 0:
        position += 1  # no headers
    else:
        position = _headers(data, position, end)
    if position != end:
        raise _Fault(END, position, end - position)
    timestamp = base_timestamp + delta
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        timestamp = _INT64_MIN if delta < 0 else _INT64_MAX
    return position, offset_delta, timestamp, key_size >= 0


def _headers(data: bytes, at: int, end: int) -> int:
    count, position = _number(data, at, end, 28)
    if not 0 <= count <= end - position:
        raise _Fault(HEADER_COUNT, at, count)
    for _ in range(count):
        at = position
        size, position = _skip(data, at, end, HEADER_KEY)
        if size < 0:
            raise _Fault(HEADER_KEY, at, size)
        _, position = _skip(data, position, end, HEADER_VALUE)
    return position


def _skip(data: bytes, at: int, end: int, beyond: int) -> tuple[int, int]:
    """A length, and where what it counts ends."""
    if at < end and (byte := data[at]) < 128:
        size, position = (byte >> 1) ^ -(byte & 1), at + 1
    else:
        size, position = _number(data, at, end, 28)
    if not -1 <= size <= end - position:
        raise _Fault(beyond, at, size)
    return size, position + size if size > 0 else position


def _number(data: bytes, start: int, end: int, shift_max: int) -> tuple[int, int]:
    """A zigzag varint and where it ends. `shift_max` is 28 for one of 32 bits, 63 for one of 64 bits."""
    value, shift, position = 0, 0, start
    while True:
        if position == end:
            raise _Fault(CUT, start)
        byte = data[position]
        position += 1
        if shift == shift_max and byte > (0x0F if shift_max == 28 else 1):
            raise _Fault(NUMBER, start)
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


walk: Callable[[Buffer, int, int, int, int, int, int, int], Walked] = walk_interpreted
IS_NATIVE = False
try:
    from headrace.protocol import _record_walk
except ImportError:
    pass  # an editable install, or a package that was built without a C compiler
else:
    walk = _record_walk.walk
    IS_NATIVE = True

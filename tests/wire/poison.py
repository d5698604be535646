"""Batches with a good header, a good CRC and nonsense inside: what no broker may acknowledge.

Each kind says what Apache Kafka 4.3.1 answers, once for batches that are not compressed and once for those that are:
there Kafka reads field by field and ignores the records' lengths. Where its answer is 0, Kafka stores the batch and
leaves it to readers; Headrace refuses all of them with INVALID_RECORD.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import raw
from raw import ErrorCode, varint

OK = ErrorCode.none
INVALID = ErrorCode.invalid_record
BROKEN = ErrorCode.unknown_server_error  # an exception that Kafka has no code for
CODECS = {"none": raw.NONE, "gzip": raw.GZIP, "snappy": raw.SNAPPY, "lz4": raw.LZ4, "zstd": raw.ZSTD}


class Kind(NamedTuple):
    body: bytes
    count: int
    kafka: ErrorCode = INVALID
    kafka_packed: ErrorCode = INVALID


def record(
    index: int,
    *,
    longer: int = 0,
    length: bytes | None = None,
    delta_ms: bytes = b"\0",
    offset_delta: bytes | None = None,
    key: bytes = b"\2k",
    value: bytes = b"\x0avalue",
    headers: bytes = b"\0",
) -> bytes:
    """One record, field by field; each may be given as other bytes."""
    body = b"\0" + delta_ms + (varint(index) if offset_delta is None else offset_delta) + key + value + headers
    return (varint(len(body) + longer) if length is None else length) + body


FIRST, LAST = record(0), record(2)


def middle(**wrong: object) -> bytes:
    """Three records of which the one in the middle is wrong."""
    return FIRST + record(1, **wrong) + LAST  # type: ignore[arg-type]


KINDS = {
    "a record too few": Kind(FIRST + record(1), 3),
    "a record too many": Kind(FIRST + record(1) + LAST, 2),
    "no record at all": Kind(b"", 1),
    "bytes behind the last record": Kind(middle() + b"xyz", 3),
    "length 0": Kind(middle(length=b"\0"), 3, kafka_packed=OK),
    "length negative": Kind(middle(length=varint(-5)), 3, kafka_packed=OK),
    "length one too short": Kind(middle(longer=-1), 3, kafka_packed=OK),
    "length one too long": Kind(middle(longer=1), 3, kafka_packed=OK),
    "length beyond the batch": Kind(middle(length=varint(1 << 20)), 3, kafka_packed=OK),
    "length of 2 GB": Kind(middle(length=varint((1 << 31) - 1)), 3, kafka_packed=OK),
    "length without an end": Kind(middle(length=b"\xff" * 12), 3, kafka=BROKEN),
    "timestamp without an end": Kind(middle(delta_ms=b"\xff" * 12), 3),
    "offsets all 0": Kind(b"".join(record(index, offset_delta=b"\0") for index in range(3)), 3, OK, BROKEN),
    "an offset left out": Kind(middle(offset_delta=varint(7)), 3, OK, BROKEN),
    "an offset negative": Kind(middle(offset_delta=varint(-1)), 3, OK, BROKEN),
    "key beyond the record": Kind(middle(key=varint(1000) + b"k"), 3),
    "key beyond the record by one": Kind(FIRST + record(1) + record(2, key=varint(9) + b"k"), 3),
    "value beyond the record": Kind(middle(value=varint(1 << 30) + b"v"), 3),
    "key of -2 bytes": Kind(middle(key=varint(-2)), 3, OK, OK),  # librdkafka's consumers stop at it
    "value of -7 bytes": Kind(middle(value=varint(-7)), 3, OK, OK),
    "a header's value of -2 bytes": Kind(middle(headers=varint(1) + b"\2h" + varint(-2)), 3, OK, OK),
    "headers negative": Kind(middle(headers=varint(-1)), 3),
    "more headers than bytes": Kind(middle(headers=varint(100)), 3),
    "a header without a key": Kind(middle(headers=varint(1) + varint(-1) + varint(-1)), 3),
    "a header's value beyond the record": Kind(middle(headers=varint(1) + b"\2h" + varint(999)), 3),
    "noise": Kind(random.Random(11).randbytes(300), 3),
    "zeroes": Kind(bytes(300), 3),
    "text": Kind(b"{}" * 150, 3),
    # The bit beyond the 32nd, which some readers drop and others do not, in front of the right length.
    "length of 33 bits": Kind(middle(length=bytes([0x80 | (len(record(1)) - 1) * 2]) + b"\x80\x80\x80\x10"), 3, OK, OK),
}


def batch(kind: Kind, codec: int = raw.NONE) -> bytes:
    return raw.batch_of(raw.compress(codec, kind.body), count=kind.count, base_ms=raw.now_ms(), codec=codec)


def streams(codec: int) -> dict[str, bytes]:
    """Records that do not even inflate."""
    packed = raw.compress(codec, middle())
    noise = random.Random(12).randbytes(len(packed))
    return {
        "noise": noise,
        "noise behind the stream's header": packed[:16] + noise[16:],
        "a stream cut in half": packed[: len(packed) // 2],
        "a stream without its last byte": packed[:-1],
        "one byte": packed[:1],
        "no bytes": b"",
        "records that are not compressed": middle(),
    }

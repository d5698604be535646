"""The records inside a batch of format v2, for the few places that cannot leave a batch alone.

Search by timestamp, compaction, internal topics and recompression come here; produce and fetch never do. The
CRC was checked before, yet nothing is trusted: malformed bytes raise `PeerError` (CORRUPT_MESSAGE) only.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from headrace.protocol.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_AT,
    CRC_END,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
)
from headrace.protocol.compression import INFLATED_BYTES_MAX, compress, decompress
from headrace.protocol.zigzag import corrupt_batch, put_varint, read_varint, varint_size

_LENGTH_AT = 8
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1

Buffer = bytes | bytearray | memoryview


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def iter_records(batch: Buffer, size_max: int = INFLATED_BYTES_MAX) -> Iterator[Record]:
    """Every record of the one batch that `batch` begins with; `size_max` bounds what it inflates to."""
    header, data = _open(batch, size_max)
    base_offset, base_timestamp, count = header.base_offset, header.base_timestamp, header.record_count
    stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    position, size = 0, len(data)
    try:
        for _ in range(count):
            length, position = read_varint(data, position)
            end = position + length
            if length < 0 or end > size:
                raise corrupt_batch(f"record of {length} bytes at byte {position} of {size}")
            byte = data[position + 1]  # one further: a record's attributes are a byte without a meaning
            if byte < 128:  # the usual case, without a call
                delta, position = (byte >> 1) ^ -(byte & 1), position + 2
            else:
                delta, position = read_varint(data, position + 1)
            timestamp = base_timestamp + delta if stamped is None else stamped
            offset_delta, position = read_varint(data, position)
            key_size, position = read_varint(data, position)
            key = None
            if key_size >= 0:
                if position + key_size > end:
                    raise corrupt_batch(f"key of {key_size} bytes at byte {position}, past the record's end at {end}")
                key = data[position : position + key_size]
                position += key_size
            value_size, position = read_varint(data, position)
            value = None
            if value_size >= 0:
                if position + value_size > end:
                    raise corrupt_batch(
                        f"value of {value_size} bytes at byte {position}, past the record's end at {end}"
                    )
                value = data[position : position + value_size]
                position += value_size
            byte = data[position]
            headers: Sequence[tuple[str, bytes | None]] = ()
            if byte == 0:
                position += 1
            else:
                headers, position = _headers(data, position, end)
            if position != end:
                raise corrupt_batch(f"record that ends at byte {position}, not at {end} as its length says")
            if not (_INT64_MIN <= timestamp <= _INT64_MAX and _INT32_MIN <= offset_delta <= _INT32_MAX):
                raise corrupt_batch(f"timestamp {timestamp} or offset delta {offset_delta} is out of range")
            yield Record(base_offset + offset_delta, timestamp, key, value, headers)
    except IndexError:
        raise corrupt_batch(f"records that end at byte {size}, inside a record") from None
    if position != size:
        raise corrupt_batch(f"{size - position} bytes after the last of {count} records")


def first_offset_at_or_after(
    batch: Buffer, timestamp: int, *, offset_min: int = 0, size_max: int = INFLATED_BYTES_MAX
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record that is not older than `timestamp` nor before `offset_min`."""
    for offset, found in _iter_times(batch, size_max):
        if found >= timestamp and offset >= offset_min:
            return offset, found
    return None


def max_timestamp_record(batch: Buffer, *, size_max: int = INFLATED_BYTES_MAX) -> tuple[int, int] | None:
    """Offset and timestamp of the first record with the highest timestamp; None for an empty batch."""
    best = None
    for offset, found in _iter_times(batch, size_max):
        if best is None or found > best[1]:
            best = offset, found
    return best


def build_plain_batch(
    pairs: Sequence[tuple[bytes | None, bytes | None]],
    timestamp: int,
    *,
    producer_id: int = -1,
    producer_epoch: int = -1,
    transactional: bool = False,
) -> bytearray:
    """What `build_batch` makes of keys and values of one moment, without a compression, at a third of the cost."""
    batch = bytearray(HEADER_BYTES)
    for offset_delta, (key, value) in enumerate(pairs):
        # Attributes, the time since the batch's first record, no headers: a byte each.
        size = 3 + varint_size(offset_delta) + _sized_bytes(key) + _sized_bytes(value)
        put_varint(batch, size)
        batch += b"\0\0"
        put_varint(batch, offset_delta)
        _put_bytes(batch, key)
        _put_bytes(batch, value)
        batch.append(0)
    count = len(pairs)
    HEADER.pack_into(
        batch, 0, 0, len(batch) - LENGTH_PREFIX_BYTES, -1, MAGIC, 0, TRANSACTIONAL if transactional else 0,
        max(count - 1, 0), timestamp, timestamp, producer_id, producer_epoch, -1, count,
    )  # fmt: skip
    return sealed(batch)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = 0,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = 0,
    last_offset: int | None = None,
) -> bytearray:
    """One batch. Records keep their offsets; `last_offset` is for one whose last records were removed."""
    body = bytearray()
    base_timestamp = timestamp_max = -1
    end_offset, count = base_offset, 0
    for record in records:
        if count == 0:
            base_timestamp = timestamp_max = record.timestamp
        timestamp_max = max(timestamp_max, record.timestamp)
        end_offset = record.offset
        count += 1
        encoded = _encode_record(record, record.offset - base_offset, record.timestamp - base_timestamp)
        put_varint(body, len(encoded))
        body += encoded
    attributes = codec if count else 0
    attributes |= LOG_APPEND_TIME if timestamp_type else 0
    attributes |= (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    blob = compress(codec, body, level) if codec and count else body
    last_delta = (end_offset if last_offset is None else last_offset) - base_offset
    batch = bytearray(HEADER_BYTES)
    batch += blob
    HEADER.pack_into(
        batch, 0, base_offset, len(batch) - LENGTH_PREFIX_BYTES, leader_epoch, MAGIC, 0, attributes,
        last_delta, base_timestamp, timestamp_max, producer_id, producer_epoch, base_sequence, count,
    )  # fmt: skip
    return sealed(batch)


def recompress(batch: Buffer, codec: int, level: int | None = None, *, size_max: int = INFLATED_BYTES_MAX) -> bytearray:
    """The same batch under another codec: the records' blob is one piece, no record is decoded."""
    header, data = _open(batch, size_max)
    result = bytearray(memoryview(batch)[:HEADER_BYTES])
    attributes = header.attributes & ~CODEC_MASK
    if header.record_count:
        attributes |= codec
        result += compress(codec, data, level)
    struct.pack_into(">i", result, _LENGTH_AT, len(result) - LENGTH_PREFIX_BYTES)
    struct.pack_into(">h", result, CRC_END, attributes)
    return sealed(result)


def _open(batch: Buffer, size_max: int) -> tuple[BatchHeader, bytes]:
    """The header and the inflated records."""
    view = memoryview(batch)
    if len(view) < HEADER_BYTES:
        raise corrupt_batch(f"batch of {len(view)} bytes; its header alone has {HEADER_BYTES}")
    header = BatchHeader._make(HEADER.unpack_from(view))
    end = header.length + LENGTH_PREFIX_BYTES
    if not HEADER_BYTES <= end <= len(view):
        raise corrupt_batch(f"batch that claims {end} bytes, of which {len(view)} are here")
    if header.magic != MAGIC:
        raise corrupt_batch(f"batch of format {header.magic}; only {MAGIC} is stored")
    if header.record_count < 0:
        raise corrupt_batch(f"batch with {header.record_count} records")
    blob = view[HEADER_BYTES:end]
    codec = header.attributes & CODEC_MASK
    # A batch that compaction emptied may keep its codec, without a blob.
    return header, b"" if not header.record_count and not blob else decompress(codec, blob, size_max)


def _iter_times(batch: Buffer, size_max: int) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record; keys, values and headers are jumped over."""
    header, data = _open(batch, size_max)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    position, size = 0, len(data)
    try:
        for _ in range(header.record_count):
            length, position = read_varint(data, position)
            end = position + length
            if length < 0 or end > size:
                raise corrupt_batch(f"record of {length} bytes at byte {position} of {size}")
            delta, position = read_varint(data, position + 1)
            offset_delta, position = read_varint(data, position)
            if position > end:
                raise corrupt_batch(f"record that ends at byte {end}, inside its own offset")
            timestamp = base_timestamp + delta if stamped is None else stamped
            if not (_INT64_MIN <= timestamp <= _INT64_MAX and _INT32_MIN <= offset_delta <= _INT32_MAX):
                raise corrupt_batch(f"timestamp {timestamp} or offset delta {offset_delta} is out of range")
            yield base_offset + offset_delta, timestamp
            position = end
    except IndexError:
        raise corrupt_batch(f"records that end at byte {size}, inside a record") from None


def _headers(data: bytes, position: int, end: int) -> tuple[list[tuple[str, bytes | None]], int]:
    count, position = read_varint(data, position)
    if not 0 <= count <= end - position:
        raise corrupt_batch(f"{count} headers in the {end - position} bytes that the record has left")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0 or position + size > end:
            raise corrupt_batch(f"header key of {size} bytes at byte {position}, past the record's end at {end}")
        # Kafka takes any bytes as a header's key; what is not UTF-8 survives decoding and encoding unchanged.
        key = data[position : position + size].decode(errors="surrogateescape")
        size, position = read_varint(data, position + size)
        if size < 0:
            headers.append((key, None))
            continue
        if position + size > end:
            raise corrupt_batch(f"header value of {size} bytes at byte {position}, past the record's end at {end}")
        headers.append((key, data[position : position + size]))
        position += size
    return headers, position


def _sized_bytes(data: bytes | None) -> int:
    return 1 if data is None else varint_size(len(data)) + len(data)


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # zigzag of -1
    else:
        put_varint(out, len(data))
        out += data


def _encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytearray:
    out = bytearray(1)  # attributes
    put_varint(out, timestamp_delta)
    put_varint(out, offset_delta)
    _put_bytes(out, record.key)
    _put_bytes(out, record.value)
    put_varint(out, len(record.headers))
    for name, value in record.headers:
        _put_bytes(out, name.encode(errors="surrogateescape"))
        _put_bytes(out, value)
    return out


def sealed(batch: bytearray) -> bytearray:
    """The batch, with the CRC that it must have."""
    with memoryview(batch) as view:
        struct.pack_into(">I", batch, CRC_AT, crc32c(view[CRC_END:]))
    return batch

"""Where the records of a batch lie, for compaction, which needs their keys and offsets only.

Values and headers are never looked at, so this costs a fraction of what `protocol/records` does. Nothing is trusted:
malformed bytes raise `PeerError` (CORRUPT_MESSAGE) only.
"""

from collections.abc import Iterator

from headrace.protocol.batch import CODEC_MASK, HEADER_BYTES, BatchHeader
from headrace.protocol.compression import decompress
from headrace.protocol.zigzag import corrupt_batch, read_varint

# One record in the inflated bytes of its batch, as a bare tuple since there are so many: where it begins (its length),
# its body (the attributes), what follows its timestamp, its end; timestamp delta, offset delta, key, whether it is a
# tombstone.
Span = tuple[int, int, int, int, int, int, bytes | None, bool]


def inflate(header: BatchHeader, batch: bytes | memoryview) -> bytes:
    """The records of a batch, one behind the other."""
    if not header.record_count:
        return b""
    return decompress(header.attributes & CODEC_MASK, memoryview(batch)[HEADER_BYTES : header.size])


def spans(data: bytes, count: int) -> Iterator[Span]:
    """The `count` records in `data`, which must hold them and nothing else."""
    position, size = 0, len(data)
    try:
        for _ in range(count):
            start = position
            length = data[position]
            if length < 128:  # the usual case of a short number, here and below, without a call
                length, position = (length >> 1) ^ -(length & 1), position + 1
            else:
                length, position = read_varint(data, position)
            body, end = position, position + length
            if length <= 0 or end > size:
                raise corrupt_batch(f"a record of {length} bytes at byte {position} of {size}")
            timestamp_delta = data[position + 1]
            if timestamp_delta < 128:
                timestamp_delta, rest = (timestamp_delta >> 1) ^ -(timestamp_delta & 1), position + 2
            else:
                timestamp_delta, rest = read_varint(data, position + 1)
            offset_delta = data[rest]
            if offset_delta < 128:
                offset_delta, position = (offset_delta >> 1) ^ -(offset_delta & 1), rest + 1
            else:
                offset_delta, position = read_varint(data, rest)
            key_size = data[position]
            if key_size < 128:
                key_size, position = (key_size >> 1) ^ -(key_size & 1), position + 1
            else:
                key_size, position = read_varint(data, position)
            key = None
            if key_size >= 0:
                key = data[position : position + key_size]
                position += key_size
            if position >= end:
                raise corrupt_batch(f"a key of {key_size} bytes in the record that ends at byte {end}")
            # The lowest bit of the value's length is its sign.
            yield start, body, rest, end, timestamp_delta, offset_delta, key, bool(data[position] & 1)
            position = end
    except IndexError:
        raise corrupt_batch(f"its records end at byte {size}, inside a record") from None
    if position != size:
        raise corrupt_batch(f"{size - position} bytes follow the last of {count} records")

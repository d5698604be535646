"""The header of a record batch (magic 2): checked when a batch comes, stamped before it is stored.

Base offset and leader epoch are written in place (both lie outside the CRC), and the same bytes go to the disk and
back to readers. Nothing here looks at a record: that is `protocol/record_check`.

    base_offset i64 · length i32 · leader_epoch i32 · magic i8 · crc u32 · attributes i16 · last_offset_delta i32
    · base_timestamp i64 · max_timestamp i64 · producer_id i64 · producer_epoch i16 · base_sequence i32 · count i32
"""

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    UNSUPPORTED_COMPRESSION_TYPE,
)

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size  # 61
LENGTH_PREFIX_BYTES: Final = 12  # base offset and length itself: what `length` does not count
CRC_AT: Final = 17
CRC_END: Final = 21  # the CRC covers everything from the attributes on
MAGIC: Final = 2

RECORD_BYTES_MIN: Final = 14  # what Kafka takes for the shortest that can be a record of any format

CODEC_MASK: Final = 0x07
CODEC_MAX: Final = 4
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

STAMP: Final = struct.Struct(">qii")  # base offset, length, leader epoch: what a broker writes over, outside the CRC
PRODUCER: Final = struct.Struct(">qh")  # producer id and epoch
PRODUCER_AT: Final = 43
_CRC_AND_ATTRIBUTES: Final = struct.Struct(">Ih")
_MAX_TIMESTAMP: Final = struct.Struct(">q")

Buffer = bytearray | memoryview


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


def read_header(data: bytes | Buffer, at: int = 0) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(data, at))


def check_produced(data: memoryview, start: int, end: int) -> tuple[int, ...]:
    """The header's fields of the one batch in data[start:end], or a PeerError that says what is wrong with it."""
    size = end - start
    if size < HEADER_BYTES:
        raise _too_short(data, start, size)
    header = HEADER.unpack_from(data, start)
    base_offset, length, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count = header
    if length + LENGTH_PREFIX_BYTES != size or magic != MAGIC:
        raise _bad_frame(data[start:end], magic, length + LENGTH_PREFIX_BYTES, crc)
    if crc32c(data[start + CRC_END : end]) != crc:
        raise PeerError(CORRUPT_MESSAGE, "record batch does not match its CRC; it was damaged on the way: resend it")
    if count <= 0 or delta != count - 1:
        why = f"record batch with {count} records and a last offset delta of {delta}; expected {count - 1}"
        raise PeerError(INVALID_RECORD, why)
    if base_offset:
        raise PeerError(INVALID_RECORD, f"record batch with base offset {base_offset}; a producer's begins at 0")
    if attributes & CONTROL:
        raise PeerError(INVALID_RECORD, "clients are not allowed to write control records")
    if attributes & CODEC_MASK > CODEC_MAX:
        why = f"record batch with codec {attributes & CODEC_MASK}; known are 0 to {CODEC_MAX}"
        raise PeerError(UNSUPPORTED_COMPRESSION_TYPE, why)
    if sequence < 0 <= producer_id:
        raise PeerError(
            INVALID_RECORD, f"record batch of producer {producer_id} with sequence {sequence}; it begins at 0"
        )
    return header


def check_replicated(data: memoryview, start: int, end: int) -> tuple[int, ...]:
    """The header's fields of the one batch in data[start:end] that a leader sent; PeerError if it was damaged.

    What a leader stores is taken as it is: compacted batches have fewer records than offsets, or none.
    """
    size = end - start
    if size < HEADER_BYTES:
        raise _too_short(data, start, size)
    header = HEADER.unpack_from(data, start)
    if header[1] + LENGTH_PREFIX_BYTES != size or header[3] != MAGIC:
        raise _bad_frame(data[start:end], header[3], header[1] + LENGTH_PREFIX_BYTES, header[4])
    if crc32c(data[start + CRC_END : end]) != header[4]:
        raise PeerError(CORRUPT_MESSAGE, "record batch does not match its CRC; it was damaged on the way: fetch again")
    if header[0] < 0 or header[6] < 0 or header[2] < 0:
        why = f"record batch at offset {header[0]} with last offset delta {header[6]} and leader epoch {header[2]}"
        raise PeerError(CORRUPT_MESSAGE, f"{why}; none can be negative")
    return header


def _too_short(data: memoryview, start: int, size: int) -> PeerError:
    if size <= 0:
        return PeerError(INVALID_RECORD, "a produce request must hold one record batch per partition; found none")
    return PeerError(INVALID_RECORD, f"a record batch has at least {HEADER_BYTES} bytes; found {size}")


def _bad_frame(data: memoryview, magic: int, length: int, crc: int) -> PeerError:
    """Magic or length is not what it must be; the codes are those that Kafka gives."""
    size = len(data)
    if length < RECORD_BYTES_MIN + LENGTH_PREFIX_BYTES:
        return PeerError(CORRUPT_MESSAGE, f"record batch says it has {length} bytes; it has at least {HEADER_BYTES}")
    if 0 <= magic < MAGIC:
        why = f"record batch with magic {magic}; produce version 3 and above must use magic {MAGIC}"
        return PeerError(INVALID_RECORD, why)
    if magic != MAGIC:
        return PeerError(CORRUPT_MESSAGE, f"record batch with magic {magic}; this broker stores magic {MAGIC}")
    if length > size:
        return PeerError(INVALID_RECORD, f"record batch says it has {length} bytes, but {size} were sent")
    if crc32c(data[CRC_END:length]) != crc:
        return PeerError(CORRUPT_MESSAGE, f"record batch says it has {length} of the {size} bytes that were sent")
    return PeerError(INVALID_RECORD, f"{size - length} bytes follow the record batch; send one batch per partition")


def stamp_times(data: memoryview, start: int, end: int, attributes: int, max_timestamp: int) -> None:
    """Other attributes and another largest timestamp, and the CRC that goes with them."""
    _MAX_TIMESTAMP.pack_into(data, start + 35, max_timestamp)
    _CRC_AND_ATTRIBUTES.pack_into(data, start + CRC_AT, 0, attributes)
    crc = crc32c(data[start + CRC_END : end])
    _CRC_AND_ATTRIBUTES.pack_into(data, start + CRC_AT, crc, attributes)

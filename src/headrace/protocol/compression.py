"""Kafka's codecs over whole blobs of records: none, gzip, snappy, lz4, zstd.

What is written reads in the Java client: snappy in xerial's framing, lz4 as a frame of independent blocks.
What is read comes from strangers: the output is bounded before it exists, and garbage raises `PeerError`
only. cramjam is imported on first use; a broker that stores batches as sent never loads it.
"""

import mmap
import struct
from collections.abc import Callable
from typing import Any

from headrace.core.errors import InvariantError, PeerError
from headrace.protocol.error_codes import CORRUPT_MESSAGE

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
# What one batch may inflate to when the caller knows no better bound: the largest request that Kafka takes.
INFLATED_BYTES_MAX = 104_857_600

XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest compatible version
_XERIAL_BLOCK_BYTES = 32 * 1024  # as in snappy-java, so that its reader's buffers fit
_XERIAL_VERSION_MIN = 1
_BLOCK_LENGTH = struct.Struct(">i")

_LZ4_FLAGS_AT = 4  # behind the frame's magic
_LZ4_INDEPENDENT = 0x20
_LZ4_LEVEL_DEFAULT = 9  # Kafka's default level does not mean 9: it selects the fast compressor
_LZ4_LEVEL_FAST = 1
_LZ4_LEVEL_HIGH_MIN = 3
_LZ4_LEVEL_HIGH_MAX = 12  # Kafka's scale ends at 17, the library's at 12


def compress(codec: int, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """`level` is on the scale of Kafka's compression.CODEC.level; None is that setting's default."""
    if codec == NONE:
        return bytes(data)
    import cramjam

    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level=6 if level is None or level < 0 else level))
    if codec == SNAPPY:
        return _compress_xerial(data, cramjam.snappy.compress_raw)
    if codec == LZ4:
        # The Java client decodes each block by itself; linked blocks, the library's default, break it.
        stream = cramjam.lz4.Compressor(level=_lz4_level(level), content_checksum=False, block_linked=False)
        stream.compress(bytes(data))
        return bytes(stream.finish())
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))
    raise InvariantError(f"compression codec {codec} does not exist; known are 0 to {ZSTD}")


def decompress(codec: int, data: bytes | bytearray | memoryview, size_max: int = INFLATED_BYTES_MAX) -> bytes:
    """The inflated bytes; `PeerError` (CORRUPT_MESSAGE) where they exceed `size_max` or make no sense."""
    if codec == NONE:
        if len(data) > size_max:
            raise _too_large("none", size_max)
        return bytes(data)
    # An anonymous mapping costs memory only where it is written: the bound may be large and the blob small.
    output = mmap.mmap(-1, max(size_max, 1))
    try:
        size = decompress_into(codec, data, output)
        if size > size_max:
            raise _too_large(_NAMES[codec], size_max)
        return output[:size]
    finally:
        output.close()


def decompress_into(codec: int, data: bytes | bytearray | memoryview, output: bytearray | mmap.mmap) -> int:
    """How many bytes of `output` were written; `PeerError` (CORRUPT_MESSAGE) where it is too small, or on garbage.

    cramjam's streaming decompressors want whole frames, so what bounds the output is the buffer it goes to.
    """
    import cramjam

    if codec == SNAPPY:
        return _decompress_snappy(data, output)
    if codec == GZIP:
        inflate: Callable[..., int] = cramjam.gzip.decompress_into
    elif codec == LZ4:
        inflate = cramjam.lz4.decompress_into
    elif codec == ZSTD:
        inflate = cramjam.zstd.decompress_into
    else:
        raise PeerError(CORRUPT_MESSAGE, f"compression codec {codec} does not exist; known are 0 to {ZSTD}")
    try:
        return inflate(data, output)
    except cramjam.DecompressionError as error:
        raise PeerError(
            CORRUPT_MESSAGE,
            f"{_NAMES[codec]} records of {len(data)} bytes do not inflate to {len(output)} or fewer: {error}",
        ) from None


def check_lz4(data: bytes | bytearray | memoryview) -> None:
    """Blocks that refer to each other are legal in lz4, and unreadable for the Java client."""
    if len(data) > _LZ4_FLAGS_AT and not data[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT:
        raise PeerError(
            CORRUPT_MESSAGE, "lz4 records in linked blocks; Kafka's format has independent blocks: change the producer"
        )


def _decompress_snappy(data: bytes | bytearray | memoryview, output: bytearray | mmap.mmap) -> int:
    view = memoryview(data)
    with memoryview(output) as room:
        if view[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
            return _snappy_block(view, room)
        position, end = len(_XERIAL_HEADER), len(view)
        if position > end:
            raise PeerError(CORRUPT_MESSAGE, f"snappy records end inside xerial's header, at byte {end}")
        (version,) = _BLOCK_LENGTH.unpack_from(view, len(XERIAL_MAGIC))
        if version < _XERIAL_VERSION_MIN:
            raise PeerError(
                CORRUPT_MESSAGE, f"snappy records of xerial version {version}; the lowest is {_XERIAL_VERSION_MIN}"
            )
        written = 0
        while position < end:
            if end - position < 4:
                raise PeerError(CORRUPT_MESSAGE, f"snappy records end inside a block's length, at byte {end}")
            (length,) = _BLOCK_LENGTH.unpack_from(view, position)
            position += 4
            if not 0 <= length <= end - position:
                raise PeerError(
                    CORRUPT_MESSAGE, f"snappy block of {length} bytes at {position}; only {end - position} follow"
                )
            with room[written:] as rest:
                written += _snappy_block(view[position : position + length], rest)
            position += length
        return written


def _snappy_block(block: memoryview, room: memoryview) -> int:
    from cramjam import DecompressionError, snappy

    try:
        if not block:
            raise DecompressionError("an empty block")
        size: int = snappy.decompress_raw_len(block)
        if size > len(room):
            raise _too_large("snappy", len(room))
        with room[:size] as part:
            return snappy.decompress_raw_into(block, part) if size else 0
    except DecompressionError as error:
        raise PeerError(CORRUPT_MESSAGE, f"snappy block of {len(block)} bytes is corrupt: {error}") from None


def _compress_xerial(data: bytes | bytearray | memoryview, compress_raw: Callable[[Any], Any]) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _lz4_level(level: int | None) -> int:
    if level is None or level == _LZ4_LEVEL_DEFAULT:
        return _LZ4_LEVEL_FAST
    return min(max(level, _LZ4_LEVEL_HIGH_MIN), _LZ4_LEVEL_HIGH_MAX)


def _too_large(name: str, size_max: int) -> PeerError:
    return PeerError(CORRUPT_MESSAGE, f"{name} records inflate to more than {size_max} bytes; send smaller batches")

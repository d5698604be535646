"""The numbers inside records: varints whose lowest bit is the sign. `wire` has those without a sign.

The twin of the C walk (`record_walk`) reads its own, since it must refuse exactly what C refuses, 32 bits and 64 apart.
"""

from typing import Final

from headrace.core.errors import PeerError
from headrace.protocol.error_codes import CORRUPT_MESSAGE

_BYTES_MAX: Final = 10
_BITS_MAX: Final = 64


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A number and where it ends. IndexError past the end of the data: the callers turn it into `PeerError`."""
    byte = data[position]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift, start = byte & 127, 7, position
    while byte >= 128:
        position += 1
        if position - start == _BYTES_MAX:
            raise corrupt_batch(f"a number of more than {_BYTES_MAX} bytes at byte {start}")
        byte = data[position]
        value |= (byte & 127) << shift
        shift += 7
    if value >> _BITS_MAX:
        raise corrupt_batch(f"a number of more than {_BITS_MAX} bits at byte {start}")
    return (value >> 1) ^ -(value & 1), position + 1


def put_varint(out: bytearray, number: int) -> None:
    value = (number << 1) ^ (number >> 63)
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def varint(number: int) -> bytes:
    out = bytearray()
    put_varint(out, number)
    return bytes(out)


def varint_size(number: int) -> int:
    """Of a number that is not negative."""
    size = 1
    while number >= 64:
        number >>= 7
        size += 1
    return size


def corrupt_batch(what: str) -> PeerError:
    return PeerError(CORRUPT_MESSAGE, f"corrupt batch: {what}; send it again, or check the producer")

"""What a broken or hostile client makes of a good request: frames with their lengths in front."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

BOUNDARIES = (
    *(struct.pack(">b", each) for each in (-1, 0, 127, -128)),
    *(struct.pack(">h", each) for each in (-1, 0, 32_767, -32_768)),
    *(struct.pack(">i", each) for each in (-1, 0, (1 << 31) - 1, -(1 << 31), 1 << 24)),
    *(struct.pack(">q", each) for each in (-1, 0, (1 << 63) - 1, -(1 << 63))),
    b"\xff\xff\xff\xff\x0f",  # the largest varint, and one that never ends
    b"\xff" * 10,
)
HEADER_BYTES = 4  # the key and the version, which most mutations leave: few frames would get far else


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def mutated(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    """A frame made of `payload`; `other` is a good request to take parts from."""
    return rng.choice(_KINDS)(payload, other, rng)


def _bits_flipped(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    data = bytearray(payload)
    for _ in range(rng.randrange(1, 5)):
        data[rng.randrange(HEADER_BYTES, len(data))] ^= 1 << rng.randrange(8)
    return framed(bytes(data))


def _truncated(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    return framed(payload[: rng.randrange(len(payload))])


def _extended(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(HEADER_BYTES, len(payload) + 1)
    return framed(payload[:at] + rng.randbytes(rng.randrange(1, 20)) + payload[at:])


def _boundary(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    number = rng.choice(BOUNDARIES)
    at = rng.randrange(HEADER_BYTES, len(payload) + 1)
    return framed(payload[:at] + number + payload[at + len(number) :])


def _swapped(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    """Two pieces of one length in each other's place."""
    size = rng.choice((1, 2, 4, 8, 16))
    if len(payload) < HEADER_BYTES + 2 * size:
        return framed(payload)
    first = rng.randrange(HEADER_BYTES, len(payload) - 2 * size + 1)
    second = rng.randrange(first + size, len(payload) - size + 1)
    data = bytearray(payload)
    data[first : first + size] = payload[second : second + size]
    data[second : second + size] = payload[first : first + size]
    return framed(bytes(data))


def _repeated(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(HEADER_BYTES, len(payload))
    end = rng.randrange(start, len(payload)) + 1
    return framed(payload[:end] + payload[start:end] * rng.choice((1, 3, 30)) + payload[end:])


def _spliced(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    return framed(payload[: rng.randrange(len(payload))] + other[rng.randrange(len(other)) :])


def _renamed(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    """The body of one API or version under the header of another."""
    return framed(other[:HEADER_BYTES] + payload[HEADER_BYTES:])


def _wrong_length(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    lie = rng.choice((-1, 0, 1, len(payload) - 1, len(payload) + 1, len(payload) * 2, 1 << 24, -(1 << 31)))
    return struct.pack(">i", lie) + payload


_KINDS: tuple[Callable[[bytes, bytes, random.Random], bytes], ...] = (
    _bits_flipped,
    _bits_flipped,
    _truncated,
    _extended,
    _boundary,
    _boundary,
    _swapped,
    _repeated,
    _spliced,
    _renamed,
    _wrong_length,
)

"""Requests of the newer, flexible versions as bytes, and what of an answer the raw loads look at.

Written by hand, so that a load spends next to nothing on what it says.
"""

import struct
from collections.abc import Iterable, Sequence

NOTHING = b"\x00"  # an absent string or array; also: no tagged fields
CLIENT = b"bench"
_HEAD = struct.Struct(">hhih")


def request(api_key: int, version: int, body: bytes) -> bytes:
    """With the length in front. The correlation id is always 1: a connection has one request in flight."""
    head = _HEAD.pack(api_key, version, 1, len(CLIENT)) + CLIENT + NOTHING
    return struct.pack(">i", len(head) + len(body)) + head + body


def text(value: str) -> bytes:
    return sized(value.encode())


def sized(data: bytes) -> bytes:
    return count(len(data)) + data


def array(items: Iterable[bytes]) -> bytes:
    held = list(items)
    return count(len(held)) + b"".join(held)


def numbers(values: Sequence[int]) -> bytes:
    return count(len(values)) + struct.pack(f">{len(values)}i", *values)


def count(length: int) -> bytes:
    """A length as flexible versions have it: one more than it is, in base 128."""
    length += 1
    out = bytearray()
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    out.append(length)
    return bytes(out)


class Answer:
    """Reads an answer from its beginning; its header (correlation id, no tags) is skipped."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 5

    def skip(self, size: int) -> None:
        self._at += size

    def take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def count(self) -> int:
        """-1 for an array or a string that is absent."""
        value = shift = 0
        while True:
            byte = self._data[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value - 1
            shift += 7

    def sized(self) -> bytes:
        return self.take(max(self.count(), 0))

    def text(self) -> str:
        return self.sized().decode()

    def numbers(self) -> tuple[int, ...]:
        size = self.count()
        return struct.unpack(f">{size}i", self.take(4 * size))

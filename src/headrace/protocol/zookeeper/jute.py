"""Jute, the encoding of ZooKeeper's messages and files: big-endian numbers, lengths before bytes, no types.

Bytes in, values out. A reader trusts no length: what does not fit into what is there is a MalformedError.
"""

import struct
from collections.abc import Callable
from typing import Final, TypeVar

from headrace.core.errors import HeadraceError

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")

Value = TypeVar("Value")


class MalformedError(HeadraceError):
    """Bytes that are not what they should be."""


class Reader:
    """Reads one value after the other from bytes that do not change."""

    __slots__ = ("_data", "_end", "at")

    def __init__(self, data: bytes, at: int = 0, end: int = -1) -> None:
        self._data = data
        self._end = len(data) if end < 0 else end
        self.at = at

    @property
    def left(self) -> int:
        return self._end - self.at

    def _take(self, size: int) -> int:
        at = self.at
        if size < 0 or size > self._end - at:
            raise MalformedError(f"{size} bytes are wanted at byte {at} of {self._end}")
        self.at = at + size
        return at

    def skips(self, expected: bytes) -> bool:
        """Whether these bytes come next; then they are passed."""
        if len(expected) > self._end - self.at or not self._data.startswith(expected, self.at):
            return False
        self.at += len(expected)
        return True

    def int32(self) -> int:
        return int(_INT.unpack_from(self._data, self._take(4))[0])

    def int64(self) -> int:
        return int(_LONG.unpack_from(self._data, self._take(8))[0])

    def raw(self, size: int) -> bytes:
        at = self._take(size)
        return self._data[at : at + size]

    def boolean(self) -> bool:
        return self._data[self._take(1)] != 0

    def buffer(self) -> bytes | None:
        """None and no bytes at all are two things."""
        size = self.int32()
        if size == -1:
            return None
        at = self._take(size)
        return self._data[at : at + size]

    def string(self) -> str:
        raw = self.buffer()
        if raw is None:
            return ""
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise MalformedError(f"a string is not UTF-8: {error.reason} at byte {error.start}") from None

    def vector(self, read: Callable[[], Value]) -> list[Value]:
        count = self.int32()
        if count == -1:
            return []
        if count < 0 or count > self._end - self.at:  # an element has a byte at least
            raise MalformedError(f"a list of {count} elements in {self._end - self.at} bytes")
        return [read() for _ in range(count)]


def int_bytes(value: int) -> bytes:
    return _INT.pack(value)


def long_bytes(value: int) -> bytes:
    return _LONG.pack(value)


def boolean_bytes(value: bool) -> bytes:
    return b"\x01" if value else b"\x00"


def buffer_bytes(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else _INT.pack(len(value)) + value


def string_bytes(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return _INT.pack(len(raw)) + raw


def vector_bytes(parts: list[bytes]) -> bytes:
    return _INT.pack(len(parts)) + b"".join(parts)

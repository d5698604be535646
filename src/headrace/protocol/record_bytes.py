"""The primitives of which a coordinator's records are made: Kafka's message encoding, old and flexible.

Reading never looks beyond the record and never makes room for more than the record can hold. What a newer Kafka wrote
into tagged fields that we do not know is passed over, as Kafka passes over it.
"""

import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import Final, TypeVar

from headrace.core.errors import HeadraceError, PeerError
from headrace.protocol.error_codes import UNKNOWN_SERVER_ERROR
from headrace.protocol.wire import I16, I32, I64, read_uvarint_of_bytes, uvarint

STRING_BYTES_MAX: Final = 0x7FFF  # of the old encoding, which all keys have
NO_TAGS: Final = b"\x00"
NO_TEXT: Final = b"\x01"  # an empty string of the flexible encoding
NO_ID: Final = uuid.UUID(int=0)
_I8: Final = Struct(">b")

T = TypeVar("T")


class RecordError(HeadraceError):
    """A record that is not what its key says it is: the file is broken, or a newer Kafka wrote it."""


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > STRING_BYTES_MAX:
        # Kafka's answer to this is the same unhelpful code, in the shape of a RuntimeException.
        raise PeerError(UNKNOWN_SERVER_ERROR, f"{text[:40]}…: {len(raw)} bytes are more than {STRING_BYTES_MAX}")
    return I16.pack(len(raw)) + raw


def nullable_string(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else string(text)


def check_strings(texts: Iterable[str | None]) -> None:
    """The error of `string`, before anything has come of a text that no record can hold."""
    for text in texts:
        if text is not None:
            string(text)


def byte_string(data: bytes) -> bytes:
    return I32.pack(len(data)) + data


def compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    raw = text.encode()
    return uvarint(len(raw) + 1) + raw


def compact_bytes(data: bytes) -> bytes:
    return uvarint(len(data) + 1) + data


def compact_array(items: Sequence[bytes]) -> bytes:
    return uvarint(len(items) + 1) + b"".join(items)


def compact_ints(numbers: Sequence[int]) -> bytes:
    return uvarint(len(numbers) + 1) + b"".join(map(I32.pack, numbers))


def tags(fields: Iterable[tuple[int, bytes]]) -> bytes:
    written = [uvarint(tag) + uvarint(len(data)) + data for tag, data in fields]
    return uvarint(len(written)) + b"".join(written)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Cursor:
    """A place in the bytes of a key or a value, which every read moves on."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = bytes(data)
        self._at = 0
        self._end = len(self._data)

    def _take(self, size: int) -> bytes:
        at = self._at
        if size < 0 or size > self._end - at:
            raise RecordError(f"{size} bytes are wanted at byte {at} of a record part of {self._end}")
        self._at = at + size
        return self._data[at : at + size]

    def int8(self) -> int:
        return int(_I8.unpack(self._take(1))[0])

    def int16(self) -> int:
        return int(I16.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(I32.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(I64.unpack(self._take(8))[0])

    def int32s(self) -> tuple[int, ...]:
        """A list of them in the old encoding, in one piece."""
        count = self.int32()
        raw = self._take(4 * count)
        return struct.unpack(f">{count}i", raw)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(bytes=self._take(16))

    def uvarint(self) -> int:
        try:
            value, self._at = read_uvarint_of_bytes(self._data, self._at)
        except ValueError as error:
            raise RecordError(f"{error}, in a record part") from None
        return value

    def nullable_string(self, *, flexible: bool = False) -> str | None:
        size = self.uvarint() - 1 if flexible else self.int16()
        if size < 0:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise RecordError(f"a string before byte {self._at} of a record part is not UTF-8: {error}") from None

    def string(self, *, flexible: bool = False) -> str:
        text = self.nullable_string(flexible=flexible)
        if text is None:
            raise RecordError(f"a string before byte {self._at} of a record part is null and must not be")
        return text

    def nullable_bytes(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else self._take(size)

    def bytes(self, *, flexible: bool = False) -> bytes:
        size = self.uvarint() - 1 if flexible else self.int32()
        return self._take(size)

    def nullable_array(self, item: Callable[[], T], *, flexible: bool = True) -> tuple[T, ...] | None:
        count = self.uvarint() - 1 if flexible else self.int32()
        if count < 0:
            return None
        if count > self._end - self._at:  # each item is at least a byte
            raise RecordError(f"{count} items are wanted at byte {self._at} of a record part of {self._end}")
        return tuple(item() for _ in range(count))

    def array(self, item: Callable[[], T], *, flexible: bool = True) -> tuple[T, ...]:
        items = self.nullable_array(item, flexible=flexible)
        if items is None:
            raise RecordError(f"an array before byte {self._at} of a record part is null and must not be")
        return items

    def tags(self) -> dict[int, "Cursor"]:
        """The tagged fields, each with a cursor of its own."""
        fields = {}
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            fields[tag] = Cursor(self._take(size))
        return fields

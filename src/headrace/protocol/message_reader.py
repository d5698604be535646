"""Request bytes to plain attributes, over kio's schemas, in bounded memory.

kio's own reader reserves room for as many items as an array claims to hold: a frame of ten bytes can make
it ask for 16 GB and abort the process. Here an array that claims more items than the bytes left could hold is
refused before anything is reserved. Every fault of the bytes is a `ValueError`; nothing else may escape.

What comes out has kio's field names, but is no dataclass of kio's: those are frozen, and cost more to make than
all the rest of reading. A reader is a small object for each field, made when an API version is first used;
objects and not closures, since compiled code calls a method of its own at a fraction of the cost.
"""

import struct
from collections.abc import Callable, Generator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from sys import getsizeof
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from headrace.core.errors import InvariantError
from headrace.protocol.message_fields import Default, SchemaField, schema_fields
from headrace.protocol.wire import read_uvarint_of_bytes

# What values take in CPython, each with the eight bytes of the reference to it.
_NUMBER_BYTES: Final = 40
_TEXT_BYTES: Final = 64
_TUPLE_BYTES: Final = 64
_CONVERTED_BYTES: Final = 120  # a UUID, a time


class Meter:
    """The memory that a long request takes as objects, about, while it is read."""

    __slots__ = ("bytes", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.bytes_max = bytes_max

    def add(self, size: int) -> None:
        self.bytes += size
        if self.bytes > self.bytes_max:
            raise ValueError(
                f"a request that takes more than {self.bytes_max >> 20} MB of memory when it is read;"
                " ask for fewer things at once"
            )


class FieldReader:
    """Reads one value: (bytes, offset) → (value, offset behind it)."""

    def __init__(self, bytes_min: int, object_bytes: int) -> None:
        self.bytes_min = bytes_min  # the least that a value takes
        self.object_bytes = object_bytes  # what a value takes as an object, with the place that it has in another

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        raise NotImplementedError

    @property
    def has_array(self) -> bool:
        return False

    def steps(self, data: bytes, at: int, meter: Meter) -> Generator[None, None, tuple[Any, int]]:
        """The same, with a pause after each item of an array: for requests that are long."""
        yield
        return self.read(data, at)


def compile_reader(schema: type[Any]) -> FieldReader:
    flexible: bool = schema.__flexible__
    plain: list[tuple[str, FieldReader]] = []
    tagged: dict[int, tuple[str, FieldReader]] = {}
    absent: dict[str, Any] = {}
    bytes_min = 1 if flexible else 0
    for field in schema_fields(schema):
        reader = _compile_field(field, flexible)
        if field.tag is None:
            plain.append((field.name, reader))
            bytes_min += reader.bytes_min
        else:
            tagged[field.tag] = (field.name, reader)
            absent[field.name] = _value_when_absent(field)
    return _Entity(plain, tagged, absent, flexible, bytes_min)


def _entity_bytes(members: list[tuple[str, FieldReader]]) -> int:
    """An object with a table of its attributes, and these."""
    made = SimpleNamespace(**dict.fromkeys(name for name, _ in members))
    return getsizeof(made) + getsizeof(made.__dict__) + 8 + sum(reader.object_bytes for _, reader in members)


class _Entity(FieldReader):
    def __init__(
        self,
        plain: list[tuple[str, FieldReader]],
        tagged: dict[int, tuple[str, FieldReader]],
        absent: dict[str, Any],
        flexible: bool,
        bytes_min: int,
    ) -> None:
        super().__init__(bytes_min, _entity_bytes([*plain, *tagged.values()]))
        self._plain = plain
        self._tagged = tagged
        self._absent = absent
        self._flexible = flexible

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        values = self._absent.copy()
        for name, reader in self._plain:
            values[name], at = reader.read(data, at)
        if self._flexible:
            if at < len(data) and data[at] == 0:  # no tagged fields, as mostly
                at += 1
            else:
                at = self._read_tags(data, at, values)
        return SimpleNamespace(**values), at

    @property
    def has_array(self) -> bool:
        return any(reader.has_array for _, reader in self._plain)

    def steps(self, data: bytes, at: int, meter: Meter) -> Generator[None, None, tuple[Any, int]]:
        values = self._absent.copy()
        for name, reader in self._plain:
            if reader.has_array:
                values[name], at = yield from reader.steps(data, at, meter)
            else:
                values[name], at = reader.read(data, at)
        if self._flexible:
            at = self._read_tags(data, at, values)
        return SimpleNamespace(**values), at

    def _read_tags(self, data: bytes, at: int, values: dict[str, Any]) -> int:
        count, at = read_uvarint_of_bytes(data, at)
        for _ in range(count):
            tag, at = read_uvarint_of_bytes(data, at)
            size, at = read_uvarint_of_bytes(data, at)
            end = at + size
            if end > len(data):
                raise ValueError(f"tag {tag} at byte {at} claims {size} bytes, {len(data) - at} are left")
            if tag in self._tagged:
                name, reader = self._tagged[tag]
                values[name], stop = reader.read(data, at)
                if stop != end:
                    raise ValueError(f"tag {tag} at byte {at} claims {size} bytes, its value takes {stop - at}")
            at = end
        return at


def _value_when_absent(field: SchemaField) -> Any:
    if is_dataclass(field.default):
        return SimpleNamespace(**{f.name: getattr(field.default, f.name) for f in fields(field.default)})
    if field.default is not Default.ABSENT:
        return field.default
    if field.kafka_type == "entity":
        return SimpleNamespace(**{f.name: _value_when_absent(f) for f in schema_fields(field.python_type)})
    zeros = {"string": "", "bytes": b"", "bool": False, "timedelta_i32": timedelta(), "uuid": None}
    return zeros.get(field.kafka_type, 0)


def _compile_field(field: SchemaField, flexible: bool) -> FieldReader:
    reader: FieldReader
    nullable = field.nullable and not field.array
    if field.kafka_type == "entity":
        reader = compile_reader(field.python_type)
        if nullable:
            reader = _NullableEntity(reader)
    elif field.kafka_type in ("string", "bytes", "records"):
        reader = _sized(field, flexible, nullable)
    elif field.kafka_type in _FIXED:
        reader = _fixed(field)
    else:
        raise InvariantError(f"kio field {field.name}: no reader for type {field.kafka_type}")
    return _Array(field, reader, flexible) if field.array else reader


class _Array(FieldReader):
    def __init__(self, field: SchemaField, item: FieldReader, flexible: bool) -> None:
        super().__init__(1 if flexible else 4, _TUPLE_BYTES)
        self._name = field.name
        self._nullable = field.nullable
        self._item = item
        self._item_bytes_min = max(item.bytes_min, 1)
        self._flexible = flexible

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        count, at = self._read_count(data, at)
        if count < 0:
            return None, at
        item = self._item
        items = []
        for _ in range(count):
            value, at = item.read(data, at)
            items.append(value)
        return tuple(items), at

    @property
    def has_array(self) -> bool:
        return True

    def steps(self, data: bytes, at: int, meter: Meter) -> Generator[None, None, tuple[Any, int]]:
        count, at = self._read_count(data, at)
        if count < 0:
            return None, at
        item = self._item
        item_bytes = item.object_bytes
        nested = item.has_array
        items = []
        for _ in range(count):
            before = at
            if nested:
                value, at = yield from item.steps(data, at, meter)
                meter.add(item_bytes)
            else:
                value, at = item.read(data, at)
                meter.add(item_bytes + at - before)  # what is in it may be text, which takes what it took
            items.append(value)
            yield
        return tuple(items), at

    def _read_count(self, data: bytes, at: int) -> tuple[int, int]:
        """Negative: null."""
        if self._flexible:
            count, at = read_uvarint_of_bytes(data, at)
            count -= 1
        else:
            count, at = _read_int(_INT32, data, at, 4)
        if count < 0 and not self._nullable:
            raise ValueError(f"{self._name} is null at byte {at}, where a list must stand")
        if count * self._item_bytes_min > len(data) - at:
            raise ValueError(f"{self._name} claims {count} items at byte {at}, only {len(data) - at} bytes are left")
        return count, at


class _NullableEntity(FieldReader):
    def __init__(self, entity: FieldReader) -> None:
        super().__init__(1, entity.object_bytes)
        self._entity = entity

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        if at >= len(data):
            raise ValueError(f"the message ends at byte {at}, where a structure must stand")
        return (None, at + 1) if data[at] > 127 else self._entity.read(data, at + 1)


def _sized(field: SchemaField, flexible: bool, nullable: bool) -> FieldReader:
    is_text = field.kafka_type == "string"
    length_bytes = 0 if flexible else 2 if is_text else 4
    return _Sized(field.name, length_bytes, is_text, nullable)


class _Sized(FieldReader):
    """Text, or bytes, with its length in front: of so many bytes, or 0 for a varint of one more than it is."""

    def __init__(self, name: str, length_bytes: int, is_text: bool, nullable: bool) -> None:
        super().__init__(length_bytes or 1, _TEXT_BYTES)
        self._name = name
        self._length_bytes = length_bytes
        self._is_text = is_text
        self._nullable = nullable

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        size = self._length_bytes
        if size == 0:
            length, at = read_uvarint_of_bytes(data, at)
            length -= 1
        else:
            length, at = _read_int(_INT16 if size == 2 else _INT32, data, at, size)
        if length < 0:
            if self._nullable:
                return None, at
            raise ValueError(f"{self._name} is null at byte {at}, where a value must stand")
        end = at + length
        if end > len(data):
            raise ValueError(f"{self._name} claims {length} bytes at byte {at}, only {len(data) - at} are left")
        value = data[at:end]
        return (value.decode() if self._is_text else value), end


Unpack = Callable[[bytes, int], tuple[Any, ...]]
_INT16: Final[Unpack] = struct.Struct(">h").unpack_from
_INT32: Final[Unpack] = struct.Struct(">i").unpack_from


def _read_int(unpack: Unpack, data: bytes, at: int, size: int) -> tuple[int, int]:
    if at + size > len(data):
        raise ValueError(f"the message ends at byte {len(data)}, a field at {at} needs {size}")
    return unpack(data, at)[0], at + size


class _Fixed(FieldReader):
    def __init__(self, unpack: Unpack, size: int) -> None:
        super().__init__(size, _NUMBER_BYTES)
        self._unpack = unpack

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        end = at + self.bytes_min
        if end > len(data):
            raise ValueError(f"the message ends at byte {len(data)}, a field at {at} needs {self.bytes_min}")
        return self._unpack(data, at)[0], end


class _Converted(FieldReader):
    def __init__(self, raw: FieldReader, convert: Callable[[Any], Any]) -> None:
        super().__init__(raw.bytes_min, _CONVERTED_BYTES)
        self._raw = raw
        self._convert = convert

    def read(self, data: bytes, at: int) -> tuple[Any, int]:
        value, at = self._raw.read(data, at)
        return self._convert(value), at


_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def _datetime(ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        raise ValueError(f"time {ms} ms is beyond the calendar") from None


# Kafka's type: (struct code, what to make of the number; None: nothing).
_FIXED: Final[dict[str, tuple[str, Callable[[Any], Any] | None]]] = {
    "bool": ("?", None),
    "int8": ("b", None),
    "int16": ("h", None),
    "int32": ("i", None),
    "int64": ("q", None),
    "uint16": ("H", None),
    "uint32": ("I", None),
    "float64": ("d", None),
    "uuid": ("16s", lambda raw: UUID(bytes=raw) if any(raw) else None),
    "timedelta_i32": ("i", lambda ms: timedelta(milliseconds=ms)),
    "timedelta_i64": ("q", lambda ms: _datetime(ms) - _EPOCH),
    "datetime_i64": ("q", _datetime),
    "error_code": ("h", None),
}


def _fixed(field: SchemaField) -> FieldReader:
    code, convert = _FIXED[field.kafka_type]
    shape = struct.Struct(">" + code)
    raw = _Fixed(shape.unpack_from, shape.size)
    if field.kafka_type == "error_code":
        convert = field.python_type
    if field.kafka_type == "datetime_i64" and field.nullable:
        convert = _datetime_or_none
    return raw if convert is None else _Converted(raw, convert)


def _datetime_or_none(ms: int) -> datetime | None:
    return None if ms == -1 else _datetime(ms)

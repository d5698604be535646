"""Request bytes to a kio entity, over kio's schemas, in bounded memory.

kio's own reader reserves room for as many items as an array claims to hold: a frame of ten bytes can make
it ask for 16 GB and abort the process. Here an array that claims more items than the bytes left could hold is
refused before anything is reserved. Every fault of the bytes is a `ValueError`; nothing else may escape.
"""

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from headrace.core.errors import InvariantError
from headrace.protocol.message_fields import Default, SchemaField, schema_fields

Data = bytes | memoryview
Reader = Callable[[Data, int], tuple[Any, int]]  # (bytes, offset) -> (value, offset behind it)


def read_uvarint(data: Data, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise ValueError(f"a length at byte {at} of {len(data)} is cut short or longer than 5 bytes")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def compile_reader(schema: type[Any]) -> Reader:
    return _compile_entity(schema)[0]


def _compile_entity(schema: type[Any]) -> tuple[Reader, int]:
    """The reader of a schema, and the least number of bytes that it takes."""
    flexible: bool = schema.__flexible__
    plain: list[tuple[str, Reader]] = []
    tagged: dict[int, tuple[str, Reader]] = {}
    absent: dict[str, Any] = {}
    bytes_min = 1 if flexible else 0
    for field in schema_fields(schema):
        reader, size_min = _compile_field(field, flexible)
        if field.tag is None:
            plain.append((field.name, reader))
            bytes_min += size_min
        else:
            tagged[field.tag] = (field.name, reader)
            absent[field.name] = _value_when_absent(field)

    def read(data: Data, at: int) -> tuple[Any, int]:
        values = absent.copy()
        for name, reader in plain:
            values[name], at = reader(data, at)
        if flexible:
            at = _read_tags(data, at, tagged, values)
        return schema(**values), at

    return read, bytes_min


def _read_tags(data: Data, at: int, tagged: dict[int, tuple[str, Reader]], values: dict[str, Any]) -> int:
    count, at = read_uvarint(data, at)
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        end = at + size
        if end > len(data):
            raise ValueError(f"tag {tag} at byte {at} claims {size} bytes, {len(data) - at} are left")
        if tag in tagged:
            name, reader = tagged[tag]
            values[name], stop = reader(data, at)
            if stop != end:
                raise ValueError(f"tag {tag} at byte {at} claims {size} bytes, its value takes {stop - at}")
        at = end
    return at


def _value_when_absent(field: SchemaField) -> Any:
    if field.default is not Default.ABSENT:
        return field.default
    if field.kafka_type == "entity":
        return field.python_type(**{f.name: _value_when_absent(f) for f in schema_fields(field.python_type)})
    zeros = {"string": "", "bytes": b"", "bool": False, "timedelta_i32": timedelta(), "uuid": None}
    return zeros.get(field.kafka_type, 0)


def _compile_field(field: SchemaField, flexible: bool) -> tuple[Reader, int]:
    reader: Reader
    if field.kafka_type == "entity":
        reader, bytes_min = _compile_entity(field.python_type)
        if field.nullable and not field.array:
            reader, bytes_min = _nullable_entity(reader), 1
    elif field.kafka_type in ("string", "bytes", "records"):
        nullable = field.nullable and not field.array
        reader, bytes_min = _compile_sized(field, flexible, nullable)
    elif field.kafka_type in _FIXED:
        reader, bytes_min = _compile_fixed(field)
    else:
        raise InvariantError(f"kio field {field.name}: no reader for type {field.kafka_type}")
    if field.array:
        return _array(field, reader, flexible, max(bytes_min, 1)), 1 if flexible else 4
    return reader, bytes_min


def _array(field: SchemaField, item: Reader, flexible: bool, item_bytes_min: int) -> Reader:
    name, nullable = field.name, field.nullable

    def read(data: Data, at: int) -> tuple[Any, int]:
        if flexible:
            count, at = read_uvarint(data, at)
            count -= 1
        else:
            count, at = _read_int32(data, at)
        if count < 0:
            if nullable:
                return None, at
            raise ValueError(f"{name} is null at byte {at}, where a list must stand")
        if count * item_bytes_min > len(data) - at:
            raise ValueError(f"{name} claims {count} items at byte {at}, only {len(data) - at} bytes are left")
        items = []
        for _ in range(count):
            value, at = item(data, at)
            items.append(value)
        return tuple(items), at

    return read


def _nullable_entity(reader: Reader) -> Reader:
    def read(data: Data, at: int) -> tuple[Any, int]:
        if at >= len(data):
            raise ValueError(f"the message ends at byte {at}, where a structure must stand")
        return (None, at + 1) if data[at] > 127 else reader(data, at + 1)

    return read


def _compile_sized(field: SchemaField, flexible: bool, nullable: bool) -> tuple[Reader, int]:
    name = field.name
    is_text = field.kafka_type == "string"
    read_length = _read_compact_length if flexible else _read_int16 if is_text else _read_int32

    def read(data: Data, at: int) -> tuple[Any, int]:
        length, at = read_length(data, at)
        if length < 0:
            if nullable:
                return None, at
            raise ValueError(f"{name} is null at byte {at}, where a value must stand")
        end = at + length
        if end > len(data):
            raise ValueError(f"{name} claims {length} bytes at byte {at}, only {len(data) - at} are left")
        value = bytes(data[at:end])
        return (value.decode() if is_text else value), end

    return read, 1 if flexible else 2 if is_text else 4


def _read_compact_length(data: Data, at: int) -> tuple[int, int]:
    length, at = read_uvarint(data, at)
    return length - 1, at


def _fixed_reader(code: str) -> Reader:
    shape = struct.Struct(">" + code)
    unpack, size = shape.unpack_from, shape.size

    def read(data: Data, at: int) -> tuple[Any, int]:
        try:
            return unpack(data, at)[0], at + size
        except struct.error:
            raise ValueError(f"the message ends at byte {len(data)}, a field at {at} needs {size}") from None

    return read


_read_int16 = _fixed_reader("h")
_read_int32 = _fixed_reader("i")

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


def _compile_fixed(field: SchemaField) -> tuple[Reader, int]:
    code, convert = _FIXED[field.kafka_type]
    size = struct.calcsize(">" + code)
    raw = _fixed_reader(code)
    if field.kafka_type == "error_code":
        convert = field.python_type
    if field.kafka_type == "datetime_i64" and field.nullable:
        convert = _datetime_or_none
    if convert is None:
        return raw, size
    make = convert

    def read(data: Data, at: int) -> tuple[Any, int]:
        value, at = raw(data, at)
        return make(value), at

    return read, size


def _datetime_or_none(ms: int) -> datetime | None:
    return None if ms == -1 else _datetime(ms)

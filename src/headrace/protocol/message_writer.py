"""A plain mapping to response bytes, over kio's schemas, without making kio's entities.

A writer is made once for each schema, of a small object for each field that appends to one `bytearray`. A mapping
may hold more keys than the version has fields: those are dropped, so that one handler serves all versions of its API.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from headrace.core.errors import AnswerError, InvariantError
from headrace.protocol.message_fields import Default, SchemaField, schema_fields
from headrace.protocol.wire import put_uvarint

_ZERO_UUID: Final = bytes(16)
_NULL: Final = b"\x00"  # of the flexible encoding, whatever it is that is absent


class FieldWriter:
    def write(self, out: bytearray, value: Any) -> None:
        raise NotImplementedError

    @property
    def has_array(self) -> bool:
        return False

    def steps(self, out: bytearray, value: Any) -> Iterator[None]:
        """The same, with a pause after each item of an array: for answers that may be long."""
        self.write(out, value)
        yield


Tagged = tuple[int, str, FieldWriter, bytes]  # tag, name, writer, the default as it would be written


def compile_writer(schema: type[Any]) -> FieldWriter:
    flexible: bool = schema.__flexible__
    plain: list[tuple[str, object, FieldWriter]] = []
    tagged: list[Tagged] = []
    for field in schema_fields(schema):
        writer = _compile_field(field, flexible)
        if field.tag is None:
            plain.append((field.name, _default(field), writer))
        else:
            tagged.append((field.tag, field.name, writer, _encoded_default(field, writer)))
    tagged.sort(key=lambda entry: entry[0])
    return _Entity(schema.__name__, plain, tagged, flexible)


class _Entity(FieldWriter):
    def __init__(
        self, where: str, plain: list[tuple[str, object, FieldWriter]], tagged: list[Tagged], flexible: bool
    ) -> None:
        self._where = where
        self._plain = plain
        self._tagged = tagged
        self._flexible = flexible

    def write(self, out: bytearray, value: Any) -> None:
        body: Mapping[str, Any] = value
        for name, default, writer in self._plain:
            given = body.get(name, default)
            if given is Default.ABSENT:
                raise AnswerError(f"{self._where}: field {name} was not given and has no default")
            writer.write(out, given)
        if self._tagged:
            self._write_tags(out, body)
        elif self._flexible:
            out.append(0)

    @property
    def has_array(self) -> bool:
        return any(writer.has_array for _, _, writer in self._plain)

    def steps(self, out: bytearray, value: Any) -> Iterator[None]:
        body: Mapping[str, Any] = value
        for name, default, writer in self._plain:
            given = body.get(name, default)
            if given is Default.ABSENT:
                raise AnswerError(f"{self._where}: field {name} was not given and has no default")
            if writer.has_array:
                yield from writer.steps(out, given)
            else:
                writer.write(out, given)
        if self._tagged:
            self._write_tags(out, body)
        elif self._flexible:
            out.append(0)

    def _write_tags(self, out: bytearray, body: Mapping[str, Any]) -> None:
        count = 0
        section = bytearray()
        for tag, name, writer, default in self._tagged:
            value = body.get(name)
            if value is None:
                continue
            encoded = bytearray()
            writer.write(encoded, value)
            if encoded != default:
                count += 1
                put_uvarint(section, tag)
                put_uvarint(section, len(encoded))
                section += encoded
        put_uvarint(out, count)
        out += section


def _default(field: SchemaField) -> object:
    # Handlers leave it out: whoever writes the answer of a request that is throttled puts it in.
    if field.default is Default.ABSENT and field.name == "throttle_time":
        return 0
    return field.default


def _encoded_default(field: SchemaField, writer: FieldWriter) -> bytes:
    """What a tagged field's default looks like: a value that looks the same is left out."""
    out = bytearray()
    if field.default is None:
        return b""
    if is_dataclass(field.default):
        writer.write(out, {inner.name: getattr(field.default, inner.name) for inner in fields(field.default)})
    elif field.default is not Default.ABSENT:
        writer.write(out, field.default)
    elif field.kafka_type == "entity":
        body = {}
        for inner in schema_fields(field.python_type):
            body[inner.name] = inner.default if inner.default is not Default.ABSENT else _zero(inner)
        writer.write(out, body)
    else:
        writer.write(out, _zero(field))
    return bytes(out)


def _zero(field: SchemaField) -> object:
    return {"string": "", "bytes": b"", "uuid": None}.get(field.kafka_type, 0)


def _compile_field(field: SchemaField, flexible: bool) -> FieldWriter:
    nullable = field.nullable and not field.array
    writer: FieldWriter
    if field.kafka_type == "entity":
        writer = compile_writer(field.python_type)
        if nullable:
            writer = _NullableEntity(writer)
    elif field.kafka_type in ("string", "bytes", "records"):
        length_bytes = 0 if flexible else 2 if field.kafka_type == "string" else 4
        writer = _Sized(field.name, length_bytes, field.kafka_type == "string", nullable)
    elif field.kafka_type in _CODES:
        pack = struct.Struct(">" + _CODES[field.kafka_type]).pack
        convert = _CONVERSIONS.get(field.kafka_type)
        writer = _Fixed(pack) if convert is None else _Converted(pack, convert)
    else:
        raise InvariantError(f"kio field {field.name}: no writer for type {field.kafka_type}")
    return _Array(field, writer, flexible) if field.array else writer


class _Array(FieldWriter):
    def __init__(self, field: SchemaField, item: FieldWriter, flexible: bool) -> None:
        self._name = field.name
        self._nullable = field.nullable
        self._item = item
        self._flexible = flexible

    def write(self, out: bytearray, value: Any) -> None:
        self._write_count(out, value)
        if value is not None:
            item = self._item
            for each in value:
                item.write(out, each)

    @property
    def has_array(self) -> bool:
        return True

    def steps(self, out: bytearray, value: Any) -> Iterator[None]:
        self._write_count(out, value)
        if value is None:
            return
        item = self._item
        nested = item.has_array
        for each in value:
            if nested:
                yield from item.steps(out, each)
            else:
                item.write(out, each)
            yield

    def _write_count(self, out: bytearray, value: Any) -> None:
        if value is None:
            if not self._nullable:
                raise AnswerError(f"{self._name} must not be null")
            out += _NULL if self._flexible else b"\xff\xff\xff\xff"
        elif self._flexible:
            put_uvarint(out, len(value) + 1)
        else:
            out += _INT32(len(value))


class _NullableEntity(FieldWriter):
    def __init__(self, entity: FieldWriter) -> None:
        self._entity = entity

    def write(self, out: bytearray, value: Any) -> None:
        if value is None:
            out.append(255)
        else:
            out.append(1)
            self._entity.write(out, value)


class _Sized(FieldWriter):
    """Text, or bytes, with its length in front: of so many bytes, or 0 for a varint of one more than it is."""

    def __init__(self, name: str, length_bytes: int, is_text: bool, nullable: bool) -> None:
        self._name = name
        self._length_bytes = length_bytes
        self._is_text = is_text
        self._nullable = nullable

    def write(self, out: bytearray, value: Any) -> None:
        size = self._length_bytes
        if value is None:
            if not self._nullable:
                raise AnswerError(f"{self._name} must not be null")
            out += b"\xff" * size if size else _NULL
            return
        encoded = value.encode() if self._is_text else value
        if size == 0:
            put_uvarint(out, len(encoded) + 1)
        else:
            out += _INT16(len(encoded)) if size == 2 else _INT32(len(encoded))
        out += encoded


class _Fixed(FieldWriter):
    def __init__(self, pack: Callable[[Any], bytes]) -> None:
        self._pack = pack

    def write(self, out: bytearray, value: Any) -> None:
        out += self._pack(value)


class _Converted(FieldWriter):
    def __init__(self, pack: Callable[[Any], bytes], convert: Callable[[Any], Any]) -> None:
        self._pack = pack
        self._convert = convert

    def write(self, out: bytearray, value: Any) -> None:
        out += self._pack(self._convert(value))


_INT16: Final = struct.Struct(">h").pack
_INT32: Final = struct.Struct(">i").pack


def _uuid_bytes(value: Any) -> bytes:
    return _ZERO_UUID if value is None else value.bytes


def _milliseconds(value: Any) -> int:
    return value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value


def _epoch_milliseconds(value: Any) -> int:
    if value is None:
        return -1
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


_CODES: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "uuid": "16s",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
_CONVERSIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "uuid": _uuid_bytes,
    "timedelta_i32": _milliseconds,
    "timedelta_i64": _milliseconds,
    "datetime_i64": _epoch_milliseconds,
}

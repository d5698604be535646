"""A plain mapping to response bytes, over kio's schemas, without making kio's entities.

A writer is compiled once for each schema, out of closures that append to one `bytearray`. A mapping may hold
more keys than the version has fields: those are dropped, so that one handler serves all versions of its API.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from headrace.core.errors import InvariantError
from headrace.protocol.message_fields import Default, SchemaField, schema_fields

Writer = Callable[[bytearray, Any], None]
Tagged = tuple[int, str, Writer, bytes]  # tag, name, writer, the default as it would be written

_ZERO_UUID: Final = bytes(16)


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def compile_writer(schema: type[Any]) -> Writer:
    flexible: bool = schema.__flexible__
    where = schema.__name__
    plain: list[tuple[str, object, Writer]] = []
    tagged: list[Tagged] = []
    for field in schema_fields(schema):
        writer = _compile_field(field, flexible)
        if field.tag is None:
            plain.append((field.name, _default(field), writer))
        else:
            tagged.append((field.tag, field.name, writer, _encoded_default(field, writer)))
    tagged.sort(key=lambda entry: entry[0])
    absent = Default.ABSENT

    def write(out: bytearray, body: Mapping[str, Any]) -> None:
        get = body.get
        for name, default, writer in plain:
            value = get(name, default)
            if value is absent:
                raise InvariantError(f"{where}: field {name} was not given and has no default")
            writer(out, value)
        if tagged:
            _write_tags(out, body, tagged)
        elif flexible:
            out.append(0)

    return write


def _write_tags(out: bytearray, body: Mapping[str, Any], tagged: list[Tagged]) -> None:
    count = 0
    section = bytearray()
    for tag, name, writer, default in tagged:
        value = body.get(name)
        if value is None:
            continue
        encoded = bytearray()
        writer(encoded, value)
        if encoded != default:
            count += 1
            write_uvarint(section, tag)
            write_uvarint(section, len(encoded))
            section += encoded
    write_uvarint(out, count)
    out += section


def _default(field: SchemaField) -> object:
    # Nothing is throttled unless a handler says so.
    if field.default is Default.ABSENT and field.name == "throttle_time":
        return 0
    return field.default


def _encoded_default(field: SchemaField, writer: Writer) -> bytes:
    """What a tagged field's default looks like: a value that looks the same is left out."""
    out = bytearray()
    if field.default is None:
        return b""
    if is_dataclass(field.default):
        writer(out, {inner.name: getattr(field.default, inner.name) for inner in fields(field.default)})
    elif field.default is not Default.ABSENT:
        writer(out, field.default)
    elif field.kafka_type == "entity":
        body = {}
        for inner in schema_fields(field.python_type):
            body[inner.name] = inner.default if inner.default is not Default.ABSENT else _zero(inner)
        writer(out, body)
    else:
        writer(out, _zero(field))
    return bytes(out)


def _zero(field: SchemaField) -> object:
    return {"string": "", "bytes": b"", "uuid": None}.get(field.kafka_type, 0)


def _compile_field(field: SchemaField, flexible: bool) -> Writer:
    nullable = field.nullable and not field.array
    writer: Writer
    if field.kafka_type == "entity":
        writer = compile_writer(field.python_type)
        if nullable:
            writer = _nullable_entity(writer)
    elif field.kafka_type == "string":
        writer = _string(field.name, flexible, nullable)
    elif field.kafka_type in ("bytes", "records"):
        writer = _bytes(field.name, flexible, nullable)
    elif field.kafka_type in _FIXED:
        writer = _FIXED[field.kafka_type]
    else:
        raise InvariantError(f"kio field {field.name}: no writer for type {field.kafka_type}")
    return _array(field, writer, flexible) if field.array else writer


def _array(field: SchemaField, item: Writer, flexible: bool) -> Writer:
    name, nullable = field.name, field.nullable

    def write(out: bytearray, values: Any) -> None:
        if values is None:
            if not nullable:
                raise InvariantError(f"{name} must not be null")
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        if flexible:
            write_uvarint(out, len(values) + 1)
        else:
            out += _INT32(len(values))
        for value in values:
            item(out, value)

    return write


def _nullable_entity(writer: Writer) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(255)
        else:
            out.append(1)
            writer(out, value)

    return write


def _string(name: str, flexible: bool, nullable: bool) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise InvariantError(f"{name} must not be null")
            out += b"\x00" if flexible else b"\xff\xff"
            return
        encoded = value.encode()
        if flexible:
            write_uvarint(out, len(encoded) + 1)
        else:
            out += _INT16(len(encoded))
        out += encoded

    return write


def _bytes(name: str, flexible: bool, nullable: bool) -> Writer:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            if not nullable:
                raise InvariantError(f"{name} must not be null")
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
            return
        if flexible:
            write_uvarint(out, len(value) + 1)
        else:
            out += _INT32(len(value))
        out += value

    return write


def _packed(code: str) -> Writer:
    pack = struct.Struct(">" + code).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


_INT16: Final = struct.Struct(">h").pack
_INT32: Final = struct.Struct(">i").pack
_INT64: Final = struct.Struct(">q").pack


def _write_uuid(out: bytearray, value: Any) -> None:
    out += _ZERO_UUID if value is None else value.bytes


def _milliseconds(value: Any) -> int:
    return value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value


def _write_timedelta_i32(out: bytearray, value: Any) -> None:
    out += _INT32(_milliseconds(value))


def _write_timedelta_i64(out: bytearray, value: Any) -> None:
    out += _INT64(_milliseconds(value))


def _write_datetime(out: bytearray, value: Any) -> None:
    if value is None:
        value = -1
    out += _INT64(round(value.timestamp() * 1000) if isinstance(value, datetime) else value)


_FIXED: Final[dict[str, Writer]] = {
    "bool": _packed("?"),
    "int8": _packed("b"),
    "int16": _packed("h"),
    "int32": _packed("i"),
    "int64": _packed("q"),
    "uint16": _packed("H"),
    "uint32": _packed("I"),
    "float64": _packed("d"),
    "uuid": _write_uuid,
    "error_code": _packed("h"),
    "timedelta_i32": _write_timedelta_i32,
    "timedelta_i64": _write_timedelta_i64,
    "datetime_i64": _write_datetime,
}

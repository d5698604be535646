"""Records of `__consumer_offsets` and `__transaction_state` as the JSON that Kafka's tools print. No IO."""

import base64
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from headrace.cli.kafka.internal_schemas import (
    ASSIGNMENT,
    KEYS,
    SUBSCRIPTION,
    TRANSACTION_KEYS,
    TRANSACTION_VALUES,
    VALUES,
    Array,
    Kind,
    Struct,
)
from headrace.cli.kafka.message_formats import PrintedRecord
from headrace.cli.kafka.tool import ToolError
from headrace.client.topics import kafka_uuid
from headrace.coordinator.group_records import GROUP_METADATA, OFFSET_COMMIT, OFFSET_COMMIT_LEGACY
from headrace.coordinator.transactions.records import KEY_VERSION
from headrace.protocol.consumer_protocol import CONSUMER
from headrace.protocol.wire import read_uvarint_of_bytes

_INTS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q"}
_OFFSET_TYPES, _GROUP_TYPES, _TRANSACTION_TYPES = (
    (OFFSET_COMMIT_LEGACY, OFFSET_COMMIT),
    (GROUP_METADATA,),
    (KEY_VERSION,),
)
_CONSUMER_VERSION_MAX = 3


class UnknownType(ValueError):  # noqa: N818
    """A key whose type this version of Kafka's tools does not know."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Unknown record type {number}")
        self.number = number


def group_record(key: bytes, value: bytes | None) -> tuple[int, Any, int, Any]:
    """(type, the key as JSON, the value's version, the value as JSON or None)."""
    return _record(KEYS, VALUES, key, value)


def transaction_record(key: bytes, value: bytes | None) -> tuple[int, Any, int, Any]:
    return _record(TRANSACTION_KEYS, TRANSACTION_VALUES, key, value)


Reading = Callable[[bytes, bytes | None], tuple[int, Any, int, Any]]


def _record(
    keys: Mapping[int, Struct], values: Mapping[int, Struct], key: bytes, value: bytes | None
) -> tuple[int, Any, int, Any]:
    try:
        (number,) = struct.unpack_from(">h", key)
        if number not in keys:
            raise UnknownType(number)
        shown = _Reader(key, 2).struct(keys[number], 0)
        if value is None:
            return number, shown, 0, None
        (version,) = struct.unpack_from(">h", value)
        return number, shown, version, _Reader(value, 2).struct(values[number], version)
    except struct.error as error:
        raise ValueError(f"a record of {len(key)} and {len(value or b'')} bytes ends too early") from error


class _Reader:
    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    def struct(self, shape: Struct, version: int) -> dict[str, Any]:
        flexible = version >= shape.flexible
        found: dict[str, Any] = {}
        tagged = {}
        for field in shape.fields:
            if not field.first <= version <= field.last:
                continue
            if field.tag is None:
                found[field.name] = self._value(field.kind, version, flexible)
            else:
                tagged[field.tag] = field
        if not flexible:
            return found
        extra = self._tags({tag: field.kind for tag, field in tagged.items()}, version)
        for tag, value in extra.items():
            if value != tagged[tag].default:
                found[tagged[tag].name] = value
        # In the order in which Kafka declares them.
        return {field.name: found[field.name] for field in shape.fields if field.name in found}

    def _tags(self, kinds: Mapping[int, Kind], version: int) -> dict[int, Any]:
        found = {}
        for _ in range(self._uvarint()):
            tag, size = self._uvarint(), self._uvarint()
            end = self._at + size
            if tag in kinds:
                found[tag] = self._value(kinds[tag], version, True)
            self._at = end
        return found

    def _value(self, kind: Kind, version: int, flexible: bool) -> Any:
        if isinstance(kind, Struct):
            # Only tagged fields are structures that may be null here; a number in front says whether one is there.
            if kind.nullable and self._uvarint() == 0:
                return None
            return self.struct(kind, version)
        if isinstance(kind, Array):
            count = self._uvarint() - 1 if flexible else self._unpack("i")[0]
            return None if count < 0 else [self._value(kind.item, version, flexible) for _ in range(count)]
        if kind in _INTS:
            return self._unpack(_INTS[kind])[0]
        if kind == "uuid":
            return kafka_uuid(UUID(bytes=self._take(16)))
        plain = kind.rstrip("?")
        size = self._uvarint() - 1 if flexible else self._unpack("h" if plain == "string" else "i")[0]
        if size < 0:
            return None
        data = self._take(size)
        return data.decode(errors="replace") if plain == "string" else base64.b64encode(data).decode()

    def _uvarint(self) -> int:
        value, self._at = read_uvarint_of_bytes(self._data, self._at)
        return value

    def _unpack(self, code: str) -> tuple[Any, ...]:
        found = struct.unpack_from(">" + code, self._data, self._at)
        self._at += struct.calcsize(">" + code)
        return found

    def _take(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) < size:
            raise ValueError(f"a field of {size} bytes, of which {len(data)} are there")
        self._at += size
        return data


def open_protocol(value: Any) -> Any:
    """A classic group's metadata with its members' subscriptions and assignments readable, as dump-log shows them."""
    if value and value.get("protocolType") == CONSUMER:
        for member in value["members"]:
            for name, shape in (("subscription", SUBSCRIPTION), ("assignment", ASSIGNMENT)):
                data = base64.b64decode(member[name] or "")
                try:
                    (version,) = struct.unpack_from(">h", data)
                    member[name] = _Reader(data, 2).struct(shape, min(version, _CONSUMER_VERSION_MAX))
                except (ValueError, struct.error):
                    continue  # the bytes are shown as they are
    return value


def internal_format(name: str) -> Callable[[PrintedRecord], bytes]:
    """The console consumer's formatters of internal topics; a record of another kind prints nothing."""
    reading: Reading = transaction_record if name == "TransactionLogMessageFormatter" else group_record
    wanted = {"OffsetsMessageFormatter": _OFFSET_TYPES, "GroupMetadataMessageFormatter": _GROUP_TYPES}.get(
        name, _TRANSACTION_TYPES
    )

    def shape(record: PrintedRecord) -> bytes:
        if record.key is None:
            return b""
        try:
            number, key, version, value = reading(record.key, record.value)
        except UnknownType:
            return b""
        except ValueError as error:
            raise ToolError(f"Could not read record at offset {record.offset} due to: {error}") from error
        if number not in wanted:
            return b""
        shown = {"key": {"type": number, "data": key}, "value": None}
        if record.value is not None:
            shown["value"] = {"version": version, "data": value}
        return dense_json(shown).encode() + b"\n"

    return shape


def dense_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

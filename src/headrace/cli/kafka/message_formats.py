"""How the console consumer prints a record: Kafka's formatters, under the names of their Java classes.

A format takes a record and returns bytes; it never touches the output. Bytes are printed as they are.
"""

import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.cli.kafka.tool import ToolError

Deserializer = Callable[[bytes], bytes]
Format = Callable[["PrintedRecord"], bytes]


class PrintedRecord(NamedTuple):
    """A record as it is printed."""

    topic: str
    partition: int
    offset: int
    timestamp_type: str | None  # CreateTime, LogAppendTime, or None: it has none
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def _number(code: str) -> Deserializer:
    shape = struct.Struct(">" + code)

    def read(data: bytes) -> bytes:
        if len(data) != shape.size:
            raise ToolError(f"Size of data received by the deserializer is not {shape.size}: it is {len(data)}")
        return str(shape.unpack(data)[0]).encode()

    return read


def _uuid(data: bytes) -> bytes:
    try:
        return str(uuid.UUID(data.decode())).encode()
    except ValueError:
        raise ToolError(f"Error parsing data into UUID: {data!r}") from None


def _boolean(data: bytes) -> bytes:
    if data not in (b"\0", b"\1"):
        raise ToolError(f"Unexpected byte received by the boolean deserializer: {data!r}")
    return b"true" if data == b"\1" else b"false"


_DESERIALIZERS: dict[str, Deserializer] = {
    "StringDeserializer": bytes,
    "ByteArrayDeserializer": bytes,
    "BytesDeserializer": bytes,
    "ShortDeserializer": _number("h"),
    "IntegerDeserializer": _number("i"),
    "LongDeserializer": _number("q"),
    "FloatDeserializer": _number("f"),
    "DoubleDeserializer": _number("d"),
    "BooleanDeserializer": _boolean,
    "UUIDDeserializer": _uuid,
}
_PACKAGE = "org.apache.kafka.common.serialization."


def deserializer(name: str) -> Deserializer:
    found = _DESERIALIZERS.get(name.removeprefix(_PACKAGE))
    if found is None:
        known = ", ".join(_DESERIALIZERS)
        raise ToolError(f"{name}: Java classes cannot be loaded; known are {_PACKAGE} and one of {known}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultFormat:
    """The usual one: the value, and before it what was asked for."""

    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_delivery: bool = False
    print_epoch: bool = False
    print_headers: bool = False
    print_key: bool = False
    print_value: bool = True
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    deserializers: Mapping[str, Deserializer] = field(default_factory=dict)

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "DefaultFormat":
        values: dict[str, object] = {}
        readers = {}
        for key, value in properties.items():
            name = key.replace(".", "_")
            if key.startswith("print.") and name in cls.__dataclass_fields__:
                values[name] = value.strip().lower() == "true"
            elif key in ("key.separator", "line.separator", "headers.separator", "null.literal"):
                values[name] = value.encode()
            elif key in ("key.deserializer", "value.deserializer", "headers.deserializer") and value:
                readers[key.partition(".")[0]] = deserializer(value)
        return cls(**values, deserializers=readers)  # type: ignore[arg-type]

    def __call__(self, record: PrintedRecord) -> bytes:
        parts = []
        if self.print_timestamp:
            kind = record.timestamp_type
            parts.append(b"NO_TIMESTAMP" if kind is None else f"{kind}:{record.timestamp}".encode())
        if self.print_partition:
            parts.append(b"Partition:%d" % record.partition)
        if self.print_offset:
            parts.append(b"Offset:%d" % record.offset)
        if self.print_delivery:
            parts.append(b"Delivery:NOT_PRESENT")
        if self.print_epoch:
            parts.append(b"Epoch:NOT_PRESENT")  # what Kafka's console consumer prints, too
        if self.print_headers:
            parts.append(self._headers(record))
        if self.print_key:
            parts.append(self._read("key", record.key))
        if self.print_value:
            parts.append(self._read("value", record.value))
        return self.key_separator.join(parts) + self.line_separator if parts else b""

    def _headers(self, record: PrintedRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        pairs = (name.encode() + b":" + self._read("headers", value) for name, value in record.headers)
        return self.headers_separator.join(pairs)

    def _read(self, what: str, data: bytes | None) -> bytes:
        if data is None:
            data = self.null_literal
        reader = self.deserializers.get(what)
        return data if reader is None else reader(data)


def _logged(record: PrintedRecord) -> bytes:
    stamp = f"{record.timestamp_type}:{record.timestamp}, " if record.timestamp_type else ""
    key = "null" if record.key is None else record.key.decode(errors="replace")
    value = "null" if record.value is None else record.value.decode(errors="replace")
    return f"{stamp}key:{key}, value:{value}\n".encode()


def format_named(name: str, properties: Mapping[str, str]) -> Format:
    """The format that a Java class name stands for, in its newer or its older package."""
    short = name.rpartition(".")[2].rpartition("$")[2]
    if short == "DefaultMessageFormatter":
        return DefaultFormat.of(properties)
    if short == "NoOpMessageFormatter":
        return lambda record: b""
    if short == "LoggingMessageFormatter":
        usual = DefaultFormat.of(properties)
        return lambda record: usual(record) + _logged(record)
    if short in ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter", "TransactionLogMessageFormatter"):
        from headrace.cli.kafka.internal_records import internal_format

        return internal_format(short)
    raise ToolError(f"--formatter {name}: Java classes cannot be loaded; known are {', '.join(KNOWN)}")


KNOWN = (
    "org.apache.kafka.tools.consumer.DefaultMessageFormatter",
    "LoggingMessageFormatter",
    "NoOpMessageFormatter",
    "OffsetsMessageFormatter",
    "GroupMetadataMessageFormatter",
    "TransactionLogMessageFormatter",
)

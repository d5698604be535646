"""The bridge to kio: request bytes to plain attributes, a plain mapping to response bytes, over all versions.

The tools stand at the other end of the wire and use the same schemas the other way round.

kio gives the schemas, a dataclass for each message and version; reading and writing them is done by our own
`message_reader` (which says why) and `message_writer`, compiled when an API version is first used. Nothing
here knows what a message means, and no other module imports kio.
"""

import functools
import struct
import sys
from collections.abc import Generator, Mapping
from typing import Any, Final, cast

from headrace.protocol.api_keys import API_VERSIONS as API_VERSIONS  # the one that the framing itself must know
from headrace.protocol.message_fields import SchemaField, schema_fields
from headrace.protocol.message_reader import FieldReader, Meter, compile_reader
from headrace.protocol.message_writer import FieldWriter, compile_writer
from headrace.protocol.wire import read_uvarint_of_bytes

_CORRELATION_ID: Final = struct.Struct(">i").pack
_CORRELATION_ID_BYTES: Final = 4
_REQUEST_HEADER: Final = struct.Struct(">hhih").pack


def decode_request(api_key: int, version: int, data: bytes | memoryview, offset: int) -> Any:
    """The request body that starts at `offset`, with kio's field names; bytes behind it are ignored, as Kafka does.

    Raises ValueError if the bytes are not such a request.
    """
    reader: FieldReader = _request_reader(api_key, version)
    return reader.read(bytes(data), offset)[0]


Body = Mapping[str, object] | bytes  # bytes: a body that `encode_body` made before


def encode_response(api_key: int, version: int, correlation_id: int, body: Body, throttle_ms: int = 0) -> bytes:
    """Header and body, without the length in front. A body that is bytes already has its throttle time in it."""
    out, writer = _begun_response(api_key, version, correlation_id)
    if isinstance(body, bytes):
        out += body
    else:
        writer.write(out, body if not throttle_ms else {**body, "throttle_time": throttle_ms})
    return bytes(out)


def _begun_response(api_key: int, version: int, correlation_id: int) -> tuple[bytearray, FieldWriter]:
    """The header, and what writes the body behind it."""
    out = bytearray(_CORRELATION_ID(correlation_id))
    writer, header_has_tags = _response_writer(api_key, version)
    if header_has_tags:
        out.append(0)
    return out, writer


def decode_request_in_steps(
    api_key: int, version: int, data: bytes, offset: int, meter: Meter
) -> Generator[None, None, Any]:
    """`decode_request` of a long request, with a pause after each item of an array. The meter counts the memory that
    what was read takes, and refuses more than its limit with a ValueError."""
    reader: FieldReader = _request_reader(api_key, version)
    body, _ = yield from reader.steps(data, offset, meter)
    return body


def encode_response_in_steps(
    api_key: int, version: int, correlation_id: int, body: Mapping[str, object], throttle_ms: int = 0
) -> Generator[None, None, bytes]:
    """`encode_response` of an answer that may be long, with a pause after each item of an array."""
    out, writer = _begun_response(api_key, version, correlation_id)
    yield from writer.steps(out, body if not throttle_ms else {**body, "throttle_time": throttle_ms})
    return bytes(out)


def encode_body(api_key: int, version: int, body: Mapping[str, object]) -> bytes:
    """The body alone: what a handler keeps to give the same answer again."""
    out = bytearray()
    _response_writer(api_key, version)[0].write(out, body)
    return bytes(out)


def encode_body_in_steps(api_key: int, version: int, body: Mapping[str, object]) -> Generator[None, None, bytes]:
    """`encode_body` of one that may be long, with a pause after each item of an array."""
    out = bytearray()
    yield from _response_writer(api_key, version)[0].steps(out, body)
    return bytes(out)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str, body: Mapping[str, object]
) -> bytes:
    """A client's request, header and body, without the length in front."""
    name = client_id.encode()
    out = bytearray(_REQUEST_HEADER(api_key, version, correlation_id, len(name)))
    out += name
    writer, header_has_tags = _request_writer(api_key, version)
    if header_has_tags:
        out.append(0)
    writer.write(out, body)
    return bytes(out)


def decode_response(api_key: int, version: int, data: bytes) -> tuple[int, Any]:
    """The correlation id and the body of a broker's answer, with kio's field names. ValueError: it is not one."""
    if len(data) < _CORRELATION_ID_BYTES:
        raise ValueError(f"an answer of {len(data)} bytes; its header alone has {_CORRELATION_ID_BYTES}")
    correlation_id = int.from_bytes(data[:_CORRELATION_ID_BYTES], "big", signed=True)
    reader, header_has_tags = _response_reader(api_key, version)
    at = _skip_tags(data, _CORRELATION_ID_BYTES) if header_has_tags else _CORRELATION_ID_BYTES
    return correlation_id, reader.read(data, at)[0]


def known_versions(api_key: int) -> tuple[int, int] | None:
    """The lowest and the highest version of a request that kio has a schema of."""
    index = _kio_index()
    name = index.api_key_map.get(api_key)
    held = index.schema_name_map.get(name) if name is not None else None
    versions = [number for number, kinds in held.items() if any(k.name == "request" for k in kinds)] if held else []
    return (min(versions), max(versions)) if versions else None


def api_name(api_key: int) -> str | None:
    """kio's name of an API, `describe_log_dirs`; None if it knows no such key."""
    return cast(str | None, _kio_index().api_key_map.get(api_key))


def message_fields(api_key: int, version: int, kind: str) -> list[SchemaField]:
    """The fields of a `request` or a `response`, for what is made without knowing what it means."""
    return list(schema_fields(_schema(api_key, version, kind)))


def _skip_tags(data: bytes, at: int) -> int:
    count, at = read_uvarint_of_bytes(data, at)
    for _ in range(count):
        _, at = read_uvarint_of_bytes(data, at)
        size, at = read_uvarint_of_bytes(data, at)
        at += size
    return at


@functools.cache
def request_is_flexible(api_key: int, version: int) -> bool:
    """True if the request's header ends in tagged fields (header v2)."""
    return cast(bool, _schema(api_key, version, "request").__flexible__)


@functools.cache
def _request_reader(api_key: int, version: int) -> FieldReader:
    return compile_reader(_schema(api_key, version, "request"))


@functools.cache
def _request_writer(api_key: int, version: int) -> tuple[FieldWriter, bool]:
    schema = _schema(api_key, version, "request")
    return compile_writer(schema), schema.__flexible__


@functools.cache
def _response_reader(api_key: int, version: int) -> tuple[FieldReader, bool]:
    schema = _schema(api_key, version, "response")
    return compile_reader(schema), schema.__flexible__ and api_key != API_VERSIONS


@functools.cache
def _response_writer(api_key: int, version: int) -> tuple[FieldWriter, bool]:
    schema = _schema(api_key, version, "response")
    # ApiVersions is asked before the client knows what the broker speaks, so its header never has tags.
    return compile_writer(schema), schema.__flexible__ and api_key != API_VERSIONS


def _schema(api_key: int, version: int, kind: str) -> type[Any]:
    index = _kio_index()
    load = index.load_request_schema if kind == "request" else index.load_response_schema
    return cast(type[Any], load(api_key, version))


@functools.cache
def _kio_index() -> Any:
    """kio imports hypothesis where it finds it: 200 ms and 15 MB that a broker has no use for.

    Its absence is a case that kio provides for, so it is hidden while kio's types are made, unless a test
    runner has it already.
    """
    hide = "hypothesis" not in sys.modules and "kio.static._phantom" not in sys.modules
    if hide:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.index
    finally:
        if hide:
            del sys.modules["hypothesis"]
    return kio.index

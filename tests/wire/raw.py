"""A bare Kafka client for the tests of single API versions: kio's schemas over a plain socket.

It hides nothing: one connection, one request of an exact version, the answer as kio decodes it, every byte of
which must be accounted for. It never retries a request, and it never shares code with the broker under test.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import itertools
import socket
import struct
import time
import typing
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import cramjam
import crc32c
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode as ErrorCode
from kio.schema.response_header.v0.header import ResponseHeader as ResponseHeaderV0
from kio.serial import entity_reader, entity_writer
from waits import NEVER_MS, WAIT_MS_MAX, WAIT_S_MAX

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR = 0, 1, 2, 3, 10
API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, INIT_PRODUCER_ID = 18, 19, 20, 21, 22
OFFSET_FOR_LEADER_EPOCH, DESCRIBE_CONFIGS, ALTER_CONFIGS, DESCRIBE_LOG_DIRS = 23, 32, 33, 35
CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 37, 44, 60, 75

# What Apache Kafka 4.3.1 serves, and so what Headrace serves.
VERSIONS: dict[int, tuple[int, int]] = {
    PRODUCE: (3, 13),
    FETCH: (4, 18),
    LIST_OFFSETS: (1, 11),
    METADATA: (0, 13),
    FIND_COORDINATOR: (0, 6),
    API_VERSIONS: (0, 4),
    CREATE_TOPICS: (2, 7),
    DELETE_TOPICS: (1, 6),
    DELETE_RECORDS: (0, 2),
    INIT_PRODUCER_ID: (0, 5),
    OFFSET_FOR_LEADER_EPOCH: (2, 4),
    DESCRIBE_CONFIGS: (1, 4),
    ALTER_CONFIGS: (0, 2),
    DESCRIBE_LOG_DIRS: (1, 5),
    CREATE_PARTITIONS: (0, 3),
    INCREMENTAL_ALTER_CONFIGS: (0, 1),
    DESCRIBE_CLUSTER: (0, 2),
    DESCRIBE_TOPIC_PARTITIONS: (0, 0),
}


def versions(api_key: int) -> range:
    low, high = VERSIONS[api_key]
    return range(low, high + 1)


def latest(api_key: int) -> int:
    return VERSIONS[api_key][1]


# Requests: plain mappings become kio's entities of one version.

_ZERO = {"string": "", "bool": False, "bytes": b"", "records": b"", "uuid": None}


def entity(schema: type, body: Mapping[str, object]) -> Any:
    """The schema's entity with the body's fields; fields that this version does not have are dropped."""
    values = {}
    for field in dataclasses.fields(schema):
        if field.name in body:
            values[field.name] = _value(field, body[field.name])
        elif field.default is dataclasses.MISSING:
            values[field.name] = _value(field, _zero(field))
    return schema(**values)


def _zero(field: dataclasses.Field[Any]) -> object:
    if type(None) in typing.get_args(field.type):
        return None
    if typing.get_origin(field.type) is tuple:
        return ()
    return _ZERO.get(field.metadata["kafka_type"], 0)


def _value(field: dataclasses.Field[Any], value: Any) -> Any:
    if value is None:
        return None
    nested = next((t for t in _leaf_types(field.type) if dataclasses.is_dataclass(t)), None)
    if isinstance(value, (list, tuple)):
        return tuple(entity(nested, each) if nested else each for each in value)
    if nested:
        return entity(nested, value)
    if str(field.metadata.get("kafka_type", "")).startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    return value


def _leaf_types(kind: Any) -> Iterator[Any]:
    inner = typing.get_args(kind)
    if not inner:
        yield kind
    for each in inner:
        yield from _leaf_types(each)


def encode_request(
    api_key: int, version: int, correlation_id: int, body: Mapping[str, object], client_id: str | None = "raw"
) -> bytes:
    """One request without the length in front of it."""
    schema = load_request_schema(api_key, version)
    header = entity(
        schema.__header_schema__,
        {
            "request_api_key": api_key,
            "request_api_version": version,
            "correlation_id": correlation_id,
            "client_id": client_id,
        },
    )
    out = io.BytesIO()
    entity_writer(schema.__header_schema__)(out, header)
    entity_writer(schema)(out, entity(schema, body))
    return out.getvalue()


class Client:
    """One connection. Requests may be sent ahead; answers are read in the order of the requests."""

    def __init__(self, bootstrap: str, timeout_s: float = WAIT_S_MAX) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waiting: deque[tuple[int, int, int]] = deque()
        self._next_id = itertools.count(1)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def call(self, api_key: int, version: int, body: Mapping[str, object]) -> Any:
        self.send(api_key, version, body)
        return self.read()

    def send(self, api_key: int, version: int, body: Mapping[str, object], *, answered: bool = True) -> None:
        correlation_id = next(self._next_id)
        self.send_frame(encode_request(api_key, version, correlation_id, body))
        if answered:
            self._waiting.append((api_key, version, correlation_id))

    def read(self) -> Any:
        api_key, version, correlation_id = self._waiting.popleft()
        frame = self.read_frame()
        schema = load_response_schema(api_key, version)
        head = ResponseHeaderV0 if api_key == API_VERSIONS else schema.__header_schema__
        header, at = entity_reader(head)(frame, 0)
        assert header.correlation_id == correlation_id, "answers come in the order of the requests"
        body, size = entity_reader(schema)(frame, at)
        assert at + size == len(frame), f"{len(frame) - at - size} bytes after the answer"
        return body

    def send_frame(self, payload: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(payload)) + payload)

    def read_frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self.socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts += part
        return bytes(parts)

    def is_closed_by_broker(self) -> bool:
        """Waits for the end of the connection; False if the broker answers instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


# Topics, made and looked at with the newest versions: the ground on which a test stands.

_serial = itertools.count()


class Topic(NamedTuple):
    name: str
    id: uuid.UUID

    @property
    def ref(self) -> dict[str, object]:
        """By name or by id: the version of the request takes what it has."""
        return {"name": self.name, "topic": self.name, "topic_id": self.id}


def fresh_name(hint: str = "topic") -> str:
    return f"{hint}-{uuid.uuid4().hex[:12]}-{next(_serial)}"


def make_topic(client: Client, partitions: int = 1, name: str = "", **configs: object) -> Topic:
    name = name or fresh_name()
    settings = [{"name": key.replace("_", "."), "value": str(value)} for key, value in configs.items()]
    spec = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
    answer = client.call(CREATE_TOPICS, 7, {"topics": [spec], "timeout": WAIT_MS_MAX}).topics[0]
    assert answer.error_code == 0, answer
    wait_for_partitions(client, name, partitions)
    return Topic(name, answer.topic_id)


def wait_for_partitions(client: Client, name: str, partitions: int) -> None:
    """Apache Kafka acknowledges a new topic a moment before its partitions can be used."""
    asked = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
    body = {"replica_id": -1, "topics": [{"name": name, "partitions": asked}]}

    def usable() -> bool:
        answer = client.call(LIST_OFFSETS, 8, body)
        return all(each.error_code == 0 for each in answer.topics[0].partitions)

    eventually(usable)


def eventually(condition: typing.Callable[[], object], timeout_s: float = WAIT_S_MAX) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {timeout_s} s"
        time.sleep(0.005)


def list_offset(client: Client, topic: Topic, partition: int = 0, timestamp: int = -1) -> int:
    asked = [{"partition_index": partition, "timestamp": timestamp}]
    answer = client.call(LIST_OFFSETS, 8, {"replica_id": -1, "topics": [topic.ref | {"partitions": asked}]})
    result = answer.topics[0].partitions[0]
    assert result.error_code == 0, result
    return int(result.offset)


def produce_body(*parts: tuple[Topic, int, bytes | None], acks: int = -1) -> dict[str, object]:
    by_topic: dict[Topic, list[dict[str, object]]] = {}
    for topic, index, records in parts:
        by_topic.setdefault(topic, []).append({"index": index, "records": records})
    data = [topic.ref | {"partition_data": partitions} for topic, partitions in by_topic.items()]
    return {"acks": acks, "timeout": WAIT_MS_MAX, "topic_data": data}


def produce(client: Client, topic: Topic, records: bytes | None, *, partition: int = 0, version: int = 13) -> Any:
    """The one partition's answer."""
    answer = client.call(PRODUCE, version, produce_body((topic, partition, records)))
    return answer.responses[0].partition_responses[0]


def fetch_body(
    *parts: tuple[Topic, int, int], partition_max_bytes: int = 1 << 20, **fields: object
) -> dict[str, object]:
    by_topic: dict[Topic, list[dict[str, object]]] = {}
    for topic, index, offset in parts:
        asked = {"partition": index, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes}
        by_topic.setdefault(topic, []).append(asked)
    topics = [topic.ref | {"partitions": partitions} for topic, partitions in by_topic.items()]
    usual = {"replica_id": -1, "max_wait": NEVER_MS, "min_bytes": 1, "max_bytes": 50 << 20, "topics": topics}
    return usual | fields


def fetch(client: Client, topic: Topic, offset: int = 0, *, partition: int = 0, version: int = 16) -> Any:
    """The one partition's answer."""
    answer = client.call(FETCH, version, fetch_body((topic, partition, offset), max_wait=0))
    return answer.responses[0].partitions[0]


# Record batches of magic 2.

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = _HEADER.size


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    timestamp: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = 0


class Batch(NamedTuple):
    base_offset: int
    leader_epoch: int
    magic: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    raw: bytes

    @property
    def codec(self) -> int:
        return self.attributes & 7

    def records(self) -> list[Record]:
        data, at, found = decompress(self.codec, self.raw[HEADER_BYTES:]), 0, []
        for _ in range(self.count):
            size, at = _read_varint(data, at)
            found.append(self._record(data[at : at + size]))
            at += size
        assert at == len(data), "bytes after the last record"
        return found

    def _record(self, data: bytes) -> Record:
        delta_ms, at = _read_varint(data, 1)
        delta, at = _read_varint(data, at)
        key, at = _read_bytes(data, at)
        value, at = _read_bytes(data, at)
        count, at = _read_varint(data, at)
        headers = []
        for _ in range(count):
            name, at = _read_bytes(data, at)
            held, at = _read_bytes(data, at)
            headers.append(((name or b"").decode(), held))
        assert at == len(data), "bytes after the last header"
        append_time = self.attributes & LOG_APPEND_TIME
        timestamp = self.max_timestamp if append_time else self.base_timestamp + delta_ms
        return Record(value, key, timestamp, tuple(headers), self.base_offset + delta)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def values(*each: bytes, at_ms: int | None = None) -> list[Record]:
    return [Record(value, timestamp=now_ms() if at_ms is None else at_ms) for value in each]


def batch(
    records: Sequence[Record],
    *,
    codec: int = NONE,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_offset: int = 0,
    magic: int = 2,
    crc_flip: int = 0,
    count: int | None = None,
    last_offset_delta: int | None = None,
    max_timestamp: int | None = None,
    length_error: int = 0,
) -> bytes:
    """A batch of these records; `producer` is (id, epoch, first sequence). The last ones make it wrong."""
    base_ms = records[0].timestamp if records else -1
    body = b"".join(_encode_record(index, each, base_ms) for index, each in enumerate(records))
    top_ms = max((each.timestamp for each in records), default=-1) if max_timestamp is None else max_timestamp
    return batch_of(
        compress(codec, body),
        codec=codec,
        attributes=attributes,
        producer=producer,
        base_offset=base_offset,
        magic=magic,
        crc_flip=crc_flip,
        count=len(records) if count is None else count,
        last_offset_delta=len(records) - 1 if last_offset_delta is None else last_offset_delta,
        base_ms=base_ms,
        top_ms=top_ms,
        length_error=length_error,
    )


def batch_of(
    body: bytes,
    *,
    count: int,
    base_ms: int,
    top_ms: int | None = None,
    codec: int = NONE,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    base_offset: int = 0,
    magic: int = 2,
    crc_flip: int = 0,
    last_offset_delta: int | None = None,
    length_error: int = 0,
) -> bytes:
    """A header for records that are bytes already, whatever they are, compressed if they are to be."""
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    size = _HEADER.size - 12 + len(body) + length_error
    tail = (attributes | codec, delta, base_ms, base_ms if top_ms is None else top_ms, *producer, count)
    head = _HEADER.pack(base_offset, size, -1, magic, 0, *tail)
    crc = crc32c.crc32c(head[21:] + body) ^ crc_flip
    return _HEADER.pack(base_offset, size, -1, magic, crc, *tail) + body


def batches(data: bytes | None) -> list[Batch]:
    """The whole batches in what a fetch returned: the last one may be cut."""
    found, at, data = [], 0, bytes(data or b"")
    while at + _HEADER.size <= len(data):
        head = _HEADER.unpack_from(data, at)
        end = at + 12 + head[1]
        if end > len(data):
            break
        raw = data[at:end]
        assert crc32c.crc32c(raw[21:]) == head[4], f"crc of the batch at offset {head[0]}"
        found.append(Batch(head[0], head[2], head[3], *head[5:], raw))
        at = end
    return found


def records_of(data: bytes | None) -> list[Record]:
    return [record for each in batches(data) for record in each.records()]


def values_of(data: bytes | None) -> list[bytes | None]:
    return [record.value for record in records_of(data)]


def _encode_record(index: int, record: Record, base_ms: int) -> bytes:
    body = b"\0" + varint(record.timestamp - base_ms) + varint(index)
    body += _bytes(record.key) + _bytes(record.value) + varint(len(record.headers))
    for name, held in record.headers:
        body += _bytes(name.encode()) + _bytes(held)
    return varint(len(body)) + body


def _bytes(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _read_bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _read_varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


# Kafka's framing of the codecs: LZ4 frames with independent blocks, snappy in xerial's blocks.

_XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
_LZ4_FRAME = bytes.fromhex("04224d18604082")


def compress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(data))
        return _XERIAL + struct.pack(">i", len(block)) + block
    if codec == LZ4:
        blocks = [data[at : at + 65536] for at in range(0, len(data), 65536)]
        packed = [bytes(cramjam.lz4.compress_block(block, store_size=False)) for block in blocks]
        return _LZ4_FRAME + b"".join(struct.pack("<I", len(each)) + each for each in packed) + bytes(4)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    return data


def decompress(codec: int, data: bytes) -> bytes:
    if codec == GZIP:
        return bytes(cramjam.gzip.decompress(data))
    if codec == SNAPPY:
        assert data.startswith(_XERIAL[:8]), "snappy is in xerial's framing"
        out, at = b"", len(_XERIAL)
        while at < len(data):
            (size,) = struct.unpack_from(">i", data, at)
            out += bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size]))
            at += 4 + size
        return out
    if codec == LZ4:
        assert data[4] & 0x20, "Java's clients read no LZ4 frame with linked blocks"
        return bytes(cramjam.lz4.decompress(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.decompress(data))
    return data

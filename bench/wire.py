"""A few Kafka requests over a plain socket, so that no client's own start-up is measured.

Only versions that need neither tagged fields nor topic ids; a connection lives for one request.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from crc32c import crc32c
from processes import MeasurementError

PRODUCE, METADATA, FIND_COORDINATOR, CREATE_TOPICS, DELETE_TOPICS, ALTER_CONFIGS = 0, 3, 10, 19, 20, 44
ANSWER_S_MAX = 120.0
FIRST_TOPIC = "first-record"
_RETRY_S = 0.002


def ask(port: int, api_key: int, version: int, body: bytes, *, seconds_max: float = ANSWER_S_MAX) -> bytes:
    """The answer's body, without its correlation id."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds_max) as connection:
        return ask_over(connection, request(api_key, version, body))


def ask_over(connection: socket.socket, framed: bytes) -> bytes:
    connection.sendall(framed)
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)[4:]


def request(api_key: int, version: int, body: bytes) -> bytes:
    """With its length in front."""
    framed = struct.pack(">hhi", api_key, version, 1) + string("bench") + body
    return struct.pack(">i", len(framed)) + framed


def first_record(port: int, alive: Callable[[], bool], *, seconds_max: float = ANSWER_S_MAX) -> float:
    """Tries until a record is acknowledged, and returns that moment."""
    deadline = time.monotonic() + seconds_max
    reason: object = "no answer"
    while time.monotonic() < deadline:
        try:
            code = _produce_one(port)
            if code == 0:
                return time.monotonic()
            reason = f"error {code}"
            # The topic is missing, or has no leader yet.
            ask(port, METADATA, 4, struct.pack(">i", 1) + string(FIRST_TOPIC) + b"\x01", seconds_max=5)
        except OSError as error:
            reason = error
            if not alive():
                raise MeasurementError("the broker ended before it acknowledged a record") from error
        time.sleep(_RETRY_S)
    raise MeasurementError(f"no record was acknowledged within {seconds_max:g} s: {reason}")


def wait_for_coordinators(port: int, *, seconds_max: float = ANSWER_S_MAX) -> None:
    """Of groups and of transactions: Kafka makes the topics that they keep on the first such question."""
    deadline = time.monotonic() + seconds_max
    for kind in (0, 1):
        while code := _Reader(ask(port, FIND_COORDINATOR, 1, string("bench") + bytes([kind]))[4:]).number(2):
            if time.monotonic() > deadline:
                raise MeasurementError(f"no coordinator within {seconds_max:g} s: error {code}")
            time.sleep(0.05)


def node_id(port: int) -> int:
    """Of the broker that answers."""
    answer = _Reader(ask(port, METADATA, 4, struct.pack(">i?", 0, False)))
    answer.take(4 + 4)  # throttle time; how many brokers there are
    return answer.number(4)


def topics(port: int) -> list[str]:
    """The names of all topics but the broker's own."""
    answer = _Reader(ask(port, METADATA, 4, struct.pack(">i?", -1, False)))
    answer.take(4)  # throttle time
    for _ in range(answer.number(4)):
        answer.take(4)
        answer.string()
        answer.take(4)
        answer.string()
    answer.string()
    answer.take(4)
    names = []
    for _ in range(answer.number(4)):
        answer.take(2)
        names.append(answer.string())
        answer.take(1)
        for _ in range(answer.number(4)):
            answer.take(2 + 4 + 4)
            for _ in range(2):
                answer.take(4 * answer.number(4))
    return [name for name in names if not name.startswith("__")]


def create_topics(port: int, names: Iterable[str], partitions: int, configs: Mapping[str, str] | None = None) -> None:
    names, given = list(names), configs or {}
    body = struct.pack(">i", len(names))
    for name in names:
        body += string(name) + struct.pack(">ihii", partitions, 1, 0, len(given))
        body += b"".join(string(key) + string(value) for key, value in given.items())
    _each_ok(ask(port, CREATE_TOPICS, 2, body + struct.pack(">i?", 100_000, False)), "create", with_message=True)


def set_topic_config(port: int, name: str, key: str, value: str) -> None:
    one = string(key) + b"\x00" + string(value)
    body = struct.pack(">ib", 1, 2) + string(name) + struct.pack(">i", 1) + one + b"\x00"
    answer = _Reader(ask(port, ALTER_CONFIGS, 0, body))
    answer.take(4 + 4)
    code, message = answer.number(2), answer.string()
    if code:
        raise MeasurementError(f"{key}={value} of topic {name}: error {code}: {message}")


def delete_topics(port: int, names: Iterable[str]) -> None:
    names = list(names)
    body = struct.pack(">i", len(names)) + b"".join(map(string, names))
    _each_ok(ask(port, DELETE_TOPICS, 1, body + struct.pack(">i", 60_000)), "delete", with_message=False)


def _each_ok(data: bytes, verb: str, *, with_message: bool) -> None:
    answer = _Reader(data)
    answer.take(4)  # throttle time
    for _ in range(answer.number(4)):
        name, code = answer.string(), answer.number(2)
        if with_message:
            answer.string()
        if code:
            raise MeasurementError(f"{verb} topic {name}: error {code}")


def _produce_one(port: int) -> int:
    return produce_code(ask(port, PRODUCE, 7, produce_body(FIRST_TOPIC, batch([(None, b"x" * 100)]))))


def produce_body(topic: str, data: bytes) -> bytes:
    """Of version 7: one batch for partition 0, acknowledged by the leader."""
    body = struct.pack(">hhii", -1, 1, 30_000, 1) + string(topic)
    return body + struct.pack(">iii", 1, 0, len(data)) + data


def produce_code(data: bytes) -> int:
    answer = _Reader(data)
    answer.take(4)
    answer.string()
    answer.take(4 + 4)
    return answer.number(2)


def fetch_body(topic: str, bytes_max: int) -> bytes:
    """Of version 4: the beginning of partition 0."""
    head = struct.pack(">iiiibi", -1, 500, 1, bytes_max, 0, 1) + string(topic)
    return head + struct.pack(">iiqi", 1, 0, 0, bytes_max)


def batch(pairs: Sequence[tuple[bytes | None, bytes]]) -> bytes:
    """Keys and values as one batch."""
    records = b""
    for at, (key, value) in enumerate(pairs):
        keyed = b"\x01" if key is None else _varint(len(key)) + key
        record = b"\x00\x00" + _varint(at) + keyed + _varint(len(value)) + value + b"\x00"
        records += _varint(len(record)) + record
    now_ms, count = int(time.time() * 1000), len(pairs)
    checked = struct.pack(">hiqqqhii", 0, count - 1, now_ms, now_ms, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


def _varint(number: int) -> bytes:
    number <<= 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker closed the connection")
        data += part
    return bytes(data)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        self._at += size
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def string(self) -> str:
        return self.take(max(self.number(2), 0)).decode()

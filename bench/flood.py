"""How long a bystander waits for a produce and a fetch while one other connection floods the broker, on both.

A flood is a connection that sends one kind of request without waiting for answers. Then two floods that leave
something behind: members that ask for an id and never join with it, whose sessions then end, and members that join one
KIP-848 group. The bystander asks for one thing at a time and rests in between.
"""

import select
import socket
import statistics
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import flexible as f
import wire
from book import Book
from brokers import Broker
from processes import MeasurementError
from workspace import Workspace

PENDING_MEMBERS, PENDING_GROUPS, JOINS = 110_000, 11, 20_000
PREFIX = "flood"
PENDING, JOINED = f"{PREFIX}_pending_members", f"{PREFIX}_joins"
TOPIC, OTHER_TOPICS = "flood-bystander", 100
SESSION_MS, REBALANCE_MS = 6_000, 45_000
EXPIRY_S = SESSION_MS / 1000 + 4  # from the last answer until every session has ended
PAUSE_S, WAIT_S_MAX = 0.001, 180.0
FRAME_BYTES = 1 << 20
_FETCH, _OFFSET_COMMIT, _JOIN_GROUP, _API_VERSIONS, _DESCRIBE_CONFIGS, _CONSUMER_HEARTBEAT = 1, 8, 11, 18, 32, 68
_BROKER = 4


def _api_versions(broker: Broker) -> bytes:
    return wire.request(_API_VERSIONS, 0, b"")


def _describe_configs(broker: Broker) -> bytes:
    node_id = wire.string(str(wire.node_id(broker.port)))
    return wire.request(_DESCRIBE_CONFIGS, 1, struct.pack(">ib", 1, _BROKER) + node_id + struct.pack(">i?", -1, True))


def _create_topics(broker: Broker) -> bytes:
    topic = f.text("flood-never-made") + struct.pack(">ih", 6, 1) + f.array([]) + f.array([]) + f.NOTHING
    return f.request(wire.CREATE_TOPICS, 5, f.array([topic]) + struct.pack(">i?", 30_000, True) + f.NOTHING)


def _offset_commit(broker: Broker) -> bytes:
    head = wire.string("flood-group") + struct.pack(">i", -1) + wire.string("") + struct.pack(">q", -1)
    partition = struct.pack(">iiq", 1, 0, 42) + wire.string("")
    return wire.request(_OFFSET_COMMIT, 2, head + struct.pack(">i", 1) + wire.string(TOPIC) + partition)


def _metadata(broker: Broker) -> bytes:
    return wire.request(wire.METADATA, 4, struct.pack(">i?", -1, False))


def _unacknowledged(broker: Broker) -> bytes:
    body = bytearray(wire.produce_body(f"{TOPIC}-0", wire.batch([(None, b"x" * 100)])))
    struct.pack_into(">h", body, 2, 0)
    return wire.request(wire.PRODUCE, 7, bytes(body))


KINDS: dict[str, tuple[str, Callable[[Broker], bytes]]] = {
    f"{PREFIX}_api_versions": ("ApiVersions", _api_versions),
    f"{PREFIX}_describe_configs": ("DescribeConfigs of the broker", _describe_configs),
    f"{PREFIX}_create_topics": ("CreateTopics, validate only", _create_topics),
    f"{PREFIX}_offset_commit": ("OffsetCommit", _offset_commit),
    f"{PREFIX}_metadata": (f"Metadata of {OTHER_TOPICS} topics", _metadata),
    f"{PREFIX}_acks_0": ("Produce, acks=0", _unacknowledged),
}
NAMES = (*KINDS, PENDING, JOINED)


def run(
    book: Book, workspace: Workspace, both: tuple[Broker, Broker], wanted: set[str], *, rounds: int, seconds: float
) -> None:
    chosen = [name for name in NAMES if name in wanted]
    if not chosen:
        return
    for broker in both:
        wire.wait_for_coordinators(broker.port)
        others = [f"flood-{number}" for number in range(OTHER_TOPICS)]
        wire.create_topics(broker.port, [TOPIC, f"{TOPIC}-0", *others], 1)
    for name in chosen:
        alone = name not in KINDS
        for number in range(1 if alone else rounds + 1):
            for broker in both if number % 2 else both[::-1]:
                try:
                    figures = _measure(name, broker, workspace, seconds)
                except (MeasurementError, OSError) as error:
                    book.fail(name, f"{broker.name}: {error}")
                    continue
                if number or alone:  # the first round of the others warms what is cold
                    book.add(name, broker.name, **figures)
    for broker in both:
        wire.delete_topics(broker.port, wire.topics(broker.port))


def _measure(name: str, broker: Broker, workspace: Workspace, seconds: float) -> dict[str, float]:
    with Bystander(broker) as bystander:
        if name == PENDING:
            return _pending(broker, workspace, bystander)
        if name == JOINED:
            return _joins(broker, workspace, bystander)
        frame = KINDS[name][1](broker)
        size = _answer_size(broker, frame) if name != f"{PREFIX}_acks_0" else 0
        flood = Flood(broker, workspace, frame * max(1, FRAME_BYTES // len(frame)), 0)
        with flood:
            bystander.ask_for(seconds)
            received, took_s = flood.end()
        served = {"per_s": received / size / took_s} if size else {}
        return {**bystander.figures(), **served}


def _pending(broker: Broker, workspace: Workspace, bystander: "Bystander") -> dict[str, float]:
    frames = b"".join(_pending_member(f"pending-{broker.name}-{number}") for number in range(PENDING_GROUPS))
    with Flood(broker, workspace, frames * (PENDING_MEMBERS // PENDING_GROUPS), PENDING_MEMBERS) as flood:
        bystander.ask_until(flood.is_answered)
        bystander.ask_for(EXPIRY_S)
        _, took_s = flood.end()
    return {**bystander.figures(), "took_s": took_s}


def _pending_member(group: str) -> bytes:
    head = wire.string(group) + struct.pack(">ii", SESSION_MS, REBALANCE_MS) + wire.string("")
    protocol = wire.string("range") + struct.pack(">i", 0)
    body = head + struct.pack(">h", -1) + wire.string("consumer") + struct.pack(">i", 1) + protocol
    return wire.request(_JOIN_GROUP, 5, body)


def _joins(broker: Broker, workspace: Workspace, bystander: "Bystander") -> dict[str, float]:
    frames = bytearray()
    for _ in range(JOINS):
        head = f.text(f"joined-{broker.name}") + f.text(str(uuid.uuid4())) + struct.pack(">i", 0) + 2 * f.NOTHING
        topics = struct.pack(">i", REBALANCE_MS) + f.array([f.text(TOPIC)]) + f.NOTHING + f.NOTHING + f.array([])
        frames += f.request(_CONSUMER_HEARTBEAT, 1, head + topics + f.NOTHING)
    with Flood(broker, workspace, bytes(frames), JOINS) as flood:
        bystander.ask_until(flood.is_answered)
        _, took_s = flood.end()
    return {**bystander.figures(), "took_s": took_s}


class Flood:
    """`flooding.py` under way; it ends with the block."""

    def __init__(self, broker: Broker, workspace: Workspace, frames: bytes, count: int) -> None:
        path = workspace.path / "flood.frames"
        path.write_bytes(frames)
        script = Path(__file__).with_name("flooding.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(broker.port), str(path), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines = self._process.stdout
        self._is_answered = False
        self._line()

    def _line(self) -> str:
        line = self._lines.readline() if self._lines is not None else ""
        if not line:
            raise MeasurementError("the flood ended by itself: the broker closed its connection, or stopped answering")
        return line

    def is_answered(self) -> bool:
        """All that it had to send. Asked again and again; it does not wait."""
        if not self._is_answered and self._lines is not None:
            ready = _readable(self._lines.fileno())
            self._is_answered = ready and self._line().strip() == "answered"
        return self._is_answered

    def end(self) -> tuple[float, float]:
        """Bytes that were answered, and seconds."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        line = self._line()
        while line.strip() == "answered":
            line = self._line()
        received, took_s = line.split()
        return float(received), float(took_s)

    def __enter__(self) -> "Flood":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _readable(descriptor: int) -> bool:
    return bool(select.select([descriptor], [], [], 0)[0])


class Bystander:
    def __init__(self, broker: Broker) -> None:
        self._connection = socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_S_MAX)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._produce = wire.request(wire.PRODUCE, 7, wire.produce_body(TOPIC, wire.batch([(None, b"x" * 100)])))
        self._fetch = wire.request(_FETCH, 4, wire.fetch_body(TOPIC, 4096))
        self._took_s: list[float] = []

    def ask_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        self.ask_until(lambda: time.monotonic() > until)

    def ask_until(self, done: Callable[[], bool]) -> None:
        while not done():
            began = time.perf_counter()
            answer = wire.ask_over(self._connection, self._produce)
            wire.ask_over(self._connection, self._fetch)
            self._took_s.append(time.perf_counter() - began)
            if code := wire.produce_code(answer):
                raise MeasurementError(f"the bystander's Produce: error {code}")
            time.sleep(PAUSE_S)

    def figures(self) -> dict[str, float]:
        if len(self._took_s) < 2:
            raise MeasurementError("the bystander was answered less than twice")
        points = statistics.quantiles(self._took_s, n=100, method="inclusive")
        took = {"p50_ms": points[49], "p99_ms": points[98], "max_ms": max(self._took_s)}
        return {"records": float(len(self._took_s)), **{name: 1000 * value for name, value in took.items()}}

    def __enter__(self) -> "Bystander":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _answer_size(broker: Broker, frame: bytes) -> int:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_S_MAX) as connection:
        return len(wire.ask_over(connection, frame)) + 8

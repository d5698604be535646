"""A client of the simulated broker: its life is a generator that speaks bytes over a connection that may be lost.

`answer = yield from self.call(...)` is an answer, or None if the connection was lost before it came: then the request
may have been handled, may never be, or, for clients with `stragglers`, may be handled at any time later.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.protocol import messages
from headrace.protocol.message_reader import compile_reader
from headrace.protocol.message_writer import compile_writer

if TYPE_CHECKING:
    from sim_network import Link
    from sim_world import World

PRODUCE, FETCH, OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 0, 1, 8, 9, 11, 12, 13, 14
FIND_COORDINATOR, CREATE_TOPICS, INIT_PRODUCER_ID = 10, 19, 22
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN = 24, 25, 26
TXN_OFFSET_COMMIT, CONSUMER_GROUP_HEARTBEAT = 28, 68

PATIENCE_MS = 90_000  # for an answer; longer than any rebalance takes

Life = Generator[None, None, Any]
Partition = tuple[str, int]


@functools.cache
def _writer(api_key: int, version: int) -> tuple[Any, bool]:
    writer = compile_writer(messages._schema(api_key, version, "request"))
    return writer.write, messages.request_is_flexible(api_key, version)


@functools.cache
def _reader(api_key: int, version: int) -> tuple[Any, bool]:
    schema = messages._schema(api_key, version, "response")
    return compile_reader(schema).read, schema.__flexible__


def encode(api_key: int, version: int, correlation_id: int, client_id: str, body: Mapping[str, object]) -> bytes:
    write, flexible = _writer(api_key, version)
    name = client_id.encode()
    out = bytearray(struct.pack(">ihhih", 0, api_key, version, correlation_id, len(name)) + name)
    if flexible:
        out.append(0)
    write(out, body)
    struct.pack_into(">i", out, 0, len(out) - 4)
    return bytes(out)


def decode(api_key: int, version: int, frame: bytes, correlation_id: int) -> Any:
    read, flexible = _reader(api_key, version)
    assert struct.unpack_from(">i", frame)[0] == correlation_id, "answers come in the order of the requests"
    body, end = read(frame, 5 if flexible else 4)
    assert end == len(frame), f"{len(frame) - end} bytes behind an answer"
    return body


class Client:
    stragglers = False  # what it has sent may arrive after it has given up on the connection

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.rng = world.rng
        self.name = name
        self.link: Link | None = None
        self.wake_at: int | None = None
        self.finished = False
        self._awaited: list[tuple[int, int, int]] = []  # correlation id, api, version
        self._answers: list[Any] = []
        self._next_id = 0
        self._life: Iterator[None] = iter(())

    def life(self) -> Life:
        raise NotImplementedError

    def begin(self) -> None:
        self._life = self.life()
        self.go_on()

    @property
    def now_ms(self) -> int:
        return self.world.clock.now_ms()

    @property
    def ending(self) -> bool:
        return self.world.ending

    # ── for its life ─────────────────────────────────────────────────────────────────────────────────────────────

    def call(self, api_key: int, version: int, body: Mapping[str, object]) -> Generator[None, None, Any]:
        return (yield from self.calls([(api_key, version, body)]))[0]

    def calls(self, requests: Sequence[tuple[int, int, Mapping[str, object]]]) -> Generator[None, None, list[Any]]:
        """All of them at once, one behind the other; None for those without an answer."""
        link = self.link = self.link or self.world.connect(self)
        if link is None:
            yield from self.pause(self.rng.randint(20, 200))
            return [None] * len(requests)
        for api_key, version, body in requests:
            self._next_id += 1
            self._awaited.append((self._next_id, api_key, version))
            link.up += encode(api_key, version, self._next_id, self.name, body)
        self._answers = []
        self.wake_at = self.now_ms + PATIENCE_MS
        yield
        self.wake_at = None
        answers, self._answers = self._answers, []
        lost = len(requests) - len(answers)
        if lost:
            self.give_up_link()
        return answers + [None] * lost

    def find_coordinator(self, group: str) -> Life:
        """As every client does first; the broker makes its internal topics then."""
        while True:
            answer = yield from self.call(FIND_COORDINATOR, 3, {"key": group, "key_type": 0})
            if answer is not None and answer.error_code == 0:
                return
            yield from self.pause(100)

    def pause(self, ms: int) -> Life:
        self.wake_at = self.now_ms + ms
        yield
        self.wake_at = None

    def give_up_link(self) -> None:
        self._awaited.clear()
        if self.link is not None:
            self.world.leave(self.link)
            self.link = None

    # ── for the world ────────────────────────────────────────────────────────────────────────────────────────────

    def go_on(self) -> None:
        try:
            next(self._life)
        except StopIteration:
            self.finished = True
            self.wake_at = None
            self.give_up_link()

    def received(self, link: Link, data: bytes) -> None:
        if link is not self.link:
            return
        link.down += data
        buffer = link.down
        while len(buffer) >= 4 and len(buffer) >= 4 + (size := int.from_bytes(buffer[:4], "big")):
            frame = bytes(buffer[4 : 4 + size])
            del buffer[: 4 + size]
            correlation_id, api_key, version = self._awaited.pop(0)
            self._answers.append(decode(api_key, version, frame, correlation_id))
        if self._answers and not self._awaited:
            self.go_on()

    def lost(self, link: Link) -> None:
        """The connection is gone."""
        if link is not self.link:
            return
        self.link = None
        if self._awaited:
            self._awaited.clear()
            self.go_on()

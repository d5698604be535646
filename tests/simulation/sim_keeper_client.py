"""A client of a simulated keeper: it asks seeded things, loses its connections, comes back, and sometimes never does.

What it is told goes into a history; what can be judged at once is: answers in order, no transaction that was seen is
gone, an event before the change that it tells of, ephemeral nodes as long as their session.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from keeper_history import Read, ViolationError, Write
from raw_client import STAT_BYTES, create_body
from sim_network import Link

from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.jute import (
    Reader,
    boolean_bytes,
    buffer_bytes,
    int_bytes,
    long_bytes,
    string_bytes,
    vector_bytes,
)

if TYPE_CHECKING:
    from sim_keeper import World

REGISTERS = tuple(f"/r/{number}" for number in range(3))
FOLDERS = ("/r", "/e", "/s")
UNANSWERED_MAX = 6
NEXT_STEP = boolean_bytes(False) + int_bytes(-1)
LAST_STEP = int_bytes(-1) + boolean_bytes(True) + int_bytes(-1)


class Answer(NamedTuple):
    zxid: int
    error: int
    body: bytes


Told = Callable[[Answer], None]


class KeeperClient:
    stragglers = True  # what it sent before it lost a connection may still arrive

    def __init__(self, world: World, name: str, rng: random.Random) -> None:
        self.world = world
        self.name = name
        self.session, self.password, self.last_zxid = 0, bytes(16), 0
        self.ephemerals: set[str] = set()  # answered
        self.uncertain: set[str] = set()  # asked for
        self.wake_at = 0
        self.quiet = False  # asks for nothing more
        self.silent = False  # never comes back
        self._rng = rng
        self._made = 0
        self._link: Link | None = None
        self._attached = False
        self._xid = 0
        self._waiting: deque[tuple[int, Told]] = deque()
        self._watching: dict[str, int] = {}  # by path, the change that was seen when the watch was set
        self._closing = False

    @property
    def idle(self) -> bool:
        return not self._waiting and (self._attached or self.silent)

    # ── the connection ───────────────────────────────────────────────────────────────────────────────────────────

    def go_on(self, now_ms: int) -> None:
        """What it does by itself, now and then."""
        if self.silent:
            return
        self.wake_at = now_ms + self._rng.choice((1, 20, 200, 900))
        if self._link is None:
            self._connect()
        elif self._attached and not self._closing:
            if self.quiet:
                self._ask(codes.PING, b"", lambda _: None, codes.PING_XID)
            elif len(self._waiting) < UNANSWERED_MAX:
                for _ in range(self._rng.choice((1, 1, 1, 3))):
                    self._act()

    def _connect(self) -> None:
        self._link = self.world.connect(self)
        if self._link is None:
            return
        body = int_bytes(0) + long_bytes(self.last_zxid) + int_bytes(self.world.session_ms) + long_bytes(self.session)
        self._send(body + buffer_bytes(self.password) + boolean_bytes(False))

    def _send(self, frame: bytes) -> None:
        assert self._link is not None
        self._link.up += int_bytes(len(frame)) + frame

    def lost(self, link: Link) -> None:
        if link is self._link:
            self._link, self._attached = None, False
            self._waiting.clear()
            if self._closing:
                self._closing = False  # whether its session is closed it learns when it wants to have it back

    def received(self, link: Link, data: bytes) -> None:
        link.down += data
        while len(link.down) >= 4:
            size = int.from_bytes(link.down[:4], "big")
            if len(link.down) < 4 + size:
                return
            frame = bytes(link.down[4 : 4 + size])
            del link.down[: 4 + size]
            self._frame(frame)
            if link is not self._link:
                return

    def _frame(self, frame: bytes) -> None:
        reader = Reader(frame)
        if not self._attached:
            self._told_of_session(reader)
            return
        xid, answer = reader.int32(), Answer(reader.int64(), reader.int32(), frame[16:])
        if xid == codes.NOTIFICATION_XID:
            event = Reader(answer.body, 8)
            self._watching.pop(event.string(), None)
            return
        expected, told = self._waiting.popleft()
        if xid != expected:
            raise ViolationError(f"{self.name}: answer {xid} came, and {expected} is the next")
        if answer.zxid < self.last_zxid:
            raise ViolationError(f"{self.name}: it was at {self.last_zxid:#x}, now {answer.zxid:#x} is shown")
        self.last_zxid = answer.zxid
        self.world.seen(answer.zxid)
        told(answer)

    def _told_of_session(self, reader: Reader) -> None:
        reader.int32()
        timeout_ms, session, password = reader.int32(), reader.int64(), reader.buffer() or b""
        if timeout_ms == 0:
            self.world.session_over(self)
            return
        if self.session not in (0, session):
            raise ViolationError(f"{self.name}: it came back with {self.session:#x} and was given {session:#x}")
        self._attached = True
        self.session, self.password = session, password
        self.world.session_lives(self)
        if self._watching:
            paths = vector_bytes([string_bytes(path) for path in self._watching])
            body = long_bytes(self.last_zxid) + paths + vector_bytes([]) + vector_bytes([])
            self._ask(codes.SET_WATCHES, body, lambda _: None, codes.SET_WATCHES_XID)

    def forget_session(self) -> None:
        self.session, self.password, self.last_zxid = 0, bytes(16), 0
        self.ephemerals, self.uncertain = set(), set()
        self._watching = {}
        self._closing = False

    # ── what it asks ─────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, kind: int, body: bytes, told: Told, xid: int | None = None) -> None:
        if xid is None:
            self._xid += 1
            xid = self._xid
        self._waiting.append((xid, told))
        self._send(int_bytes(xid) + int_bytes(kind) + body)

    def prepare(self) -> None:
        for path in (*FOLDERS, *REGISTERS):
            self._ask(codes.CREATE, create_body(path, b""), lambda _: None)

    def _act(self) -> None:
        action = self._rng.choices(
            (
                self._write,
                self._write_two,
                self._read,
                self._make_ephemeral,
                self._make_sequential,
                self.look,
                self.end,
            ),
            (8, 2, 8, 2, 2, 2, 0.4),
        )[0]
        if not self._closing:
            action()

    def _new_write(self, path: str) -> Write:
        self._made += 1
        write = Write(path, f"{self.name}:{self._made}".encode(), self.world.history.now())
        self.world.history.writes.append(write)
        return write

    def _write(self) -> None:
        write = self._new_write(self._rng.choice(REGISTERS))

        def told(answer: Answer) -> None:
            if self._refused(write, answer.error):
                return
            self._made_it(write, answer.zxid, answer.body)

        self._ask(codes.SET_DATA, _set_data(write), told)

    def _write_two(self) -> None:
        """In one transaction: both or neither."""
        writes = [self._new_write(path) for path in self._rng.sample(REGISTERS, 2)]

        def told(answer: Answer) -> None:
            if any(self._refused(write, answer.error) for write in writes):
                return
            reader = Reader(answer.body)
            for write in writes:
                reader.at += 9
                self._made_it(write, answer.zxid, answer.body[reader.at : reader.at + STAT_BYTES])
                reader.at += STAT_BYTES

        steps = b"".join(int_bytes(codes.SET_DATA) + NEXT_STEP + _set_data(write) for write in writes)
        self._ask(codes.MULTI, steps + LAST_STEP, told)

    def _refused(self, write: Write, error: int) -> bool:
        """A full disk refuses a change, and then it has not happened."""
        if error == -1 and self.world.may_be_full:
            write.ended = -1
            self.world.history.writes = [each for each in self.world.history.writes if each is not write]
            return True
        if error:
            raise ViolationError(f"{self.name}: a write was answered with {error}")
        return False

    def _made_it(self, write: Write, zxid: int, stat: bytes) -> None:
        write.zxid = zxid
        write.version = int.from_bytes(stat[32:36], "big")
        write.ended = self.world.history.now()

    def _read(self) -> None:
        path, watch = self._rng.choice(REGISTERS), self._rng.random() < 0.5
        began = self.world.history.now()

        def told(answer: Answer) -> None:
            if answer.error:
                raise ViolationError(f"{self.name}: a read was answered with {answer.error}")
            stat = answer.body[-STAT_BYTES:]
            changed, version = int.from_bytes(stat[8:16], "big"), int.from_bytes(stat[32:36], "big")
            value = Reader(answer.body).buffer() or b""
            history = self.world.history
            history.reads.append(Read(path, began, history.now(), value, version, changed))
            seen = self._watching.get(path)
            if seen is not None and changed > seen:
                raise ViolationError(f"{path}: a change was shown to a watcher before its event")
            if watch:
                self._watching.setdefault(path, changed)

        self._ask(codes.GET_DATA, string_bytes(path) + boolean_bytes(watch), told)

    def _make_ephemeral(self) -> None:
        self._made += 1
        path = f"/e/{self.name}-{self._made}"
        self.uncertain.add(path)
        self.world.ephemerals[path] = self.session

        def told(answer: Answer) -> None:
            self.uncertain.discard(path)
            if answer.error == codes.OK:
                self.ephemerals.add(path)
            elif not (answer.error == -1 and self.world.may_be_full):
                raise ViolationError(f"{path}: its creation was answered with {answer.error}")

        self._ask(codes.CREATE, create_body(path, b"", 1), told)

    def _make_sequential(self) -> None:
        def told(answer: Answer) -> None:
            if answer.error == codes.OK:
                self.world.history.sequential.append((answer.zxid, Reader(answer.body).string()))

        self._ask(codes.CREATE, create_body("/s/n-", b"", 2), told)

    def look(self) -> None:
        """At its own ephemeral nodes: those asked for before this are served before it."""
        sure = set(self.ephemerals)

        def told(answer: Answer) -> None:
            reader = Reader(answer.body)
            own = set(reader.vector(reader.string))
            if not sure <= own:
                raise ViolationError(f"{self.name}: ephemeral nodes of a session that lives are gone: {sure - own}")
            if not own <= self.ephemerals | self.uncertain:
                raise ViolationError(f"{self.name}: ephemeral nodes that it never made: {own - self.ephemerals}")

        self._ask(codes.GET_EPHEMERALS, string_bytes("/e"), told)

    def end(self) -> None:
        self._closing = True

        def told(answer: Answer) -> None:
            if answer.error == codes.OK:
                self.world.session_closed(self)
            else:
                self._closing = False

        self._ask(codes.CLOSE_SESSION, b"", told)


def _set_data(write: Write) -> bytes:
    return string_bytes(write.path) + buffer_bytes(write.value) + int_bytes(-1)

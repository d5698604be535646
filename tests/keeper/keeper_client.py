"""A client that does seeded things to a keeper that is killed under it, and holds it to its promises as it goes.

It keeps its session over every connection, and looks on its own whether its answers come in order, no transaction that
it has seen is gone, events come before what they tell of is shown, and its ephemeral nodes are there as long as its
session.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from keeper_history import History, Read, ViolationError, Write
from raw_client import STAT_BYTES, ClosedError, RawClient, Reply, create_body
from waits import SESSION_MS, WAIT_S_MAX

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

REGISTERS = tuple(f"/r/{number}" for number in range(3))
AGAIN_S = 0.02  # between tries to reach a keeper that is not there


def prepare(port: int) -> None:
    client = RawClient(port)
    for path in ("/r", "/e", "/s", *REGISTERS):
        client.ask(codes.CREATE, create_body(path, b""))
    client.ask(codes.CLOSE_SESSION)
    client.close()


class KeeperClient(threading.Thread):
    def __init__(self, number: int, seed: int, port: int, history: History, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._number = number
        self._choose = random.Random(f"{seed} {number}")
        self._port = port
        self._history = history
        self._told_to_stop = stop
        self._made = 0
        self._client: RawClient | None = None
        self._session, self._password, self._last_zxid = 0, bytes(16), 0
        self._watching: dict[str, int] = {}  # by path, the change that was seen when the watch was set
        self._ephemerals: set[str] = set()  # answered
        self._uncertain: set[str] = set()  # asked for, not answered
        self.acknowledged = 0
        self.left: set[str] = set()  # ephemeral nodes of sessions that are closed
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._told_to_stop.is_set():
                self._once()
            self._until_done(self._check_ephemerals)
            self._until_done(self._end_session)
        except BaseException as error:
            self.error = error

    def _until_done(self, what: Callable[[], None]) -> None:
        while True:
            try:
                what()
                return
            except ClosedError:
                self._drop()

    def _once(self) -> None:
        what = self._choose.choices(
            (self._write, self._read, self._make_ephemeral, self._make_sequential, self._check_ephemerals, self._burst,
             self._end_session, self._drop),
            (8, 8, 2, 2, 2, 3, 0.3, 0.3),
        )[0]  # fmt: skip
        try:
            what()
        except ClosedError:
            self._drop()

    # ── the connection ───────────────────────────────────────────────────────────────────────────────────────────

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> RawClient:
        give_up = time.monotonic() + WAIT_S_MAX
        while self._client is None:
            if time.monotonic() > give_up:
                raise ViolationError(f"client {self._number}: no way back to its session within {WAIT_S_MAX:g} s")
            try:
                client = RawClient(
                    self._port, timeout_ms=SESSION_MS, session=self._session, password=self._password,
                    last_zxid=self._last_zxid,
                )  # fmt: skip
            except (OSError, ClosedError):
                time.sleep(AGAIN_S)
                continue
            if client.session == 0:
                raise ViolationError(f"client {self._number}: its session {self._session:#x} is gone")
            self._client, self._session, self._password = client, client.session, client.password
            self._watch_again(client)
        return self._client

    def _watch_again(self, client: RawClient) -> None:
        if self._watching:
            paths = vector_bytes([string_bytes(path) for path in self._watching])
            body = long_bytes(self._last_zxid) + paths + vector_bytes([]) + vector_bytes([])
            try:
                self._heard(client.ask(codes.SET_WATCHES, body, codes.SET_WATCHES_XID))
            except ClosedError:
                self._drop()

    def _ask(self, kind: int, body: bytes) -> Reply:
        return self._heard(self._connected().ask(kind, body))

    def _heard(self, reply: Reply) -> Reply:
        """In the order in which they came: events first."""
        client = self._client
        assert client is not None
        for event in client.events:
            reader = Reader(event.body, 8)
            self._watching.pop(reader.string(), None)
        client.events.clear()
        if reply.zxid < self._last_zxid:
            raise ViolationError(f"client {self._number}: it was at {self._last_zxid:#x}, now {reply.zxid:#x} is shown")
        self._last_zxid = reply.zxid
        return reply

    # ── what it does ─────────────────────────────────────────────────────────────────────────────────────────────

    def _new_write(self) -> tuple[Write, bytes]:
        self._made += 1
        value = b"%d:%d" % (self._number, self._made)
        path = self._choose.choice(REGISTERS)
        self._connected()
        write = Write(path, value, self._history.now())
        self._history.writes.append(write)
        return write, string_bytes(path) + buffer_bytes(value) + int_bytes(-1)

    def _answered(self, write: Write, reply: Reply) -> None:
        if reply.error:
            raise ViolationError(f"{write.path}: a write was answered with {reply.error}")
        write.zxid = reply.zxid
        write.version = int.from_bytes(reply.body[32:36], "big")
        write.ended = self._history.now()
        self.acknowledged += 1

    def _write(self) -> None:
        write, body = self._new_write()
        self._answered(write, self._ask(codes.SET_DATA, body))

    def _burst(self) -> None:
        """Several at once: they are served in their order."""
        client = self._connected()
        sent = []
        for _ in range(self._choose.randint(2, 12)):
            write, body = self._new_write()
            sent.append((write, client.send(codes.SET_DATA, body)))
        before = -1
        for write, xid in sent:
            while (reply := client.receive()).xid == codes.NOTIFICATION_XID:
                client.events.append(reply)
            if reply.xid != xid or reply.zxid <= before:
                raise ViolationError(f"client {self._number}: answers of one session out of order")
            before = reply.zxid
            self._answered(write, self._heard(reply))

    def _read(self) -> None:
        path, watch = self._choose.choice(REGISTERS), self._choose.random() < 0.5
        self._connected()
        began = self._history.now()
        reply = self._ask(codes.GET_DATA, string_bytes(path) + boolean_bytes(watch))
        stat = Reader(reply.body, len(reply.body) - STAT_BYTES)
        stat.int64()
        changed = stat.int64()
        version = int.from_bytes(reply.body[-STAT_BYTES + 32 :][:4], "big")
        value = Reader(reply.body).buffer() or b""
        self._history.reads.append(Read(path, began, self._history.now(), value, version, changed))
        seen = self._watching.get(path)
        if seen is not None and changed > seen:
            raise ViolationError(f"{path}: a change was shown to a watcher before its event")
        if watch:
            self._watching.setdefault(path, changed)

    def _make_ephemeral(self) -> None:
        self._made += 1
        path = f"/e/{self._number}-{self._made}"
        self._connected()
        self._uncertain.add(path)
        reply = self._ask(codes.CREATE, create_body(path, b"", 1))
        if reply.error:
            raise ViolationError(f"{path}: its creation was answered with {reply.error}")
        self._uncertain.discard(path)
        self._ephemerals.add(path)

    def _make_sequential(self) -> None:
        reply = self._ask(codes.CREATE, create_body("/s/n-", b"", 2))
        if reply.error:
            raise ViolationError(f"/s: a sequential node was answered with {reply.error}")
        self._history.sequential.append((reply.zxid, Reader(reply.body).string()))

    def _check_ephemerals(self) -> None:
        reply = self._ask(codes.GET_EPHEMERALS, string_bytes("/e"))
        reader = Reader(reply.body)
        own = set(reader.vector(reader.string))
        if not self._ephemerals <= own:
            raise ViolationError(f"ephemeral nodes of a session that lives are gone: {self._ephemerals - own}")
        if not own <= self._ephemerals | self._uncertain:
            raise ViolationError(f"ephemeral nodes that the session never had: {own - self._ephemerals}")

    def _end_session(self) -> None:
        """When the answer does not come, the session may be closed or not; then another way is not looked for."""
        client = self._connected()
        gone = self._ephemerals | self._uncertain
        try:
            client.ask(codes.CLOSE_SESSION)
            self.left |= gone
        finally:
            self._drop()
            if self._session_is_gone(gone):
                self._session, self._password, self._last_zxid = 0, bytes(16), 0
                self._ephemerals, self._uncertain = set(), set()
                self._watching = {}

    def _session_is_gone(self, gone: set[str]) -> bool:
        while True:
            try:
                client = RawClient(self._port, timeout_ms=SESSION_MS, session=self._session, password=self._password)
            except (OSError, ClosedError):
                time.sleep(AGAIN_S)
                continue
            client.close()
            if client.session == 0:
                self.left |= gone
            return client.session == 0

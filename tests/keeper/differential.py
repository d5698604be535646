"""The same seeded sequence to two servers, and all that they answered, made comparable.

Times are left out and sessions are told by their number; everything else, zxids included, must be equal, event by event
in its order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from raw_client import STAT_BYTES, ClosedError, RawClient, Reply, create_body
from sequences import SESSIONS, Step
from waits import SESSION_MS

from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.jute import Reader, int_bytes, long_bytes, string_bytes


class World:
    """One server as the run sees it; `restart` kills and starts it."""

    def __init__(self, port: int, restart: Callable[[], None] | None = None) -> None:
        self.port = port
        self.clients: list[RawClient | None] = [None] * SESSIONS
        self.known: dict[int, int] = {0: 0}  # sessions by the order in which they came
        self._restart = restart

    def number(self, session: int) -> int:
        if (session >> 56) & 0x80:
            return session  # a container, or a time to live
        return self.known.setdefault(session, len(self.known))

    def stat(self, raw: bytes) -> tuple[int, ...]:
        czxid, mzxid, _, _, *rest = struct.unpack(">qqqqiiiqiiq", raw)
        rest[3] = self.number(rest[3])
        return (czxid, mzxid, *rest)

    def play(self, step: Step) -> list[object]:
        """What everybody heard of it."""
        place, what, *rest = step
        if what == "restart":
            return self._restarted(*rest)
        heard: list[object] = []
        client = self.clients[place]
        if client is None:
            client = self.clients[place] = RawClient(self.port, timeout_ms=SESSION_MS)
            heard.append(("session", self.number(client.session), client.timeout_ms, len(client.password)))
        try:
            heard += getattr(self, f"_{what}")(place, client, *rest)
        except ClosedError:
            heard.append("closed")
            self._forget(place)
        for other in range(SESSIONS):
            heard += self._events(other)
        if what == "close":  # in which order a session's nodes go is not said anywhere
            heard.sort(key=repr)
        return heard

    def end(self) -> None:
        """Closes all sessions, so that nothing of them is left for the next sequence."""
        for place, client in enumerate(self.clients):
            if client is not None:
                self._close(place, client)

    def _forget(self, place: int) -> None:
        client, self.clients[place] = self.clients[place], None
        if client is not None:
            client.close()

    def _events(self, place: int) -> list[object]:
        client = self.clients[place]
        if client is None:
            return []
        try:
            return [(place, *_event(event)) for event in client.take_events()]
        except ClosedError:
            self._forget(place)
            return [*((place, *_event(event)) for event in client.events), (place, "closed")]

    # ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, place: int, client: RawClient, kind: int, body: bytes) -> list[object]:
        reply = client.ask(kind, body, codes.AUTH_XID if kind == codes.AUTH else None)
        return [_reply(self, kind, reply)]

    def _close(self, place: int, client: RawClient) -> list[object]:
        heard: list[object] = [_reply(self, codes.CLOSE_SESSION, client.ask(codes.CLOSE_SESSION))]
        self._forget(place)
        return heard

    def _again(self, place: int, client: RawClient, count: int, lists: list[bytes]) -> list[object]:
        """Loses its connection, comes back, and sets its watches as a client does."""
        last = client.ask(codes.PING, xid=codes.PING_XID).zxid
        client.close()
        return self._back(place, client, last, count, lists)

    def _moved(self, place: int, client: RawClient, lists: list[bytes]) -> list[object]:
        """Comes from elsewhere before its old connection is gone, which the server then closes."""
        heard = self._back(place, client, client.ask(codes.PING, xid=codes.PING_XID).zxid, 5, lists)
        try:
            while True:
                client.receive()
        except ClosedError:
            client.close()
        return heard

    def _back(self, place: int, client: RawClient, last: int, count: int, lists: list[bytes]) -> list[object]:
        back = self._attach(client, last)
        self.clients[place] = back
        heard: list[object] = [("again", self.number(back.session), back.timeout_ms)]
        kind = codes.SET_WATCHES if count == 3 else codes.SET_WATCHES2
        body = long_bytes(max(0, last - 2)) + b"".join(lists[:count])
        return [*heard, _reply(self, kind, back.ask(kind, body, xid=codes.SET_WATCHES_XID))]

    def _attach(self, client: RawClient, last: int) -> RawClient:
        """A restart of the other server may take long: no session ends meanwhile."""
        known = {"session": client.session, "password": client.password}
        return RawClient(self.port, timeout_ms=SESSION_MS, last_zxid=last, **known)

    def _stranger(self, place: int, client: RawClient, lists: list[bytes]) -> list[object]:
        """Wants a session without its password, while nobody is connected with it. (While somebody is, ZooKeeper closes
        that connection, and a keeper does not.)"""
        last = client.ask(codes.PING, xid=codes.PING_XID).zxid
        client.close()
        other = RawClient(self.port, session=client.session, password=b"0123456789abcdef")
        other.close()
        return [("stranger", other.session, other.timeout_ms), *self._back(place, client, last, 5, lists)]

    def _limit(self, place: int, client: RawClient, path: str, limits: bytes) -> list[object]:
        """As a client's setquota does it."""
        at, heard = "/zookeeper/quota", []
        for name in path.split("/")[1:]:
            at += f"/{name}"
            heard += self._ask(place, client, codes.CREATE, create_body(at, b""))
        heard += self._ask(place, client, codes.CREATE, create_body(f"{at}/zookeeper_limits", limits))
        heard += self._ask(place, client, codes.CREATE, create_body(f"{at}/zookeeper_stats", b"count=0,bytes=0"))
        return heard

    def _unlimit(self, place: int, client: RawClient, path: str, _: bytes) -> list[object]:
        heard = []
        for name in ("zookeeper_limits", "zookeeper_stats"):
            body = string_bytes(f"/zookeeper/quota{path}/{name}") + int_bytes(-1)
            heard += self._ask(place, client, codes.DELETE, body)
        return heard

    def _restarted(self, lists: list[list[bytes]]) -> list[object]:
        assert self._restart is not None
        waiting = []
        for place, client in enumerate(self.clients):
            if client is not None:
                waiting.append((place, client, client.ask(codes.PING, xid=codes.PING_XID).zxid))
        self._restart()
        heard: list[object] = []
        for place, client, last in waiting:
            client.close()
            heard += self._back(place, client, last, 5, lists[place])
        for place in range(SESSIONS):
            heard += self._events(place)
        return heard


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _event(event: Reply) -> tuple[object, ...]:
    reader = Reader(event.body)
    return event.zxid, event.error, reader.int32(), reader.int32(), reader.string()


def _reply(world: World, kind: int, reply: Reply) -> tuple[object, ...]:
    body: object = reply.body
    if not reply.error:
        body = _BODIES.get(kind, lambda _, raw: raw)(world, reply.body)
    return kind, reply.zxid, reply.error, body


def _names(world: World, raw: bytes) -> object:
    reader = Reader(raw)
    names = sorted(reader.vector(reader.string))
    return names, world.stat(raw[reader.at :]) if reader.left else None


def _who(world: World, raw: bytes) -> object:
    reader = Reader(raw)
    return sorted(reader.vector(lambda: (reader.string(), reader.string())))


def _acl_and_stat(world: World, raw: bytes) -> object:
    return raw[:-STAT_BYTES], world.stat(raw[-STAT_BYTES:])


def _multi(world: World, raw: bytes) -> object:
    reader = Reader(raw)
    results: list[object] = []
    while True:
        kind, done, error = reader.int32(), reader.boolean(), reader.int32()
        if done:
            return results
        result: object = None
        if kind == codes.ERROR:
            result = reader.int32()
        elif kind in (codes.CREATE, codes.CREATE2):
            result = reader.string()
        elif kind == codes.GET_CHILDREN:
            result = sorted(reader.vector(reader.string))
        elif kind == codes.GET_DATA:
            result = reader.buffer()
        stat = None
        if kind in (codes.CREATE2, codes.SET_DATA, codes.GET_DATA):
            stat = world.stat(raw[reader.at : reader.at + STAT_BYTES])
            reader.at += STAT_BYTES
        results.append((kind, error, result, stat))


_BODIES: dict[int, Callable[[World, bytes], object]] = {
    codes.EXISTS: lambda world, raw: world.stat(raw),
    codes.SET_DATA: lambda world, raw: world.stat(raw),
    codes.SET_ACL: lambda world, raw: world.stat(raw),
    codes.GET_DATA: _acl_and_stat,
    codes.GET_ACL: _acl_and_stat,
    codes.CREATE2: _acl_and_stat,
    codes.CREATE_TTL: _acl_and_stat,
    codes.CREATE_CONTAINER: _acl_and_stat,
    codes.GET_CHILDREN: _names,
    codes.GET_CHILDREN2: _names,
    codes.GET_EPHEMERALS: _names,
    codes.WHO_AM_I: _who,
    codes.MULTI: _multi,
    codes.MULTI_READ: _multi,
}

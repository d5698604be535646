"""The same seeded requests to two servers, and all that they answered, made comparable.

Times are left out and sessions are told by their number; everything else, zxids included, must be equal, event by event
in its order.
"""

import random
import struct
from collections.abc import Callable
from typing import Any

from raw_client import STAT_BYTES, ClosedError, RawClient, Reply, acl_bytes, create_body

from headrace.keeper import codes
from headrace.keeper.jute import Reader, boolean_bytes, buffer_bytes, int_bytes, long_bytes, string_bytes, vector_bytes

NAMES = ("a", "b", "c", "d")
BAD_PATHS = ("", "a", "/a/", "//a", "/a/./b", "/a/../b", "/\u0001", "/a\0b", "/zookeeper", "/", "/zookeeper/quota")
SESSIONS = 3
CREDENTIALS = (b"ann:pw", b"bob:secret")


class World:
    """One server as the run sees it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.clients: list[RawClient | None] = [None] * SESSIONS
        self.known: dict[int, int] = {0: 0}  # sessions by the order in which they came

    def number(self, session: int) -> int:
        if (session >> 56) & 0x80:
            return session  # a container, or a time to live
        return self.known.setdefault(session, len(self.known))

    def stat(self, raw: bytes) -> tuple[int, ...]:
        czxid, mzxid, _, _, *rest = struct.unpack(">qqqqiiiqiiq", raw)
        rest[3] = self.number(rest[3])
        return (czxid, mzxid, *rest)


Step = tuple[Any, ...]


def steps(seed: int, count: int) -> list[Step]:
    choose = random.Random(seed)
    return [_step(choose) for _ in range(count)]


def _path(choose: random.Random) -> str:
    if choose.random() < 0.04:
        return choose.choice(BAD_PATHS)
    return _good_path(choose)


def _good_path(choose: random.Random) -> str:
    return "/" + "/".join(choose.choice(NAMES) for _ in range(choose.randint(1, 3)))


def _version(choose: random.Random) -> int:
    return choose.choice((-1, -1, -1, 0, 1, 2, 5))


def _acl(choose: random.Random) -> tuple[tuple[int, str, str], ...]:
    return choose.choice(
        (
            ((31, "world", "anyone"),),
            ((31, "world", "anyone"),),
            ((31, "world", "anyone"),),
            ((1, "world", "anyone"), (31, "auth", "")),
            ((31, "auth", ""),),
            ((31, "digest", "ann:x1"),),
            ((31, "ip", "127.0.0.1"),),
            ((31, "ip", "10.0.0.0/8"), (1, "world", "anyone"), (1, "world", "anyone")),
            ((31, "nobody", "x"),),
            (),
        )
    )


def _change(choose: random.Random, *, step: bool = False) -> Step:
    kinds = [codes.CREATE] * 4 + [codes.CREATE2, codes.DELETE, codes.SET_DATA, codes.SET_DATA]
    kind = choose.choice([*kinds, codes.CHECK] if step else kinds)
    path = _path(choose)
    if kind in (codes.CREATE, codes.CREATE2):
        flags = choose.choice((0, 0, 0, 1, 2, 3, 9))
        data = choose.choice((None, b"", b"x", b"data" * 10))
        return kind, create_body(path, data, flags, _acl(choose))
    if kind == codes.SET_DATA:
        data = choose.choice((None, b"", b"y", b"more" * 10))
        return kind, string_bytes(path) + buffer_bytes(data) + int_bytes(_version(choose))
    return kind, string_bytes(path) + int_bytes(_version(choose))


def _step(choose: random.Random) -> Step:
    client = choose.randrange(SESSIONS)
    what = choose.random()
    if what < 0.45:
        return (client, "ask", *_change(choose))
    if what < 0.53:
        body = b"".join(
            int_bytes(kind) + boolean_bytes(False) + int_bytes(-1) + change
            for kind, change in (_change(choose, step=True) for _ in range(choose.randint(0, 4)))
        )
        return client, "ask", codes.MULTI, body + int_bytes(-1) + boolean_bytes(True) + int_bytes(-1)
    if what < 0.56:
        body = string_bytes(_path(choose)) + acl_bytes(_acl(choose)) + int_bytes(_version(choose))
        return client, "ask", codes.SET_ACL, body
    if what < 0.60:
        path, ttl = _path(choose), choose.choice((0, -1, 100_000, 1 << 41))
        flags = choose.choice((5, 6))
        return client, "ask", codes.CREATE_TTL, create_body(path, b"t", flags) + long_bytes(ttl)
    if what < 0.62:
        return client, "ask", codes.CREATE_CONTAINER, create_body(_path(choose), b"c", 4)
    if what < 0.66:
        mode = choose.choice((0, 1))
        return client, "ask", codes.ADD_WATCH, string_bytes(_path(choose)) + int_bytes(mode)
    if what < 0.68:
        kind = choose.choice((codes.CHECK_WATCHES, codes.REMOVE_WATCHES))
        return client, "ask", kind, string_bytes(_path(choose)) + int_bytes(choose.choice((1, 2, 3)))
    if what < 0.70:
        return (
            client,
            "ask",
            codes.AUTH,
            int_bytes(0) + string_bytes("digest") + buffer_bytes(choose.choice(CREDENTIALS)),
        )
    if what < 0.73:
        return client, "close"
    if what < 0.77:
        lists = [[_good_path(choose) for _ in range(choose.randint(0, 2))] for _ in range(5)]
        return client, "again", choose.choice((3, 5)), lists
    if what < 0.79:
        kind = choose.choice((codes.GET_ALL_CHILDREN_NUMBER, codes.GET_EPHEMERALS, codes.WHO_AM_I, codes.SYNC))
        return client, "ask", kind, b"" if kind == codes.WHO_AM_I else string_bytes(_good_path(choose))
    if what < 0.80:
        body = b"".join(
            int_bytes(kind) + boolean_bytes(False) + int_bytes(-1) + string_bytes(_path(choose)) + boolean_bytes(False)
            for kind in choose.choices((codes.GET_DATA, codes.GET_CHILDREN), k=3)
        )
        return client, "ask", codes.MULTI_READ, body + int_bytes(-1) + boolean_bytes(True) + int_bytes(-1)
    kind = choose.choice((codes.EXISTS, codes.GET_DATA, codes.GET_CHILDREN, codes.GET_CHILDREN2, codes.GET_ACL))
    watch = b"" if kind == codes.GET_ACL else boolean_bytes(choose.random() < 0.6)
    return client, "ask", kind, string_bytes(_path(choose)) + watch


def play(world: World, step: Step) -> list[object]:
    """What everybody heard of it."""
    place, what, *rest = step
    client = world.clients[place]
    heard: list[object] = []
    if client is None:
        client = world.clients[place] = RawClient(world.port)
        heard.append(("session", world.number(client.session), client.timeout_ms, len(client.password)))
    try:
        if what == "ask":
            kind, body = rest
            xid = codes.AUTH_XID if kind == codes.AUTH else None
            reply = client.ask(kind, body, xid)
            heard.append(_reply(world, kind, reply))
        elif what == "close":
            heard.append(_reply(world, codes.CLOSE_SESSION, client.ask(codes.CLOSE_SESSION)))
            client.close()
            world.clients[place] = None
        else:
            heard += _again(world, place, client, *rest)
    except ClosedError:
        heard.append("closed")
        client.close()
        world.clients[place] = None
    for number, other in enumerate(world.clients):
        if other is None:
            continue
        try:
            heard += [(number, _event(event)) for event in other.take_events()]
        except ClosedError:
            heard += [(number, _event(event)) for event in other.events]
            heard.append((number, "closed"))
            other.close()
            world.clients[number] = None
    if what == "close":  # in which order a session's nodes go is not said anywhere
        heard.sort(key=repr)
    return heard


def _again(world: World, place: int, client: RawClient, count: int, lists: list[list[str]]) -> list[object]:
    """Loses its connection, comes back, and sets its watches as a client does."""
    last = client.ask(codes.PING, xid=codes.PING_XID).zxid
    client.close()
    back = RawClient(world.port, session=client.session, password=client.password, last_zxid=last)
    world.clients[place] = back
    heard: list[object] = [("again", world.number(back.session), back.timeout_ms)]
    body = long_bytes(max(0, last - 2)) + b"".join(
        vector_bytes([string_bytes(p) for p in each]) for each in lists[:count]
    )
    kind = codes.SET_WATCHES if count == 3 else codes.SET_WATCHES2
    reply = back.ask(kind, body, xid=codes.SET_WATCHES_XID)
    return [*heard, _reply(world, kind, reply)]


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

"""Requests as clients send them, one class each, and how they are read. Bytes in, a request out; nothing is decided."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.acl import Acl, read_acl
from headrace.protocol.zookeeper.jute import MalformedError, Reader

MULTI_STEPS_MAX = 100_000


class Connect(NamedTuple):
    protocol: int
    last_zxid: int
    timeout_ms: int
    session: int
    password: bytes
    read_only: bool | None  # None: a client of 3.3, which does not know of it


class Create(NamedTuple):
    kind: int
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    flags: int
    ttl_ms: int  # -1: none


class Delete(NamedTuple):
    path: str
    version: int


class SetData(NamedTuple):
    path: str
    data: bytes | None
    version: int


class SetAcl(NamedTuple):
    path: str
    acl: tuple[Acl, ...]
    version: int


class Check(NamedTuple):
    """A step of a multi; by itself it is not a request."""

    path: str
    version: int


class Read(NamedTuple):
    """exists, getData, getACL, getChildren, getChildren2, getAllChildrenNumber, getEphemerals, sync: a path, and for
    some of them whether to watch it."""

    kind: int
    path: str
    watch: bool


class Multi(NamedTuple):
    steps: "tuple[Create | Delete | SetData | Check, ...]"


class MultiRead(NamedTuple):
    steps: tuple[Read, ...]


class SetWatches(NamedTuple):
    last_zxid: int
    data: list[str]
    exist: list[str]
    child: list[str]
    persistent: list[str]
    recursive: list[str]


class AddWatch(NamedTuple):
    path: str
    mode: int


class Watches(NamedTuple):
    """checkWatches and removeWatches."""

    kind: int
    path: str
    watcher: int


class Auth(NamedTuple):
    scheme: str
    credentials: bytes


class Reconfig(NamedTuple):
    """A change of an ensemble, as a client asks for it; a keeper, which is none, reads it as a Plain."""

    joining: str | None
    leaving: str | None
    members: str | None
    version: int


class Plain(NamedTuple):
    """ping, closeSession, whoAmI, reconfig: nothing more to know."""

    kind: int


class Unknown(NamedTuple):
    kind: int


Request = (
    Create
    | Delete
    | SetData
    | SetAcl
    | Read
    | Multi
    | MultiRead
    | SetWatches
    | AddWatch
    | Watches
    | Auth
    | Reconfig
    | Plain
    | Unknown
)


def read_connect(frame: bytes) -> Connect:
    reader = Reader(frame)
    protocol, last_zxid, timeout_ms, session = reader.int32(), reader.int64(), reader.int32(), reader.int64()
    password = reader.buffer() or b""
    return Connect(protocol, last_zxid, timeout_ms, session, password, reader.boolean() if reader.left else None)


def read_header(data: bytes, at: int = 0, end: int = -1) -> tuple[int, int]:
    """The client's number of the request, and what it asks for. The frame is all of the data, or a part of it."""
    reader = Reader(data, at, end)
    return reader.int32(), reader.int32()


def read_request(data: bytes, at: int = 0, end: int = -1) -> Request:
    reader = Reader(data, at + 4, end)
    kind = reader.int32()
    read = _READERS.get(kind)
    return Unknown(kind) if read is None else read(kind, reader)


def _create(kind: int, reader: Reader) -> Create:
    path, data, acl, flags = reader.string(), reader.buffer(), read_acl(reader), reader.int32()
    return Create(kind, path, data, acl, flags, reader.int64() if kind == codes.CREATE_TTL else -1)


def _multi(_: int, reader: Reader) -> Multi:
    steps: list[Create | Delete | SetData | Check] = []
    for kind in _steps(reader):
        if kind in (codes.CREATE, codes.CREATE2, codes.CREATE_CONTAINER, codes.CREATE_TTL):
            steps.append(_create(kind, reader))
        elif kind == codes.DELETE:
            steps.append(Delete(reader.string(), reader.int32()))
        elif kind == codes.SET_DATA:
            steps.append(SetData(reader.string(), reader.buffer(), reader.int32()))
        elif kind == codes.CHECK:
            steps.append(Check(reader.string(), reader.int32()))
        else:
            raise MalformedError(f"operation {kind} in a multi")
    return Multi(tuple(steps))


def _multi_read(_: int, reader: Reader) -> MultiRead:
    steps: list[Read] = []
    for kind in _steps(reader):
        if kind not in (codes.GET_DATA, codes.GET_CHILDREN):
            raise MalformedError(f"operation {kind} in a multiRead")
        steps.append(_read(kind, reader))
    return MultiRead(tuple(steps))


def _steps(reader: Reader) -> Iterator[int]:
    """The kinds of the steps; whoever gets one reads the step before asking for the next."""
    for _ in range(MULTI_STEPS_MAX):
        kind, done, _code = reader.int32(), reader.boolean(), reader.int32()
        if done:
            return
        yield kind
    raise MalformedError(f"a multi of more than {MULTI_STEPS_MAX} operations")


def _read(kind: int, reader: Reader) -> Read:
    return Read(kind, reader.string(), reader.boolean())


def _path(kind: int, reader: Reader) -> Read:
    return Read(kind, reader.string(), False)


def _set_watches(kind: int, reader: Reader) -> SetWatches:
    last_zxid = reader.int64()
    lists = [reader.vector(reader.string) for _ in range(5 if kind == codes.SET_WATCHES2 else 3)]
    lists += [[] for _ in range(5 - len(lists))]
    return SetWatches(last_zxid, *lists)


def _auth(_: int, reader: Reader) -> Auth:
    reader.int32()
    return Auth(reader.string(), reader.buffer() or b"")


_READERS: dict[int, Callable[[int, Reader], Request]] = {
    codes.CREATE: _create,
    codes.CREATE2: _create,
    codes.CREATE_CONTAINER: _create,
    codes.CREATE_TTL: _create,
    codes.DELETE: lambda _, reader: Delete(reader.string(), reader.int32()),
    codes.SET_DATA: lambda _, reader: SetData(reader.string(), reader.buffer(), reader.int32()),
    codes.SET_ACL: lambda _, reader: SetAcl(reader.string(), read_acl(reader), reader.int32()),
    codes.EXISTS: _read,
    codes.GET_DATA: _read,
    codes.GET_CHILDREN: _read,
    codes.GET_CHILDREN2: _read,
    codes.GET_ACL: _path,
    codes.GET_ALL_CHILDREN_NUMBER: _path,
    codes.GET_EPHEMERALS: _path,
    codes.SYNC: _path,
    codes.MULTI: _multi,
    codes.MULTI_READ: _multi_read,
    codes.SET_WATCHES: _set_watches,
    codes.SET_WATCHES2: _set_watches,
    codes.ADD_WATCH: lambda _, reader: AddWatch(reader.string(), reader.int32()),
    codes.CHECK_WATCHES: lambda kind, reader: Watches(kind, reader.string(), reader.int32()),
    codes.REMOVE_WATCHES: lambda kind, reader: Watches(kind, reader.string(), reader.int32()),
    codes.AUTH: _auth,
    codes.PING: lambda kind, _: Plain(kind),
    codes.CLOSE_SESSION: lambda kind, _: Plain(kind),
    codes.WHO_AM_I: lambda kind, _: Plain(kind),
    codes.RECONFIG: lambda kind, _: Plain(kind),
}

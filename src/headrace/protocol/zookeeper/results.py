"""Answers and events as a client reads them. What the bytes of an answer are depends on what was asked.

Bytes in, values out; bytes that make no sense are a MalformedError.
"""

from typing import NamedTuple

from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.acl import Acl, Identity, read_acl
from headrace.protocol.zookeeper.jute import MalformedError, Reader
from headrace.protocol.zookeeper.stat import Stat, read_stat


class Welcome(NamedTuple):
    """The answer to a connect request; time-out 0: the session is not known."""

    timeout_ms: int
    session: int
    password: bytes


class Header(NamedTuple):
    xid: int
    zxid: int
    code: int


class Notice(NamedTuple):
    """An event that a watch waited for."""

    kind: int
    path: str


class Created(NamedTuple):
    path: str
    stat: Stat | None  # None: of a plain create


class Data(NamedTuple):
    data: bytes | None
    stat: Stat


class Children(NamedTuple):
    names: list[str]
    stat: Stat | None  # None: of a plain getChildren


class AclOfNode(NamedTuple):
    acl: tuple[Acl, ...]
    stat: Stat


class StepFailed(NamedTuple):
    """A step of a multi that was not done, or a step of a multiRead that was refused."""

    code: int


StepResult = None | Created | Stat | StepFailed
ReadResult = Data | Children | StepFailed


class MultiDone(NamedTuple):
    """The answer to a multi: all of it was done, or each step says why nothing was."""

    steps: list[StepResult]

    @property
    def failed(self) -> tuple[int, int] | None:
        """Which step the multi failed at, and with which code."""
        for place, step in enumerate(self.steps):
            if isinstance(step, StepFailed) and step.code not in (codes.OK, codes.RUNTIME_INCONSISTENCY):
                return place, step.code
        return None


class Reads(NamedTuple):
    """The answer to a multiRead."""

    results: list[ReadResult]


class Paths(NamedTuple):
    """The answer to getEphemerals."""

    paths: list[str]


class Identities(NamedTuple):
    who: list[Identity]


Result = None | str | int | Stat | Created | Data | Children | AclOfNode | MultiDone | Reads | Paths | Identities


def read_welcome(frame: bytes) -> Welcome:
    reader = Reader(frame)
    reader.int32()
    return Welcome(reader.int32(), reader.int64(), reader.buffer() or b"")


def read_header(reader: Reader) -> Header:
    return Header(reader.int32(), reader.int64(), reader.int32())


def read_notice(reader: Reader) -> Notice:
    kind = reader.int32()
    reader.int32()  # the state, which is always the same
    return Notice(kind, reader.string())


def read_result(request: requests.Request, reader: Reader) -> Result:
    if isinstance(request, requests.Read):
        return _read(request.kind, reader)
    if isinstance(request, requests.Create):
        return _created(request.kind, reader)
    if isinstance(request, requests.SetData | requests.SetAcl):
        return read_stat(reader)
    if isinstance(request, requests.Multi):
        return MultiDone(_steps(reader))
    if isinstance(request, requests.MultiRead):
        return Reads(_reads(reader))
    if isinstance(request, requests.Reconfig):
        return Data(reader.buffer(), read_stat(reader))
    if isinstance(request, requests.Plain) and request.kind == codes.WHO_AM_I:
        return Identities(reader.vector(lambda: Identity(reader.string(), reader.string())))
    return None


def _created(kind: int, reader: Reader) -> Created:
    path = reader.string()
    return Created(path, None if kind == codes.CREATE else read_stat(reader))


def _read(kind: int, reader: Reader) -> Result:
    if kind == codes.EXISTS:
        return read_stat(reader)
    if kind == codes.GET_DATA:
        return Data(reader.buffer(), read_stat(reader))
    if kind == codes.GET_CHILDREN:
        return Children(reader.vector(reader.string), None)
    if kind == codes.GET_CHILDREN2:
        return Children(reader.vector(reader.string), read_stat(reader))
    if kind == codes.GET_ACL:
        return AclOfNode(read_acl(reader), read_stat(reader))
    if kind == codes.GET_ALL_CHILDREN_NUMBER:
        return reader.int32()
    if kind == codes.GET_EPHEMERALS:
        return Paths(reader.vector(reader.string))
    return reader.string()  # sync


def _steps(reader: Reader) -> list[StepResult]:
    found: list[StepResult] = []
    while (kind := _next_step(reader)) is not None:
        if kind == codes.ERROR:
            found.append(StepFailed(reader.int32()))
        elif kind in (codes.CREATE, codes.CREATE2, codes.CREATE_CONTAINER, codes.CREATE_TTL):
            found.append(_created(kind, reader))
        elif kind == codes.SET_DATA:
            found.append(read_stat(reader))
        elif kind in (codes.DELETE, codes.CHECK):
            found.append(None)
        else:
            raise MalformedError(f"operation {kind} in the answer to a multi")
    return found


def _reads(reader: Reader) -> list[ReadResult]:
    found: list[ReadResult] = []
    while (kind := _next_step(reader)) is not None:
        if kind == codes.ERROR:
            found.append(StepFailed(reader.int32()))
        elif kind == codes.GET_DATA:
            found.append(Data(reader.buffer(), read_stat(reader)))
        elif kind == codes.GET_CHILDREN:
            found.append(Children(reader.vector(reader.string), None))
        else:
            raise MalformedError(f"operation {kind} in the answer to a multiRead")
    return found


def _next_step(reader: Reader) -> int | None:
    kind, done, _code = reader.int32(), reader.boolean(), reader.int32()
    return None if done else kind

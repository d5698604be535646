"""Transactions: what is written to the log before anybody is answered, in ZooKeeper's own format.

They look like requests and are none: a request says which version it expects, a transaction which version the node then
has, and ZooKeeper writes each in its own way. A transaction is a decision that was made, so applying one cannot fail:
`apply` is used by the request that made it and by a start that reads it back. A refused request is one too (`Failed`),
since it takes a zxid as in ZooKeeper.
"""

from typing import NamedTuple

from headrace.keeper.tree import Tree
from headrace.keeper.znode import CONTAINER_OWNER, owner_ttl_ms, ttl_owner
from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.acl import Acl, acl_bytes, read_acl
from headrace.protocol.zookeeper.jute import (
    MalformedError,
    Reader,
    boolean_bytes,
    buffer_bytes,
    int_bytes,
    long_bytes,
    string_bytes,
    vector_bytes,
)


class Create(NamedTuple):
    path: str
    data: bytes | None
    acl: tuple[Acl, ...]
    owner: int  # 0, a session, a container's mark or a time to live
    creates: int


class Delete(NamedTuple):
    path: str
    kind: int = codes.DELETE


class SetData(NamedTuple):
    path: str
    data: bytes | None
    version: int


class SetAcl(NamedTuple):
    path: str
    acl: tuple[Acl, ...]
    version: int


class Check(NamedTuple):
    path: str
    version: int


class OpenSession(NamedTuple):
    timeout_ms: int


class CloseSession(NamedTuple):
    paths: tuple[str, ...]  # its ephemeral nodes


class Failed(NamedTuple):
    code: int


class Multi(NamedTuple):
    steps: "tuple[Body, ...]"


Body = Create | Delete | SetData | SetAcl | Check | OpenSession | CloseSession | Failed | Multi


class Transaction(NamedTuple):
    session: int
    cxid: int
    zxid: int
    time_ms: int
    body: Body


def apply(tree: Tree, body: Body, zxid: int, time_ms: int) -> None:
    """To the tree; sessions have a table of their own."""
    if isinstance(body, Create):
        tree.create(body.path, body.data, body.acl, body.owner, body.creates, zxid, time_ms)
    elif isinstance(body, SetData):
        tree.set_data(body.path, body.data, body.version, zxid, time_ms)
    elif isinstance(body, Delete):
        tree.delete(body.path, zxid)
    elif isinstance(body, SetAcl):
        tree.set_acl(body.path, body.acl, body.version)
    elif isinstance(body, Multi):
        for step in body.steps:
            apply(tree, step, zxid, time_ms)
    elif isinstance(body, CloseSession):
        for path in body.paths:
            tree.delete(path, zxid)
    tree.last_zxid = zxid


def apply_again(tree: Tree, transaction: Transaction) -> None:
    """From the log, to a snapshot that may hold a part of it already: it was taken while changes went on."""
    if transaction.zxid > tree.last_zxid:
        apply(tree, transaction.body, transaction.zxid, transaction.time_ms)


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode(transaction: Transaction) -> bytes:
    kind, body = _body_bytes(transaction.body)
    header = long_bytes(transaction.session) + int_bytes(transaction.cxid) + long_bytes(transaction.zxid)
    return header + long_bytes(transaction.time_ms) + int_bytes(kind) + body


def _body_bytes(body: Body) -> tuple[int, bytes]:
    if isinstance(body, Create):
        return _create_bytes(body)
    if isinstance(body, Delete):
        return body.kind, string_bytes(body.path)
    if isinstance(body, SetData):
        return codes.SET_DATA, string_bytes(body.path) + buffer_bytes(body.data) + int_bytes(body.version)
    if isinstance(body, SetAcl):
        return codes.SET_ACL, string_bytes(body.path) + acl_bytes(body.acl) + int_bytes(body.version)
    if isinstance(body, Check):
        return codes.CHECK, string_bytes(body.path) + int_bytes(body.version)
    if isinstance(body, OpenSession):
        return codes.CREATE_SESSION, int_bytes(body.timeout_ms)
    if isinstance(body, CloseSession):
        return codes.CLOSE_SESSION, vector_bytes([string_bytes(path) for path in body.paths])
    if isinstance(body, Failed):
        return codes.ERROR, int_bytes(body.code)
    steps = []
    for step in body.steps:
        kind, encoded = _body_bytes(step)
        steps.append(int_bytes(kind) + buffer_bytes(encoded))
    return codes.MULTI, vector_bytes(steps)


def _create_bytes(body: Create) -> tuple[int, bytes]:
    start = string_bytes(body.path) + buffer_bytes(body.data) + acl_bytes(body.acl)
    ttl_ms = owner_ttl_ms(body.owner)
    if ttl_ms:
        return codes.CREATE_TTL, start + int_bytes(body.creates) + long_bytes(ttl_ms)
    if body.owner == CONTAINER_OWNER:
        return codes.CREATE_CONTAINER, start + int_bytes(body.creates)
    return codes.CREATE, start + boolean_bytes(body.owner != 0) + int_bytes(body.creates)


def decode(data: bytes) -> Transaction:
    reader = Reader(data)
    session, cxid, zxid, time_ms, kind = reader.int64(), reader.int32(), reader.int64(), reader.int64(), reader.int32()
    return Transaction(session, cxid, zxid, time_ms, _read_body(kind, reader, session))


def _read_body(kind: int, reader: Reader, session: int) -> Body:
    if kind in (codes.CREATE, codes.CREATE2, codes.CREATE_CONTAINER, codes.CREATE_TTL):
        return _read_create(kind, reader, session)
    if kind in (codes.DELETE, codes.DELETE_CONTAINER):
        return Delete(reader.string(), kind)
    if kind == codes.SET_DATA:
        return SetData(reader.string(), reader.buffer(), reader.int32())
    if kind == codes.SET_ACL:
        return SetAcl(reader.string(), read_acl(reader), reader.int32())
    if kind == codes.CHECK:
        return Check(reader.string(), reader.int32())
    if kind == codes.CREATE_SESSION:
        return OpenSession(reader.int32())
    if kind == codes.CLOSE_SESSION:
        return CloseSession(tuple(reader.vector(reader.string)) if reader.left else ())
    if kind == codes.ERROR:
        return Failed(reader.int32())
    if kind == codes.MULTI:
        return Multi(tuple(reader.vector(lambda: _read_step(reader, session))))
    raise MalformedError(f"a transaction of kind {kind} is not known")


def _read_step(reader: Reader, session: int) -> Body:
    kind, data = reader.int32(), reader.buffer()
    return _read_body(kind, Reader(data or b""), session)


def _read_create(kind: int, reader: Reader, session: int) -> Create:
    path, data, acl = reader.string(), reader.buffer(), read_acl(reader)
    if kind == codes.CREATE_CONTAINER:
        return Create(path, data, acl, CONTAINER_OWNER, reader.int32())
    if kind == codes.CREATE_TTL:
        creates = reader.int32()
        return Create(path, data, acl, ttl_owner(reader.int64()), creates)
    ephemeral = reader.boolean()
    return Create(path, data, acl, session if ephemeral else 0, reader.int32())

"""Answers and events as bytes, each a whole frame: its length, then what clients read."""

import struct
from collections.abc import Iterable
from typing import Final

from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.acl import Identity
from headrace.protocol.zookeeper.jute import (
    boolean_bytes,
    buffer_bytes,
    int_bytes,
    long_bytes,
    string_bytes,
    vector_bytes,
)

_REPLY: Final = struct.Struct(">iiqi")
_STEP: Final = struct.Struct(">i?i")
_END: Final = _STEP.pack(-1, True, -1)


def reply(xid: int, zxid: int, code: int, body: bytes = b"") -> bytes:
    return _REPLY.pack(16 + len(body), xid, zxid, code) + body


def connected(timeout_ms: int, session: int, password: bytes, read_only: bool | None) -> bytes:
    """Clients of 3.3 do not know of read-only servers, and get no byte about it."""
    body = int_bytes(0) + int_bytes(timeout_ms) + long_bytes(session) + buffer_bytes(password)
    if read_only is not None:
        body += boolean_bytes(False)
    return int_bytes(len(body)) + body


def notification(kind: int, path: str, zxid: int) -> bytes:
    body = int_bytes(kind) + int_bytes(codes.SYNC_CONNECTED) + string_bytes(path)
    return reply(codes.NOTIFICATION_XID, zxid, codes.OK, body)


def created(path: str, stat: bytes) -> bytes:
    return string_bytes(path) + stat


def data(content: bytes | None, stat: bytes) -> bytes:
    return buffer_bytes(content) + stat


def names(found: Iterable[str], stat: bytes = b"") -> bytes:
    return vector_bytes([string_bytes(name) for name in found]) + stat


def number(value: int) -> bytes:
    return int_bytes(value)


def path(value: str) -> bytes:
    return string_bytes(value)


def who_am_i(who: Iterable[Identity]) -> bytes:
    """Of a digest only the user's name is shown."""
    return vector_bytes(
        [string_bytes(each.scheme) + string_bytes(each.id.partition(":")[0] if each.scheme == "digest" else each.id)
         for each in who]
    )  # fmt: skip


def step_done(kind: int, body: bytes) -> bytes:
    return _STEP.pack(kind, False, 0) + body


def step_failed(code: int) -> bytes:
    return _STEP.pack(codes.ERROR, False, code) + int_bytes(code)


def multi(steps: list[bytes]) -> bytes:
    return b"".join(steps) + _END

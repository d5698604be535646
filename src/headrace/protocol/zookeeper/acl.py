"""Access control lists and identities as they are sent and stored. Whether one allows something, the keeper decides."""

import base64
import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace.protocol.zookeeper.codes import ALL_PERMISSIONS, READ
from headrace.protocol.zookeeper.jute import Reader, int_bytes, string_bytes, vector_bytes


class Identity(NamedTuple):
    scheme: str
    id: str


class Acl(NamedTuple):
    permissions: int
    scheme: str
    id: str


OPEN: Final = (Acl(ALL_PERMISSIONS, "world", "anyone"),)
READ_ONLY: Final = (Acl(READ, "world", "anyone"),)


def digest(credentials: bytes) -> str:
    """`user:password` as an access control list keeps it; without a colon all of it is the user, as in ZooKeeper."""
    user = credentials.partition(b":")[0]
    hashed = base64.b64encode(hashlib.sha1(credentials).digest()).decode()
    return f"{user.decode('utf-8', 'replace')}:{hashed}"


def acl_bytes(acl: Iterable[Acl]) -> bytes:
    return vector_bytes(
        [int_bytes(each.permissions) + string_bytes(each.scheme) + string_bytes(each.id) for each in acl]
    )


_OPEN_BYTES: Final = acl_bytes(OPEN)


def read_acl(reader: Reader) -> tuple[Acl, ...]:
    """The common list is one object: it costs no memory per node and is told at a glance."""
    if reader.skips(_OPEN_BYTES):
        return OPEN
    return tuple(reader.vector(lambda: Acl(reader.int32(), reader.string(), reader.string())))

"""A node of the tree, as a record that never changes: a copy of the table of nodes is a consistent snapshot.

`creates` is how many children were ever created; ZooKeeper keeps it as the node's cversion, numbers sequential
children by it, and shows `2 * creates - children` to clients, which grows with each create and delete.
"""

import struct
from typing import Final

from headrace.protocol.zookeeper.acl import Acl
from headrace.protocol.zookeeper.stat import STAT

_STORED_STAT: Final = struct.Struct(">qqqqiiiqq")
CONTAINER_OWNER: Final = -(1 << 63)  # the ephemeralOwner of a container
_TTL_MASK: Final = 0xFF << 56
_TTL_VALUE: Final = (1 << 40) - 1
TTL_MS_MAX: Final = _TTL_VALUE


def ttl_owner(ttl_ms: int) -> int:
    """The ephemeralOwner of a node with a time to live: ZooKeeper's extended types mark it in the highest byte."""
    return (_TTL_MASK | ttl_ms) - (1 << 64)


def owner_ttl_ms(owner: int) -> int:
    """0 if it is not such a node."""
    unsigned = owner & ((1 << 64) - 1)
    return unsigned & _TTL_VALUE if unsigned >> 56 == 0xFF else 0


def is_session(owner: int) -> bool:
    """Whether the node goes with a session."""
    return owner != 0 and owner != CONTAINER_OWNER and not owner_ttl_ms(owner)


class Znode:
    __slots__ = (
        "acl",
        "acl_version",
        "created_ms",
        "created_zxid",
        "creates",
        "data",
        "modified_ms",
        "modified_zxid",
        "owner",
        "parent_zxid",
        "version",
    )

    def __init__(
        self,
        data: bytes | None,
        acl: tuple[Acl, ...],
        created_zxid: int,
        modified_zxid: int,
        created_ms: int,
        modified_ms: int,
        version: int,
        creates: int,
        acl_version: int,
        owner: int,
        parent_zxid: int,
    ) -> None:
        self.data = data
        self.acl = acl
        self.created_zxid = created_zxid
        self.modified_zxid = modified_zxid
        self.created_ms = created_ms
        self.modified_ms = modified_ms
        self.version = version
        self.creates = creates
        self.acl_version = acl_version
        self.owner = owner
        self.parent_zxid = parent_zxid  # the last change of its children (pzxid)

    def with_data(self, data: bytes | None, version: int, zxid: int, now_ms: int) -> "Znode":
        return Znode(
            data,
            self.acl,
            self.created_zxid,
            zxid,
            self.created_ms,
            now_ms,
            version,
            self.creates,
            self.acl_version,
            self.owner,
            self.parent_zxid,
        )

    def with_acl(self, acl: tuple[Acl, ...], version: int) -> "Znode":
        return Znode(
            self.data,
            acl,
            self.created_zxid,
            self.modified_zxid,
            self.created_ms,
            self.modified_ms,
            self.version,
            self.creates,
            version,
            self.owner,
            self.parent_zxid,
        )

    def with_children(self, creates: int, parent_zxid: int) -> "Znode":
        return Znode(
            self.data,
            self.acl,
            self.created_zxid,
            self.modified_zxid,
            self.created_ms,
            self.modified_ms,
            self.version,
            creates,
            self.acl_version,
            self.owner,
            parent_zxid,
        )

    def stat_bytes(self, children: int) -> bytes:
        """The stat structure as clients see it."""
        return STAT.pack(
            self.created_zxid,
            self.modified_zxid,
            self.created_ms,
            self.modified_ms,
            self.version,
            _int(2 * self.creates - children),
            self.acl_version,
            self.owner if is_session(self.owner) else 0,  # that a node is a container is not shown
            len(self.data) if self.data is not None else 0,
            children,
            self.parent_zxid,
        )

    def stored_stat(self) -> bytes:
        """The same as a snapshot keeps it."""
        return _STORED_STAT.pack(
            self.created_zxid,
            self.modified_zxid,
            self.created_ms,
            self.modified_ms,
            self.version,
            self.creates,
            self.acl_version,
            self.owner,
            self.parent_zxid,
        )


def stored_znode(data: bytes | None, acl: tuple[Acl, ...], stat: bytes) -> Znode:
    created, modified, created_ms, modified_ms, version, creates, acl_version, owner, parent = _STORED_STAT.unpack(stat)
    return Znode(data, acl, created, modified, created_ms, modified_ms, version, creates, acl_version, owner, parent)


STORED_STAT_BYTES: Final = _STORED_STAT.size


def _int(value: int) -> int:
    """As Java's int overflows."""
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)

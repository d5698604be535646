"""How ZooKeeper's shell prints what it found: stats, ACLs, events, bytes, errors."""

import time
from typing import Final

from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.acl import Acl
from headrace.protocol.zookeeper.stat import Stat

_PERMISSIONS: Final = (
    (codes.CREATE_PERMISSION, "c"),
    (codes.DELETE_PERMISSION, "d"),
    (codes.READ, "r"),
    (codes.WRITE, "w"),
    (codes.ADMIN, "a"),
)
_ESCAPED: Final = str.maketrans(
    {"\0": "%00", "\n": "%0A", "\r": "%0D", ",": "%2C", "}": "%7D", "%": "%25"}
)  # as jute writes text
_EVENTS: Final = {
    codes.NODE_CREATED: "NodeCreated",
    codes.NODE_DELETED: "NodeDeleted",
    codes.NODE_DATA_CHANGED: "NodeDataChanged",
    codes.NODE_CHILDREN_CHANGED: "NodeChildrenChanged",
    codes.DATA_WATCH_REMOVED: "DataWatchRemoved",
    codes.CHILD_WATCH_REMOVED: "ChildWatchRemoved",
    codes.PERSISTENT_WATCH_REMOVED: "PersistentWatchRemoved",
}
_ERRORS: Final = {
    codes.NO_NODE: "Node does not exist: ",
    codes.NO_CHILDREN_FOR_EPHEMERALS: "Ephemerals cannot have children: ",
    codes.NODE_EXISTS: "Node already exists: ",
    codes.NOT_EMPTY: "Node not empty: ",
    codes.NOT_READ_ONLY: "Not a read-only call: ",
    codes.INVALID_ACL: "Acl is not valid : ",
    codes.NO_AUTH: "Insufficient permission : ",
    codes.BAD_ARGUMENTS: "Arguments are not valid : ",
    codes.BAD_VERSION: "version No is not valid : ",
    codes.QUOTA_EXCEEDED: "Quota has exceeded : ",
}


def stat_lines(stat: Stat) -> str:
    return (
        f"cZxid = {_hex(stat.created_zxid)}\nctime = {date(stat.created_ms)}\n"
        f"mZxid = {_hex(stat.modified_zxid)}\nmtime = {date(stat.modified_ms)}\n"
        f"pZxid = {_hex(stat.children_zxid)}\ncversion = {stat.children_version}\n"
        f"dataVersion = {stat.version}\naclVersion = {stat.acl_version}\nephemeralOwner = {_hex(stat.owner)}\n"
        f"dataLength = {stat.data_bytes}\nnumChildren = {stat.children}\n"
    )


def _hex(value: int) -> str:
    return f"{value & ((1 << 64) - 1):#x}"


def date(ms: int) -> str:
    """As Java's Date: `Thu Jan 01 00:00:00 UTC 1970`."""
    return time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(ms // 1000))


def permissions(mask: int) -> str:
    return "".join(letter for permission, letter in _PERMISSIONS if mask & permission)


def acl_line(acl: Acl) -> str:
    scheme, id = acl.scheme.translate(_ESCAPED), acl.id.translate(_ESCAPED)
    return f"'{scheme},'{id}\n: {permissions(acl.permissions)}\n"


def event_lines(kind: int, path: str, zxid: int) -> str:
    return _event("SyncConnected", _EVENTS.get(kind, str(kind)), path, zxid)


def state_lines(state: str) -> str:
    return _event(state, "None", "null", -1)


def _event(state: str, kind: str, path: str, zxid: int) -> str:
    return f"\nWATCHER::\n\nWatchedEvent state:{state} type:{kind} path:{path} zxid: {zxid}\n"


def error_line(error: ZooKeeperError) -> str:
    known = _ERRORS.get(error.code)
    return known + (error.path or "null") if known is not None else error.java


def hex_dump(data: bytes) -> str:
    if not data:
        return ""
    rows = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"|{at:08x}| {row.hex(' '):<48}|{text:<16}|")
    edge = "+--------+-------------------------------------------------+----------------+"
    top = "         +-------------------------------------------------+"
    head = "         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |"
    return "\n".join((top, head, edge, *rows, edge))

"""Nodes as they are found: a whole tree in few round trips, and what is printed of a node."""

import base64
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from headrace.client.zookeeper.blocking import BlockingClient
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.protocol.zookeeper import codes, paths, requests
from headrace.protocol.zookeeper.acl import Acl
from headrace.protocol.zookeeper.results import AclOfNode, Children, Data, Result
from headrace.protocol.zookeeper.stat import Stat

ASKED_MAX: Final = 200  # nodes, before their answers are waited for
_PERMISSIONS: Final = ((1, "read"), (2, "write"), (4, "create"), (8, "delete"), (16, "admin"))


class Node(NamedTuple):
    path: str
    stat: Stat
    names: list[str]
    data: bytes | None = None
    acl: tuple[Acl, ...] = ()


def walk(client: BlockingClient, path: str, depth: int, *, whole: bool) -> Iterator[Node]:
    """The node and what is below it, level by level; `whole`: with data and ACL. What goes meanwhile is left out, what
    may not be read too, except the first node."""
    level, first = [path], True
    while level and depth >= 0:
        following: list[str] = []
        for at in range(0, len(level), ASKED_MAX):
            for node in _read(client, level[at : at + ASKED_MAX], whole=whole, demanding=first):
                following += [paths.under(node.path) + name for name in node.names]
                yield node
        level, first = sorted(following), False
        depth -= 1


def _read(client: BlockingClient, level: list[str], *, whole: bool, demanding: bool) -> Iterator[Node]:
    kinds = (codes.GET_CHILDREN2, codes.GET_DATA, codes.GET_ACL) if whole else (codes.GET_CHILDREN2,)
    asked = [[client.submit(requests.Read(kind, path, False)) for kind in kinds] for path in level]
    for path, answers in zip(level, asked, strict=True):
        try:
            yield _node(path, answers)
        except ZooKeeperError as error:
            if demanding or error.code not in (codes.NO_NODE, codes.NO_AUTH):
                raise


def _node(path: str, answers: "list[Future[Result]]") -> Node:
    found = [answer.result() for answer in answers]
    data: bytes | None = None
    acl: tuple[Acl, ...] = ()
    names: list[str] = []
    stat: Stat | None = None
    for each in found:
        if isinstance(each, Children):
            names, stat = sorted(each.names), each.stat
        elif isinstance(each, Data):
            data = each.data
        elif isinstance(each, AclOfNode):
            acl = each.acl
    if stat is None:
        raise ZooKeeperError(codes.NO_NODE, path)
    return Node(path, stat, names, data, acl)


def kind_of(stat: Stat) -> str:
    return f"ephemeral {stat.owner & ((1 << 64) - 1):#x}" if stat.owner else ""


def data_json(data: bytes | None) -> dict[str, Any]:
    """As text where it is text."""
    if data is None:
        return {"data": None}
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode()}


def stat_json(stat: Stat) -> dict[str, Any]:
    return {
        "version": stat.version,
        "data_bytes": stat.data_bytes,
        "children": stat.children,
        "children_version": stat.children_version,
        "acl_version": stat.acl_version,
        "created_ms": stat.created_ms,
        "modified_ms": stat.modified_ms,
        "created_zxid": stat.created_zxid,
        "modified_zxid": stat.modified_zxid,
        "children_zxid": stat.children_zxid,
        "ephemeral_owner": f"{stat.owner & ((1 << 64) - 1):#x}" if stat.owner else None,
    }


def acl_json(acl: tuple[Acl, ...]) -> list[dict[str, Any]]:
    return [
        {
            "scheme": each.scheme,
            "id": each.id,
            "permissions": [name for bit, name in _PERMISSIONS if each.permissions & bit],
        }
        for each in acl
    ]


def node_json(node: Node) -> dict[str, Any]:
    return {"path": node.path, **data_json(node.data), **stat_json(node.stat), "acl": acl_json(node.acl)}


def data_text(data: bytes | None) -> str:
    """Text as it is, other bytes in hex."""
    if not data:
        return ""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.hex(" ")

"""Decides a change: from a request and the tree to a transaction, or a refusal. It changes nothing itself.

The order of the checks is ZooKeeper's, since it decides which of several errors a client sees.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.keeper import acl, transactions
from headrace.keeper.quota import Quotas
from headrace.keeper.tree import Tree
from headrace.keeper.znode import CONTAINER_OWNER, TTL_MS_MAX, Znode, is_session, ttl_owner
from headrace.protocol.zookeeper import codes, paths, requests
from headrace.protocol.zookeeper.acl import OPEN, Acl, Identity
from headrace.protocol.zookeeper.codes import RefusedError

FLAGS: Final = range(7)
_SEQUENTIAL: Final = (2, 3, 6)
_EPHEMERAL: Final = (1, 3)
CONTAINER: Final = 4
_MORTAL: Final = (5, 6)

Change = requests.Create | requests.Delete | requests.SetData | requests.SetAcl | requests.Check


class Asker(NamedTuple):
    """Who asks: the session that ephemeral nodes go with, and what it has shown of itself."""

    session: int
    who: Sequence[Identity]


def decide(tree: Tree, change: Change, asker: Asker, quotas: Quotas) -> transactions.Body:
    if isinstance(change, requests.SetData):
        return _set_data(tree, change, asker, quotas)
    if isinstance(change, requests.Create):
        return _create(tree, change, asker, quotas)
    if isinstance(change, requests.Delete):
        return _delete(tree, change, asker)
    if isinstance(change, requests.Check):
        return _check(tree, change, asker)
    return _set_acl(tree, change, asker)


def _node(tree: Tree, path: str) -> Znode:
    node = tree.nodes.get(path)
    if node is None:
        raise RefusedError(codes.NO_NODE, path)
    return node


def _next_version(current: int, expected: int, path: str) -> int:
    if expected not in (-1, current):
        raise RefusedError(codes.BAD_VERSION, path)
    following = current + 1
    return following if following < 1 << 31 else -(1 << 31)  # as Java's int


def _parent_path(path: str) -> str:
    at = path.rfind("/")
    if at < 0 or "\0" in path:
        raise RefusedError(codes.BAD_ARGUMENTS, path)
    return path[:at] or "/"


def _owner(change: requests.Create, asker: Asker) -> int:
    if change.flags in _MORTAL:
        if not 0 < change.ttl_ms <= TTL_MS_MAX:
            raise RefusedError(codes.BAD_ARGUMENTS, change.path)
        return ttl_owner(change.ttl_ms)
    if change.ttl_ms >= 0:
        raise RefusedError(codes.BAD_ARGUMENTS, change.path)
    if change.flags == CONTAINER:
        return CONTAINER_OWNER
    if change.flags in _EPHEMERAL:
        return asker.session
    if change.flags not in (0, 2):
        raise RefusedError(codes.BAD_ARGUMENTS, change.path)
    return 0


def _create(tree: Tree, change: requests.Create, asker: Asker, quotas: Quotas) -> transactions.Create:
    path = change.path
    owner = _owner(change, asker)
    above = _parent_path(path)
    stored = acl.fixed(change.acl, asker.who, path)
    parent = _node(tree, above)
    acl.demand(parent.acl, codes.CREATE_PERMISSION, asker.who, path)
    if change.flags in _SEQUENTIAL:
        path += f"{parent.creates:010d}"
    paths.check(path)
    if path in tree.nodes:
        raise RefusedError(codes.NODE_EXISTS, path)
    if is_session(parent.owner):
        raise RefusedError(codes.NO_CHILDREN_FOR_EPHEMERALS, path)
    quotas.check(tree, path, 1, len(change.data or b""))
    return transactions.Create(path, change.data, _shared(stored), owner, parent.creates + 1)


def _shared(stored: tuple[Acl, ...]) -> tuple[Acl, ...]:
    """The common list is one object: it costs no memory per node and is told at a glance."""
    return OPEN if stored == OPEN else stored


def _delete(tree: Tree, change: requests.Delete, asker: Asker) -> transactions.Delete:
    path = change.path
    above = _parent_path(path)
    if path in paths.SPECIAL:
        raise RefusedError(codes.BAD_ARGUMENTS, path)
    parent = _node(tree, above)
    acl.demand(parent.acl, codes.DELETE_PERMISSION, asker.who, path)
    node = _node(tree, path)
    _next_version(node.version, change.version, path)
    if tree.count(path):
        raise RefusedError(codes.NOT_EMPTY, path)
    return transactions.Delete(path)


def _set_data(tree: Tree, change: requests.SetData, asker: Asker, quotas: Quotas) -> transactions.SetData:
    path = change.path
    node = tree.nodes.get(path)
    if node is None:
        paths.check(path)
        raise RefusedError(codes.NO_NODE, path)
    acl.demand(node.acl, codes.WRITE, asker.who, path)
    quotas.check(tree, path, 0, len(change.data or b"") - len(node.data or b""))
    return transactions.SetData(path, change.data, _next_version(node.version, change.version, path))


def _set_acl(tree: Tree, change: requests.SetAcl, asker: Asker) -> transactions.SetAcl:
    path = change.path
    paths.check(path)
    stored = acl.fixed(change.acl, asker.who, path)
    node = _node(tree, path)
    acl.demand(node.acl, codes.ADMIN, asker.who, path)
    return transactions.SetAcl(path, _shared(stored), _next_version(node.acl_version, change.version, path))


def _check(tree: Tree, change: requests.Check, asker: Asker) -> transactions.Check:
    path = change.path
    paths.check(path)
    node = _node(tree, path)
    acl.demand(node.acl, codes.READ, asker.who, path)
    return transactions.Check(path, _next_version(node.version, change.version, path))

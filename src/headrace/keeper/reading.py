"""Answers a read from the tree, or refuses it. It sets no watch and changes nothing, except that `zookeeper_stats` of a
quota is brought up to date before it is shown.

The order of the checks is ZooKeeper's, since it decides which of several errors a client sees.
"""

from collections.abc import Sequence
from typing import Final

from headrace.keeper import acl, quota
from headrace.keeper.tree import Tree
from headrace.keeper.znode import Znode
from headrace.protocol.zookeeper import answers, codes, requests
from headrace.protocol.zookeeper.acl import Identity, acl_bytes
from headrace.protocol.zookeeper.codes import RefusedError

MULTI_READ_BYTES_MAX: Final = 16 << 20  # in an answer to one, and one node more


def read(tree: Tree, request: requests.Read, session: int, who: Sequence[Identity]) -> bytes:
    kind, path = request.kind, request.path
    if kind == codes.GET_EPHEMERALS:
        own = tree.ephemerals.get(session, {})
        return answers.names([each for each in own if each.startswith(path)])
    if kind == codes.SYNC:
        return answers.path(path)
    if kind == codes.EXISTS and "\0" in path:
        raise RefusedError(codes.BAD_ARGUMENTS, path)
    path = path or "/"  # as in ZooKeeper, whose root has both names
    quota.refresh(tree, path)
    node = tree.nodes.get(path)
    if node is None:
        raise RefusedError(codes.NO_NODE, path)
    if kind == codes.GET_ACL:
        return _acl(tree, path, node, who)
    acl.demand(node.acl, codes.READ, who, path)
    return _content(tree, kind, path, node)


def multi_read(tree: Tree, request: requests.MultiRead, session: int, who: Sequence[Identity]) -> bytes:
    """It sets no watch, whatever its steps say, as in ZooKeeper. A short request may ask for one large node tens of
    thousands of times: what it may have is bounded, far above what ZooKeeper's own client takes."""
    results: list[bytes] = []
    size = 0
    for step in request.steps:
        if results:
            size += len(results[-1])
        if size > MULTI_READ_BYTES_MAX:
            raise RefusedError(codes.MARSHALLING_ERROR)
        try:
            results.append(answers.step_done(step.kind, read(tree, step, session, who)))
        except RefusedError as refused:
            results.append(answers.step_failed(refused.code))
    return answers.multi(results)


def _content(tree: Tree, kind: int, path: str, node: Znode) -> bytes:
    if kind == codes.EXISTS:
        return tree.stat(path, node)
    if kind == codes.GET_DATA:
        return answers.data(node.data, tree.stat(path, node))
    if kind == codes.GET_ALL_CHILDREN_NUMBER:
        # The root is not counted, nor is it its own child; ZooKeeper counts everything else below it.
        return answers.number(len(tree.nodes) - 1 if path == "/" else sum(1 for _ in tree.below(path)))
    names = tree.children.get(path, ())
    return answers.names(names, tree.stat(path, node) if kind == codes.GET_CHILDREN2 else b"")


def _acl(tree: Tree, path: str, node: Znode, who: Sequence[Identity]) -> bytes:
    acl.demand(node.acl, codes.READ | codes.ADMIN, who, path)
    shown = node.acl if acl.allows(node.acl, codes.ADMIN, who) else tuple(acl.masked(node.acl))
    return acl_bytes(shown) + tree.stat(path, node)

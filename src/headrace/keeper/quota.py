"""Quotas: how many nodes, and how many bytes, may lie below a path.

A quota is a node as `zookeeper-shell.sh` sets it: `/zookeeper/quota/<path>/zookeeper_limits` with a text such as
`count=100,bytes=1000=;byteHardLimit=1000;countHardLimit=100`. A hard limit refuses what would go beyond it; a soft one
(`count`, `bytes`) is a number for people to watch, as in ZooKeeper. What is used is counted when it is asked for, so
nothing has to be kept in step.
"""

from typing import Final, NamedTuple

from headrace.keeper import paths
from headrace.keeper.codes import QUOTA_EXCEEDED, RefusedError
from headrace.keeper.tree import Tree

ROOT: Final = "/zookeeper/quota"
LIMITS: Final = "zookeeper_limits"


class Limits(NamedTuple):
    nodes: int = -1
    size: int = -1
    nodes_hard: int = -1
    size_hard: int = -1


_NAMES: Final = {"count": 0, "bytes": 1, "countHardLimit": 2, "byteHardLimit": 3}


def parse(text: bytes | None) -> Limits:
    values = [-1, -1, -1, -1]
    for part in (text or b"").decode("utf-8", "replace").replace(";", ",").split(","):
        name, equals, number = part.strip().strip("=").partition("=")
        place = _NAMES.get(name)
        if place is not None and equals and number.lstrip("-").isdigit():
            values[place] = int(number)
    return Limits(*values)


def of(tree: Tree, path: str) -> tuple[str, Limits] | None:
    """The nearest quota at or above a path."""
    if ROOT not in tree.children or path.startswith("/zookeeper"):
        return None
    at = path
    while at != "/":
        node = tree.nodes.get(f"{ROOT}{at}/{LIMITS}")
        if node is not None:
            return at, parse(node.data)
        at = paths.parent(at)
    return None


def usage(tree: Tree, path: str) -> tuple[int, int]:
    """Nodes and bytes at and below a path."""
    count, size = 0, 0
    if path in tree.nodes:
        count, size = 1, len(tree.nodes[path].data or b"")
    for each in tree.below(path):
        count += 1
        size += len(tree.nodes[each].data or b"")
    return count, size


def check(tree: Tree, path: str, more_nodes: int, more_bytes: int) -> None:
    found = of(tree, path)
    if found is None:
        return
    at, limits = found
    if limits.nodes_hard < 0 and limits.size_hard < 0:
        return
    count, size = usage(tree, at)
    if 0 <= limits.nodes_hard < count + more_nodes and more_nodes > 0:
        raise RefusedError(QUOTA_EXCEEDED, path)
    if 0 <= limits.size_hard < size + more_bytes and more_bytes > 0:
        raise RefusedError(QUOTA_EXCEEDED, path)

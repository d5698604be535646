"""Quotas: how many nodes, and how many bytes, may lie below a path.

A quota is a node as `zookeeper-shell.sh` sets it: `/zookeeper/quota/<path>/zookeeper_limits` with a text such as
`count=100,bytes=1000=;byteHardLimit=1000;countHardLimit=100`. A hard limit refuses what would go beyond it; a soft one
(`count`, `bytes`) lets it happen and is told to whoever logs, as in ZooKeeper. What is used is counted when it is first
looked at, and kept in step from then on, so a limit above very many nodes costs no more than one above a few.
`zookeeper_stats`, the node beside the limits that shows it, is brought up to date when it is read.
"""

import re
from typing import Final, NamedTuple

from headrace.keeper.tree import Tree, Usage
from headrace.protocol.zookeeper import paths
from headrace.protocol.zookeeper.codes import QUOTA_EXCEEDED, RefusedError

ROOT: Final = "/zookeeper/quota"
LIMITS: Final = "zookeeper_limits"
COUNTED_MAX: Final = 1000  # paths whose use is kept in step
TOLD_MAX: Final = 100  # paths whose soft limits were passed, before somebody looks
_STATS: Final = "/zookeeper_stats"


class Limits(NamedTuple):
    nodes: int = -1
    size: int = -1
    nodes_hard: int = -1
    size_hard: int = -1


_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
NO_LIMITS: Final = Limits()


class Quotas:
    """Whether they are enforced, and which soft limits were passed since somebody looked."""

    def __init__(self, *, enforced: bool = True) -> None:
        self.enforced = enforced
        self._passed: dict[str, str] = {}

    def take_passed(self) -> dict[str, str]:
        """By the path that has the quota: which limit, and what is there now."""
        passed, self._passed = self._passed, {}
        return passed

    def check(self, tree: Tree, path: str, more_nodes: int, more_bytes: int) -> None:
        found = of(tree, path) if self.enforced else None
        if found is None:
            return
        at, limits = found
        if limits == NO_LIMITS:
            return
        used = usage(tree, at)
        if more_nodes:
            self._compare(at, "count", used.nodes + more_nodes, limits.nodes_hard, limits.nodes)
        if more_bytes:
            self._compare(at, "bytes", used.size + more_bytes, limits.size_hard, limits.size)

    def _compare(self, at: str, what: str, then: int, hard: int, soft: int) -> None:
        """A soft limit beside a hard one is not looked at, as in ZooKeeper."""
        if 0 <= hard < then:
            raise RefusedError(QUOTA_EXCEEDED, at)
        if hard < 0 <= soft < then and (len(self._passed) < TOLD_MAX or at in self._passed):
            self._passed[at] = f"{what} is {then}, the limit is {soft}"


_NAMES: Final = {"count": 0, "bytes": 1, "countHardLimit": 2, "byteHardLimit": 3}


def parse(text: bytes | None) -> Limits:
    """Anybody may write there; what is not a number is no limit, and must not fail the requests below that path."""
    values = [-1, -1, -1, -1]
    for part in (text or b"").decode("utf-8", "replace").replace(";", ",").split(","):
        name, equals, number = part.strip().strip("=").partition("=")
        place = _NAMES.get(name)
        if place is not None and equals and _NUMBER.fullmatch(number):
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


def usage(tree: Tree, path: str) -> Usage:
    """Counted when it is first asked for; then the tree keeps it in step."""
    found = tree.usage.get(path)
    if found is None:
        if len(tree.usage) >= COUNTED_MAX:
            tree.usage.clear()
        nodes = [tree.nodes[each] for each in (path, *tree.below(path)) if each in tree.nodes]
        found = tree.usage[path] = Usage(len(nodes), sum(len(node.data or b"") for node in nodes))
    return found


def refresh(tree: Tree, path: str) -> None:
    """Before a read of this path: if it shows what is used, it shows what is used now."""
    if path.startswith(ROOT) and path.endswith(_STATS) and path in tree.nodes:
        used = usage(tree, path[len(ROOT) : -len(_STATS)])
        tree.show(path, f"count={used.nodes},bytes={used.size}".encode())

"""The tree of nodes: one table by path, and what is derived from it. It applies changes and never refuses one.

Whether a change is allowed is decided before (`deciding`); applying the same changes in the same order gives the same
tree, which is how a start rebuilds it. Node records are never changed in place, so `nodes.copy()` is a snapshot.
While a multi is decided, `undo` collects how to take each step back.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace.keeper.znode import CONTAINER_OWNER, Znode, is_session, owner_ttl_ms
from headrace.protocol.zookeeper import paths
from headrace.protocol.zookeeper.acl import OPEN, READ_ONLY, Acl
from headrace.protocol.zookeeper.codes import NODE_CHILDREN_CHANGED, NODE_CREATED, NODE_DATA_CHANGED, NODE_DELETED

_NODE_BYTES = 500  # about what a node costs in memory beside its data and its path
_ACL_BYTES = 250  # and each entry of a list of its own


class Event(NamedTuple):
    """A change that watches may be waiting for."""

    kind: int
    path: str
    acl: tuple[Acl, ...]  # who may read the node, and so may hear of it


class Usage:
    """Nodes and bytes of data at and below a path."""

    __slots__ = ("nodes", "size")

    def __init__(self, nodes: int, size: int) -> None:
        self.nodes = nodes
        self.size = size


class Tree:
    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {}
        self.children: dict[str, set[str]] = {}  # names, of nodes that have any
        self.ephemerals: dict[int, dict[str, None]] = {}  # by session, in the order of their creation
        self.containers: set[str] = set()
        self.mortals: set[str] = set()  # nodes with a time to live
        self.last_zxid = 0
        self.bytes = 0  # about
        self.data_size = 0  # of paths and data alone, as ZooKeeper counts
        self.usage: dict[str, Usage] = {}  # at and below paths with a quota; `quota` begins one
        self.events: list[Event] = []  # since somebody took them
        self.undo: list[Callable[[], None]] | None = None
        for path in ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
            config = path == "/zookeeper/config"
            acl, acl_version = (READ_ONLY, -1) if config else (OPEN, 0)
            self.adopt(path, Znode(b"", acl, 0, 0, 0, 0, 0, 0, acl_version, 0, 0))

    def take_events(self) -> list[Event]:
        events, self.events = self.events, []
        return events

    # ── questions ────────────────────────────────────────────────────────────────────────────────────────────────

    def count(self, path: str) -> int:
        names = self.children.get(path)
        return len(names) if names is not None else 0

    def stat(self, path: str, node: Znode) -> bytes:
        return node.stat_bytes(self.count(path))

    def below(self, path: str) -> Iterator[str]:
        """All nodes under a path, without it."""
        waiting = [path]
        while waiting:
            at = waiting.pop()
            for name in self.children.get(at, ()):
                child = paths.under(at) + name
                waiting.append(child)
                yield child

    # ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def adopt(self, path: str, node: Znode) -> None:
        """A node as a snapshot has it; its parent is there, or comes later."""
        old = self.nodes.get(path)
        if old is not None:
            self._forget(path, old)
        self.nodes[path] = node
        self.bytes += _size(path, node)
        self._use(path, 1, len(node.data or b""))
        if path != "/":
            above = paths.parent(path)
            self.children.setdefault(above, set()).add(path[len(paths.under(above)) :])
        if node.owner == CONTAINER_OWNER:
            self.containers.add(path)
        elif owner_ttl_ms(node.owner):
            self.mortals.add(path)
        elif is_session(node.owner):
            self.ephemerals.setdefault(node.owner, {})[path] = None

    def _forget(self, path: str, node: Znode) -> None:
        del self.nodes[path]
        self.bytes -= _size(path, node)
        self._use(path, -1, -len(node.data or b""))
        above = paths.parent(path)
        names = self.children[above]
        names.discard(path[len(paths.under(above)) :])
        if not names:
            del self.children[above]
        self.containers.discard(path)
        self.mortals.discard(path)
        if is_session(node.owner):
            own = self.ephemerals.get(node.owner, {})
            own.pop(path, None)
            if not own:
                self.ephemerals.pop(node.owner, None)

    def _replace(self, path: str, new: Znode) -> None:
        old = self.nodes[path]
        self.nodes[path] = new
        self.bytes += _size(path, new) - _size(path, old)
        self._use(path, 0, len(new.data or b"") - len(old.data or b""))
        if self.undo is not None:
            self.undo.append(lambda: self._put_back(path, old))

    def _put_back(self, path: str, old: Znode) -> None:
        new = self.nodes[path]
        self.bytes += _size(path, old) - _size(path, new)
        self._use(path, 0, len(old.data or b"") - len(new.data or b""))
        self.nodes[path] = old

    def _use(self, path: str, nodes: int, size: int) -> None:
        """Keeps what is used in all, and below quotas, in step."""
        self.data_size += size + nodes * len(path)
        if self.usage:
            for above in paths.upwards(path):
                used = self.usage.get(above)
                if used is not None:
                    used.nodes += nodes
                    used.size += size

    def create(
        self, path: str, data: bytes | None, acl: tuple[Acl, ...], owner: int, creates: int, zxid: int, now_ms: int
    ) -> None:
        """`creates` is the parent's count with this one; an older count, from a log that is applied again, changes
        nothing there."""
        above = paths.parent(path)
        parent = self.nodes[above]
        if creates > parent.creates:
            self._replace(above, parent.with_children(creates, zxid))
        node = Znode(data, acl, zxid, zxid, now_ms, now_ms, 0, 0, 0, owner, zxid)
        self.adopt(path, node)
        if self.undo is not None:
            self.undo.append(lambda: self._forget(path, node))
        self.events.append(Event(NODE_CREATED, path, acl))
        self.events.append(Event(NODE_CHILDREN_CHANGED, above, parent.acl))

    def delete(self, path: str, zxid: int) -> None:
        node = self.nodes[path]
        above = paths.parent(path)
        self._forget(path, node)
        if self.undo is not None:
            self.undo.append(lambda: self.adopt(path, node))
        parent = self.nodes[above]
        if zxid > parent.parent_zxid:
            self._replace(above, parent.with_children(parent.creates, zxid))
        self.events.append(Event(NODE_DELETED, path, node.acl))
        self.events.append(Event(NODE_CHILDREN_CHANGED, above, parent.acl))

    def set_data(self, path: str, data: bytes | None, version: int, zxid: int, now_ms: int) -> None:
        node = self.nodes[path]
        self._replace(path, node.with_data(data, version, zxid, now_ms))
        self.events.append(Event(NODE_DATA_CHANGED, path, node.acl))

    def show(self, path: str, data: bytes) -> None:
        """What the keeper itself says in a node: nobody has changed it, so its stat stays but for the length."""
        node = self.nodes[path]
        self._replace(path, node.with_data(data, node.version, node.modified_zxid, node.modified_ms))

    def set_acl(self, path: str, acl: tuple[Acl, ...], version: int) -> None:
        self._replace(path, self.nodes[path].with_acl(acl, version))

    def roll_back(self) -> None:
        """Takes back what was done since `undo` was set."""
        undo, self.undo = self.undo or [], None
        for step in reversed(undo):
            step()


def _size(path: str, node: Znode) -> int:
    size = _NODE_BYTES + len(path)
    if node.data is not None:
        size += len(node.data)
    if node.acl is not OPEN:
        size += _ACL_BYTES * len(node.acl)
    return size

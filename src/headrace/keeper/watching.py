"""What clients ask of watches, and who is told of a change.

Outputs keep their order, so the answer that set a watch comes before its event, and the event before any answer that
shows the change. What one connection may watch is bounded.
"""

from typing import Final

from headrace.keeper import acl, watches
from headrace.keeper.peers import Outputs, Peer
from headrace.keeper.tree import Event, Tree
from headrace.protocol.zookeeper import answers, codes, requests
from headrace.protocol.zookeeper.codes import RefusedError

WATCHED_CHARACTERS_MAX: Final = 32 << 20  # of the paths that one connection watches
NO_ZXID: Final = -1  # of an event that a client has missed


class Watching:
    def __init__(self, tree: Tree, outputs: Outputs, per_peer_max: int) -> None:
        self.watches: watches.Watches[Peer] = watches.Watches()
        self._tree = tree
        self._outputs = outputs
        self._per_peer_max = per_peer_max

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def demand(self, peer: Peer, count: int, characters: int) -> None:
        """Refuses what would be more than a connection may watch."""
        count += self.watches.count_of(peer)
        characters += self.watches.characters_of(peer)
        if count > self._per_peer_max or characters > WATCHED_CHARACTERS_MAX:
            raise RefusedError(codes.THROTTLED)

    def read(self, peer: Peer, request: requests.Read) -> None:
        """A read that watches was answered; exists also where there is no such node."""
        children = request.kind in (codes.GET_CHILDREN, codes.GET_CHILDREN2)
        self.watches.add(watches.CHILD if children else watches.DATA, request.path, peer)

    def add(self, peer: Peer, request: requests.AddWatch) -> bytes:
        if request.mode not in (codes.PERSISTENT_WATCH, codes.PERSISTENT_RECURSIVE_WATCH):
            raise RefusedError(codes.MARSHALLING_ERROR, request.path)
        self.demand(peer, 1, len(request.path))
        recursive = request.mode == codes.PERSISTENT_RECURSIVE_WATCH
        self.watches.add(watches.RECURSIVE if recursive else watches.PERSISTENT, request.path, peer)
        return answers.number(0)

    def look_for(self, peer: Peer, request: requests.Watches) -> bytes:
        look = self.watches.remove if request.kind == codes.REMOVE_WATCHES else self.watches.has
        if not look(request.watcher, request.path, peer):
            raise RefusedError(codes.NO_WATCHER, request.path)
        return b""

    def set_again(self, peer: Peer, request: requests.SetWatches) -> bytes:
        """A client that came back: what changed meanwhile is told now, the rest is watched again."""
        every = [request.data, request.exist, request.child, request.persistent, request.recursive]
        self.demand(peer, sum(map(len, every)), sum(len(path) for paths in every for path in paths))
        for path in request.data:
            self._set_again(peer, watches.DATA, path, request.last_zxid)
        for path in request.exist:
            node = self._tree.nodes.get(path)
            if node is not None:
                self._missed(peer, codes.NODE_CREATED, path)
            else:
                self.watches.add(watches.DATA, path, peer)
        for path in request.child:
            self._set_again(peer, watches.CHILD, path, request.last_zxid)
        for path in request.persistent:
            self.watches.add(watches.PERSISTENT, path, peer)
        for path in request.recursive:
            self.watches.add(watches.RECURSIVE, path, peer)
        return b""

    def _set_again(self, peer: Peer, kind: int, path: str, last_zxid: int) -> None:
        node = self._tree.nodes.get(path)
        if node is None:
            self._missed(peer, codes.NODE_DELETED, path)
        elif kind == watches.DATA and node.modified_zxid > last_zxid:
            self._missed(peer, codes.NODE_DATA_CHANGED, path)
        elif kind == watches.CHILD and node.parent_zxid > last_zxid:
            self._missed(peer, codes.NODE_CHILDREN_CHANGED, path)
        else:
            self.watches.add(kind, path, peer)

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def tell(self) -> None:
        """Events of what was just applied go out before any answer that shows it."""
        tree = self._tree
        if not self.watches.count:
            tree.events.clear()
            return
        for event in tree.take_events():
            told = self.watches.told_by(event.kind, event.path)
            if told:
                frame = answers.notification(event.kind, event.path, tree.last_zxid)  # one for all of them
                for peer in told:
                    self._notify(peer, event, frame)

    def forget(self, peer: Peer) -> None:
        self.watches.forget(peer)

    def _missed(self, peer: Peer, kind: int, path: str) -> None:
        self._notify(peer, Event(kind, path, ()), answers.notification(kind, path, NO_ZXID))

    def _notify(self, peer: Peer, event: Event, frame: bytes) -> None:
        if acl.allows(event.acl, codes.READ, peer.identities):
            self._outputs.notify(peer, frame)

"""The keeper as a machine: connections' requests and the time in; answers, events and transactions out. No IO.

It owns the tree, the sessions and the watches, and applies a change as soon as it is decided. Every output names the
zxid that it has seen: whoever sends it first makes sure that the log up to there is on the disk, so nobody ever sees
what a crash could take back. Outputs to one connection keep their order, so the answer that set a watch comes before
its event, and the event before any answer that shows the change.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from headrace.keeper import acl, answers, codes, deciding, requests, transactions, watches
from headrace.keeper.acl import Identity
from headrace.keeper.codes import RefusedError
from headrace.keeper.deciding import Asker
from headrace.keeper.sessions import NO_PASSWORD, Session, Sessions
from headrace.keeper.tree import Event, Tree
from headrace.keeper.znode import Znode, owner_ttl_ms

EXPIRED_PER_TURN: Final = 64
REMOVED_PER_TURN: Final = 256  # containers and nodes whose time is over
NO_ZXID: Final = -1  # of an event that a client has missed
SYSTEM_ERROR: Final = -1  # a full disk: the change was not made


class Peer:
    """A connection as the machine knows it."""

    __slots__ = ("address", "identities", "refused", "session")

    def __init__(self, address: str) -> None:
        self.address = address
        self.identities: list[Identity] = [Identity("ip", address)]
        self.session: Session | None = None
        self.refused = False  # nothing more is taken from it


class Output(NamedTuple):
    zxid: int
    began_ms: int  # when the turn began that made it
    peer: Peer
    frame: bytes | None  # None: close the connection


class Staged(NamedTuple):
    """A transaction that is to be written."""

    zxid: int
    data: bytes


class Machine:
    def __init__(
        self,
        tree: Tree,
        sessions: Sessions,
        *,
        super_digest: str = "",
        watches_per_peer_max: int = 100_000,
        tree_bytes_max: int = 1 << 40,
    ) -> None:
        self.tree = tree
        self.sessions = sessions
        self.watches: watches.Watches[Peer] = watches.Watches()
        self.attached: dict[int, Peer] = {}
        self.outputs: list[Output] = []
        self.staged: list[Staged] = []
        self.staged_bytes = 0
        self.has_room: Callable[[], bool] = lambda: True  # whether the log can take another transaction
        self.wall_ms = 0  # the time of a turn, for the nodes
        self.steady_ms = 0  # the same on a clock that never jumps, for the sessions
        self._super_digest = super_digest
        self._watches_per_peer_max = watches_per_peer_max
        self._tree_bytes_max = tree_bytes_max

    def at(self, wall_ms: int, steady_ms: int) -> None:
        """The time of what comes next."""
        self.wall_ms = wall_ms
        self.steady_ms = steady_ms

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, peer: Peer, asked: requests.Connect) -> None:
        if asked.last_zxid > self.tree.last_zxid:
            # It has seen what we do not have: this is not the server, or not the data, that it was with.
            self._close(peer)
            return
        timeout_ms = self.sessions.negotiated_ms(asked.timeout_ms)
        if asked.session == 0:
            self._open(peer, asked, timeout_ms)
        elif self.sessions.knows(asked.session, asked.password):
            self._attach(peer, asked, timeout_ms)
        else:
            self._send(peer, answers.connected(0, 0, NO_PASSWORD, asked.read_only))
            self._close(peer)

    def _open(self, peer: Peer, asked: requests.Connect, timeout_ms: int) -> None:
        if not self.has_room():
            self._close(peer)
            return
        id = self.sessions.new_id(self.wall_ms)
        peer.session = self.sessions.add(id, timeout_ms, self.steady_ms)
        self.attached[id] = peer
        self._stage(id, 0, transactions.OpenSession(timeout_ms))
        self._send(peer, answers.connected(timeout_ms, id, self.sessions.password(id), asked.read_only))

    def _attach(self, peer: Peer, asked: requests.Connect, timeout_ms: int) -> None:
        id = asked.session
        before = self.attached.get(id)
        if before is not None and before is not peer:
            self._close(before)  # the session has moved to another connection
            self.disconnected(before)
        session = self.sessions.open[id]
        session.timeout_ms = timeout_ms
        self.sessions.touch(session, self.steady_ms)
        peer.session = session
        self.attached[id] = peer
        self._send(peer, answers.connected(timeout_ms, id, self.sessions.password(id), asked.read_only))

    def disconnected(self, peer: Peer) -> None:
        """The connection is gone; its session waits for another one, its watches do not."""
        self.watches.forget(peer)
        session = peer.session
        peer.refused = True
        if session is not None and self.attached.get(session.id) is peer:
            del self.attached[session.id]

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def request(self, peer: Peer, xid: int, request: requests.Request) -> None:
        session = peer.session
        if session is None or peer.refused:
            return
        if session.id not in self.sessions.open:
            self._close(peer)
            return
        self.sessions.touch(session, self.steady_ms)
        try:
            body = self._serve(peer, session, xid, request)
        except RefusedError as refused:
            self._send(peer, answers.reply(xid, self.tree.last_zxid, refused.code))
            return
        if body is not None:
            self._send(peer, answers.reply(xid, self.tree.last_zxid, codes.OK, body))

    def _serve(self, peer: Peer, session: Session, xid: int, request: requests.Request) -> bytes | None:
        """The body of the answer; None if it is on its way already."""
        if isinstance(request, requests.Read):
            return self._read(peer, request)
        if isinstance(request, requests.Create | requests.Delete | requests.SetData | requests.SetAcl):
            return self._change(peer, session, xid, request)
        if isinstance(request, requests.Multi):
            return self._multi(peer, session, xid, request)
        if isinstance(request, requests.Plain):
            return self._plain(peer, session, xid, request)
        if isinstance(request, requests.MultiRead):
            return self._multi_read(peer, request)
        if isinstance(request, requests.SetWatches):
            return self._set_watches(peer, request)
        if isinstance(request, requests.AddWatch):
            return self._add_watch(peer, request)
        if isinstance(request, requests.Watches):
            return self._look_for_watch(peer, request)
        if isinstance(request, requests.Auth):
            self._auth(peer, xid, request)
            return None
        raise RefusedError(codes.UNIMPLEMENTED)

    def _plain(self, peer: Peer, session: Session, xid: int, request: requests.Plain) -> bytes | None:
        if request.kind == codes.WHO_AM_I:
            return answers.who_am_i(peer.identities)
        if request.kind == codes.RECONFIG:
            raise self._refuse(session, xid, codes.RECONFIG_DISABLED)
        if request.kind == codes.CLOSE_SESSION:
            self._demand_room()
            self.close_session(session.id, xid, told=peer)
            return None
        return b""

    def _auth(self, peer: Peer, xid: int, request: requests.Auth) -> None:
        found = acl.identities(request.scheme, request.credentials, peer.address, self._super_digest)
        if found is None:
            self._send(peer, answers.reply(xid, 0, codes.AUTH_FAILED))
            self._close(peer)
            return
        peer.identities += [each for each in found if each not in peer.identities]
        self._send(peer, answers.reply(xid, 0, codes.OK))

    # ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _demand_room(self) -> None:
        if not self.has_room():
            raise RefusedError(SYSTEM_ERROR)

    def _refuse(self, session: Session, xid: int, code: int) -> RefusedError:
        """A refused change takes a zxid, as in ZooKeeper."""
        self._stage(session.id, xid, transactions.Failed(code))
        return RefusedError(code)

    def _change(self, peer: Peer, session: Session, xid: int, change: deciding.Change) -> bytes:
        self._demand_room()
        self._demand_memory(change)
        try:
            body = deciding.decide(self.tree, change, Asker(session.id, peer.identities))
        except RefusedError as refused:
            raise self._refuse(session, xid, refused.code) from None
        self._stage(session.id, xid, body)
        self._tell()
        return self._changed(change, body)

    def _demand_memory(self, change: object) -> None:
        if self.tree.bytes > self._tree_bytes_max and isinstance(change, requests.Create | requests.SetData):
            raise RefusedError(codes.QUOTA_EXCEEDED)

    def _changed(self, change: deciding.Change, body: transactions.Body) -> bytes:
        tree = self.tree
        if isinstance(body, transactions.Create):
            plain = isinstance(change, requests.Create) and change.kind == codes.CREATE
            stat = b"" if plain else tree.stat(body.path, tree.nodes[body.path])
            return answers.created(body.path, stat)
        if isinstance(body, transactions.SetData | transactions.SetAcl):
            return tree.stat(body.path, tree.nodes[body.path])
        return b""

    def _multi(self, peer: Peer, session: Session, xid: int, request: requests.Multi) -> bytes:
        self._demand_room()
        if any(isinstance(step, requests.Create) and step.flags not in deciding.FLAGS for step in request.steps):
            raise self._refuse(session, xid, codes.MARSHALLING_ERROR)
        tree, asker, zxid = self.tree, Asker(session.id, peer.identities), self.tree.last_zxid + 1
        before = len(tree.events)
        tree.undo = []
        bodies: list[transactions.Body] = []
        results: list[bytes] = []
        for place, step in enumerate(request.steps):
            try:
                self._demand_memory(step)
                body = deciding.decide(tree, step, asker)
            except RefusedError as refused:
                tree.roll_back()
                tree.last_zxid = zxid - 1
                del tree.events[before:]
                errors = [codes.OK] * place + [refused.code]
                errors += [codes.RUNTIME_INCONSISTENCY] * (len(request.steps) - place - 1)
                failed = transactions.Multi(tuple(transactions.Failed(code) for code in errors))
                self._stage(session.id, xid, failed)
                return answers.multi([answers.step_failed(code) for code in errors])
            transactions.apply(tree, body, zxid, self.wall_ms)
            bodies.append(body)
            results.append(self._step_done(step, body))
        tree.undo = None
        self._log(session.id, xid, transactions.Multi(tuple(bodies)), zxid)
        self._tell()
        return answers.multi(results)

    def _step_done(self, step: deciding.Change, body: transactions.Body) -> bytes:
        if isinstance(step, requests.Create):
            kind = codes.CREATE if step.kind == codes.CREATE else codes.CREATE2
        elif isinstance(step, requests.SetData):
            kind = codes.SET_DATA
        else:
            kind = codes.CHECK if isinstance(step, requests.Check) else codes.DELETE
        return answers.step_done(kind, self._changed(step, body))

    def _stage(self, session: int, cxid: int, body: transactions.Body) -> None:
        zxid = self.tree.last_zxid + 1
        transactions.apply(self.tree, body, zxid, self.wall_ms)
        self._log(session, cxid, body, zxid)

    def _log(self, session: int, cxid: int, body: transactions.Body, zxid: int) -> None:
        self.tree.last_zxid = zxid
        data = transactions.encode(transactions.Transaction(session, cxid, zxid, self.wall_ms, body))
        self.staged.append(Staged(zxid, data))
        self.staged_bytes += len(data)

    def take_staged(self) -> list[Staged]:
        staged, self.staged, self.staged_bytes = self.staged, [], 0
        return staged

    def close_session(self, id: int, cxid: int, told: Peer | None = None) -> None:
        """Its ephemeral nodes go, in one transaction; whoever is attached is told and let go."""
        own = tuple(self.tree.ephemerals.get(id, ()))
        peer = self.attached.pop(id, None)
        if peer is not None:
            self.watches.forget(peer)
        self.sessions.remove(id)
        self._stage(id, cxid, transactions.CloseSession(own))
        self._tell()
        if told is not None:
            self._send(told, answers.reply(cxid, self.tree.last_zxid, codes.OK))
        if peer is not None:
            self._close(peer)

    # ── what time does ───────────────────────────────────────────────────────────────────────────────────────────

    def expire(self) -> int:
        """Ends sessions whose time is over, a number of them; how many."""
        if not self.has_room():
            return 0
        expired = self.sessions.expired(self.steady_ms, EXPIRED_PER_TURN)
        for id in expired:
            self.close_session(id, 0)
        return len(expired)

    def clear(self) -> int:
        """Removes empty containers that had children, and nodes whose time to live is over; how many."""
        tree, removed = self.tree, 0
        for path in [*tree.containers, *tree.mortals]:
            if removed >= REMOVED_PER_TURN or not self.has_room():
                break
            node = tree.nodes[path]
            if tree.count(path) or not _is_over(node, self.wall_ms):
                continue
            self._stage(0, 0, transactions.Delete(path, codes.DELETE_CONTAINER))
            self._tell()
            removed += 1
        return removed

    # ── reads ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, peer: Peer, request: requests.Read) -> bytes:
        kind, path = request.kind, request.path
        if kind == codes.GET_EPHEMERALS:
            return self._ephemerals(peer, path)
        if kind == codes.SYNC:
            return answers.path(path)
        if kind == codes.EXISTS and "\0" in path:
            raise RefusedError(codes.BAD_ARGUMENTS, path)
        path = path or "/"  # as in ZooKeeper, whose root has both names
        if request.watch:
            self._demand_watch(peer)
        node = self.tree.nodes.get(path)
        if node is None:
            if kind == codes.EXISTS and request.watch:
                self.watches.add(watches.DATA, path, peer)
            raise RefusedError(codes.NO_NODE, path)
        if kind == codes.GET_ACL:
            return self._acl(peer, path, node)
        acl.demand(node.acl, codes.READ, peer.identities, path)
        body = self._content(kind, path, node)
        if request.watch:
            children = kind in (codes.GET_CHILDREN, codes.GET_CHILDREN2)
            self.watches.add(watches.CHILD if children else watches.DATA, request.path, peer)
        return body

    def _content(self, kind: int, path: str, node: Znode) -> bytes:
        tree = self.tree
        if kind == codes.EXISTS:
            return tree.stat(path, node)
        if kind == codes.GET_DATA:
            return answers.data(node.data, tree.stat(path, node))
        if kind == codes.GET_ALL_CHILDREN_NUMBER:
            # The root is not counted, nor is it its own child; ZooKeeper counts everything else below it.
            return answers.number(len(tree.nodes) - 1 if path == "/" else sum(1 for _ in tree.below(path)))
        names = tree.children.get(path, ())
        return answers.names(names, tree.stat(path, node) if kind == codes.GET_CHILDREN2 else b"")

    def _acl(self, peer: Peer, path: str, node: Znode) -> bytes:
        acl.demand(node.acl, codes.READ | codes.ADMIN, peer.identities, path)
        shown = node.acl if acl.allows(node.acl, codes.ADMIN, peer.identities) else tuple(acl.masked(node.acl))
        return transactions.acl_bytes(shown) + self.tree.stat(path, node)

    def _ephemerals(self, peer: Peer, prefix: str) -> bytes:
        own = self.tree.ephemerals.get(peer.session.id if peer.session else 0, {})
        return answers.names([path for path in own if path.startswith(prefix)])

    def _multi_read(self, peer: Peer, request: requests.MultiRead) -> bytes:
        results = []
        for step in request.steps:
            try:
                results.append(answers.step_done(step.kind, self._read(peer, step)))
            except RefusedError as refused:
                results.append(answers.step_failed(refused.code))
        return answers.multi(results)

    # ── watches ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _demand_watch(self, peer: Peer) -> None:
        if self.watches.count_of(peer) >= self._watches_per_peer_max:
            raise RefusedError(codes.THROTTLED)

    def _add_watch(self, peer: Peer, request: requests.AddWatch) -> bytes:
        if request.mode not in (codes.PERSISTENT_WATCH, codes.PERSISTENT_RECURSIVE_WATCH):
            raise RefusedError(codes.BAD_ARGUMENTS, request.path)
        self._demand_watch(peer)
        recursive = request.mode == codes.PERSISTENT_RECURSIVE_WATCH
        self.watches.add(watches.RECURSIVE if recursive else watches.PERSISTENT, request.path, peer)
        return answers.number(0)

    def _look_for_watch(self, peer: Peer, request: requests.Watches) -> bytes:
        look = self.watches.remove if request.kind == codes.REMOVE_WATCHES else self.watches.has
        if not look(request.watcher, request.path, peer):
            raise RefusedError(codes.NO_WATCHER, request.path)
        return b""

    def _set_watches(self, peer: Peer, request: requests.SetWatches) -> bytes:
        """A client that came back: what changed meanwhile is told now, the rest is watched again."""
        count = sum(map(len, request[1:]))
        if self.watches.count_of(peer) + count > self._watches_per_peer_max:
            raise RefusedError(codes.THROTTLED)
        for path in request.data:
            self._watch_again(peer, watches.DATA, path, request.last_zxid)
        for path in request.exist:
            node = self.tree.nodes.get(path)
            if node is not None:
                self._notify(peer, Event(codes.NODE_CREATED, path, ()), NO_ZXID)
            else:
                self.watches.add(watches.DATA, path, peer)
        for path in request.child:
            self._watch_again(peer, watches.CHILD, path, request.last_zxid)
        for path in request.persistent:
            self.watches.add(watches.PERSISTENT, path, peer)
        for path in request.recursive:
            self.watches.add(watches.RECURSIVE, path, peer)
        return b""

    def _watch_again(self, peer: Peer, kind: int, path: str, last_zxid: int) -> None:
        node = self.tree.nodes.get(path)
        if node is None:
            self._notify(peer, Event(codes.NODE_DELETED, path, ()), NO_ZXID)
        elif kind == watches.DATA and node.modified_zxid > last_zxid:
            self._notify(peer, Event(codes.NODE_DATA_CHANGED, path, ()), NO_ZXID)
        elif kind == watches.CHILD and node.parent_zxid > last_zxid:
            self._notify(peer, Event(codes.NODE_CHILDREN_CHANGED, path, ()), NO_ZXID)
        else:
            self.watches.add(kind, path, peer)

    def _tell(self) -> None:
        """Events of what was just applied go out before any answer that shows it."""
        for event in self.tree.take_events():
            for peer in self.watches.told_by(event.kind, event.path):
                self._notify(peer, event, self.tree.last_zxid)

    def _notify(self, peer: Peer, event: Event, zxid: int) -> None:
        if acl.allows(event.acl, codes.READ, peer.identities):
            self._send(peer, answers.notification(event.kind, event.path, zxid))

    # ── out ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, peer: Peer, frame: bytes) -> None:
        self.outputs.append(Output(self.tree.last_zxid, self.steady_ms, peer, frame))

    def _close(self, peer: Peer) -> None:
        peer.refused = True
        self.outputs.append(Output(self.tree.last_zxid, self.steady_ms, peer, None))


def _is_over(node: Znode, now_ms: int) -> bool:
    ttl_ms = owner_ttl_ms(node.owner)
    if ttl_ms:
        return now_ms - node.modified_ms > ttl_ms
    return node.creates > 0  # a container that never had children may be waiting for its first

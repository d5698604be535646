"""The keeper as a machine: connections' requests and the time in; answers, events and transactions out. No IO.

It owns the tree, the sessions and the watches, and applies a change as soon as it is decided. Every output names the
zxid that it has seen: whoever sends it first makes sure that the log up to there is on the disk, so nobody ever sees
what a crash could take back. Outputs to one connection keep their order, so the answer that set a watch comes before
its event, and the event before any answer that shows the change.
"""

from collections.abc import Callable, Iterator
from typing import Final

from headrace.core.errors import InvariantError
from headrace.keeper import acl, deciding, quota, transactions, watches
from headrace.keeper.deciding import Asker
from headrace.keeper.sessions import NO_PASSWORD, Session, Sessions
from headrace.keeper.tree import Event, Tree
from headrace.keeper.znode import Znode, owner_ttl_ms
from headrace.protocol.zookeeper import answers, codes, requests
from headrace.protocol.zookeeper.acl import Identity, acl_bytes
from headrace.protocol.zookeeper.codes import RefusedError

EXPIRED_PER_TURN: Final = 64
REMOVED_PER_TURN: Final = 256  # containers and nodes whose time is over
IDENTITIES_MAX: Final = 64  # of one connection
MULTI_READ_BYTES_MAX: Final = 16 << 20  # in an answer to one, and one node more
WATCHED_CHARACTERS_MAX: Final = 32 << 20  # of the paths that one connection watches
LOOKED_AT_PER_TURN: Final = 10_000  # containers and nodes with a time to live
UNASKED: Final = -1
NO_ZXID: Final = -1  # of an event that a client has missed
SYSTEM_ERROR: Final = -1  # a full disk: the change was not made


class Peer:
    """A connection as the machine knows it."""

    __slots__ = ("address", "bytes_held", "identities", "refused", "session")

    def __init__(self, address: str) -> None:
        self.address = address
        self.identities: list[Identity] = [Identity("ip", address)]
        self.session: Session | None = None
        self.bytes_held = 0  # of outputs that wait for the disk
        self.refused = False  # nothing more is taken from it


class Output:
    __slots__ = ("asked_ms", "frame", "peer", "zxid")

    def __init__(self, zxid: int, asked_ms: int, peer: Peer, frame: bytes | None) -> None:
        self.zxid = zxid
        self.asked_ms = asked_ms  # when the turn began that made it; UNASKED: an event, which answers no request
        self.peer = peer
        self.frame = frame  # None: close the connection


class Staged:
    """A transaction that is to be written."""

    __slots__ = ("data", "zxid")

    def __init__(self, zxid: int, data: bytes) -> None:
        self.zxid = zxid
        self.data = data


class Machine:
    def __init__(
        self,
        tree: Tree,
        sessions: Sessions,
        *,
        super_digest: str = "",
        never_used_ms: int = 0,
        watches_per_peer_max: int = 100_000,
        tree_bytes_max: int = 1 << 40,
        sessions_max: int = 100_000,
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
        self._never_used_ms = never_used_ms
        self._watches_per_peer_max = watches_per_peer_max
        self._tree_bytes_max = tree_bytes_max
        self._sessions_max = sessions_max
        self._to_clear: Iterator[str] = iter(())  # containers and nodes with a time to live, in rotation

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
        if len(self.sessions.open) >= self._sessions_max or not self.has_room():
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
            self._demand_room()
            raise self._refuse(session, xid, codes.RECONFIG_DISABLED)
        if request.kind == codes.CLOSE_SESSION:
            self._demand_room()
            self.close_session(session.id, xid, told=peer)
            return None
        return b""

    def _auth(self, peer: Peer, xid: int, request: requests.Auth) -> None:
        found = acl.identities(request.scheme, request.credentials, peer.address, self._super_digest)
        new = [each for each in found or () if each not in peer.identities]
        if found is None or len(peer.identities) + len(new) > IDENTITIES_MAX:
            self._send(peer, answers.reply(xid, 0, codes.AUTH_FAILED))
            self._close(peer)
            return
        peer.identities += new
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
        grows = isinstance(change, requests.Create | requests.SetData | requests.SetAcl)
        if grows and self.tree.bytes > self._tree_bytes_max:
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
        bodies: list[transactions.Body] = []
        results: list[bytes] = []
        tree.undo = []
        try:
            for step in request.steps:
                self._demand_memory(step)
                body = deciding.decide(tree, step, asker)
                transactions.apply(tree, body, zxid, self.wall_ms)
                bodies.append(body)
                results.append(self._step_done(step, body))
            data = self._encoded(session.id, xid, transactions.Multi(tuple(bodies)), zxid)
        except RefusedError as refused:
            self._take_back(zxid, before)
            errors = [codes.OK] * len(bodies) + [refused.code]
            errors += [codes.RUNTIME_INCONSISTENCY] * (len(request.steps) - len(errors))
            failed = transactions.Multi(tuple(transactions.Failed(code) for code in errors))
            self._stage(session.id, xid, failed)
            return answers.multi([answers.step_failed(code) for code in errors])
        except BaseException:  # a bug of ours, which costs the client its connection, and must leave nothing behind
            self._take_back(zxid, before)
            raise
        tree.undo = None
        self._log(data, zxid)
        self._tell()
        return answers.multi(results)

    def _take_back(self, zxid: int, events: int) -> None:
        tree = self.tree
        tree.roll_back()
        tree.last_zxid = zxid - 1
        del tree.events[events:]

    def _step_done(self, step: deciding.Change, body: transactions.Body) -> bytes:
        if isinstance(step, requests.Create):
            if step.flags == deciding.CONTAINER:
                step = step._replace(kind=codes.CREATE_CONTAINER)  # answered with its stat, whoever makes it
            kind = codes.CREATE if step.kind == codes.CREATE else codes.CREATE2
        elif isinstance(step, requests.SetData):
            kind = codes.SET_DATA
        else:
            kind = codes.CHECK if isinstance(step, requests.Check) else codes.DELETE
        return answers.step_done(kind, self._changed(step, body))

    def _stage(self, session: int, cxid: int, body: transactions.Body) -> None:
        zxid = self.tree.last_zxid + 1
        data = self._encoded(session, cxid, body, zxid)  # first, so that what cannot be written changes nothing
        try:
            transactions.apply(self.tree, body, zxid, self.wall_ms)
        except Exception as error:
            raise InvariantError(f"transaction {zxid:#x} was decided and could not be applied: {error!r}") from error
        self._log(data, zxid)

    def _encoded(self, session: int, cxid: int, body: transactions.Body, zxid: int) -> bytes:
        return transactions.encode(transactions.Transaction(session, cxid, zxid, self.wall_ms, body))

    def _log(self, data: bytes, zxid: int) -> None:
        self.tree.last_zxid = zxid
        self.staged.append(Staged(zxid, data))
        self.staged_bytes += len(data)

    def take_outputs(self) -> list[Output]:
        outputs, self.outputs = self.outputs, []
        return outputs

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
        for looked_at in range(LOOKED_AT_PER_TURN):
            if removed >= REMOVED_PER_TURN or not self.has_room():
                break
            path = next(self._to_clear, None)
            if path is None and not looked_at:
                self._to_clear = iter([*tree.containers, *tree.mortals])
                path = next(self._to_clear, None)
            if path is None:
                break
            if not (path in tree.containers or path in tree.mortals) or tree.count(path):
                continue
            if not self._is_over(tree.nodes[path]):
                continue
            self._stage(0, 0, transactions.Delete(path, codes.DELETE_CONTAINER))
            self._tell()
            removed += 1
        return removed

    def _is_over(self, node: Znode) -> bool:
        age_ms = self.wall_ms - node.modified_ms
        ttl_ms = owner_ttl_ms(node.owner)
        if ttl_ms:
            return age_ms > ttl_ms
        # A container that never had children may be waiting for its first.
        return node.creates > 0 or 0 < self._never_used_ms < age_ms

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
        quota.refresh(self.tree, path)
        if request.watch:
            self._demand_watches(peer, 1, len(path))
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
        return acl_bytes(shown) + self.tree.stat(path, node)

    def _ephemerals(self, peer: Peer, prefix: str) -> bytes:
        own = self.tree.ephemerals.get(peer.session.id if peer.session else 0, {})
        return answers.names([path for path in own if path.startswith(prefix)])

    def _multi_read(self, peer: Peer, request: requests.MultiRead) -> bytes:
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
                results.append(answers.step_done(step.kind, self._read(peer, step._replace(watch=False))))
            except RefusedError as refused:
                results.append(answers.step_failed(refused.code))
        return answers.multi(results)

    # ── watches ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _demand_watches(self, peer: Peer, count: int, characters: int) -> None:
        count += self.watches.count_of(peer)
        characters += self.watches.characters_of(peer)
        if count > self._watches_per_peer_max or characters > WATCHED_CHARACTERS_MAX:
            raise RefusedError(codes.THROTTLED)

    def _add_watch(self, peer: Peer, request: requests.AddWatch) -> bytes:
        if request.mode not in (codes.PERSISTENT_WATCH, codes.PERSISTENT_RECURSIVE_WATCH):
            raise RefusedError(codes.MARSHALLING_ERROR, request.path)
        self._demand_watches(peer, 1, len(request.path))
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
        every = [request.data, request.exist, request.child, request.persistent, request.recursive]
        self._demand_watches(peer, sum(map(len, every)), sum(len(path) for paths in every for path in paths))
        for path in request.data:
            self._watch_again(peer, watches.DATA, path, request.last_zxid)
        for path in request.exist:
            node = self.tree.nodes.get(path)
            if node is not None:
                self._missed(peer, codes.NODE_CREATED, path)
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
            self._missed(peer, codes.NODE_DELETED, path)
        elif kind == watches.DATA and node.modified_zxid > last_zxid:
            self._missed(peer, codes.NODE_DATA_CHANGED, path)
        elif kind == watches.CHILD and node.parent_zxid > last_zxid:
            self._missed(peer, codes.NODE_CHILDREN_CHANGED, path)
        else:
            self.watches.add(kind, path, peer)

    def _tell(self) -> None:
        """Events of what was just applied go out before any answer that shows it."""
        if not self.watches.count:
            self.tree.events.clear()
            return
        for event in self.tree.take_events():
            told = self.watches.told_by(event.kind, event.path)
            if told:
                frame = answers.notification(event.kind, event.path, self.tree.last_zxid)  # one for all of them
                for peer in told:
                    self._notify(peer, event, frame)

    def _missed(self, peer: Peer, kind: int, path: str) -> None:
        self._notify(peer, Event(kind, path, ()), answers.notification(kind, path, NO_ZXID))

    def _notify(self, peer: Peer, event: Event, frame: bytes) -> None:
        if acl.allows(event.acl, codes.READ, peer.identities):
            self._put(peer, frame, UNASKED)

    # ── out ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, peer: Peer, frame: bytes) -> None:
        self._put(peer, frame, self.steady_ms)

    def _put(self, peer: Peer, frame: bytes, asked_ms: int) -> None:
        peer.bytes_held += len(frame)
        self.outputs.append(Output(self.tree.last_zxid, asked_ms, peer, frame))

    def _close(self, peer: Peer) -> None:
        peer.refused = True
        self.outputs.append(Output(self.tree.last_zxid, self.steady_ms, peer, None))

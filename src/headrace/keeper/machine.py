"""The keeper as a machine: connections' requests and the time in; answers, events and transactions out. No IO.

It owns the tree and the sessions, and applies a change as soon as `deciding` has decided it; `reading` answers reads,
`watching` tells who watches. Every output names the zxid that it has seen: whoever sends it first makes sure that the
log up to there is on the disk, so nobody ever sees what a crash could take back.
"""

from collections.abc import Callable, Iterator
from typing import Final

from headrace.core.errors import InvariantError
from headrace.keeper import acl, deciding, quota, reading, transactions
from headrace.keeper.deciding import Asker
from headrace.keeper.peers import Outputs, Peer
from headrace.keeper.sessions import NO_PASSWORD, Session, Sessions
from headrace.keeper.tree import Tree
from headrace.keeper.watching import Watching
from headrace.keeper.znode import Znode, owner_ttl_ms
from headrace.protocol.zookeeper import answers, codes, requests
from headrace.protocol.zookeeper.codes import RefusedError

EXPIRED_PER_TURN: Final = 64
REMOVED_PER_TURN: Final = 256  # containers and nodes whose time is over
IDENTITIES_MAX: Final = 64  # of one connection
LOOKED_AT_PER_TURN: Final = 10_000  # containers and nodes with a time to live
SYSTEM_ERROR: Final = -1  # a full disk: the change was not made


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
        quota_enforced: bool = True,
        reconfig_enabled: bool = False,
        never_used_ms: int = 0,
        watches_per_peer_max: int = 100_000,
        tree_bytes_max: int = 1 << 40,
        sessions_max: int = 100_000,
    ) -> None:
        self.tree = tree
        self.sessions = sessions
        self.outputs = Outputs(tree)
        self.watching = Watching(tree, self.outputs, watches_per_peer_max)
        self.attached: dict[int, Peer] = {}
        self.staged: list[Staged] = []
        self.staged_bytes = 0
        self.has_room: Callable[[], bool] = lambda: True  # whether the log can take another transaction
        self.wall_ms = 0  # the time of a turn, for the nodes
        self.steady_ms = 0  # the same on a clock that never jumps, for the sessions
        self.quotas = quota.Quotas(enforced=quota_enforced)
        self._super_digest = super_digest
        self._reconfig_enabled = reconfig_enabled
        self._never_used_ms = never_used_ms
        self._tree_bytes_max = tree_bytes_max
        self._sessions_max = sessions_max
        self._to_clear: Iterator[str] = iter(())  # containers and nodes with a time to live, in rotation

    def at(self, wall_ms: int, steady_ms: int) -> None:
        """The time of what comes next."""
        self.wall_ms = wall_ms
        self.steady_ms = self.outputs.now_ms = steady_ms

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, peer: Peer, asked: requests.Connect) -> None:
        if asked.last_zxid > self.tree.last_zxid:
            # It has seen what we do not have: this is not the server, or not the data, that it was with.
            self.outputs.close(peer)
            return
        timeout_ms = self.sessions.negotiated_ms(asked.timeout_ms)
        if asked.session == 0:
            self._open(peer, asked, timeout_ms)
        elif self.sessions.knows(asked.session, asked.password):
            self._attach(peer, asked, timeout_ms)
        else:
            self.outputs.answer(peer, answers.connected(0, 0, NO_PASSWORD, asked.read_only))
            self.outputs.close(peer)

    def _open(self, peer: Peer, asked: requests.Connect, timeout_ms: int) -> None:
        if len(self.sessions.open) >= self._sessions_max or not self.has_room():
            self.outputs.close(peer)
            return
        id = self.sessions.new_id(self.wall_ms)
        peer.session = self.sessions.add(id, timeout_ms, self.steady_ms)
        self.attached[id] = peer
        self._stage(id, 0, transactions.OpenSession(timeout_ms))
        self.outputs.answer(peer, answers.connected(timeout_ms, id, self.sessions.password(id), asked.read_only))

    def _attach(self, peer: Peer, asked: requests.Connect, timeout_ms: int) -> None:
        id = asked.session
        before = self.attached.get(id)
        if before is not None and before is not peer:
            self.outputs.close(before)  # the session has moved to another connection
            self.disconnected(before)
        session = self.sessions.open[id]
        session.timeout_ms = timeout_ms
        self.sessions.touch(session, self.steady_ms)
        peer.session = session
        self.attached[id] = peer
        self.outputs.answer(peer, answers.connected(timeout_ms, id, self.sessions.password(id), asked.read_only))

    def disconnected(self, peer: Peer) -> None:
        """The connection is gone; its session waits for another one, its watches do not."""
        self.watching.forget(peer)
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
            self.outputs.close(peer)
            return
        self.sessions.touch(session, self.steady_ms)
        try:
            body = self._serve(peer, session, xid, request)
        except RefusedError as refused:
            self.outputs.answer(peer, answers.reply(xid, self.tree.last_zxid, refused.code))
            return
        if body is not None:
            self.outputs.answer(peer, answers.reply(xid, self.tree.last_zxid, codes.OK, body))

    def _serve(self, peer: Peer, session: Session, xid: int, request: requests.Request) -> bytes | None:
        """The body of the answer; None if it is on its way already."""
        if isinstance(request, requests.Read):
            return self._read(peer, session, request)
        if isinstance(request, requests.Create | requests.Delete | requests.SetData | requests.SetAcl):
            return self._change(peer, session, xid, request)
        if isinstance(request, requests.Multi):
            return self._multi(peer, session, xid, request)
        if isinstance(request, requests.Plain):
            return self._plain(peer, session, xid, request)
        if isinstance(request, requests.MultiRead):
            return reading.multi_read(self.tree, request, session.id, peer.identities)
        if isinstance(request, requests.SetWatches):
            return self.watching.set_again(peer, request)
        if isinstance(request, requests.AddWatch):
            return self.watching.add(peer, request)
        if isinstance(request, requests.Watches):
            return self.watching.look_for(peer, request)
        if isinstance(request, requests.Auth):
            self._auth(peer, xid, request)
            return None
        raise RefusedError(codes.UNIMPLEMENTED)

    def _read(self, peer: Peer, session: Session, request: requests.Read) -> bytes:
        if request.watch:
            self.watching.demand(peer, 1, len(request.path))
        try:
            body = reading.read(self.tree, request, session.id, peer.identities)
        except RefusedError as refused:
            if request.watch and request.kind == codes.EXISTS and refused.code == codes.NO_NODE:
                self.watching.read(peer, request)
            raise
        if request.watch:
            self.watching.read(peer, request)
        return body

    def _plain(self, peer: Peer, session: Session, xid: int, request: requests.Plain) -> bytes | None:
        if request.kind == codes.WHO_AM_I:
            return answers.who_am_i(peer.identities)
        if request.kind == codes.RECONFIG:
            self._demand_room()
            # One server alone has nothing to configure, as ZooKeeper answers where it is allowed.
            raise self._refuse(session, xid, codes.UNIMPLEMENTED if self._reconfig_enabled else codes.RECONFIG_DISABLED)
        if request.kind == codes.CLOSE_SESSION:
            self._demand_room()
            self.close_session(session.id, xid, told=peer)
            return None
        return b""

    def _auth(self, peer: Peer, xid: int, request: requests.Auth) -> None:
        found = acl.identities(request.scheme, request.credentials, peer.address, self._super_digest)
        new = [each for each in found or () if each not in peer.identities]
        if found is None or len(peer.identities) + len(new) > IDENTITIES_MAX:
            self.outputs.answer(peer, answers.reply(xid, 0, codes.AUTH_FAILED))
            self.outputs.close(peer)
            return
        peer.identities += new
        self.outputs.answer(peer, answers.reply(xid, 0, codes.OK))

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
            body = deciding.decide(self.tree, change, Asker(session.id, peer.identities), self.quotas)
        except RefusedError as refused:
            raise self._refuse(session, xid, refused.code) from None
        self._stage(session.id, xid, body)
        self.watching.tell()
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
                body = deciding.decide(tree, step, asker, self.quotas)
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
        self.watching.tell()
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

    def take_staged(self) -> list[Staged]:
        staged, self.staged, self.staged_bytes = self.staged, [], 0
        return staged

    def close_session(self, id: int, cxid: int, told: Peer | None = None) -> None:
        """Its ephemeral nodes go, in one transaction; whoever is attached is told and let go."""
        own = tuple(self.tree.ephemerals.get(id, ()))
        peer = self.attached.pop(id, None)
        if peer is not None:
            self.watching.forget(peer)
        self.sessions.remove(id)
        self._stage(id, cxid, transactions.CloseSession(own))
        self.watching.tell()
        if told is not None:
            self.outputs.answer(told, answers.reply(cxid, self.tree.last_zxid, codes.OK))
        if peer is not None:
            self.outputs.close(peer)

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
            self.watching.tell()
            removed += 1
        return removed

    def _is_over(self, node: Znode) -> bool:
        age_ms = self.wall_ms - node.modified_ms
        ttl_ms = owner_ttl_ms(node.owner)
        if ttl_ms:
            return age_ms > ttl_ms
        # A container that never had children may be waiting for its first.
        return node.creates > 0 or 0 < self._never_used_ms < age_ms

"""One simulated world of a keeper: its disk, its clients and the time, all under one random seed.

Each step is one thing that may happen: bytes arrive, a turn of the loop, a thread ends its job, time goes by, or
something breaks: a connection, the process, the disk, the power. Nothing else is random, so a seed replays what it did.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import secrets
import shutil
import tempfile
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from unittest import mock

from keeper_history import History, ViolationError
from sim_disk import BROKEN, FULL, Crash, SimDisk
from sim_keeper_client import KeeperClient
from sim_network import Link
from sim_reactor import SimReactor, SimWorkers

from headrace.core.clock import ManualClock
from headrace.core.errors import OperatorError
from headrace.keeper import connection, transactions, txn_log
from headrace.keeper.node import Node
from headrace.keeper.server import Server
from headrace.keeper.settings import KeeperSettings

STEPS = 500
REST_STEPS_MAX = 5_000
SESSION_MS = 6_000
ALLOCATED_BYTES, ROOM_BYTES_MIN = 32 << 10, 8 << 10
SECTOR_BYTES = 64  # what a loss of power keeps or takes as a whole; small, so that small logs are torn, too


class KeeperDisk(SimDisk):
    """What was written and not synced reaches the disk in no order: each sector is old or new."""

    def lose_power(self) -> None:
        for directory, _, names in sorted(os.walk(self._root)):
            for name in sorted(names):
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    now = file.read()
                safe = self._safe.get(path, b"")
                if now == safe:
                    continue
                size = self._rng.choice((len(safe), len(now)))
                left = bytearray(safe[:size].ljust(size, b"\0"))
                kept = self._rng.choice((0.0, 0.5, 0.9, 1.0))
                for at in range(0, min(size, len(now)), SECTOR_BYTES):
                    end = min(at + SECTOR_BYTES, size, len(now))
                    if now[at:end] != left[at:end] and self._rng.random() < kept:
                        left[at:end] = now[at:end]
                with open(path, "wb") as file:
                    file.write(left)
                self._safe[path] = bytes(left)

    def allocate(self, fd: int, at: int, size: int) -> None:
        refused = self._refused("allocate")
        if refused:
            raise OSError(refused, os.strerror(refused), self._paths[fd])
        self._maybe_crash()
        super().allocate(fd, at, size)


class KeeperReactor(SimReactor):
    """A keeper that cannot go on stops its loop."""

    stopped = False

    def stop(self) -> None:
        self.stopped = True

    def run_pending(self) -> None:
        for _ in range(len(self._from_threads)):
            self._from_threads.popleft()()


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = ManualClock()
        self.history = History()
        self.session_ms = SESSION_MS
        self.ephemerals: dict[str, int] = {}  # every one that was asked for, and the session
        self.closed: set[int] = set()  # sessions whose end was answered
        self.may_be_full = False
        self.trace: list[str] = []
        self.node: Node | None = None
        self.clients: list[KeeperClient] = []
        self.calm = True
        self._badness = self.rng.choice((0.3, 1.0, 2.0))
        self._links: list[Link] = []
        self._newest_seen = 0
        self._full_until_ms = 0
        self._client_count = 0

    # ── a whole run ──────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        looks = itertools.count()
        self._root = tempfile.mkdtemp(prefix="headrace-keeper-simulation-", dir=base)
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._root, True)
            stack.callback(self._bury)
            for module, name, value in (
                (txn_log, "ALLOCATED_BYTES", ALLOCATED_BYTES),
                (txn_log, "ROOM_BYTES_MIN", ROOM_BYTES_MIN),
                (Server, "listen", lambda _: 2181),
                # Requests are served for a time per turn. Here that time is a number of looks at the clock.
                (connection, "time", SimpleNamespace(perf_counter=lambda: next(looks) / 4096)),
                (secrets, "token_bytes", lambda size: bytes(range(size))),
            ):
                stack.enter_context(mock.patch.object(module, name, value))
            stack.callback(logging.disable, logging.root.manager.disable)
            logging.disable(logging.CRITICAL)
            self._live()

    def _live(self) -> None:
        self.disk = KeeperDisk(self._root, self.rng, loses_power=True)
        self._settings = KeeperSettings(
            data_dir=os.path.join(self._root, "data"),
            port=0,
            tick_ms=1000,
            connections_per_address_max=0,
            request_bytes_max=1024,
            snapshot_count=self.rng.choice((40, 150, 100_000)),
        )
        self._start()
        first = self._add_client()
        self._until(lambda: first.session != 0)
        first.prepare()
        self._until(lambda: first.idle)
        for _ in range(self.rng.randint(1, 3)):
            self._add_client()
        self.calm = False
        for _ in range(STEPS):
            self.step()
        self._end()

    def _add_client(self) -> KeeperClient:
        self._client_count += 1
        client = KeeperClient(self, f"c{self._client_count}", random.Random(self.rng.random()))
        self.clients.append(client)
        return client

    def _end(self) -> None:
        """In peace: everybody comes back who can, and what is there must be what was promised."""
        self.calm = True
        self.disk.heal()
        for client in self.clients:
            client.quiet = True
        self._until(lambda: all(client.idle for client in self.clients))
        for client in self.clients:
            if not client.silent:
                client.look()
        self._until(lambda: all(client.idle for client in self.clients))
        for _ in range(2 * SESSION_MS // 500):  # who never comes back loses its session
            self.clock.advance(500)
            self._wake()
            self._until(lambda: all(client.idle for client in self.clients))
        self.history.check()
        self._check_ephemerals()
        self._check_log()

    def _until(self, done: Callable[[], bool]) -> None:
        for _ in range(REST_STEPS_MAX):
            if done():
                return
            self.step()
        raise ViolationError(f"no end within {REST_STEPS_MAX} steps without a fault")

    # ── one step ─────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> None:
        choices: list[tuple[float, Callable[[], None]]] = [(1.0, self._pass_time)]
        node = self.node
        if node is None:
            choices.append((0.5, self._start))
        else:
            if node.reactor.has_results or any(link.busy or link.socket.inbox for link in self._links):
                choices.append((5, self._turn))
            if node.reactor.jobs():
                choices.append((3, self._job))
        if any(link.socket.outbox or link.socket.closed for link in self._links):
            choices.append((5, self._deliver))
        if not self.calm:
            bad = self._badness
            choices += [(0.1 * bad, self._cut), (0.04 * bad, self._jump), (0.02 * bad, self._fall_silent)]
            if node is not None:
                choices += [(0.08 * bad, self._kill), (0.03 * bad, self._stop), (0.08 * bad, self._break_disk)]
        actions = [action for _, action in choices]
        action = self.rng.choices(actions, [weight for weight, _ in choices])[0]
        self.trace.append(action.__name__)
        try:
            action()
        except Crash:
            self._died()
        if self.node is not None and self.node.reactor.stopped:
            self._died()  # it has ended itself, because it could not know what the disk holds

    def _guarded(self, work: Callable[[], object]) -> None:
        try:
            work()
        except ViolationError:
            raise
        except Exception as error:
            raise ViolationError(f"the keeper ended itself: {error!r}\n{traceback.format_exc()}") from error

    def _turn(self) -> None:
        node = self.node
        if node is None:
            return
        links = self._links[:]
        self.rng.shuffle(links)
        events = []
        for link in links:
            socket = link.socket
            if link.up and self.rng.random() < 0.7:
                size = len(link.up) if self.rng.random() < 0.9 else self.rng.randint(1, len(link.up))
                socket.inbox += link.up[:size]
                del link.up[:size]
            elif link.left and not link.up and not socket.inbox:
                socket.ended = True
            mask = socket.events(node.reactor.interest.get(socket.fileno(), 0))
            if mask:
                events.append((socket.fileno(), mask))
        self.may_be_full = bool(self.disk.refusals) or self.may_be_full
        self._guarded(lambda: node.reactor.turn(events))
        self._links = [link for link in self._links if not (link.left and link.socket.closed)]

    def _job(self) -> None:
        assert self.node is not None
        lane, at = self.rng.choice(self.node.reactor.jobs())
        self._guarded(lambda: lane.run_one(at))

    def _deliver(self) -> None:
        ready = [link for link in self._links if link.socket.outbox or link.socket.closed]
        self.rng.shuffle(ready)
        for link in ready[: self.rng.randint(1, len(ready))]:
            outbox = link.socket.outbox
            if outbox:
                size = len(outbox) if self.rng.random() < 0.9 else self.rng.randint(1, len(outbox))
                data = bytes(outbox[:size])
                del outbox[:size]
                if not link.left:
                    link.client.received(link, data)
            else:
                self._links.remove(link)
                if not link.left:
                    link.client.lost(link)

    def _pass_time(self) -> None:
        self.clock.advance(self.rng.choice((1, 20, 60, 300, 1000)))
        self._wake()

    def _wake(self) -> None:
        now_ms = self.clock.now_ms()
        for client in self.clients:
            if client.wake_at <= now_ms:
                client.go_on(now_ms)
        self._turn()

    # ── connections and sessions ─────────────────────────────────────────────────────────────────────────────────

    def connect(self, client: KeeperClient) -> Link | None:
        node = self.node
        if node is None:
            return None
        link = Link(client, self.rng.choice((150, 1 << 20, 1 << 20)))  # type: ignore[arg-type]
        self._guarded(lambda: node.server._welcome(link.socket, ("127.0.0.1", 1)))  # type: ignore[arg-type]
        self._links.append(link)
        return link

    def _leave(self, link: Link) -> None:
        """What is on its way is lost, or comes later."""
        link.left = True
        if self.rng.random() < 0.5:
            link.up.clear()

    def seen(self, zxid: int) -> None:
        self._newest_seen = max(self._newest_seen, zxid)

    def session_lives(self, client: KeeperClient) -> None:
        if client.session in self.closed:
            raise ViolationError(f"{client.name}: its session is back from the dead")

    def session_closed(self, client: KeeperClient) -> None:
        self.closed.add(client.session)
        client.forget_session()

    def session_over(self, client: KeeperClient) -> None:
        """It was too long away, or its closeSession has arrived."""
        node = self.node
        if node is not None and client.session in node.machine.sessions.open:
            raise ViolationError(f"{client.name}: its session lives, and it was sent away")
        self.session_closed(client)

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _cut(self) -> None:
        candidates = [link for link in self._links if not link.left]
        if candidates:
            link = self.rng.choice(candidates)
            client = link.client
            self._leave(link)
            client.lost(link)

    def _fall_silent(self) -> None:
        """A client is gone for good; another one comes."""
        client = self.rng.choice(self.clients)
        if client.silent or sum(each.silent for each in self.clients) > 3:
            return
        client.silent = True
        for link in self._links:
            if link.client is client and not link.left:  # type: ignore[comparison-overlap]
                self._leave(link)
                client.lost(link)
        self._add_client()

    def _jump(self) -> None:
        self.clock.advance(self.rng.choice((2_500, 7_000, 30_000)))
        self._wake()

    def _kill(self) -> None:
        raise Crash

    def _stop(self) -> None:
        node = self.node
        assert node is not None
        self._guarded(node.close)
        self.node = None
        self._all_links_end()

    def _break_disk(self) -> None:
        kind = self.rng.choice(("full", "full", "write", "sync", "crash", "crash", "crash"))
        if kind == "full":
            self.may_be_full = True
            self.disk.refusals += [("allocate", FULL)] * self.rng.randint(1, 30)
        elif kind == "crash":
            self.disk.crash_in = self.rng.randint(0, 12)
        else:
            self.disk.refusals.append((kind, BROKEN))

    def _died(self) -> None:
        self._bury()
        if self.rng.random() < 0.6:
            self.trace.append("power lost")
            self.disk.lose_power()
        self._all_links_end()

    def _bury(self) -> None:
        node, self.node = self.node, None
        self.disk.broker_died()
        if node is not None and node._storage is not None:
            with suppress(OSError):
                node._storage.close()

    def _all_links_end(self) -> None:
        links, self._links = self._links, []
        self.rng.shuffle(links)
        for link in links:
            if not link.left:
                if link.socket.outbox and self.rng.random() < 0.5:
                    link.client.received(link, bytes(link.socket.outbox))
                link.client.lost(link)

    # ── the keeper ───────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        self.disk.start_again()
        if not self.calm and self.rng.random() < 0.15:
            self.disk.crash_in = self.rng.randint(0, 30)
        node = Node(
            self._settings, clock=self.clock, disk=self.disk, reactor=KeeperReactor(self.clock), workers=SimWorkers
        )
        self.node = node
        try:
            node.open()
        except OperatorError as error:
            raise ViolationError(f"the keeper did not start: {error}") from error
        if node.machine.tree.last_zxid < self._newest_seen:
            raise ViolationError(
                f"a client has seen {self._newest_seen:#x}, and the keeper starts at {node.machine.tree.last_zxid:#x}"
            )

    def _check_ephemerals(self) -> None:
        assert self.node is not None
        tree = self.node.machine.tree
        there = {path for path in tree.nodes if path.startswith("/e/")}
        living = {client.session: client for client in self.clients if not client.silent}
        for path in there:
            if self.ephemerals[path] not in living:
                raise ViolationError(f"{path} is there, and its session is not")
        for client in living.values():
            if not client.ephemerals <= there:
                raise ViolationError(f"{client.name} lives, and {client.ephemerals - there} are gone")

    def _check_log(self) -> None:
        """What is on the disk: no gap, and each ephemeral node made once and removed once at most."""
        assert self.node is not None
        self.node.close()
        self.node = None
        made: set[str] = set()
        removed: set[str] = set()
        last = 0
        directory = os.path.join(self._root, "data", "version-2")
        names = sorted((name for name in os.listdir(directory) if name.startswith("log.")), key=txn_log.log_zxid)
        for name in names:
            for entry in txn_log.read(os.path.join(directory, name), self.disk):
                zxid, body = entry.transaction.zxid, entry.transaction.body
                if last and zxid != last + 1:
                    raise ViolationError(f"{name}: {zxid:#x} follows {last:#x}")
                last = zxid
                if isinstance(body, transactions.Create) and body.path in self.ephemerals:
                    if body.path in made:
                        raise ViolationError(f"{body.path} was made twice")
                    made.add(body.path)
                elif isinstance(body, transactions.CloseSession):
                    twice = removed & set(body.paths)
                    if twice:
                        raise ViolationError(f"{twice} were removed twice")
                    removed.update(body.paths)

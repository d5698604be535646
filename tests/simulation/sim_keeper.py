"""One simulated world of a keeper: its disk, its clients and the time, all under one random seed.

Each step is one thing that may happen: bytes arrive, a turn of the loop, a thread ends its job, time goes by, or
something breaks: a connection, the process, the disk, the power. Nothing else is random, so a seed replays what it did.
"""

from __future__ import annotations

import itertools
import os
import random
import secrets
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from unittest import mock

from keeper_history import History, ViolationError
from sim_disk import FULL, SimDisk
from sim_keeper_client import KeeperClient
from sim_network import Link
from sim_reactor import SimReactor, SimWorkers
from sim_server import ServerWorld

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

    def _left(self, name: str, safe: bytes, now: bytes) -> bytes:
        size = self._rng.choice((len(safe), len(now)))
        left = bytearray(safe[:size].ljust(size, b"\0"))
        kept = self._rng.choice((0.0, 0.5, 0.9, 1.0))
        for at in range(0, min(size, len(now)), SECTOR_BYTES):
            end = min(at + SECTOR_BYTES, size, len(now))
            if now[at:end] != left[at:end] and self._rng.random() < kept:
                left[at:end] = now[at:end]
        return bytes(left)

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


class World(ServerWorld[Node, KeeperClient]):
    server = "keeper"

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.history = History()
        self.session_ms = SESSION_MS
        self.ephemerals: dict[str, int] = {}  # every one that was asked for, and the session
        self.closed: set[int] = set()  # sessions whose end was answered
        self.may_be_full = False
        self._badness = self.rng.choice((0.3, 1.0, 2.0))
        self._newest_seen = 0
        self._full_until_ms = 0
        self._client_count = 0

    # ── a whole run ──────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        looks = itertools.count()
        with self._directory() as stack:
            for module, name, value in (
                (txn_log, "ALLOCATED_BYTES", ALLOCATED_BYTES),
                (txn_log, "ROOM_BYTES_MIN", ROOM_BYTES_MIN),
                (Server, "listen", lambda _: 2181),
                # Requests are served for a time per turn. Here that time is a number of looks at the clock.
                (connection, "time", SimpleNamespace(perf_counter=lambda: next(looks) / 4096)),
                (secrets, "token_bytes", lambda size: bytes(range(size))),
            ):
                stack.enter_context(mock.patch.object(module, name, value))
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
        if self.node is None:
            choices.append((0.5, self._start))
        choices += self._steps() + self._deliveries()
        if not self.calm:
            bad = self._badness
            choices += [(0.1 * bad, self._cut), (0.04 * bad, self._jump), (0.02 * bad, self._fall_silent)]
            if self.node is not None:
                choices += [(0.08 * bad, self._kill), (0.03 * bad, self._stop), (0.08 * bad, self._break_disk)]
        self._take(choices)
        if self.node is not None and self.node.reactor.stopped:
            self._died()  # it has ended itself, because it could not know what the disk holds

    def _turn(self) -> None:
        self.may_be_full = bool(self.disk.refusals) or self.may_be_full
        super()._turn()

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

    def _welcome(self, link: Link) -> None:
        self.node.server._welcome(link.socket, ("127.0.0.1", 1))

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

    def _fall_silent(self) -> None:
        """A client is gone for good; another one comes."""
        client = self.rng.choice(self.clients)
        if client.silent or sum(each.silent for each in self.clients) > 3:
            return
        client.silent = True
        for link in self._links:
            if link.client is client and not link.left:
                self.leave(link)
                client.lost(link)
        self._add_client()

    def _jump(self) -> None:
        self.clock.advance(self.rng.choice((2_500, 7_000, 30_000)))
        self._wake()

    def _fill_disk(self) -> None:
        self.may_be_full = True
        self.disk.refusals += [("allocate", FULL)] * self.rng.randint(1, 30)

    def _lose_power(self) -> None:
        if self.rng.random() < 0.6:
            self.trace.append("power lost")
            self.disk.lose_power()

    def _close_locks(self, node: Node) -> None:
        if node._storage is not None:
            with suppress(OSError):
                node._storage.close()

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

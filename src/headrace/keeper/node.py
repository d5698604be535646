"""One keeper: the composition root, where everything is made and every loop is started."""

import logging
from collections.abc import Callable
from typing import Final

from headrace.core.clock import Clock, SystemClock
from headrace.core.errors import InvariantError
from headrace.core.files import Disk
from headrace.core.telemetry import event
from headrace.keeper import snapshot
from headrace.keeper.machine import Machine
from headrace.keeper.server import Server
from headrace.keeper.sessions import Sessions
from headrace.keeper.settings import KeeperSettings
from headrace.keeper.storage import Storage
from headrace.keeper.txn_log import ENTRY_BYTES_MORE, TxnLog, entry_bytes
from headrace.keeper.words import Words
from headrace.net.reactor import READ, Reactor
from headrace.net.workers import Workers

TICK_S: Final = 0.05  # how late a session may be ended
CLEAR_S: Final = 1.0  # how often containers and times to live are looked at
GAP_MS: Final = 2000  # the process stood still if there was no tick for this long

logger = logging.getLogger(__name__)


class Node:
    def __init__(self, settings: KeeperSettings, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.settings = settings
        self.port = 0
        self.reactor = Reactor()
        self._clock = clock or SystemClock()
        self._disk = disk or Disk()
        self._storage: Storage | None = None
        self._writer = Workers("keeper-log", 1, self.reactor)
        self._snapshots = Workers("keeper-snapshot", 1, self.reactor)
        self._writing = False
        self._writing_bytes = 0
        self._snapshotting = False
        self._since_snapshot = 0
        self._last_tick_ms = 0
        self._failure: BaseException | None = None
        self.machine: Machine
        self.server: Server
        self.log: TxnLog

    # ── life ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self) -> None:
        settings = self.settings
        self._storage = storage = Storage(settings.data_dir, settings.data_log_dir, self._disk)
        loaded = storage.load()
        sessions = Sessions(
            storage.secret(), timeout_ms_min=settings.session_ms_min, timeout_ms_max=settings.session_ms_max
        )
        self._since_snapshot = loaded.transactions
        self.machine = Machine(
            loaded.tree,
            sessions,
            super_digest=settings.super_digest,
            watches_per_peer_max=settings.watches_per_connection_max,
            tree_bytes_max=settings.tree_bytes_max,
        )
        self._take_time()
        for id, timeout_ms in loaded.sessions.items():
            sessions.add(id, timeout_ms, self.machine.steady_ms)
        self.log = TxnLog(storage.logs, self._disk)
        self.machine.has_room = self._has_room
        self.server = Server(settings, self.reactor, self.machine, self._clock)
        self.server.say = Words(self).answer
        self.port = self.server.listen()
        self.reactor.end_of_turn.append(self._end_of_turn)
        self.reactor.every(TICK_S, self._tick)
        self.reactor.every(CLEAR_S, self._clear)

    def run(self) -> None:
        self.reactor.run()
        if self._failure is not None:
            raise self._failure

    def hear(self, descriptor: int, heard: Callable[[int], None]) -> None:
        """Calls `heard` on the loop whenever the descriptor can be read: how a process learns of signals."""
        self.reactor.add(descriptor, READ, heard)

    def stop(self) -> None:
        """From any thread, or a signal handler."""
        self.reactor.stop()

    def close(self) -> None:
        """What was answered is on the disk already; what was not is synced too, and its answers are not sent."""
        self._end(wait=True)

    def abandon(self) -> None:
        """As `kill -9` would: nothing more is written."""
        self._end(wait=False)

    def _end(self, *, wait: bool) -> None:
        if self._storage is None:
            self.reactor.close()
            return
        if hasattr(self, "server"):
            self.server.stop_listening()
        if wait:
            self._writer.close()
            self.reactor.run_pending()
            if hasattr(self, "machine") and self.machine.staged and self._failure is None:
                self.log.write(self._taken())
            self._snapshots.close()
        else:
            self._writer.abandon(5)
            self._snapshots.abandon(5)
        if hasattr(self, "server"):
            self.server.drop_all()
        if hasattr(self, "log"):
            self.log.close()
        self._storage.close()
        self.reactor.close()

    # ── turns ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_time(self) -> None:
        self.machine.at(self._clock.now_ms(), int(self._clock.monotonic() * 1000))

    def _end_of_turn(self) -> None:
        if self.machine.staged and not self._writing:
            self._write()
        if self.machine.outputs:
            self.server.release(self.server.durable_zxid)

    def _tick(self) -> None:
        self._take_time()
        now_ms = self.machine.steady_ms
        if self._last_tick_ms and now_ms - self._last_tick_ms > GAP_MS:
            event(logger, logging.WARNING, "the process stood still: every session gets its time-out again",
                  ms=now_ms - self._last_tick_ms)  # fmt: skip
            self.machine.sessions.extend_all(now_ms)
        self._last_tick_ms = now_ms
        self.machine.expire()
        self.server.close_silent()

    def _clear(self) -> None:
        self._take_time()
        self.machine.clear()

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _has_room(self) -> bool:
        if not self.log.is_open and not self.log.open(self._next_zxid()):
            return False
        machine = self.machine
        under_way = self._writing_bytes + machine.staged_bytes + ENTRY_BYTES_MORE * len(machine.staged)
        return self.log.has_room(under_way + 2 * self.settings.request_bytes_max)

    def _next_zxid(self) -> int:
        staged = self.machine.staged
        return staged[0].zxid if staged else self.machine.tree.last_zxid + 1

    def _taken(self) -> list[bytes]:
        staged = self.machine.take_staged()
        self._since_snapshot += len(staged)
        first = staged[0].zxid
        return [entry_bytes(each.data, first) for each in staged]

    def _write(self) -> None:
        last = self.machine.tree.last_zxid
        pieces = self._taken()
        self._writing = True
        self._writing_bytes = sum(map(len, pieces))
        self._writer.submit(lambda: self.log.write(pieces), lambda _, error: self._written(last, error))

    def _written(self, zxid: int, error: BaseException | None) -> None:
        self._writing = False
        self._writing_bytes = 0
        if error is not None:
            reason = f"{self.log.path}: the log could not be synced ({error}); repair the disk or make room on it, then"
            self._fail(InvariantError(f"{reason} start again: nothing that was answered is lost"))
            return
        self.server.release(zxid)
        if self._since_snapshot >= self.settings.snapshot_count and not self._snapshotting:
            self._snapshot()
        if self.machine.staged:
            self._write()

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self.reactor.stop()

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def _snapshot(self) -> None:
        """A new log begins with it, so that the old ones can go."""
        storage = self._storage
        if storage is None or not self.log.open(self._next_zxid()):
            return
        self._since_snapshot = 0
        self._snapshotting = True
        nodes, zxid = self.machine.tree.nodes.copy(), self.machine.tree.last_zxid
        sessions = {each.id: each.timeout_ms for each in self.machine.sessions.open.values()}

        def work() -> None:
            snapshot.write(storage.snapshots, zxid, nodes, sessions, self._disk)
            storage.purge(self.settings.snapshots_kept)

        self._snapshots.submit(work, self._snapshot_done)

    def _snapshot_done(self, _: object, error: BaseException | None) -> None:
        self._snapshotting = False
        if error is not None:
            event(logger, logging.WARNING, "snapshot not written; it is tried again later", reason=str(error))

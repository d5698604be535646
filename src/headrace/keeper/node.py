"""One keeper: the composition root, where everything is made and every loop is started."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.core.clock import Clock, SystemClock
from headrace.core.errors import InvariantError
from headrace.core.files import Disk
from headrace.core.telemetry import event
from headrace.keeper import snapshot
from headrace.keeper.log_writer import LogWriter
from headrace.keeper.machine import Machine
from headrace.keeper.server import Server
from headrace.keeper.sessions import Sessions
from headrace.keeper.settings import KeeperSettings
from headrace.keeper.snapshotting import Snapshotting
from headrace.keeper.storage import Storage
from headrace.keeper.txn_log import ENTRY_BYTES_MORE, TxnLog, entry_bytes
from headrace.keeper.words import Words
from headrace.net.reactor import READ, Reactor
from headrace.net.workers import Workers

if TYPE_CHECKING:
    from headrace.keeper.status import Status

TICK_S: Final = 0.05  # how late a session may be ended
REPLAYED_MAX: Final = 10_000  # transactions that a start after a clean stop reads from logs
CLEAR_AGAIN_S: Final = 0.05
GAP_MS: Final = 2000  # the process stood still if there was no tick for this long

logger = logging.getLogger(__name__)


class Node:
    def __init__(
        self,
        settings: KeeperSettings,
        clock: Clock | None = None,
        disk: Disk | None = None,
        *,
        reactor: Reactor | None = None,
        workers: Callable[[str, int, Reactor], Workers] = Workers,
    ) -> None:
        """Clock, disk, loop and threads may be passed in, so that a simulation decides what happens when."""
        self.settings = settings
        self.port = 0
        self.opened_ms = 0
        self.wall_ahead_ms = 0  # of the steady clock, when it opened
        self.reactor = reactor or Reactor()
        self._clock = clock or SystemClock()
        self._disk = disk or Disk()
        self._storage: Storage | None = None
        self._workers = workers
        self._snapshots = Snapshotting(self.reactor, self._disk, workers)
        self._since_snapshot = 0
        self._last_tick_ms = 0
        self._ending = False
        self._failure: BaseException | None = None
        self._status: Status | None = None
        self.machine: Machine
        self.server: Server
        self.log: TxnLog
        self._writer: LogWriter

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
            quota_enforced=settings.quota_enforced,
            reconfig_enabled=settings.reconfig_enabled,
            never_used_ms=settings.never_used_ms,
            watches_per_peer_max=settings.watches_per_connection_max,
            tree_bytes_max=settings.tree_bytes_max,
            sessions_max=settings.sessions_max,
        )
        self._take_time()
        self.opened_ms = self.machine.steady_ms
        self.wall_ahead_ms = self.machine.wall_ms - self.machine.steady_ms
        for id, timeout_ms in loaded.sessions.items():
            sessions.add(id, timeout_ms, self.machine.steady_ms)
        self.log = TxnLog(storage.logs, self._disk)
        self._writer = LogWriter(self.log, self.reactor, self._clock, self._workers)
        self.machine.has_room = self._has_room
        self.server = Server(settings, self.reactor, self.machine, self._clock)
        words = Words(self)
        self.server.say = words.answer
        if settings.metrics_port >= 0:
            from headrace.keeper.status import Status  # which loads a web server

            self._status = Status(self.reactor, words.figures, self._has_room)
            self._status.start(settings.metrics_host, settings.metrics_port)
        self.port = self.server.listen()
        self.reactor.end_of_turn.append(self._end_of_turn)
        self.reactor.every(TICK_S, self._tick)
        self.reactor.every(settings.clear_ms / 1000, self._clear)

    def run(self) -> None:
        self.reactor.run()
        if self._failure is not None:
            raise self._failure

    def hear(self, descriptor: int, heard: Callable[[int], None]) -> None:
        """Calls `heard` on the loop whenever the descriptor can be read: how a process learns of signals."""
        self.reactor.add(descriptor, READ, heard)

    @property
    def metrics_port(self) -> int:
        return self._status.port if self._status is not None else -1

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
        self._ending = True
        if self._storage is None:
            self.reactor.close()
            return
        if self._status is not None:
            self._status.stop()
        if hasattr(self, "server"):
            self.server.stop_listening()
        if wait:
            if hasattr(self, "_writer"):
                self._writer.close()
                self.reactor.run_pending()
                if self.machine.staged and self._failure is None:
                    self.log.write(self._taken())
            given_up = self._snapshots.close()
            many = given_up or self._since_snapshot >= REPLAYED_MAX
            if many and hasattr(self, "machine") and self._failure is None:
                self._last_snapshot(self._storage)
        else:
            if hasattr(self, "_writer"):
                self._writer.abandon(5)
            self._snapshots.abandon(5)
        if hasattr(self, "server"):
            self.server.drop_all()
        if hasattr(self, "log"):
            self.log.close()
        self._storage.close()
        self.reactor.close()

    def _last_snapshot(self, storage: Storage) -> None:
        """So that the next start need not read all of the log; it can where this fails."""
        machine = self.machine
        sessions = {each.id: each.timeout_ms for each in machine.sessions.open.values()}
        try:
            snapshot.write(storage.snapshots, machine.tree.last_zxid, machine.tree.nodes, sessions, self._disk)
            storage.purge(self.settings.snapshots_kept)
        except OSError as error:
            event(logger, logging.WARNING, "no snapshot at the stop: the next start takes longer", reason=str(error))

    # ── turns ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_time(self) -> None:
        self.machine.at(self._clock.now_ms(), int(self._clock.monotonic() * 1000))

    def _end_of_turn(self) -> None:
        if self._failure is not None:
            return
        if self.machine.staged and not self._writer.busy:
            self._write()
        if self.machine.outputs.waiting:
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
        for path, passed in self.machine.quotas.take_passed().items():
            event(logger, logging.WARNING, "a soft limit of a quota is passed", path=path, reason=passed)

    def _clear(self) -> None:
        self._take_time()
        if self.machine.clear() and not self._ending:  # there may be more of them than a turn has time for
            self.reactor.call_later(CLEAR_AGAIN_S, self._clear)

    # ── the log ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _has_room(self) -> bool:
        if self._failure is not None:
            return False
        machine = self.machine
        under_way = self._writer.bytes_under_way + machine.staged_bytes + ENTRY_BYTES_MORE * len(machine.staged)
        try:
            if not self.log.is_open and not self.log.open(self._next_zxid()):
                return False
            return self.log.has_room(under_way + 2 * self.settings.request_bytes_max)
        except OSError as error:
            self._fail_at_log(error)
            return False

    def _open_next(self) -> bool:
        """Whether there was room for another log."""
        try:
            return self.log.open(self._next_zxid())
        except OSError as error:
            self._fail_at_log(error)
            return False

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
        self._writer.write(self._taken(), lambda error: self._written(last, error))

    def _written(self, zxid: int, error: BaseException | None) -> None:
        if self._failure is not None:
            return  # behind a write that failed nothing is durable, whatever the disk says
        if error is not None:
            self._fail_at_log(error)
            return
        self.server.release(zxid)
        self._snapshots.go_on()
        if self._since_snapshot >= self.settings.snapshot_count and not self._snapshots.busy:
            self._snapshot()
        if self.machine.staged and not self._ending:
            self._write()

    def _fail_at_log(self, error: BaseException) -> None:
        reason = f"{self.log.path or self.settings.data_dir}: the log could not be synced ({error}); repair the disk or"
        self._fail(InvariantError(f"{reason} make room on it, then start again: nothing that was answered is lost"))

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        self.reactor.stop()

    # ── snapshots ────────────────────────────────────────────────────────────────────────────────────────────────

    def _snapshot(self) -> None:
        """A new log begins with it, so that the old ones can go."""
        storage = self._storage
        if storage is None or not self._open_next():
            return
        self._since_snapshot = 0
        machine, settings = self.machine, self.settings
        sessions = {each.id: each.timeout_ms for each in machine.sessions.open.values()}
        zxid = machine.tree.last_zxid
        self._snapshots.begin(
            storage.snapshots,
            zxid,
            machine.tree.nodes.copy(),
            sessions,
            lambda: storage.purge(settings.snapshots_kept),
            # With an older snapshot, the logs alone must lead to the same state.
            may_finish=lambda: self.server.durable_zxid >= zxid,
        )

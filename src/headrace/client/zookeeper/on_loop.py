"""A ZooKeeper client on the event loop of a server of ours: nothing waits, answers come to functions.

All of it belongs to the loop. What is asked within a turn goes out at its end in one call; answers, events and changes
of state are told in the order in which they became known. Only names of hosts are looked up on a thread.
"""

import logging
import socket
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from headrace.client.zookeeper.calls import Step
from headrace.client.zookeeper.connect_string import name_of
from headrace.client.zookeeper.driver import Driver
from headrace.client.zookeeper.errors import TooManyRequestsError, ZooKeeperError
from headrace.client.zookeeper.events import Answered, Changed, Connect, Event, Refused, StateChanged, Unreachable
from headrace.client.zookeeper.session import TIMEOUT_MS, Resumed
from headrace.core.clock import Clock
from headrace.core.errors import InvariantError
from headrace.core.telemetry import event as log_event
from headrace.core.telemetry import failure
from headrace.net.attempt import Attempt, reason, resolve
from headrace.net.outbox import Outbox
from headrace.net.reactor import BROKEN, READ, WRITE, Reactor, Timer
from headrace.net.traffic import Traffic
from headrace.net.transport import PlainTransport
from headrace.net.workers import Workers
from headrace.protocol.zookeeper import requests
from headrace.protocol.zookeeper.results import MultiDone, Result

READ_BYTES: Final = 64 << 10
_UNTIMED_S: Final = 3600.0

logger = logging.getLogger(__name__)

# The answer, or what it failed with.
Done = Callable[[Result, ZooKeeperError | TooManyRequestsError | None], None]


class LoopClient(Driver):
    """A watcher is a function of one `Changed`. It connects with `start`, and goes on until `close` or `abandon`."""

    def __init__(
        self,
        reactor: Reactor,
        resolving: Workers,
        clock: Clock,
        connect: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        resumed: Resumed | None = None,
        on_state: Callable[[StateChanged], None] = lambda _: None,
    ) -> None:
        self._reactor = reactor
        self._resolving = resolving
        self._clock = clock
        self._on_state = on_state
        super().__init__(connect, self._now_ms(), timeout_ms, resumed)
        self._waiting: dict[int, Done] = {}
        self._traffic = Traffic()
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._attempts = 0  # names that are looked up for an attempt that was given up are not used
        self._attempt: Attempt | None = None
        self._transport: PlainTransport | None = None
        self._outbox: Outbox | None = None
        self._events = 0  # that the loop watches the connection for
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._telling = False
        self._gone = False

    # ── what its owner wants ─────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        self._reactor.end_of_turn.append(self._send)
        self._go_on()

    def ask(
        self, request: requests.Request, done: Done, watcher: Hashable = None, *, below_chroot: bool = True
    ) -> None:
        """`done` is called once, in a later turn or a later part of this one, never within this call."""
        try:
            ticket = self._session.submit(request, self._now_ms(), watcher, below_chroot=below_chroot)
        except (ZooKeeperError, TooManyRequestsError) as error:
            refused = error
            self._reactor.call_soon(lambda: self._call(done, None, refused))
            return
        self._waiting[ticket] = done

    def multi(self, steps: Sequence[Step], done: Done) -> None:
        """All or nothing; the error is that of the step which failed."""

        def told(result: Result, error: ZooKeeperError | TooManyRequestsError | None) -> None:
            if isinstance(result, MultiDone) and result.failed is not None:
                place, code = result.failed
                result, error = None, ZooKeeperError(code, steps[place].path)
            done(result, error)

        self.ask(requests.Multi(tuple(steps)), told)

    def add_credentials(self, scheme: str, credentials: bytes) -> None:
        self._session.add_credentials(scheme, credentials, self._now_ms())

    def close(self) -> None:
        """Ends the session on the server, after what was asked before; `on_state` tells when that is done."""
        self._session.close(self._now_ms())
        self._reactor.call_soon(self._go_on)

    def abandon(self) -> None:
        """As a process that dies: nobody is told anything more, and the session lives on until its time is over."""
        self._gone = True
        self._drop()
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._reactor.call_soon(self._unhook)

    # ── the session's wishes ─────────────────────────────────────────────────────────────────────────────────────

    def _go_on(self) -> None:
        """Does what the session wants, and tells what it has to tell, until there is nothing more of it now."""
        if self._telling or self._gone:
            return
        self._telling = True
        try:
            while not self._gone:
                if self._session.is_overdue(self._now_ms()):
                    self._receive()
                self._session.tick(self._now_ms())
                actions, events = self._session.take_actions(), self._session.take_events()
                if not actions and not events:
                    break
                for action in actions:
                    if isinstance(action, Connect):
                        self._connect(*action.server)
                    else:
                        self._drop()
                for event in events:
                    if not self._gone:
                        self._tell(event)
        finally:
            self._telling = False
        if self._session.ended:
            self._reactor.call_soon(self._unhook)
        self._set_timer()

    def _unhook(self) -> None:
        """Never while the loop goes through its hooks, of which it would miss one."""
        if self._send in self._reactor.end_of_turn:
            self._reactor.end_of_turn.remove(self._send)

    def _set_timer(self) -> None:
        """One timer at a time: what is due moves on with every word that is said, and is looked at again then."""
        deadline_ms = self._session.deadline_ms
        if deadline_ms is None or self._gone or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        wait_s = max(0.0, (deadline_ms - self._now_ms()) / 1000)
        self._timer = self._reactor.call_later(min(wait_s, _UNTIMED_S), self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        self._go_on()

    def _connect(self, host: str, port: int) -> None:
        self._attempts += 1
        number = self._attempts

        def resolved(addresses: Any, error: BaseException | None) -> None:
            if self._gone or number != self._attempts:
                return
            if error is not None:
                self._session.lost(self._now_ms(), reason(error))
            else:
                self._attempt = Attempt(addresses)
                self._begin(self._attempt)
            self._go_on()

        self._resolving.submit(lambda: resolve(host, port), resolved)

    def _begin(self, attempt: Attempt) -> None:
        if attempt.begin() and attempt.socket is not None:
            self._reactor.add(attempt.socket.fileno(), WRITE, self._decided)
        else:
            self._attempt = None
            self._session.lost(self._now_ms(), attempt.why)

    def _decided(self, _: int) -> None:
        attempt = self._attempt
        if attempt is None or attempt.socket is None:
            return
        self._reactor.remove(attempt.socket.fileno())
        connection = attempt.decided()
        if connection is None:
            self._begin(attempt)
        else:
            self._attempt = None
            self._opened(connection)
        self._go_on()

    def _opened(self, connection: socket.socket) -> None:
        self._transport = PlainTransport(connection)
        self._outbox = Outbox(self._transport, self._traffic)
        self._events = READ
        self._reactor.add(self._transport.fileno(), READ, self._ready)
        self._session.opened(self._now_ms())

    def _drop(self) -> None:
        self._attempts += 1
        if self._attempt is not None:
            if self._attempt.socket is not None:
                self._reactor.remove(self._attempt.socket.fileno())
            self._attempt.give_up()
            self._attempt = None
        if self._transport is not None:
            self._reactor.remove(self._transport.fileno())
            self._transport.close()
            self._transport = self._outbox = None

    # ── the connection ───────────────────────────────────────────────────────────────────────────────────────────

    def _ready(self, mask: int) -> None:
        if mask & (READ | BROKEN):
            self._receive()
        self._go_on()

    def _receive(self) -> None:
        if self._transport is None:
            return
        try:
            count = self._transport.recv_into(self._buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self._broke(reason(error))
            return
        if count:
            self._session.received(bytes(self._buffer[:count]), self._now_ms())
        else:
            self._broke("the server closed the connection")

    def _send(self) -> None:
        """At the end of a turn: everything that was said in it."""
        outbox, transport = self._outbox, self._transport
        if outbox is None or transport is None:
            return
        said = self._session.take_bytes()
        if said:
            outbox.put(said)
        elif not outbox:
            return
        try:
            outbox.send()
        except OSError as error:
            self._broke(reason(error))
            self._reactor.call_soon(self._go_on)
            return
        events = READ | (WRITE if outbox.stalled else 0)
        if events != self._events:
            self._events = events
            self._reactor.change(transport.fileno(), events)
        self._set_timer()

    def _broke(self, reason: str) -> None:
        self._drop()
        self._session.lost(self._now_ms(), reason)

    # ── telling ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell(self, event: Event) -> None:
        if isinstance(event, Answered):
            self._call(self._waiting.pop(event.ticket), event.result, None)
        elif isinstance(event, Refused):
            self._call(self._waiting.pop(event.ticket), None, ZooKeeperError(event.code, event.path))
        elif isinstance(event, Changed):
            for watcher in event.watchers:
                self._call(watcher, event)
        elif isinstance(event, Unreachable):
            log_event(
                logger,
                logging.WARNING,
                "no ZooKeeper answers; the next server is tried",
                server=name_of(event.server),
                reason=event.reason,
            )
        else:
            self._call(self._on_state, event)

    def _call(self, told: Any, *args: object) -> None:
        try:
            told(*args)
        except InvariantError:
            raise
        except Exception as error:
            failure(logger, "what waited for an answer of ZooKeeper failed: the client goes on without it", error)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

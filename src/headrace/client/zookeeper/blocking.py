"""A ZooKeeper client for tools and tests: calls wait for their answers, a thread of its own does the rest.

The thread answers the server's need for pings while nobody calls, and tells watchers what changed. A watcher is a
function of one `Changed`; it is called on that thread, in the order in which things became known, and must not call
the client: it would wait for itself.
"""

import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Final, Self

from headrace.client.errors import ClientError
from headrace.client.zookeeper.calls import Calls
from headrace.client.zookeeper.connect_string import name_of
from headrace.client.zookeeper.driver import Driver
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.client.zookeeper.events import Answered, Changed, Connect, Event, Refused, StateChanged, Unreachable
from headrace.client.zookeeper.session import TIMEOUT_MS, Resumed
from headrace.client.zookeeper.states import State
from headrace.core.telemetry import failure
from headrace.net.attempt import Attempt, reason, resolve
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.results import Result

READ_BYTES: Final = 256 << 10
CLOSE_S_MAX: Final = 10.0  # for the server's answer to a closing

logger = logging.getLogger(__name__)


class BlockingClient(Driver, Calls):
    def __init__(
        self,
        connect: str,
        *,
        timeout_ms: int = TIMEOUT_MS,
        resumed: Resumed | None = None,
        on_state: Callable[[StateChanged], None] | None = None,
    ) -> None:
        super().__init__(connect, _now_ms(), timeout_ms, resumed)
        self._on_state = on_state
        self._lock = threading.Lock()  # guards the session; never held while something blocks or somebody is told
        self._news = threading.Condition()
        self._waiting: dict[int, Future[Result]] = {}
        self._why = ""  # the last reason for not being connected
        self._out = b""
        self._attempt: Attempt | None = None
        self._socket: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._abandoned = False
        self._thread = threading.Thread(target=self._live, name="zookeeper-client", daemon=True)
        self._thread.start()

    # ── what it is ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def why(self) -> str:
        """Why it is not connected: `host:port: reason`."""
        return self._why

    def await_connected(self, wait_s: float) -> None:
        """Raises ClientError when no server answers in time."""
        with self._news:
            self._news.wait_for(lambda: self.state is State.CONNECTED or self._session.ended, wait_s)
        if self.state is not State.CONNECTED:
            raise ClientError(
                f"No ZooKeeper answers at {self.connect_string.named} ({self._why or f'tried for {wait_s:g} s'}); start"
                " one, for example with `headrace keeper`, or correct the address"
            )

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self, request: requests.Request, watcher: Hashable = None, *, below_chroot: bool = True
    ) -> "Future[Result]":
        """Without waiting: answers come in the order in which they were asked for."""
        answer: Future[Result] = Future()
        with self._lock:
            ticket = self._session.submit(request, _now_ms(), watcher, below_chroot=below_chroot)
            self._waiting[ticket] = answer
        self._awake()
        return answer

    def ask(self, request: requests.Request, watcher: Hashable = None, *, below_chroot: bool = True) -> Result:
        if threading.current_thread() is self._thread:
            raise ClientError("a watcher must not wait for an answer; hand the event to another thread, and ask there")
        return self.submit(request, watcher, below_chroot=below_chroot).result()

    def add_credentials(self, scheme: str, credentials: bytes) -> None:
        with self._lock:
            self._session.add_credentials(scheme, credentials, _now_ms())
        self._awake()

    def forget_watches(self, path: str, meant: int) -> bool:
        """Here only, for a client without a server: whether there were any."""
        with self._lock:
            found = self._session.forget_watches(path, meant)
        self._awake()  # who watched is told
        return found

    def close(self) -> None:
        """Ends the session, and with it its ephemeral nodes. A watcher may call it, and then does not wait."""
        with self._lock:
            self._session.close(_now_ms())
        self._awake()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S_MAX)
            self.abandon()

    def abandon(self) -> None:
        """Without a word to the server: the session lives on there until its time is over."""
        self._abandoned = True
        self._awake()
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_S_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── the thread ───────────────────────────────────────────────────────────────────────────────────────────────

    def _awake(self) -> None:
        with self._lock:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def _live(self) -> None:
        try:
            while not self._abandoned:
                if self._socket is not None and self._session.is_overdue(_now_ms()):
                    self._receive(self._socket)
                with self._lock:
                    self._session.tick(_now_ms())
                    actions = self._session.take_actions()
                    self._out += self._session.take_bytes()
                    events = self._session.take_events()
                    deadline_ms = self._session.deadline_ms
                for action in actions:
                    if isinstance(action, Connect):
                        self._connect(*action.server)
                    else:
                        self._drop()
                self._send()
                self._tell(events)
                if actions or events:
                    continue
                if deadline_ms is None:
                    return
                self._wait(deadline_ms)
        finally:
            self._end()

    def _wait(self, deadline_ms: int) -> None:
        wait_s = max(0, deadline_ms - _now_ms()) / 1000
        for key, mask in self._selector.select(wait_s):
            if key.fd == self._wake:
                os.eventfd_read(self._wake)
            elif self._attempt is not None:
                self._decide(self._attempt)
            elif self._socket is not None and mask & selectors.EVENT_READ:
                self._receive(self._socket)

    def _connect(self, host: str, port: int) -> None:
        try:
            self._attempt = Attempt(resolve(host, port))
        except OSError as error:
            self._lost(reason(error))
            return
        self._begin(self._attempt)

    def _begin(self, attempt: Attempt) -> None:
        if attempt.begin() and attempt.socket is not None:
            self._selector.register(attempt.socket, selectors.EVENT_WRITE)
        else:
            self._attempt = None
            self._lost(attempt.why)

    def _decide(self, attempt: Attempt) -> None:
        if attempt.socket is not None:
            self._selector.unregister(attempt.socket)
        connection = attempt.decided()
        if connection is None:
            self._begin(attempt)
            return
        self._attempt, self._socket = None, connection
        self._selector.register(connection, selectors.EVENT_READ)
        with self._lock:
            self._session.opened(_now_ms())

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._broke(reason(error))
            return
        if not data:
            self._broke("the server closed the connection")
            return
        with self._lock:
            self._session.received(data, _now_ms())

    def _send(self) -> None:
        if self._socket is None:
            return
        try:
            while self._out:
                self._out = self._out[self._socket.send(self._out) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self._broke(reason(error))
            return
        self._selector.modify(self._socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0))

    def _broke(self, reason: str) -> None:
        self._drop()
        self._lost(reason)

    def _lost(self, reason: str) -> None:
        with self._lock:
            self._session.lost(_now_ms(), reason)

    def _drop(self) -> None:
        if self._attempt is not None:
            if self._attempt.socket is not None:
                self._selector.unregister(self._attempt.socket)
            self._attempt.give_up()
            self._attempt = None
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
        self._out = b""

    # ── telling ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Answered | Refused):
                answer = self._waiting.pop(event.ticket)
                if isinstance(event, Answered):
                    answer.set_result(event.result)
                else:
                    answer.set_exception(self._error(event))
            elif isinstance(event, Changed):
                for watcher in event.watchers:
                    _call(watcher, event)
            elif isinstance(event, Unreachable):
                self._why = f"{name_of(event.server)}: {event.reason}"
            else:
                self._why = event.reason
                with self._news:
                    self._news.notify_all()
                if self._on_state is not None:
                    _call(self._on_state, event)

    def _error(self, refused: Refused) -> ZooKeeperError:
        lost = refused.code in (codes.CONNECTION_LOSS, codes.SESSION_EXPIRED, codes.AUTH_FAILED)
        return ZooKeeperError(refused.code, refused.path, self._why if lost else "")

    def _end(self) -> None:
        with self._lock:
            self._drop()
            self._selector.close()
            os.close(self._wake)
            self._wake = -1
            waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            answer.set_exception(ZooKeeperError(codes.CONNECTION_LOSS, reason="the client was closed"))


def _call(told: Any, event: Changed | StateChanged) -> None:
    try:
        told(event)
    except Exception as error:
        failure(logger, "a watcher failed: the client goes on without it", error)


def _now_ms() -> int:
    return int(time.monotonic() * 1000)

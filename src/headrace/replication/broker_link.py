"""A connection to another broker: whole frames out, whole frames in, one question at a time. Knows no request.

It belongs to the loop. It connects when it is first asked to send, and is over when the connection breaks: whoever uses
it makes another one. A frame is received into memory of its own, so that what is written from it needs no copy.
"""

import socket
from collections.abc import Callable
from typing import Any, Final

from headrace.net.attempt import Attempt, reason, resolve
from headrace.net.outbox import Outbox
from headrace.net.reactor import BROKEN, READ, WRITE, Reactor, Timer
from headrace.net.traffic import Traffic
from headrace.net.transport import PlainTransport
from headrace.net.workers import Workers

FRAME_BYTES_MAX: Final = 256 << 20
READ_BYTES_PER_TURN: Final = 4 << 20  # then others are served
LENGTH_BYTES: Final = 4


class BrokerLink:
    def __init__(
        self,
        reactor: Reactor,
        resolving: Workers,
        host: str,
        port: int,
        *,
        answered: Callable[[memoryview], None],
        lost: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        """`lost` is called once, with the reason, unless it is closed. An answer that takes longer than `timeout_s`
        is one that never comes."""
        self._reactor = reactor
        self._resolving = resolving
        self._host = host
        self._port = port
        self._answered = answered
        self._lost = lost
        self._timeout_s = timeout_s
        self._attempt: Attempt | None = None
        self._transport: PlainTransport | None = None
        self._outbox: Outbox | None = None
        self._events = 0
        self._unsent: bytes = b""
        self._length = bytearray(LENGTH_BYTES)
        self._frame: bytearray | None = None
        self._target = memoryview(self._length)
        self._timer: Timer | None = None
        self.is_closed = False

    # ── connecting ───────────────────────────────────────────────────────────────────────────────────────────────

    def _connect(self) -> None:
        def resolved(addresses: Any, error: BaseException | None) -> None:
            if self.is_closed:
                return
            if error is not None:
                self._break(reason(error))
                return
            self._attempt = Attempt(addresses)
            self._begin(self._attempt)

        self._resolving.submit(lambda: resolve(self._host, self._port), resolved)

    def _begin(self, attempt: Attempt) -> None:
        if attempt.begin() and attempt.socket is not None:
            self._reactor.add(attempt.socket.fileno(), WRITE, self._decided)
        else:
            self._attempt = None
            self._break(attempt.why)

    def _decided(self, _: int) -> None:
        attempt = self._attempt
        if attempt is None or attempt.socket is None:
            return
        self._reactor.remove(attempt.socket.fileno())
        connection = attempt.decided()
        if connection is None:
            self._begin(attempt)
            return
        self._attempt = None
        self._opened(connection)

    def _opened(self, connection: socket.socket) -> None:
        self._transport = PlainTransport(connection)
        self._outbox = Outbox(self._transport, Traffic())
        self._events = READ
        self._reactor.add(self._transport.fileno(), READ, self._ready)
        frame, self._unsent = self._unsent, b""
        self._put(frame)

    # ── sending ──────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, frame: bytes) -> None:
        """A question, its length in front. The answer to the one before must have come."""
        self._timer = self._reactor.call_later(self._timeout_s, lambda: self._break("it did not answer in time"))
        if self._transport is not None:
            self._put(frame)
        else:
            self._unsent = frame
            self._connect()

    def _put(self, frame: bytes) -> None:
        outbox, transport = self._outbox, self._transport
        if outbox is None or transport is None:
            return
        if frame:
            outbox.put(frame)
        try:
            outbox.send()
        except OSError as error:
            self._break(reason(error))
            return
        events = READ | (WRITE if outbox.stalled else 0)
        if events != self._events:
            self._events = events
            self._reactor.change(transport.fileno(), events)

    # ── receiving ────────────────────────────────────────────────────────────────────────────────────────────────

    def _ready(self, mask: int) -> None:
        if mask & WRITE:
            self._put(b"")
        if mask & (READ | BROKEN) and self._transport is not None:
            try:
                self._receive(self._transport)
            except BlockingIOError:
                pass
            except OSError as error:
                self._break(reason(error))

    def _receive(self, transport: PlainTransport) -> None:
        left = READ_BYTES_PER_TURN
        while left > 0 and not self.is_closed:
            count = transport.recv_into(self._target)
            if count == 0:
                self._break("it closed the connection")
                return
            left -= count
            self._target = self._target[count:]
            if self._target:
                continue
            if self._frame is None:
                size = int.from_bytes(self._length, "big", signed=True)
                if not 0 < size <= FRAME_BYTES_MAX:
                    self._break(f"an answer of {size} bytes; at most {FRAME_BYTES_MAX} are taken")
                    return
                self._frame = bytearray(size)
                self._target = memoryview(self._frame)
            else:
                frame, self._frame = self._frame, None
                self._target = memoryview(self._length)
                self._stop_timer()
                self._answered(memoryview(frame))

    # ── ending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _break(self, reason: str) -> None:
        if not self.is_closed:
            self.close()
            self._lost(reason)

    def close(self) -> None:
        self.is_closed = True
        self._stop_timer()
        if self._attempt is not None:
            if self._attempt.socket is not None:
                self._reactor.remove(self._attempt.socket.fileno())
            self._attempt.give_up()
            self._attempt = None
        if self._transport is not None:
            self._reactor.remove(self._transport.fileno())
            self._transport.close()
            self._transport = self._outbox = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

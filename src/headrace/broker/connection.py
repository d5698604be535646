"""One client's requests and answers.

Requests are handled in the order in which they came, and answered in that order. Several Produce requests may be
under way at once; any other request that must wait holds up those behind it, as in Apache Kafka. A client that does
not read its answers is not read from either, so it never makes the broker hold more than it has asked for.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.broker.outbox import Outbox, Part, drop
from headrace.broker.reactor import BROKEN, READ, WRITE
from headrace.core.errors import InvariantError, PeerError
from headrace.protocol.framing import Chunk, FrameReader
from headrace.protocol.produce import ProduceDecoder
from headrace.protocol.wire import MalformedError

if TYPE_CHECKING:
    from headrace.broker.server import Server

logger = logging.getLogger(__name__)

ANSWER_BYTES_MAX: Final = 1 << 20  # while more than this waits in memory to be sent, the next request waits too

Frame = tuple[Chunk, int, int]


class Slot:
    """The place of one answer in its connection's order."""

    __slots__ = ("barrier", "connection", "parts")

    def __init__(self, connection: Connection, barrier: bool) -> None:
        self.connection = connection
        self.barrier = barrier
        self.parts: list[Part] | None = None

    def answer(self, parts: list[Part]) -> None:
        self.parts = parts
        self.connection.answered(self)


class Connection:
    __slots__ = (
        "_events",
        "_server",
        "backlog",
        "barriers",
        "closed",
        "dirty",
        "doomed",
        "fd",
        "in_flight_bytes",
        "last_active",
        "on_close",
        "out",
        "parked",
        "peer",
        "produce_decoder",
        "reader",
        "socket",
        "waiting",
    )

    def __init__(self, sock: socket.socket, peer: str, server: Server) -> None:
        self.socket = sock
        self.fd = sock.fileno()
        self.peer = peer
        self.reader = FrameReader(server.pool, server.request_bytes_max)
        self.out = Outbox(sock, server.metrics)
        self.backlog: deque[Frame] = deque()  # read, but not yet handled
        self.barriers = 0  # requests under way that hold up those behind them
        self.in_flight_bytes = 0
        self.last_active = server.tick
        self.closed = False
        self.dirty = False
        self.doomed = False  # closed as soon as what it asked before is answered
        self.parked = False  # not read from until the broker has room again
        self.produce_decoder = ProduceDecoder()
        self.on_close: list[Callable[[], None]] = []
        self._server = server
        self.waiting: deque[Slot] = deque()  # answers to come, in the order of their requests
        self._events = READ
        server.reactor.add(self.fd, READ, self.on_event)

    @property
    def in_flight(self) -> int:
        return len(self.waiting)

    # ── in ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def on_event(self, mask: int) -> None:
        if mask & READ:
            self._read()
            if mask == READ:
                return
        elif mask & BROKEN:
            self.close()
            return
        if mask & WRITE and not self.closed and self.flush():
            self.settle()

    def _read(self) -> None:
        server = self._server
        reader = self.reader
        if server.choked or (reader.held and not server.may_go_on(self)):
            server.park(self)
            return
        held = reader.held
        try:
            count = self.socket.recv_into(reader.target())
            frames = reader.received(count) if count else []
        except BlockingIOError:
            count, frames = -1, []
        except OSError:
            count, frames = 0, []
        if reader.held != held:
            server.holds(self, reader.held - held)
        if count <= 0:
            if count == 0:
                self.close()
            return
        server.metrics.bytes_in += count
        self.last_active = server.tick
        dispatch = server.dispatch
        for at, (chunk, start, end) in enumerate(frames):
            if (
                self.backlog
                or self.barriers
                or self.out.bytes_held > ANSWER_BYTES_MAX
                or (self.in_flight_bytes and self.is_full())
                or (self.waiting and self.is_full())
            ):
                self.backlog.extend(map(server.pool.own, frames[at:]))
                self._update_events()
                break
            try:
                dispatch(self, chunk, start, end)
            except Exception as error:
                self.failed(error)
            if self.closed or self.doomed:
                for rest, _, _ in frames[at + 1 :]:
                    rest.unpin()
                return
        if reader.error is not None and not self.backlog:
            self.reject(reader.error)

    def is_full(self) -> bool:
        """True while the next request must wait."""
        server = self._server
        return (
            self.barriers > 0
            or self.out.stalled
            or self.out.bytes_held > ANSWER_BYTES_MAX
            or len(self.waiting) >= server.in_flight_requests_max
            or self.in_flight_bytes > server.in_flight_bytes_max
        )

    def failed(self, error: Exception) -> None:
        """A request could not be handled. If it is the client's fault, it is told so in the log; a broken invariant
        of ours goes on up, and ends the broker."""
        if isinstance(error, InvariantError):
            raise error
        if isinstance(error, MalformedError | PeerError | ValueError | IndexError | struct.error):
            self.reject(str(error))
        else:
            logger.error("a request of %s failed; its connection is closed", self.peer, exc_info=error)
            self.close()

    def _resume(self) -> None:
        """Goes on with what has been read already, then with reading."""
        backlog = self.backlog
        while backlog and not self.closed and not self.doomed and not self.is_full():
            try:
                self._server.dispatch(self, *backlog.popleft())
            except Exception as error:
                self.failed(error)
        if not self.closed:
            if self.reader.error is not None and not backlog and not self.doomed:
                self.reject(self.reader.error)
            self._update_events()

    # ── out ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def slot(self, *, barrier: bool) -> Slot:
        slot = Slot(self, barrier)
        self.waiting.append(slot)
        if barrier:
            self.barriers += 1
        return slot

    def send(self, part: Part) -> None:
        """An answer made at once. If earlier ones are still under way, it waits for its turn."""
        if self.waiting:
            slot = Slot(self, False)
            slot.parts = [part]
            self.waiting.append(slot)
            return
        self.out.put(part)
        self._mark_dirty()

    def answered(self, slot: Slot) -> None:
        if slot.barrier:
            self.barriers -= 1
        if self.closed:
            drop(slot.parts or ())
            return
        waiting = self.waiting
        out = self.out
        while waiting and (parts := waiting[0].parts) is not None:
            waiting.popleft()
            for part in parts:
                out.put(part)
        if not self.dirty:
            self.dirty = True
            self._server.dirty.append(self)

    def _mark_dirty(self) -> None:
        """There is something to send, or to decide, at the end of this turn."""
        if not self.dirty:
            self.dirty = True
            self._server.dirty.append(self)

    def flush(self) -> bool:
        """Sends what there is: at the end of a turn, and when a full socket has room again. True: `settle` it."""
        self.dirty = False
        if self.closed:
            return False
        out = self.out
        try:
            out.send()
        except OSError:
            self.close()
            return False
        return out.stalled or self._events != READ or self.doomed or bool(self.backlog)

    # ── its state ────────────────────────────────────────────────────────────────────────────────────────────────

    def _update_events(self) -> None:
        held = self.parked or self.doomed or self.backlog or self.is_full()
        events = 0 if held else READ
        if self.out.stalled:
            events |= WRITE
        if events != self._events:
            self._events = events
            self._server.reactor.change(self.fd, events)

    def settle(self) -> None:
        """After answers: goes on with the backlog, or reads again."""
        if self.closed:
            return
        if self.doomed:
            if not self.out and not self.waiting:
                self.close()
            else:
                self._update_events()
        elif self.backlog:
            self._resume()
        else:
            self._update_events()

    def park(self, parked: bool) -> None:
        self.parked = parked
        self.last_active = self._server.tick  # it is we who do not read
        self._update_events()

    def reject(self, reason: str) -> None:
        """A client that does not speak the protocol: one line, and good-bye."""
        self._server.metrics.connections_closed_by_garbage += 1
        self._server.complain(self.peer, reason)
        self.doomed = True  # what it asked before is still answered
        self._drop_backlog()
        self._mark_dirty()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        server = self._server
        server.reactor.remove(self.fd)
        server.holds(self, -self.reader.held)
        server.forget(self)
        self.reader.close()
        self._drop_backlog()
        self.out.drop()
        for slot in self.waiting:
            drop(slot.parts or ())
        self.waiting.clear()
        listeners, self.on_close = self.on_close, []
        for listener in listeners:
            listener()
        self.socket.close()

    def _drop_backlog(self) -> None:
        for chunk, _, _ in self.backlog:
            chunk.unpin()
        self.backlog.clear()

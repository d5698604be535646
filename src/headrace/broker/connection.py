"""One client's requests and answers.

Requests are handled in the order in which they came, and answered in that order. Several Produce requests may be
under way at once; any other request that must wait holds up those behind it, as in Apache Kafka. A client that does
not read its answers is not read from either, so it never makes the broker hold more than it has asked for.

In one turn of the loop a connection is served once, within a budget of requests and of time. What is left of what it
has sent waits, without being cut into frames, until the next turn has served the others; more is read only after that.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.core.errors import InvariantError, PeerError
from headrace.core.file_slice import Slice
from headrace.core.telemetry import failure
from headrace.net.outbox import Outbox, Part, drop
from headrace.net.reactor import BROKEN, READ, WRITE
from headrace.net.transport import Transport
from headrace.protocol.framing import Chunk, FrameReader
from headrace.protocol.produce import ProduceDecoder
from headrace.protocol.wire import MalformedError

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession
    from headrace.broker.server import Server

logger = logging.getLogger(__name__)

ANSWER_BYTES_MAX: Final = 1 << 20  # while more than this waits in memory to be sent, the next request waits too
REQUESTS_PER_TURN: Final = 128  # of one connection; mostly its time is over before

Frame = tuple[Chunk, int, int]


class Slot:
    """The place of one answer in its connection's order."""

    __slots__ = ("barrier", "bytes_held", "connection", "parts")

    def __init__(self, connection: Connection, barrier: bool) -> None:
        self.connection = connection
        self.barrier = barrier
        self.bytes_held = 0  # of an answer that is made and waits for those before it
        self.parts: list[Part] | None = None

    def answer(self, parts: list[Part]) -> None:
        self.parts = parts
        self.connection.answered(self)


class Connection:
    __slots__ = (
        "_answer_bytes",
        "_events",
        "_recv_into",
        "_server",
        "_slot_bytes",
        "_transport",
        "barriers",
        "body_bytes",
        "closed",
        "dirty",
        "doomed",
        "fd",
        "hurry",
        "in_flight_bytes",
        "last_active",
        "on_close",
        "out",
        "parked",
        "peer",
        "produce_decoder",
        "queued",
        "reader",
        "session",
        "waiting",
    )

    def __init__(self, transport: Transport, session: ClientSession, server: Server) -> None:
        self.fd = transport.fileno()
        self._transport = transport
        self._recv_into = transport.recv_into  # once, since it is called with nearly every request
        self.session = session
        self.peer = session.peer
        self.reader = FrameReader(server.pool, server.request_bytes_max)
        self.out = Outbox(transport, server.metrics)
        self.barriers = 0  # requests under way that hold up those behind them
        self.in_flight_bytes = 0
        self.body_bytes = 0  # of long requests, as objects
        self.last_active = server.tick
        self.closed = False
        self.dirty = False
        self.doomed = False  # closed as soon as what it asked before is answered
        self.parked = False  # not read from until the broker has room again
        self.queued = False  # to go on in the next turn
        self.hurry: Callable[[], None] | None = None  # answers the fetch that waits, and holds up those behind it
        self.produce_decoder = ProduceDecoder()
        self.on_close: list[Callable[[], None]] = []
        self._server = server
        self.waiting: deque[Slot] = deque()  # answers to come, in the order of their requests
        self._slot_bytes = 0  # of answers that are made and wait for those before them
        self._answer_bytes = 0  # of answers that the socket did not take, as the server has counted them
        self._events = READ
        server.reactor.add(self.fd, READ, self.on_event)

    @property
    def in_flight(self) -> int:
        return len(self.waiting)

    @property
    def weight_bytes(self) -> int:
        """The memory that it takes: requests that have come in part, wait or are under way, and answers."""
        return self.reader.held + self._answer_bytes + self.in_flight_bytes + self.body_bytes

    # ── in ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def on_event(self, mask: int) -> None:
        try:
            if mask & READ:
                self._read()
                if mask == READ:
                    return
            elif mask & BROKEN:
                self.close()
                return
            if mask & WRITE and not self.closed and self.flush():
                self.settle()
        except Exception as error:
            self.broke(error)

    def _read(self) -> None:
        server = self._server
        reader = self.reader
        bytes_max = 0
        if server.choked:
            bytes_max = server.readable_bytes(self)
            if bytes_max == 0:
                server.park(self)
                return
        held = reader.held
        try:
            count = self._recv_into(reader.target(bytes_max))
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
        self._serve(frames)

    def _serve(self, frames: list[Frame]) -> None:
        """Handles what was cut into frames, and what can be cut, within this turn's budget. What is left waits: for the
        answer that holds it up, or for the next turn."""
        server = self._server
        reader = self.reader
        dispatch = server.dispatch
        until = server.slice_end() if len(frames) > 1 else 0.0
        served = 0
        while True:
            for at, (chunk, start, end) in enumerate(frames):
                if (
                    self.barriers
                    or self.out.bytes_held > ANSWER_BYTES_MAX
                    or (self.in_flight_bytes and self.is_full())
                    or (self.waiting and self.is_full())
                ):
                    self._keep(at)
                    return
                if served and (served >= REQUESTS_PER_TURN or server.clock() >= until):
                    self._keep(at)
                    self._queue()
                    return
                served += 1
                try:
                    dispatch(self, chunk, start, end)
                except Exception as error:
                    self.failed(error)
                if self.closed or self.doomed:
                    held = reader.held
                    reader.drop(at + 1)
                    server.holds(self, reader.held - held)
                    return
            if not reader.waiting:
                break
            frames = self._cut()
        frames.clear()  # the last one may be large, and its memory is nobody's from now on
        if reader.error is not None:
            self.reject(reader.error)

    def _cut(self) -> list[Frame]:
        reader = self.reader
        held = reader.held
        frames = reader.cut()
        if reader.held != held:
            self._server.holds(self, reader.held - held)
        return frames

    def _keep(self, index: int) -> None:
        reader = self.reader
        held = reader.held
        reader.keep(index)
        if reader.held != held:
            self._server.holds(self, reader.held - held)
        self._update_events()

    def _queue(self) -> None:
        """Behind the others that wait for the next turn."""
        if not self.queued:
            self.queued = True
            self._server.reactor.call_soon(self._go_on)

    def _go_on(self) -> None:
        """With what has been read already, then with reading."""
        self.queued = False
        if self.closed or self.doomed:
            return
        try:
            if self.reader.waiting and not self.is_full():
                self._serve(self._cut())
            if not self.closed:
                self._update_events()
        except Exception as error:
            self.broke(error)

    def is_full(self) -> bool:
        """True while the next request must wait."""
        server = self._server
        return (
            self.barriers > 0
            or self.out.stalled
            or self.out.bytes_held + self._slot_bytes > ANSWER_BYTES_MAX
            or len(self.waiting) >= server.in_flight_requests_max
            or self.in_flight_bytes > server.in_flight_bytes_max
        )

    def may_send(self) -> bool:
        """True if it is the client's fault when nothing comes: False while it is we who do not read."""
        return not self.parked and not self.reader.waiting and not self.is_full()

    def failed(self, error: Exception) -> None:
        """A request could not be handled. If it is the client's fault, the log says so."""
        if isinstance(error, MalformedError | PeerError | ValueError | IndexError | struct.error):
            self.reject(str(error))
        else:
            self.broke(error)

    def broke(self, error: Exception) -> None:
        """A bug of ours ends the connection that met it; a broken invariant goes on up, and ends the broker."""
        if isinstance(error, InvariantError):
            raise error
        failure(logger, "request failed: its connection is closed", error, peer=self.peer)
        self.close()

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
            if type(part) is not Slice:
                slot.bytes_held = len(part)
                self._slot_bytes += slot.bytes_held
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
            self._slot_bytes -= waiting.popleft().bytes_held
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
        if out.stalled or self._answer_bytes:
            self._count_answers()
        return out.stalled or self._events != READ or self.doomed

    def _count_answers(self) -> None:
        """What the socket did not take stays in memory until it does."""
        held = self.out.bytes_held
        if held != self._answer_bytes:
            change = held - self._answer_bytes
            self._answer_bytes = held
            self._server.holds(self, change)

    # ── its state ────────────────────────────────────────────────────────────────────────────────────────────────

    def _update_events(self) -> None:
        held = self.parked or self.doomed or self.reader.waiting or self.is_full()
        events = 0 if held else READ
        if self.out.stalled:
            events |= WRITE
        if events != self._events:
            if events & READ and not self._events & READ:
                self.last_active = self._server.tick  # its time to send begins now
            self._events = events
            self._server.reactor.change(self.fd, events)

    def settle(self) -> None:
        """After answers: goes on with what waits, in the next turn, or reads again."""
        if self.closed:
            return
        if self.doomed:
            if not self.out and not self.waiting:
                self.close()
            else:
                self._update_events()
        else:
            self._update_events()
            if self.reader.waiting and not self.is_full():
                self._queue()

    def park(self, parked: bool) -> None:
        self.parked = parked
        self.last_active = self._server.tick  # it is we who do not read
        self._update_events()

    def reject(self, reason: str) -> None:
        """A client that does not speak the protocol: one line, and good-bye."""
        self._server.metrics.connections_closed_by_garbage += 1
        self._server.complain(self.peer, reason)
        self.doomed = True  # what it asked before is still answered
        held = self.reader.held
        self.reader.drop_waiting()
        self._server.holds(self, self.reader.held - held)
        self._mark_dirty()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        server = self._server
        server.reactor.remove(self.fd)
        held = self.reader.held + self._answer_bytes
        self._answer_bytes = 0
        self.reader.close()
        server.forget(self)
        server.holds(self, -held)
        self.out.drop()
        for slot in self.waiting:
            drop(slot.parts or ())
        self.waiting.clear()
        listeners, self.on_close = self.on_close, []
        for listener in listeners:
            listener()
        self._transport.close()

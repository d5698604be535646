"""A client's connection: frames in, answers out, within bounds. Before its session it may send a four-letter word.

A frame is a length and so many bytes. One that is too long, or makes no sense, ends the connection and changes nothing.
In a turn of the loop a connection is served once, within a budget of requests and of time; what is left waits until the
others were served. A client that does not take its answers, or has very many requests under way, is not read from
until it has fewer; one that takes no events either is closed, and finds out what it has missed when it comes back.
"""

from __future__ import annotations

import logging
import struct
import time
from typing import TYPE_CHECKING, Final

from headrace.core.errors import InvariantError
from headrace.core.telemetry import failure
from headrace.keeper.latency import Latency
from headrace.keeper.peers import Peer
from headrace.net.outbox import Outbox
from headrace.net.reactor import BROKEN, READ, WRITE
from headrace.net.transport import Transport
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.jute import MalformedError

if TYPE_CHECKING:
    from headrace.keeper.server import Server

REQUESTS_PER_TURN: Final = 64
SLICE_S: Final = 0.002  # no further request of a connection is begun in a turn after this long
TURN_S: Final = 0.010  # in a turn that has taken this long a connection is served one request
UNANSWERED_MAX: Final = 1000
ANSWER_BYTES_MAX: Final = 1 << 20  # while more than this waits to be synced or sent, the next request waits too
EVENT_BYTES_MAX: Final = 16 << 20  # that wait for a client that does not take them: it is closed
NO_OPERATION: Final = 0
_SIZE: Final = struct.Struct(">i")
_SIZE_BYTES: Final = 4

logger = logging.getLogger(__name__)


class Connection:
    __slots__ = (
        "_at",
        "_data",
        "_ending",
        "_event_bytes",
        "_events",
        "_fd",
        "_more",
        "_out",
        "_partial",
        "_recv_into",
        "_transport",
        "_wanted",
        "closed",
        "connected_ms",
        "forgotten",
        "last_answer_ms",
        "last_kind",
        "last_xid",
        "last_zxid",
        "latency",
        "peer",
        "port",
        "received",
        "sent",
        "server",
        "unanswered",
    )

    def __init__(self, transport: Transport, address: tuple[str, int], server: Server, now_ms: int) -> None:
        self.peer = Peer(address[0])
        self.port = address[1]
        self.server = server
        self.connected_ms = now_ms
        self.closed = False
        self.unanswered = 0
        self.received = 0
        self.sent = 0
        self.forgotten = (0, 0)  # received and sent before crst
        self.last_kind = codes.CREATE_SESSION
        self.last_xid = -1
        self.last_zxid = -1
        self.last_answer_ms = 0
        self.latency = Latency()
        self._transport = transport
        self._recv_into = transport.recv_into  # once, since it is called with nearly every request
        self._fd = transport.fileno()
        self._data = b""  # what has come; served up to `_at`
        self._at = 0
        self._partial = bytearray()  # a frame that has come in part, of `_wanted` bytes
        self._wanted = 0
        self._out = Outbox(transport, server.traffic)
        self._event_bytes = 0  # put into the outbox since it was empty
        self._ending = False  # closes when everything is sent
        self._more = False  # goes on in the next turn
        self._events = READ
        server.reactor.add(self._fd, READ, self._ready)

    @property
    def name(self) -> str:
        return f"{self.peer.address}:{self.port}"

    # ── in ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _ready(self, mask: int) -> None:
        try:
            if mask & WRITE:
                self.flush()
            if self._data:
                if mask & BROKEN:
                    self.close()  # the peer is gone, and what it has sent waits for answers to it
            elif mask & (READ | BROKEN) and not self.closed:
                self._receive()
        except OSError:
            self.close()

    def _receive(self) -> None:
        server = self.server
        try:
            count = self._recv_into(server.buffer)
        except BlockingIOError:
            return
        if not count:
            self.close()
            return
        server.traffic.bytes_in += count
        if self._ending:
            return
        if not self._partial:
            self._data = bytes(server.buffer[:count])
        else:
            self._partial += server.buffer[:count]
            if len(self._partial) < self._wanted:
                return
            self._data = bytes(self._partial)
            self._partial = bytearray()
        self._at = 0
        self._serve()

    def _serve(self) -> None:
        """What has come, as much as a turn has time for; the rest in the next turn."""
        server = self.server
        server.take_time()
        try:
            more = self._served_some()
        except MalformedError as error:
            server.complain(self.name, str(error))
            self.close()
            return
        except InvariantError:
            raise
        except Exception as error:
            failure(logger, "request failed: its connection is closed", error, peer=self.name)
            self.close()
            return
        if self.closed:
            return
        if more:
            self._go_on()
        self._watch()

    def _served_some(self) -> bool:
        """Whether there is more that could be served now."""
        clock = time.perf_counter
        began = clock()
        until = began + SLICE_S if began - self.server.reactor.turn_started < TURN_S else began
        for _ in range(REQUESTS_PER_TURN):
            if self.closed or self._ending or self.peer.refused or self._must_wait() or not self._one():
                return False
            if clock() >= until:
                break
        return True

    def _must_wait(self) -> bool:
        held = self._out.bytes_held + self.peer.bytes_held
        return self.unanswered >= UNANSWERED_MAX or held > ANSWER_BYTES_MAX

    def _go_on(self) -> None:
        if not self._more:
            self._more = True
            self.server.reactor.call_soon(self._again)

    def _again(self) -> None:
        self._more = False
        if not self.closed:
            self._serve()

    def _one(self) -> bool:
        """Whether a whole frame was there, which has been served now. The rest of the last one is put aside."""
        data, at, server = self._data, self._at, self.server
        left = len(data) - at
        size = 0
        if left >= _SIZE_BYTES:
            size = _SIZE.unpack_from(data, at)[0]
            if not self.received and server.says(self, data[at : at + _SIZE_BYTES]):
                return False
            if not 0 < size <= server.request_bytes_max:
                raise MalformedError(f"a request of {size} bytes; jute.maxbuffer is {server.request_bytes_max}")
        if left < _SIZE_BYTES + size or not size:
            self._partial += data[at:]
            self._wanted = _SIZE_BYTES + size
            self._data, self._at = b"", 0
            return False
        first = at + _SIZE_BYTES
        self._at = first + size
        self.received += 1
        server.packets_in += 1
        self.unanswered += 1
        self._dispatch(data, first, first + size)
        return True

    def _dispatch(self, data: bytes, first: int, end: int) -> None:
        if self.received == 1:
            self.server.attach(self, requests.read_connect(data[first:end]))
            return
        if self.peer.session is None:
            raise MalformedError("a request before its session")
        xid, kind = requests.read_header(data, first, end)
        self.last_kind = kind
        if xid >= 0:
            self.last_xid = xid
        self.server.machine.request(self.peer, xid, requests.read_request(data, first, end))

    # ── out ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, frame: bytes) -> None:
        """Goes out at the next flush."""
        self._out.put(frame)
        self.sent += 1

    def answer(self, frame: bytes, asked_ms: int, now_ms: int) -> None:
        self.unanswered -= 1
        self.latency.add(now_ms - asked_ms)
        self.last_answer_ms = now_ms
        self.send(frame)

    def reset(self) -> None:
        """What is told of it begins again."""
        self.forgotten = (self.received, self.sent)
        self.last_kind, self.last_xid, self.last_zxid, self.last_answer_ms = NO_OPERATION, -1, -1, 0
        self.latency = Latency()

    def notify(self, event: bytes) -> None:
        """The same for what answers no request, and so is not bounded by how many requests there may be."""
        self._event_bytes += len(event)
        self.send(event)

    def finish(self) -> None:
        """Closes when everything that was sent before is out."""
        self._ending = True

    def flush(self) -> None:
        out = self._out
        try:
            out.send()
        except OSError:
            self.close()
            return
        if not out:
            self._event_bytes = 0
        elif self._event_bytes > EVENT_BYTES_MAX:
            self.server.complain(self.name, f"more than {EVENT_BYTES_MAX} bytes of events wait for it to take them")
            self.close()
            return
        if self._ending and not out:
            self.close()
            return
        if self._data and not self._more and not self._must_wait():
            self._go_on()
        self._watch()

    def _watch(self) -> None:
        if self.closed:
            return
        events = 0 if self._more or self._data or self._must_wait() else READ
        if self._out.stalled:
            events |= WRITE
        if events != self._events:
            self._events = events
            self.server.reactor.change(self._fd, events)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.server.reactor.remove(self._fd)
        self._transport.close()
        self._out.drop()
        self._data, self._at = b"", 0
        self._partial = bytearray()
        self.server.forget(self)

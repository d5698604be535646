"""A client's connection: frames in, answers out, within bounds. Before its session it may send a four-letter word.

A frame is a length and so many bytes. One that is too long, or makes no sense, ends the connection and changes nothing.
A client that does not take its answers, or has very many requests under way, is not read from until it has fewer.
"""

from __future__ import annotations

import socket
from collections import deque
from typing import TYPE_CHECKING, Final

from headrace.core.errors import InvariantError
from headrace.keeper import codes, requests
from headrace.keeper.jute import MalformedError
from headrace.keeper.machine import Peer
from headrace.net.reactor import BROKEN, READ, WRITE

if TYPE_CHECKING:
    from headrace.keeper.server import Server

READ_BYTES_MAX: Final = 64 << 10
REQUESTS_PER_TURN: Final = 64
UNANSWERED_MAX: Final = 1000
UNSENT_BYTES_MAX: Final = 1 << 20
SENT_PIECES_MAX: Final = 256  # in one call


class Connection:
    def __init__(self, sock: socket.socket, address: tuple[str, int], server: Server, now_ms: int) -> None:
        self.peer = Peer(address[0])
        self.port = address[1]
        self.server = server
        self.connected_ms = now_ms
        self.closed = False
        self.unanswered = 0
        self.received = 0
        self.sent = 0
        self.last_xid = 0
        self.last_zxid = 0
        self._sock = sock
        self._fd = sock.fileno()
        self._in = bytearray()
        self._out: deque[bytes] = deque()
        self._out_bytes = 0
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
            if mask & (READ | BROKEN) and not self.closed:
                self._receive()
        except InvariantError:
            raise
        except OSError:
            self.close()

    def _receive(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES_MAX)
        except BlockingIOError:
            return
        if not data:
            self.close()
            return
        if self._ending:
            return
        self._in += data
        self.serve()

    def serve(self) -> None:
        """What has come, a number of requests; the rest in the next turn."""
        self.server.take_time()
        try:
            for _ in range(REQUESTS_PER_TURN):
                if self.closed or self._ending or not self._one():
                    break
            else:
                self._go_on()
        except MalformedError as error:
            self.server.complain(self.name, str(error))
            self.close()
        self._watch()

    def _go_on(self) -> None:
        if not self._more:
            self._more = True
            self.server.reactor.call_soon(self._again)

    def _again(self) -> None:
        self._more = False
        if not self.closed:
            self.serve()

    def _one(self) -> bool:
        """Whether a whole frame was there, and may be served now."""
        data = self._in
        if len(data) < 4 or self.unanswered >= UNANSWERED_MAX:
            return False
        size = int.from_bytes(data[:4], "big", signed=True)
        if self.peer.session is None and not self.received and self.server.says(self, bytes(data[:4])):
            return False
        if not 0 < size <= self.server.request_bytes_max:
            raise MalformedError(f"a request of {size} bytes; jute.maxbuffer is {self.server.request_bytes_max}")
        if len(data) < 4 + size:
            return False
        frame = bytes(memoryview(data)[4 : 4 + size])
        del data[: 4 + size]
        self.received += 1
        self.server.packets_in += 1
        self.unanswered += 1
        self._dispatch(frame)
        return True

    def _dispatch(self, frame: bytes) -> None:
        machine = self.server.machine
        if self.received == 1:
            self.server.attach(self, requests.read_connect(frame))
            return
        if self.peer.session is None:
            raise MalformedError("a request before its session")
        xid, kind = requests.read_header(frame)
        if kind != codes.PING:
            self.last_xid = xid
        machine.request(self.peer, xid, requests.read_request(frame))

    # ── out ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, frame: bytes) -> None:
        """Goes out at the next flush."""
        self._out.append(frame)
        self._out_bytes += len(frame)

    def finish(self) -> None:
        """Closes when everything that was sent before is out."""
        self._ending = True

    def flush(self) -> None:
        out = self._out
        try:
            while out:
                pieces = [out[place] for place in range(min(len(out), SENT_PIECES_MAX))]
                self._sent(self._sock.sendmsg(pieces))
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if self._ending and not out:
            self.close()
            return
        if self._in and not self._more and self.unanswered < UNANSWERED_MAX:
            self._go_on()
        self._watch()

    def _sent(self, size: int) -> None:
        self._out_bytes -= size
        out = self._out
        while size:
            first = out[0]
            if size < len(first):
                out[0] = first[size:]
                return
            size -= len(first)
            out.popleft()
            self.sent += 1
            self.server.packets_out += 1

    def _watch(self) -> None:
        if self.closed:
            return
        full = self._out_bytes > UNSENT_BYTES_MAX or self.unanswered >= UNANSWERED_MAX or self._more
        events = (0 if full else READ) | (WRITE if self._out else 0)
        if events != self._events:
            self._events = events
            self.server.reactor.change(self._fd, events)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.server.reactor.remove(self._fd)
        self._sock.close()
        self._out.clear()
        self._in.clear()
        self.server.forget(self)

"""A connection at one end of a socket pair, a client at the other, and a loop that is turned by hand."""

import socket
import struct

from sessions import asking

from headrace.broker.metrics import Metrics
from headrace.broker.server import Server
from headrace.core.errors import InvariantError, PeerError
from headrace.core.settings.broker import BrokerSettings
from headrace.net.reactor import READ, Reactor
from headrace.net.transport import PlainTransport
from headrace.protocol.wire import MalformedError


def framed(payload):
    return struct.pack(">i", len(payload)) + payload


class Pair:
    """Requests are words: `now x` is answered at once, `later x` when told, `wait x` likewise but holds up the next."""

    def __init__(self, *, buffer_bytes=None, **server_settings):
        self.reactor = Reactor()
        self.server = Server(BrokerSettings(port=0, **server_settings), self.reactor, Metrics())
        self.server.dispatch = self.dispatch
        ours, self.client = socket.socketpair()
        if buffer_bytes:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
        self.client.setblocking(False)
        self.connection = self.server.admit(PlainTransport(ours), asking())
        self.handled = []
        self.slots = {}
        self.chunks = []
        self.pinned = []
        self.received = b""
        self.ended = False

    def dispatch(self, connection, chunk, start, end):
        self.chunks.append(chunk)
        word, _, rest = bytes(chunk.view[start:end]).decode().partition(" ")
        if word == "pin":  # as Produce: the memory is held until it is answered
            self.pinned.append(chunk)
        else:
            chunk.unpin()
        self.handled.append(f"{word} {rest}")
        if word == "now":
            connection.send(framed(rest.encode()))
        elif word in ("later", "wait", "pin"):
            self.slots[rest] = connection.slot(barrier=word == "wait")
        elif word == "big":
            connection.send(framed(b"#" * int(rest)))
        elif word == "malformed":
            raise MalformedError(rest)
        elif word == "refused":
            raise PeerError(35, rest)
        elif word == "cut":
            raise IndexError(rest)
        elif word == "bug":
            raise RuntimeError(rest)
        elif word == "invariant":
            raise InvariantError(rest)

    def turn(self):
        self.reactor.turn_started = self.server.clock()
        for fd, mask in self.reactor._epoll.poll(0):
            owner = self.reactor._owners.get(fd)
            if owner is not None:
                owner(mask)
        self.reactor.run_soon()
        self.send()
        self.server.pool.end_of_turn()

    def send(self):
        while self.server.dirty:
            self.server.send_answers()

    def settle(self):
        """Turns until nothing goes on by itself."""
        self.turn()
        while self.reactor._soon:
            self.turn()

    def ask(self, *words):
        """All of them in one piece, then a turn."""
        self.client.sendall(b"".join(framed(word.encode()) for word in words))
        self.settle()

    def answer(self, name, parts=None):
        self.slots.pop(name).answer([framed(name.encode())] if parts is None else parts)
        self.send()
        while self.reactor._soon:
            self.reactor.run_soon()
            self.send()

    def read(self, bytes_max=1 << 20):
        """What has come so far."""
        try:
            data = self.client.recv(bytes_max)
            self.ended = self.ended or not data
            self.received += data
        except BlockingIOError:
            data = b""
        except ConnectionResetError:
            data, self.ended = b"", True
        return data

    def answers(self):
        """The answers that are whole, as words."""
        self.settle()
        while self.read():
            self.settle()
        found, data = [], self.received
        while len(data) >= 4:
            size = struct.unpack(">i", data[:4])[0]
            if len(data) < 4 + size:
                break
            found.append(data[4 : 4 + size].decode())
            data = data[4 + size :]
        return found

    def reads(self):
        return bool(self.connection._events & READ)

    def end(self):
        self.server.drop_all()
        self.client.close()
        self.reactor.close()

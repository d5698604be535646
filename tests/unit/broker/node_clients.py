"""Clients of a node that is opened and not run: the test says when a turn comes."""

import contextlib
import socket

from sessions import asking

from headrace.net.transport import PlainTransport
from headrace.protocol import messages
from headrace.protocol.framing import Chunk


class Client:
    def __init__(self, node, **session):
        self.node = node
        ours, self.socket = socket.socketpair()
        self.socket.setblocking(False)
        self.connection = node.server.admit(PlainTransport(ours), asking(**session))
        self.received = b""

    def send(self, key, version, body):
        self.dispatch(messages.encode_request(key, version, 1, "test", body))

    def dispatch(self, sent):
        chunk = Chunk(len(sent), None)
        chunk.view[:] = sent
        chunk.pins = 1
        self.node.router.dispatch(self.connection, chunk, 0, len(sent))

    def is_answered(self):
        try:
            while part := self.socket.recv(1 << 20):
                self.received += part
        except BlockingIOError:
            pass
        if self.connection.out.stalled and self.connection.flush():
            self.connection.settle()
        return len(self.received) >= 4 and len(self.received) == 4 + int.from_bytes(self.received[:4], "big")

    def ask(self, key, version, body):
        self.send(key, version, body)
        for _ in range(100_000):
            if self.is_answered():
                received, self.received = self.received[4:], b""
                return messages.decode_response(key, version, received)[1]
            turn(self.node)
        raise AssertionError("never answered")


def turn(node):
    node.reactor.run_soon()
    node._end_of_turn()


@contextlib.contextmanager
def connected(node):
    """Makes clients; closes them at the end."""
    made = []

    def make(**session):
        made.append(Client(node, **session))
        return made[-1]

    yield make
    for each in made:
        each.connection.close()
        each.socket.close()

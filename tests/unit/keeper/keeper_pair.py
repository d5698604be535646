"""A keeper's connections at one end of socket pairs, clients at the other, and a loop that is turned by hand."""

import socket
import struct
import time

from headrace.core.clock import ManualClock
from headrace.keeper.machine import Machine
from headrace.keeper.server import Server
from headrace.keeper.sessions import Sessions
from headrace.keeper.settings import KeeperSettings
from headrace.keeper.tree import Tree
from headrace.net.reactor import READ, Reactor
from headrace.net.transport import PlainTransport
from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.acl import OPEN, acl_bytes
from headrace.protocol.zookeeper.jute import boolean_bytes, buffer_bytes, int_bytes, long_bytes, string_bytes


def framed(body):
    return struct.pack(">i", len(body)) + body


def hello(session=0, password=bytes(16)):
    body = int_bytes(0) + long_bytes(0) + int_bytes(30_000) + long_bytes(session) + buffer_bytes(password)
    return framed(body + boolean_bytes(False))


def request(xid, kind, body=b""):
    return framed(int_bytes(xid) + int_bytes(kind) + body)


def get(xid, path, watch=False):
    return request(xid, codes.GET_DATA, string_bytes(path) + boolean_bytes(watch))


def create(xid, path, data=b""):
    body = string_bytes(path) + buffer_bytes(data) + acl_bytes(OPEN) + int_bytes(0)
    return request(xid, codes.CREATE, body)


class Client:
    def __init__(self, rig, transport=None):
        ours, self.socket = socket.socketpair()
        self.socket.setblocking(False)
        self._rig = rig
        self.connection = rig.server.admit(transport or PlainTransport(ours), ("127.0.0.1", 4711))
        self._received = b""
        self.ended = False

    def send(self, data):
        """All of it; the loop turns where the socket is full."""
        while data:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                self._rig.turn()

    def frames(self):
        """The whole frames that have come and were not taken yet."""
        try:
            while not self.ended:
                data = self.socket.recv(1 << 20)
                self.ended = not data
                self._received += data
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.ended = True
        found = []
        while len(self._received) >= 4:
            size = struct.unpack(">i", self._received[:4])[0]
            if len(self._received) < 4 + size:
                break
            found.append(self._received[4 : 4 + size])
            self._received = self._received[4 + size :]
        return found

    def xids(self):
        return [struct.unpack(">i", frame[:4])[0] for frame in self.frames()]

    def reads(self):
        """Whether the keeper takes more from it."""
        return bool(self.connection._events & READ)


class Rig:
    def __init__(self, **settings):
        self.clock = ManualClock()
        self.reactor = Reactor()
        sessions = Sessions(b"secret", timeout_ms_min=1000, timeout_ms_max=60_000)
        self.machine = Machine(Tree(), sessions)
        self.server = Server(KeeperSettings(port=0, **settings), self.reactor, self.machine, self.clock)
        self.holding = False  # as while a write is under way
        self.clients = []

    def client(self, transport=None):
        made = Client(self, transport)
        self.clients.append(made)
        return made

    def session(self):
        made = self.client()
        made.send(hello())
        self.settle()
        assert len(made.frames()) == 1
        return made

    def turn(self):
        self.reactor.turn_started = time.perf_counter()
        for fd, mask in self.reactor._epoll.poll(0):
            owner = self.reactor._owners.get(fd)
            if owner is not None:
                owner(mask)
        self.reactor.run_soon()
        self.release()

    def release(self):
        """What was staged is on the disk, unless it is to wait."""
        if not self.holding:
            self.machine.take_staged()
            self.server.release(self.machine.tree.last_zxid)

    def settle(self):
        self.turn()
        while self.reactor._soon:
            self.turn()

    def end(self):
        self.server.stop_listening()
        self.server.drop_all()
        for client in self.clients:
            client.socket.close()
        self.reactor.close()

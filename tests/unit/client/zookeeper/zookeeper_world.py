"""A client's session and the keeper's machine, joined by bytes, the time in the test's hands: no socket, no thread."""

from __future__ import annotations

from random import Random

from headrace.client.zookeeper.connect_string import parse_connect_string
from headrace.client.zookeeper.events import Changed, Connect, Event, StateChanged
from headrace.client.zookeeper.session import Session
from headrace.client.zookeeper.states import State
from headrace.keeper.machine import Machine
from headrace.keeper.peers import Peer
from headrace.keeper.sessions import Sessions
from headrace.keeper.tree import Tree
from headrace.protocol.zookeeper import codes, requests
from headrace.protocol.zookeeper.acl import OPEN
from headrace.protocol.zookeeper.framing import Frames


class Server:
    """One keeper; a connection is a peer."""

    def __init__(self) -> None:
        sessions = Sessions(b"secret", timeout_ms_min=1000, timeout_ms_max=40_000)
        self.machine = Machine(Tree(), sessions)
        self.machine.at(1_700_000_000_000, 0)
        self.asked: list[requests.Connect | requests.Request] = []
        self._frames: dict[Peer, Frames] = {}
        self._out: dict[Peer, bytes] = {}
        self.closed: set[Peer] = set()

    def open(self) -> Peer:
        peer = Peer("127.0.0.1")
        self._frames[peer], self._out[peer] = Frames(1 << 20), b""
        return peer

    def receive(self, peer: Peer, data: bytes) -> None:
        for frame in self._frames[peer].feed(data):
            if peer.session is None:
                connect = requests.read_connect(frame)
                self.asked.append(connect)
                self.machine.connect(peer, connect)
            else:
                request = requests.read_request(frame)
                self.asked.append(request)
                self.machine.request(peer, requests.read_header(frame)[0], request)
        self._collect()

    def _collect(self) -> None:
        for output in self.machine.outputs.take():
            if output.frame is not None:
                self._out[output.peer] = self._out.get(output.peer, b"") + output.frame
            else:
                self.closed.add(output.peer)

    def take(self, peer: Peer) -> bytes:
        self._collect()
        out, self._out[peer] = self._out[peer], b""
        return out

    def lose(self, peer: Peer) -> None:
        self.machine.disconnected(peer)
        self.closed.discard(peer)

    def set(self, path: str, data: bytes = b"changed") -> None:
        """By somebody else."""
        self._by_somebody(requests.SetData(path, data, -1))

    def create(self, path: str) -> None:
        self._by_somebody(requests.Create(codes.CREATE, path, b"", OPEN, 0, -1))

    def delete(self, path: str) -> None:
        self._by_somebody(requests.Delete(path, -1))

    def _by_somebody(self, request: requests.Request) -> None:
        other = Peer("127.0.0.1")
        self.machine.connect(other, requests.Connect(0, 0, 40_000, 0, b"", False))
        self.machine.request(other, 1, request)
        self._collect()


class World:
    """One client and its server. `up` says whether the server takes connections."""

    def __init__(self, connect: str = "a:1", *, timeout_ms: int = 9000, **more: object) -> None:
        self.now_ms = 0
        self.up = True
        self.server = Server()
        self.session = Session(
            parse_connect_string(connect),
            now_ms=0,
            choose=Random(1),
            timeout_ms=timeout_ms,
            **more,  # type: ignore[arg-type]
        )
        self.peer: Peer | None = None
        self.events: list[Event] = []
        self.tried: list[tuple[str, int]] = []

    def step(self, split: Random | None = None) -> bool:
        """Everything that can happen at this time, once; whether anything did."""
        session = self.session
        session.tick(self.now_ms)
        busy = False
        for action in session.take_actions():
            busy = True
            if isinstance(action, Connect):
                self.tried.append(action.server)
                if self.up:
                    self.peer = self.server.open()
                    session.opened(self.now_ms)
                else:
                    session.lost(self.now_ms, "connection refused")
            else:
                self._drop()
        out = session.take_bytes()
        if out and self.peer is not None:
            busy = True
            for piece in _pieces(out, split):
                self.server.receive(self.peer, piece)
        if self.peer is not None:
            came = self.server.take(self.peer)
            busy = busy or bool(came)
            for piece in _pieces(came, split):
                if self.peer is None or session.ended:
                    break
                session.received(piece, self.now_ms)
            if self.peer is not None and self.peer in self.server.closed and not session.ended:
                self.cut()
        self.events += session.take_events()
        return busy

    def settle(self, split: Random | None = None) -> list[Event]:
        """Until nothing more happens at this time; what was told meanwhile."""
        before = len(self.events)
        while self.step(split):
            pass
        return self.events[before:]

    def advance(self, ms: int) -> list[Event]:
        self.now_ms += ms
        return self.settle()

    def cut(self) -> None:
        """The connection breaks; what was under way is gone."""
        if self.peer is not None:
            self.server.lose(self.peer)
            self.peer = None
            self.session.lost(self.now_ms, "reset by peer")

    def _drop(self) -> None:
        if self.peer is not None:
            self.server.lose(self.peer)
            self.peer = None

    def ask(self, request: requests.Request, watcher: object = None) -> Event:
        ticket = self.session.submit(request, self.now_ms, watcher)
        self.settle()
        return next(each for each in self.events if getattr(each, "ticket", None) == ticket)

    def changes(self) -> list[tuple[int, str, tuple[object, ...]]]:
        """What watchers were told, since this was asked before."""
        found = [(each.kind, each.path, each.watchers) for each in self.events if isinstance(each, Changed)]
        self.events = [each for each in self.events if not isinstance(each, Changed)]
        return found

    def states(self) -> list[State]:
        return [each.state for each in self.events if isinstance(each, StateChanged)]


def _pieces(data: bytes, split: Random | None) -> list[bytes]:
    if split is None:
        return [data] if data else []
    pieces = []
    while data:
        size = split.randint(1, max(1, min(len(data), 40)))
        pieces.append(data[:size])
        data = data[size:]
    return pieces

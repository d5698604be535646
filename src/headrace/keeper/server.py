"""Accepts connections, and lets nothing out before what it shows is on the disk.

The machine applies a change at once. What it then says, answers, reads and events alike, is held here until the log up
to the zxid that it has seen is synced. One write is under way at a time; what comes meanwhile goes into the next one,
which is how many clients share one sync. A failed sync ends the process: what the disk holds is not known then.
"""

import errno
import logging
import resource
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from headrace.core.clock import Clock
from headrace.core.errors import InvariantError, OperatorError
from headrace.core.telemetry import event
from headrace.keeper import requests
from headrace.keeper.connection import Connection
from headrace.keeper.machine import Machine, Output, Peer
from headrace.keeper.settings import KeeperSettings
from headrace.net.reactor import READ, Reactor

ACCEPTS_PER_TURN: Final = 64
ACCEPT_PAUSE_S: Final = 0.1
DESCRIPTORS_SPARE: Final = 64
SILENT_S_MAX: Final = 30  # a connection without a session is closed after this long

logger = logging.getLogger(__name__)


class Latency:
    """From a request to its answer, in milliseconds."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.min = 0
        self.max = 0

    def add(self, ms: int) -> None:
        self.min = min(self.min, ms) if self.count else ms
        self.max = max(self.max, ms)
        self.count += 1
        self.total += ms

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0


class Server:
    def __init__(self, settings: KeeperSettings, reactor: Reactor, machine: Machine, clock: Clock) -> None:
        self.reactor = reactor
        self.machine = machine
        self.request_bytes_max = settings.request_bytes_max
        self.connections: dict[Peer, Connection] = {}
        self.say: Callable[[str], bytes | None] = lambda word: None  # answers a four-letter word
        self.durable_zxid = machine.tree.last_zxid
        self.latency = Latency()
        self.packets_in = 0
        self.packets_out = 0
        self.accepted = 0
        self.refused = 0
        self._settings = settings
        self._clock = clock
        self._turn = -1.0
        self._held: deque[Output] = deque()
        self._listener: socket.socket | None = None
        self._by_address: Counter[str] = Counter()
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - DESCRIPTORS_SPARE
        self._connections_max = min(settings.connections_max or descriptors, descriptors)

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def listen(self) -> int:
        """Binds, and returns the port."""
        host, port = self._settings.host, self._settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1024)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                remedy = (
                    "the port is in use; stop the process that uses it, or give another with --port (0: a free one)"
                )
            else:
                remedy = f"cannot listen there ({error.strerror}); give another --host or --port"
            raise OperatorError(f"{host}:{port}: {remedy}") from error
        self._listener = listener
        self.reactor.add(listener.fileno(), READ, self._accept)
        return int(listener.getsockname()[1])

    def _accept(self, _: int) -> None:
        for _turn in range(ACCEPTS_PER_TURN):
            if self._listener is None:
                return
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                event(logger, logging.WARNING, "cannot accept a connection", reason=error.strerror)
                self.reactor.change(self._listener.fileno(), 0)
                self.reactor.call_later(ACCEPT_PAUSE_S, self._look_again)
                return
            self._welcome(sock, address)

    def _look_again(self) -> None:
        if self._listener is not None:
            self.reactor.change(self._listener.fileno(), READ)

    def _welcome(self, sock: socket.socket, address: tuple[str, int]) -> None:
        host, limit = address[0], self._settings.connections_per_address_max
        if limit and self._by_address[host] >= limit:
            refusal = f"maxClientCnxns={limit}"
        elif len(self.connections) >= self._connections_max:
            refusal = f"maxCnxns={self._connections_max}"
        else:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.accepted += 1
            self._by_address[host] += 1
            connection = Connection(sock, address, self, self._steady_ms())
            self.connections[connection.peer] = connection
            return
        self.refused += 1
        event(logger, logging.WARNING, "connection refused: too many are open", peer=host, limit=refusal)
        sock.close()

    def forget(self, connection: Connection) -> None:
        if self.connections.pop(connection.peer, None) is None:
            return
        self._by_address[connection.peer.address] -= 1
        self.machine.disconnected(connection.peer)

    def complain(self, peer: str, reason: str) -> None:
        event(logger, logging.WARNING, "connection closed: not a valid request", peer=peer, reason=reason)

    def attach(self, connection: Connection, asked: requests.Connect) -> None:
        if asked.last_zxid > self.machine.tree.last_zxid:
            event(
                logger,
                logging.WARNING,
                "connection refused: the client has seen a later state than this keeper has",
                peer=connection.name,
                zxid=f"{asked.last_zxid:#x}",
                own=f"{self.machine.tree.last_zxid:#x}",
            )
        self.machine.connect(connection.peer, asked)

    def says(self, connection: Connection, word: bytes) -> bool:
        """Whether the first bytes of a connection are a four-letter word; then it is answered, and that is all."""
        if not word.isalpha():
            return False
        answer = self.say(word.decode("ascii", "replace"))
        if answer is None:
            return False
        connection.send(answer)
        connection.finish()
        connection.flush()
        return True

    def close_silent(self) -> None:
        oldest = self._steady_ms() - SILENT_S_MAX * 1000
        for connection in list(self.connections.values()):
            if connection.peer.session is None and connection.connected_ms < oldest:
                connection.close()

    def drop_all(self) -> None:
        for connection in list(self.connections.values()):
            connection.close()

    def stop_listening(self) -> None:
        if self._listener is not None:
            self.reactor.remove(self._listener.fileno())
            self._listener.close()
            self._listener = None

    # ── out ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def release(self, durable_zxid: int) -> None:
        """Lets out what has seen no more than this."""
        if durable_zxid < self.durable_zxid:
            raise InvariantError(f"the log is durable up to {durable_zxid:#x}, and was up to {self.durable_zxid:#x}")
        self.durable_zxid = durable_zxid
        now_ms = self._steady_ms()
        held = self._held
        held.extend(self.machine.outputs)
        self.machine.outputs.clear()
        touched: dict[Connection, None] = {}
        while held and held[0].zxid <= durable_zxid:
            _, began_ms, peer, frame = held.popleft()
            connection = self.connections.get(peer)
            if connection is None:
                continue
            if frame is None:
                connection.finish()
            else:
                if frame[4:8] != b"\xff\xff\xff\xff":  # an event answers no request
                    connection.unanswered -= 1
                    self.latency.add(now_ms - began_ms)
                connection.send(frame)
                connection.last_zxid = durable_zxid
            touched[connection] = None
        for connection in touched:
            connection.flush()

    def _steady_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def take_time(self) -> None:
        """Once per turn: requests that came together came at one time."""
        if self.reactor.turn_started != self._turn:
            self._turn = self.reactor.turn_started
            self.machine.at(self._clock.now_ms(), self._steady_ms())

    @property
    def held(self) -> int:
        return len(self._held) + len(self.machine.outputs)

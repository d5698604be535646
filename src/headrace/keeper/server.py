"""Accepts connections, and lets nothing out before what it shows is on the disk.

The machine applies a change at once. What it then says, answers, reads and events alike, is held here until the log up
to the zxid that it has seen is synced. One write is under way at a time; what comes meanwhile goes into the next one,
which is how many clients share one sync. A failed sync ends the process: what the disk holds is not known then.
"""

import itertools
import logging
import resource
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from headrace.core.clock import Clock
from headrace.core.errors import InvariantError
from headrace.core.telemetry import event
from headrace.keeper.connection import Connection
from headrace.keeper.latency import Latency
from headrace.keeper.machine import Machine
from headrace.keeper.peers import UNASKED, Output, Peer
from headrace.keeper.settings import KeeperSettings
from headrace.net.listener import Listener
from headrace.net.reactor import Reactor
from headrace.net.traffic import Traffic
from headrace.net.transport import PlainTransport, Transport
from headrace.protocol.zookeeper import requests

DESCRIPTORS_SPARE: Final = 64
READ_BYTES_MAX: Final = 64 << 10  # of one connection, at once
SILENT_PER_TURN: Final = 256
SILENT_S_MAX: Final = 30  # a connection without a session is closed after this long

logger = logging.getLogger(__name__)


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
        self.traffic = Traffic()
        self.buffer = memoryview(bytearray(READ_BYTES_MAX))  # that all connections read into, one after the other
        self.accepted = 0
        self.refused = 0
        self._settings = settings
        self._clock = clock
        self._turn = -1.0
        self._held: deque[Output] = deque()
        self._strangers: dict[Connection, None] = {}  # without a session yet, in the order in which they came
        self._listener: Listener | None = None
        self._by_address: Counter[str] = Counter()
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - DESCRIPTORS_SPARE
        self._connections_max = min(settings.connections_max or descriptors, descriptors)

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def listen(self) -> int:
        """Binds, and returns the port."""
        self._listener = Listener(self.reactor, self._settings.host, self._settings.port, self._welcome)
        return self._listener.port

    def _welcome(self, sock: socket.socket, address: tuple[str, int]) -> None:
        host, limit = address[0], self._settings.connections_per_address_max
        if limit and self._by_address[host] >= limit:
            refusal = f"maxClientCnxns={limit}"
        elif len(self.connections) >= self._connections_max:
            refusal = f"maxCnxns={self._connections_max}"
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.admit(PlainTransport(sock), address)
            return
        self.refused += 1
        event(logger, logging.WARNING, "connection refused: too many are open", peer=host, limit=refusal)
        sock.close()

    def admit(self, transport: Transport, address: tuple[str, int]) -> Connection:
        self.accepted += 1
        self._by_address[address[0]] += 1
        connection = Connection(transport, address, self, self._steady_ms())
        self.connections[connection.peer] = connection
        self._strangers[connection] = None
        return connection

    def forget(self, connection: Connection) -> None:
        if self.connections.pop(connection.peer, None) is None:
            return
        self._strangers.pop(connection, None)
        host = connection.peer.address
        self._by_address[host] -= 1
        if not self._by_address[host]:
            del self._by_address[host]
        self.machine.disconnected(connection.peer)

    def complain(self, peer: str, reason: str) -> None:
        event(logger, logging.WARNING, "connection closed", peer=peer, reason=reason)

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
        self._strangers.pop(connection, None)

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
        for connection in list(itertools.islice(self._strangers, SILENT_PER_TURN)):
            if connection.connected_ms >= oldest:
                return
            connection.close()

    def drop_all(self) -> None:
        for connection in list(self.connections.values()):
            connection.close()

    def stop_listening(self) -> None:
        if self._listener is not None:
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
        outputs = self.machine.outputs.take()
        if held:
            held.extend(outputs)
        else:
            held = self._held = deque(outputs)
        touched: dict[Connection, None] = {}
        while held and held[0].zxid <= durable_zxid:
            output = held.popleft()
            peer, frame = output.peer, output.frame
            connection = self.connections.get(peer)
            if connection is None:
                continue
            if frame is None:
                connection.finish()
            else:
                peer.bytes_held -= len(frame)
                self.packets_out += 1
                if output.asked_ms == UNASKED:
                    connection.notify(frame)
                else:
                    self.latency.add(now_ms - output.asked_ms)
                    connection.answer(frame, output.asked_ms, now_ms)
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
        return len(self._held) + len(self.machine.outputs.waiting)

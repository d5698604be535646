"""Accepts connections, keeps them within their bounds, and sends at the end of each turn what was answered.

The memory that clients make the broker take is one budget, `queued.max.request.bytes`: frames that have come in part,
requests that wait or are under way, answers that a socket does not take, and what groups remember of their members
(which counts for half of the budget at most, so that requests always have the other half). Above it, connections that
take more than a small share are not read from, but for the one whose unfinished frame is the oldest: that makes room
when it ends, and it must come quickly. If requests under way alone are above it, nobody else is read from until they
are written. Nothing that is under way is dropped.
"""

from __future__ import annotations

import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Final

from headrace.broker.client_session import ClientSession
from headrace.broker.client_software import ClientSoftware
from headrace.broker.connection import Connection
from headrace.broker.metrics import Metrics
from headrace.core.listeners import WILDCARDS, ListenerAddress
from headrace.core.settings.broker import BrokerSettings
from headrace.core.telemetry import event
from headrace.net.listener import Listener
from headrace.net.reactor import Reactor
from headrace.net.transport import PlainTransport, Transport
from headrace.protocol.framing import READ_BYTES_MAX, Chunk, ChunkPool

CHOKED_BYTES_MIN: Final = 4 << 10  # that a connection which takes no memory may send while memory is short
DESCRIPTORS_SPARE: Final = 128  # kept for the log and the rest of the broker
SLICE_S: Final = 0.001  # a connection with more requests is served so long in a turn
TURN_S: Final = 0.010  # in a turn that has taken this long, each connection is served one request
TICK_SECONDS: Final = 1.0
CROWDED_FRAME_TICKS_MAX: Final = 3
CROWDED_FRAME_BYTES_MIN: Final = 256 << 10  # of the oldest frame, in a tick
STALLED_FRAME_TICKS_MAX: Final = 30  # a frame of which nothing more comes for so long ends its connection

logger = logging.getLogger(__name__)

Dispatch = Callable[[Connection, Chunk, int, int], None]


class Server:
    def __init__(self, settings: BrokerSettings, reactor: Reactor, metrics: Metrics) -> None:
        self.reactor = reactor
        self.metrics = metrics
        self.software = ClientSoftware()
        self.pool = ChunkPool()
        self.request_bytes_max = settings.socket_request_max_bytes
        self.in_flight_requests_max = settings.in_flight_requests_max
        self.in_flight_bytes_max = settings.in_flight_bytes_max
        self.dispatch: Dispatch = lambda connection, chunk, start, end: None
        self.dirty: list[Connection] = []
        self.tick = 0
        self.clock: Callable[[], float] = perf_counter
        self.in_flight_bytes = 0  # produced, not yet written: all connections
        self.held_bytes = 0  # of frames that have come in part or wait, and of answers that no socket took: likewise
        self.group_bytes = 0  # what groups remember of their members, as far as it counts
        self.metadata_bytes: Callable[[], int] = int  # asked for that, once a tick
        self.room_bytes = 0  # what in_flight_bytes may be
        self.choked = False  # more is taken than there is room for
        self._relieving = False
        self._hurrying = False
        self._budget_bytes = 0
        self._hurried: Connection | None = None  # whose frame was the oldest at the last tick, while memory was short
        self._hurried_bytes = 0
        self._late_ticks = 0
        self._settings = settings
        self._connections: set[Connection] = set()
        self._by_address: Counter[str] = Counter()
        self._parked: list[Connection] = []
        self._holders: dict[Connection, None] = {}  # who has such frames, oldest first
        self._listeners: dict[str, Listener] = {}  # by name
        self.use(settings)

    def use(self, settings: BrokerSettings) -> None:
        """The settings in force; some of them change while the broker runs."""
        self._settings = settings
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - settings.open_files_max - DESCRIPTORS_SPARE
        self._connections_max = min(settings.max_connections, max(descriptors, 1))
        self._budget_bytes = settings.queued_max_request_bytes
        self._count_room()
        self._idle_ticks_max = max(1, settings.connections_max_idle_ms // 1000)

    def listen(self) -> Mapping[str, int]:
        """Binds all listeners, and returns their ports by name."""
        settings = self._settings
        for each in settings.served():
            self._listeners[each.name] = Listener(
                self.reactor,
                each.host,
                each.port,
                partial(self._welcome, each),
                backlog=settings.socket_listen_backlog_size,
                receive_buffer_bytes=settings.socket_receive_buffer_bytes,
            )
        self.reactor.every(TICK_SECONDS, self._tick)
        return {name: each.port for name, each in self._listeners.items()}

    def hold(self) -> None:
        """Nobody is served yet: who connects waits."""
        for each in self._listeners.values():
            each.hold()

    def go_on(self) -> None:
        for each in self._listeners.values():
            each.go_on()

    def _welcome(self, listener: ListenerAddress, sock: socket.socket, address: tuple[str, int]) -> None:
        settings, metrics = self._settings, self.metrics
        host = address[0]
        if len(self._connections) >= self._connections_max:
            refusal = f"max.connections={self._connections_max}"
        elif self._by_address[host] >= settings.max_connections_per_ip:
            refusal = f"max.connections.per.ip={settings.max_connections_per_ip}"
        else:
            refusal = ""
        if refusal:
            metrics.connections_refused += 1
            event(logger, logging.WARNING, "connection refused: too many are open", peer=host, limit=refusal)
            sock.close()
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if settings.socket_send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.socket_send_buffer_bytes)
        # Where every interface is listened on, only the socket knows by which one the client came in.
        local_host = sock.getsockname()[0] if listener.host in WILDCARDS else listener.host
        self.admit(PlainTransport(sock), ClientSession(f"{host}:{address[1]}", listener.name, local_host))

    def admit(self, transport: Transport, session: ClientSession) -> Connection:
        connection = Connection(transport, session, self)
        self._by_address[session.host] += 1
        self._connections.add(connection)
        self.metrics.connections_accepted += 1
        self.metrics.connections_open = len(self._connections)
        return connection

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.software.forget(connection.session)
        host = connection.session.host
        self._by_address[host] -= 1
        if self._by_address[host] <= 0:
            del self._by_address[host]
        self.metrics.connections_open = len(self._connections)

    def complain(self, peer: str, reason: str) -> None:
        event(logger, logging.WARNING, "connection closed: not a valid request", peer=peer, reason=reason)

    # ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────────

    def slice_end(self) -> float:
        """Until when a connection that has several requests may be served in this turn."""
        now = self.clock()
        return now + SLICE_S if now - self.reactor.turn_started < TURN_S else now

    def _count_room(self) -> None:
        self.room_bytes = self._budget_bytes - self.held_bytes - self.group_bytes
        if self.in_flight_bytes > self.room_bytes:
            self._choke()

    def _choke(self) -> None:
        """More is taken than there is room for. What waits behind a fetch that has nothing to read would be taken for
        as long as its client likes: such fetches are answered, in the next turn."""
        self.choked = True
        if not self._hurrying:
            self._hurrying = True
            self.reactor.call_soon(self._hurry_fetches)

    def _hurry_fetches(self) -> None:
        self._hurrying = False
        share = self._budget_bytes // (4 * max(1, len(self._connections)))
        for each in list(self._connections) if self.in_flight_bytes > self.room_bytes else ():
            hurry = each.hurry
            if hurry is not None and each.weight_bytes > share:
                hurry()

    def holds(self, connection: Connection, change: int) -> None:
        """A connection's requests and answers take more memory now, or less."""
        if not change:
            return
        self.held_bytes += change
        self._count_room()
        if connection.reader.held and not connection.closed:
            self._holders[connection] = None
        else:
            self._holders.pop(connection, None)
        if change < 0 and self.choked:
            self.relieved()

    def begin(self, connection: Connection, size: int) -> None:
        """A request of so many bytes is under way."""
        connection.in_flight_bytes += size
        self.in_flight_bytes += size
        if self.in_flight_bytes > self.room_bytes and not self.choked:
            self._choke()

    def end(self, connection: Connection, size: int) -> None:
        """It is answered, has failed, or nobody waits for it any more."""
        connection.in_flight_bytes -= size
        self.in_flight_bytes -= size
        if self.choked:
            self.relieved()

    def gauges(self) -> Mapping[str, object]:
        """The budget, and who is connected, as metrics."""
        return {
            "client_memory_bytes": {
                ("requests_under_way",): self.in_flight_bytes,
                ("unfinished_and_waiting",): self.held_bytes,
                ("group_members",): self.group_bytes,
            },
            "connections_not_read": len(self._parked),
            "connections_by_software": self.software.counts(),
        }

    def readable_bytes(self, connection: Connection) -> int:
        """How much may be read from it now, while the broker is choked; 0: nothing."""
        if self.in_flight_bytes <= self.room_bytes:
            return READ_BYTES_MAX
        return self._readable(connection, self._oldest())

    def _readable(self, connection: Connection, oldest: Connection | None) -> int:
        if self.in_flight_bytes <= self.room_bytes or oldest is connection:
            return READ_BYTES_MAX
        share = self._budget_bytes // (4 * max(1, len(self._connections)))
        if self.in_flight_bytes > self._budget_bytes or connection.weight_bytes > share:
            return 0
        return max(CHOKED_BYTES_MIN, share)

    def _oldest(self) -> Connection | None:
        """Whose unfinished frame came first, of those that could be read from."""
        for each in self._holders:
            if not each.reader.waiting and not each.is_full():
                return each
        return None

    def park(self, connection: Connection) -> None:
        self._parked.append(connection)
        connection.park(True)

    def relieved(self) -> None:
        """Less is taken than before: those who were not read from are looked at again, once in the next turn."""
        if not self._relieving:
            self._relieving = True
            self.reactor.call_soon(self._relieve)

    def _relieve(self) -> None:
        self._relieving = False
        if self.in_flight_bytes - self.room_bytes <= -self._budget_bytes // 4:
            self.choked = False
        parked, self._parked = self._parked, []
        oldest = self._oldest() if self.choked and parked else None
        for each in parked:
            if each.closed:
                continue
            if not self.choked or self._readable(each, oldest):
                each.park(False)
            else:
                self._parked.append(each)

    def _tick(self) -> None:
        self.tick += 1
        self.group_bytes = min(self.metadata_bytes(), self._budget_bytes // 2)
        self._count_room()
        if self.choked:
            self.relieved()
        self._hurry_oldest()
        for connection in list(self._connections):
            quiet = self.tick - connection.last_active
            if connection.doomed and quiet > STALLED_FRAME_TICKS_MAX:
                connection.close()
            elif quiet > self._patience(connection) and connection.reader.unfinished and connection.may_send():
                connection.reject("a request stopped in the middle")
            elif quiet > self._idle_ticks_max and not connection.in_flight and not connection.out:
                self.metrics.connections_closed_idle += 1
                connection.close()

    def _hurry_oldest(self) -> None:
        """While memory is short the oldest frame is the only large one that is read: it must get on, or others would
        wait for as long as its client likes."""
        oldest = self._oldest() if self.in_flight_bytes > self.room_bytes else None
        came = oldest.reader.held if oldest is not None else 0
        if oldest is not None and oldest is self._hurried and came < self._hurried_bytes + CROWDED_FRAME_BYTES_MIN:
            self._late_ticks += 1
        else:
            self._late_ticks = 0
        self._hurried, self._hurried_bytes = oldest, came
        if oldest is not None and self._late_ticks >= CROWDED_FRAME_TICKS_MAX:
            oldest.reject("a request comes too slowly while memory is short")
            self._late_ticks = CROWDED_FRAME_TICKS_MAX - 1  # the next one has had time enough, too
            self._hurried = self._oldest()
            self._hurried_bytes = self._hurried.reader.held if self._hurried is not None else 0

    def _patience(self, connection: Connection) -> int:
        """For how many ticks an unfinished frame may stand still: not long if others wait for its memory."""
        if connection.reader.held and self.in_flight_bytes > self.room_bytes:
            return CROWDED_FRAME_TICKS_MAX
        return STALLED_FRAME_TICKS_MAX

    # ── the end of a turn, and of all ────────────────────────────────────────────────────────────────────────────

    def send_answers(self) -> None:
        dirty, self.dirty = self.dirty, []
        for connection in dirty:
            try:
                if connection.flush():
                    connection.settle()
            except Exception as error:
                connection.broke(error)

    def drop_all(self) -> None:
        for connection in list(self._connections):
            connection.close()

    def stop_listening(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()

"""Many connections to one broker on one thread, cheap enough that the broker is the bottleneck.

A link has one request in flight and is told its answer. Nothing here retries, and nothing waits forever.
"""

import contextlib
import heapq
import itertools
import select
import socket
import time
from collections.abc import Callable

from processes import MeasurementError

Told = Callable[[bytes], None]
_READ_BYTES = 1 << 18


class Link:
    """Told the whole answer, from its correlation id on. `told` may be changed between requests."""

    __slots__ = ("_data", "_socket", "told")

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._data = b""
        self.told: Told = lambda data: None

    def send(self, frame: bytes | bytearray) -> None:
        if self._socket.send(frame) < len(frame):
            raise MeasurementError("a request of the load did not fit into the socket's buffer")

    def read(self) -> None:
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise MeasurementError("the broker closed a connection of the load")
        if self._data:
            data = self._data + data
        size = int.from_bytes(data[:4], "big") + 4
        if len(data) < size:
            self._data = data
            return
        self._data = b""
        self.told(data[4:])

    def close(self) -> None:
        self._socket.close()


class Loop:
    def __init__(self, port: int) -> None:
        self.port = port
        self._epoll = select.epoll()
        self._links: dict[int, Link] = {}
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = itertools.count()

    def connect(self) -> Link:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        link = self._links[connection.fileno()] = Link(connection)
        self._epoll.register(connection.fileno(), select.EPOLLIN)
        return link

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._serial), callback))

    def run(self, done: Callable[[], bool], *, seconds_max: float, doing: str) -> None:
        """Until `done`, which is asked after every few answers."""
        links, timers, poll, now = self._links, self._timers, self._epoll.poll, time.monotonic
        deadline = now() + seconds_max
        try:
            while not done():
                at = now()
                if at > deadline:
                    raise MeasurementError(f"{doing}: not done within {seconds_max:g} s")
                while timers and timers[0][0] <= at:
                    heapq.heappop(timers)[2]()
                wait = min(timers[0][0] if timers else deadline, deadline) - at
                for number, _ in poll(max(wait, 0.0)):
                    links[number].read()
        except OSError as error:
            raise MeasurementError(f"{doing}: {error}") from error

    def close(self) -> None:
        for link in self._links.values():
            with contextlib.suppress(OSError):
                link.close()
        self._epoll.close()

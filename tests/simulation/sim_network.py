"""A connection in memory: what the broker takes for a socket, and the client's end of it."""

from __future__ import annotations

import errno
from itertools import count
from typing import TYPE_CHECKING

from headrace.net.reactor import READ, WRITE

if TYPE_CHECKING:
    from sim_client import Client

_descriptors = count(1_000_000)  # no descriptor of the kernel's has such a number


class SimSocket:
    """The broker's end. It takes `room` bytes at a time, so that answers are also sent in parts."""

    def __init__(self, room: int) -> None:
        self._fd = next(_descriptors)
        self._room = room
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.ended = False  # the client will send nothing more
        self.closed = False

    def fileno(self) -> int:
        return self._fd

    def setblocking(self, _: bool) -> None: ...

    def setsockopt(self, *_: object) -> None: ...

    def recv_into(self, target: memoryview) -> int:
        if not self.inbox:
            if self.ended:
                return 0
            raise BlockingIOError
        size = min(len(target), len(self.inbox))
        target[:size] = self.inbox[:size]
        del self.inbox[:size]
        return size

    def send(self, data: bytes | memoryview) -> int:
        if self.ended:
            raise OSError(errno.EPIPE, "the client is gone")
        size = min(len(data), self._room - len(self.outbox))
        if size <= 0:
            raise BlockingIOError
        self.outbox += data[:size]
        return size

    def sendmsg(self, pieces: list[bytes | memoryview], _: object = (), flags: int = 0) -> int:
        return self.send(b"".join(pieces))

    def close(self) -> None:
        self.closed = True

    def events(self, interest: int) -> int:
        mask = READ if interest & READ and (self.inbox or self.ended) else 0
        if interest & WRITE and len(self.outbox) < self._room:
            mask |= WRITE
        return mask


class Link:
    """A connection of one client. Bytes on their way to the broker are in `up`, those back in the socket's outbox."""

    def __init__(self, client: Client, room: int) -> None:
        self.client = client
        self.socket = SimSocket(room)
        self.up = bytearray()
        self.down = bytearray()  # arrived at the client, not yet a whole answer
        self.left = False  # the client has given it up, but what it sent may still arrive

    @property
    def busy(self) -> bool:
        return bool(self.up) or (self.left and not self.socket.ended)

"""What carries a connection's bytes: a plain socket, or what a test puts in its place.

Every call of a transport does what can be done at once and says how many bytes that were. BlockingIOError: nothing, for
now; OSError: the peer is gone. A transport decides nothing: what is read and sent, and when, its connection knows.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Protocol


class Transport(Protocol):
    def fileno(self) -> int:
        """What the loop watches."""
        ...

    def recv_into(self, target: memoryview, /) -> int:
        """0: the peer will send nothing more."""
        ...

    def send(self, data: bytes | memoryview, /) -> int: ...

    def send_pieces(self, pieces: Sequence[bytes | memoryview], more: bool, /) -> int:
        """All of them in one call. `more`: something follows at once, so that a packet may wait for it."""
        ...

    def send_file(self, fd: int, position: int, size: int, /) -> int:
        """From an open file. 0: the file is shorter than that."""
        ...

    def close(self) -> None: ...


class PlainTransport:
    """Bytes as they are, by the socket's own calls."""

    __slots__ = ("_fd", "_socket", "close", "recv_into", "send")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._fd = sock.fileno()
        # The socket's own methods: with each request there is no call of ours in between.
        self.recv_into = sock.recv_into
        self.send = sock.send
        self.close = sock.close

    def fileno(self) -> int:
        return self._fd

    def send_pieces(self, pieces: Sequence[bytes | memoryview], more: bool) -> int:
        return self._socket.sendmsg(pieces, (), socket.MSG_MORE if more else 0)

    def send_file(self, fd: int, position: int, size: int) -> int:
        return os.sendfile(self._fd, fd, position, size)

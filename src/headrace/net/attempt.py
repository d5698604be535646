"""An attempt to connect that holds nobody up: the addresses of one server, tried one after the other.

A name may stand for several addresses, of which only one is listened on: `localhost` is ::1 and 127.0.0.1.
"""

import errno
import os
import socket
from collections import deque
from collections.abc import Iterable
from typing import Any

Resolved = tuple[socket.AddressFamily, Any]  # an address is what its family makes of it
_UNDER_WAY = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)


def resolve(host: str, port: int) -> list[Resolved]:
    """May block, as long as the resolver takes; OSError if the name is not known."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


def reason(error: BaseException) -> str:
    """Why a connection failed, or was lost."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()


class Attempt:
    def __init__(self, addresses: Iterable[Resolved]) -> None:
        self._addresses = deque(addresses)
        self.socket: socket.socket | None = None
        self.why = "the name has no address"

    def begin(self) -> bool:
        """Goes on to the next address: whether there was one. `socket` becomes writable when it is decided."""
        self.give_up()
        while self._addresses:
            family, address = self._addresses.popleft()
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
            failed = sock.connect_ex(address)
            if failed in _UNDER_WAY:
                self.socket = sock
                return True
            self.why = os.strerror(failed).lower()
            sock.close()
        return False

    def decided(self) -> socket.socket | None:
        """The connection, or None if this address failed."""
        sock = self.socket
        if sock is None:
            return None
        failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            self.why = os.strerror(failed).lower()
            return None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = None
        return sock

    def give_up(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None

"""A listening socket on the loop: binds, accepts a bounded number of connections per turn, and says what is wrong.

Which connections are welcome, its owner decides. It never reads from one.
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable
from typing import Final

from headrace.core.errors import OperatorError
from headrace.core.telemetry import event
from headrace.net.reactor import READ, Reactor

ACCEPTS_PER_TURN: Final = 64
ACCEPT_PAUSE_S: Final = 0.1

logger = logging.getLogger(__name__)


class Listener:
    def __init__(
        self,
        reactor: Reactor,
        host: str,
        port: int,
        welcome: Callable[[socket.socket, tuple[str, int]], None],
        *,
        backlog: int = 1024,
        receive_buffer_bytes: int = 0,
    ) -> None:
        """Binds and listens; OperatorError where that is not possible. Port 0 is a free one."""
        self._reactor = reactor
        self._welcome = welcome
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer_bytes > 0:  # accepted sockets inherit it, and only then can it be large
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            self._socket.bind((host, port))
            self._socket.listen(backlog)
        except OSError as error:
            self._socket.close()
            raise OperatorError(f"{host}:{port}: {_remedy(error)}") from error
        self.port = int(self._socket.getsockname()[1])
        self._closed = False
        reactor.add(self._socket.fileno(), READ, self._accept)

    def _accept(self, _: int) -> None:
        for _turn in range(ACCEPTS_PER_TURN):
            if self._closed:
                return
            try:
                sock, address = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Out of descriptors: it stays in the kernel's queue, and we do not look there for a moment.
                event(logger, logging.WARNING, "cannot accept a connection", reason=error.strerror)
                self._reactor.change(self._socket.fileno(), 0)
                self._reactor.call_later(ACCEPT_PAUSE_S, self._look_again)
                return
            self._welcome(sock, address)

    def _look_again(self) -> None:
        if not self._closed:
            self._reactor.change(self._socket.fileno(), READ)

    def hold(self) -> None:
        """Connections wait in the kernel's queue until `go_on`."""
        self._reactor.change(self._socket.fileno(), 0)

    def go_on(self) -> None:
        self._look_again()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._reactor.remove(self._socket.fileno())
            self._socket.close()


def _remedy(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; stop the process that uses it, or give another with --port (0: a free one)"
    return f"cannot listen there ({error.strerror}); give another --host or --port"

"""Ports of 127.0.0.1 that nobody else gets while a test uses them.

A port that was found free and let go may be another process's a moment later. These are held: bound without listening,
with SO_REUSEADDR. The kernel then gives the port to nobody who asks for any port, a connection to it is refused, and a
server that sets SO_REUSEADDR, as every server here does, can still listen on it, stop, and listen again.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """On which nothing listens, until the test starts something there."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@contextmanager
def reserved_ports(count: int) -> Iterator[list[int]]:
    with ExitStack() as stack:
        yield [stack.enter_context(reserved_port()) for _ in range(count)]

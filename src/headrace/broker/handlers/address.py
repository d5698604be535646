"""The address of this broker as a client is told it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.listeners import WILDCARDS

if TYPE_CHECKING:
    from headrace.broker.api import Request
    from headrace.broker.node import Node


def advertised(node: Node, request: Request) -> tuple[str, int]:
    settings = node.settings
    local_host = ""
    if settings.host in WILDCARDS and not settings.advertised_host and request.connection is not None:
        # Every interface is listened on: the one that this client came in by is one that it can reach.
        local_host = request.connection.socket.getsockname()[0]
    return settings.advertised(node.port, local_host)

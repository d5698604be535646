"""The addresses of brokers as a client is told them: those of the listener that it came in by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.listeners import WILDCARDS
from headrace.replication.image import BrokerImage

if TYPE_CHECKING:
    from headrace.broker.api import Request
    from headrace.broker.node import Node

LISTENER = "PLAINTEXT"

Address = tuple[int, str, int, str | None]  # id, host, port, rack


def address_of(node: Node, request: Request, broker: BrokerImage) -> Address | None:
    """None for a broker that has no such listener."""
    rack = broker.rack or None
    if broker.id == node.settings.node_id:
        return (broker.id, *_own(node, request), rack)
    endpoint = broker.endpoints.get(LISTENER)
    return (broker.id, endpoint.host, endpoint.port, rack) if endpoint is not None else None


def addresses(node: Node, request: Request) -> tuple[Address, ...]:
    found = [address_of(node, request, each) for each in node.cluster.image.brokers.values()]
    return tuple([each for each in found if each is not None])


def _own(node: Node, request: Request) -> tuple[str, int]:
    settings = node.settings
    local_host = ""
    if settings.host in WILDCARDS and not settings.advertised_host and request.connection is not None:
        # Every interface is listened on: the one that this client came in by is one that it can reach.
        local_host = request.connection.socket.getsockname()[0]
    return settings.advertised(node.port, local_host)

"""The addresses of brokers as a client is told them: those of the listener that it came in by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.listeners import WILDCARDS
from headrace.replication.image import BrokerImage

if TYPE_CHECKING:
    from headrace.broker.api import Request
    from headrace.broker.parts import ClusterParts

Address = tuple[int, str, int, str | None]  # id, host, port, rack


def address_of(parts: ClusterParts, request: Request, broker: BrokerImage) -> Address | None:
    """None for a broker that has no such listener, or does not advertise it."""
    session = request.session
    endpoint = broker.endpoints.get(session.listener)
    if endpoint is None:
        return None
    host = endpoint.host
    if host in WILDCARDS and broker.id == parts.settings.node_id:
        # Every interface is listened on: the one that this client came in by is one that it can reach.
        host = session.local_host
    return broker.id, host, endpoint.port, broker.rack or None


def addresses(parts: ClusterParts, request: Request) -> tuple[Address, ...]:
    found = [address_of(parts, request, each) for each in parts.cluster.image.brokers.values()]
    return tuple([each for each in found if each is not None])

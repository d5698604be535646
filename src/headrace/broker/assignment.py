"""Manual replica assignments: each names brokers that are there, each of them once."""

from collections.abc import Container, Sequence

from headrace.core.errors import PeerError
from headrace.protocol.error_codes import INVALID_REPLICA_ASSIGNMENT


def check_replicas(broker_ids: Sequence[int], brokers: Container[int]) -> None:
    includes = "The manual partition assignment includes"
    if not broker_ids:
        raise PeerError(INVALID_REPLICA_ASSIGNMENT, f"{includes} an empty replica list.")
    seen: set[int] = set()
    for broker_id in sorted(broker_ids):
        if broker_id not in brokers:
            why = f"{includes} broker {broker_id}, but no such broker is registered."
            raise PeerError(INVALID_REPLICA_ASSIGNMENT, why)
        if broker_id in seen:
            raise PeerError(INVALID_REPLICA_ASSIGNMENT, f"{includes} the broker {broker_id} more than once.")
        seen.add(broker_id)

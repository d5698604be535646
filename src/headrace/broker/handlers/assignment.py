"""Manual replica assignments: with one broker there is one that can be meant."""

from collections.abc import Sequence

from headrace.core.errors import PeerError
from headrace.protocol.error_codes import INVALID_REPLICA_ASSIGNMENT


def check_replicas(broker_ids: Sequence[int], node_id: int) -> None:
    includes = "The manual partition assignment includes"
    if not broker_ids:
        raise PeerError(INVALID_REPLICA_ASSIGNMENT, f"{includes} an empty replica list.")
    for before, broker_id in enumerate(sorted(broker_ids)):
        if broker_id != node_id:
            why = f"{includes} broker {broker_id}, but no such broker is registered."
            raise PeerError(INVALID_REPLICA_ASSIGNMENT, why)
        if before:
            raise PeerError(INVALID_REPLICA_ASSIGNMENT, f"{includes} the broker {broker_id} more than once.")

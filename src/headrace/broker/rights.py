"""What a client may do. Handlers ask `Rights` about a session, a need and a name; an authorizer behind it decides.

Which needs an API has is in the table beside the one of its versions (`handlers.RIGHTS`). Without an authorizer
everybody may do everything, and nothing is asked: hot paths look at `is_open` and go on.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from headrace.core.errors import PeerError
from headrace.protocol import acl_codes as acl
from headrace.protocol.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    GROUP_AUTHORIZATION_FAILED,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession


class Need(NamedTuple):
    """An operation on a kind of resource, in Kafka's numbers."""

    operation: int
    resource: int


READ_TOPIC: Final[Need] = Need(acl.READ, acl.TOPIC)
WRITE_TOPIC: Final[Need] = Need(acl.WRITE, acl.TOPIC)
CREATE_TOPIC: Final[Need] = Need(acl.CREATE, acl.TOPIC)
DELETE_TOPIC: Final[Need] = Need(acl.DELETE, acl.TOPIC)
ALTER_TOPIC: Final[Need] = Need(acl.ALTER, acl.TOPIC)
DESCRIBE_TOPIC: Final[Need] = Need(acl.DESCRIBE, acl.TOPIC)
DESCRIBE_TOPIC_CONFIGS: Final[Need] = Need(acl.DESCRIBE_CONFIGS, acl.TOPIC)
ALTER_TOPIC_CONFIGS: Final[Need] = Need(acl.ALTER_CONFIGS, acl.TOPIC)
READ_GROUP: Final[Need] = Need(acl.READ, acl.GROUP)
DELETE_GROUP: Final[Need] = Need(acl.DELETE, acl.GROUP)
DESCRIBE_GROUP: Final[Need] = Need(acl.DESCRIBE, acl.GROUP)
WRITE_TRANSACTION: Final[Need] = Need(acl.WRITE, acl.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTION: Final[Need] = Need(acl.DESCRIBE, acl.TRANSACTIONAL_ID)
CREATE_IN_CLUSTER: Final[Need] = Need(acl.CREATE, acl.CLUSTER)
DELETE_IN_CLUSTER: Final[Need] = Need(acl.DELETE, acl.CLUSTER)
ALTER_CLUSTER: Final[Need] = Need(acl.ALTER, acl.CLUSTER)
DESCRIBE_CLUSTER: Final[Need] = Need(acl.DESCRIBE, acl.CLUSTER)
ACT_AS_BROKER: Final[Need] = Need(acl.CLUSTER_ACTION, acl.CLUSTER)
DESCRIBE_BROKER_CONFIGS: Final[Need] = Need(acl.DESCRIBE_CONFIGS, acl.CLUSTER)
ALTER_BROKER_CONFIGS: Final[Need] = Need(acl.ALTER_CONFIGS, acl.CLUSTER)
WRITE_IDEMPOTENTLY: Final[Need] = Need(acl.IDEMPOTENT_WRITE, acl.CLUSTER)

# Which operations there are on each kind of resource: those that the masks of answers tell of.
_ON_ALL: Final[tuple[int, ...]] = (acl.DESCRIBE, acl.DESCRIBE_CONFIGS, acl.ALTER_CONFIGS)
OPERATIONS: Final[dict[int, tuple[int, ...]]] = {
    acl.TOPIC: (*_ON_ALL, acl.READ, acl.WRITE, acl.CREATE, acl.DELETE, acl.ALTER),
    acl.GROUP: (*_ON_ALL, acl.READ, acl.DELETE),
    acl.CLUSTER: (*_ON_ALL, acl.CREATE, acl.ALTER, acl.CLUSTER_ACTION, acl.IDEMPOTENT_WRITE),
}
ALL_OPERATIONS: Final[dict[int, int]] = {
    kind: sum([1 << each for each in of_kind]) for kind, of_kind in OPERATIONS.items()
}
NOT_ASKED: Final = -(1 << 31)  # the mask of a client that did not ask for one

_REFUSALS: Final[dict[int, tuple[int, str]]] = {
    acl.TOPIC: (TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    acl.GROUP: (GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    acl.CLUSTER: (CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    acl.TRANSACTIONAL_ID: (TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."),
}


class Authorizer(Protocol):
    """Decides. It is asked on the event loop, for each name of a request, so it answers from memory."""

    def allows(self, session: ClientSession, operation: int, resource: int, name: str) -> bool: ...

    def allows_on_any(self, session: ClientSession, operation: int, resource: int) -> bool:
        """Whether there can be a resource of that kind on which the session may do it."""
        ...

    def view(self, session: ClientSession) -> Hashable:
        """Equal for two requests if all that they may do is equal, as it is now: an answer that was made for one of
        them may be given to the other."""
        ...


class Rights:
    __slots__ = ("_authorizer", "is_open")

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        """None: everybody may do everything."""
        self._authorizer = authorizer
        self.is_open: bool = authorizer is None

    def allows(self, session: ClientSession, need: Need, name: str = acl.CLUSTER_NAME) -> bool:
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows(session, need[0], need[1], name)

    def allows_on_any(self, session: ClientSession, need: Need) -> bool:
        authorizer = self._authorizer
        return authorizer is None or authorizer.allows_on_any(session, need[0], need[1])

    def refusal(self, session: ClientSession, need: Need, name: str = acl.CLUSTER_NAME) -> int:
        """NONE, or the error code that says so."""
        if self._authorizer is None or self.allows(session, need, name):
            return NONE
        return _REFUSALS[need[1]][0]

    def check(self, session: ClientSession, need: Need, name: str = acl.CLUSTER_NAME) -> None:
        if self._authorizer is not None and not self.allows(session, need, name):
            raise refused(need)

    def mask(self, session: ClientSession, resource: int, name: str = acl.CLUSTER_NAME) -> int:
        """A bit for each operation that the session may do on it."""
        if self._authorizer is None:
            return ALL_OPERATIONS[resource]
        return sum([1 << each for each in OPERATIONS[resource] if self.allows(session, Need(each, resource), name)])

    def cluster_mask(self, session: ClientSession) -> int:
        """Nothing is told to those who may not describe the cluster."""
        return self.mask(session, acl.CLUSTER) if self.allows(session, DESCRIBE_CLUSTER) else 0

    def view(self, session: ClientSession) -> Hashable:
        return None if self._authorizer is None else self._authorizer.view(session)


def refused(need: Need) -> PeerError:
    return PeerError(*_REFUSALS[need[1]])

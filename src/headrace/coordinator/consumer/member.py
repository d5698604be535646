"""A member of a consumer group (KIP-848): what it wants (its subscription) and what it has (its current assignment).

Both are values that are replaced, never changed: the group's state is the fold of the records that replace them.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

Partitions = Mapping[uuid.UUID, frozenset[int]]
"""Partitions of some topics, by the topic's id."""

Owned = Mapping[uuid.UUID, Mapping[int, int]]
"""Partitions that a member was given, each with the epoch at which it got it."""

JOINING, LEAVING, LEAVING_FOR_A_WHILE = 0, -1, -2  # member epochs in a request that are not epochs


class MemberState(IntEnum):
    """The numbers are those of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


class ClassicMember(NamedTuple):
    """What JoinGroup said of a member that speaks the classic protocol to a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # a name and the embedded subscription, in the member's order


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMember | None = None

    def wants_other_than(self, other: "Subscription") -> bool:
        return self.topics != other.topics or self.pattern != other.pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """`assigned` may be used; `revoking` must be given up before the member goes on to the next epoch."""

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    revoking: Owned = field(default_factory=dict)

    def offers_other_than(self, other: "CurrentAssignment") -> bool:
        """Other partitions to use; since when does not matter."""
        mine, others = self.assigned, other.assigned
        return mine.keys() != others.keys() or any(held.keys() != others[topic].keys() for topic, held in mine.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupMember:
    member_id: str
    subscription: Subscription = Subscription()
    current: CurrentAssignment = CurrentAssignment()

    @property
    def epoch(self) -> int:
        return self.current.epoch

    @property
    def state(self) -> MemberState:
        return self.current.state

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.current.state == MemberState.STABLE and self.current.epoch == target_epoch

    def assignment_epoch(self, topic_id: uuid.UUID, partition: int) -> int | None:
        """Since which epoch the member has the partition, be it to keep or to give up."""
        for owned in (self.current.assigned, self.current.revoking):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


NO_SUBSCRIPTION: Final = Subscription()  # of a member that is not there, or not yet


def member_bytes(member_id: str, wanted: Subscription) -> int:
    """What a member costs to remember: what it says of itself."""
    if wanted == NO_SUBSCRIPTION:
        return 0
    ids = len(member_id) + len(wanted.client_id) + len(wanted.instance_id or "") + len(wanted.rack_id or "")
    classic = 0 if wanted.classic is None else sum(len(name) + len(data) for name, data in wanted.classic.protocols)
    return ids + len(wanted.pattern) + sum(map(len, wanted.topics)) + classic


def with_epoch(partitions: Partitions, epoch: int) -> Owned:
    return {topic_id: dict.fromkeys(sorted(numbers), epoch) for topic_id, numbers in partitions.items() if numbers}

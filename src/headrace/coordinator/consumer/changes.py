"""What a consumer group writes down: each change replaces what its key held, and None deletes it.

These say the same as Kafka's records of `__consumer_offsets`, without their bytes; `records` has those.
A group's hard state is what its changes fold to, in order. Changes must be enough to make the state again: nothing
that a restart may not lose is kept anywhere else.
"""

from typing import NamedTuple

from headrace.coordinator.consumer.member import CurrentAssignment, Partitions, Subscription


class EpochChange(NamedTuple):
    """The group epoch, and a digest of the topics that it was computed with."""

    epoch: int | None
    metadata_hash: int = 0


class SubscriptionChange(NamedTuple):
    member_id: str
    subscription: Subscription | None


class TargetEpochChange(NamedTuple):
    """All targets together: for which group epoch they were made, and when."""

    epoch: int | None
    timestamp_ms: int = 0


class TargetChange(NamedTuple):
    member_id: str
    partitions: Partitions | None


class CurrentChange(NamedTuple):
    member_id: str
    current: CurrentAssignment | None


class PatternChange(NamedTuple):
    """The topics that a regular expression stands for."""

    pattern: str
    topics: frozenset[str] | None
    version: int = 0
    timestamp_ms: int = 0


class TopicsForgotten(NamedTuple):
    """A tombstone for the partition metadata that Kafka wrote before 4.1; written with a group's end, as Kafka does."""


Change = (
    EpochChange
    | SubscriptionChange
    | TargetEpochChange
    | TargetChange
    | CurrentChange
    | PatternChange
    | TopicsForgotten
)

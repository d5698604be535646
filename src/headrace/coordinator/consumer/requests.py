"""A heartbeat of the consumer group protocol, the checks that need no group, and what a group decides upon it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.coordinator.consumer.changes import Change
from headrace.coordinator.consumer.member import JOINING, LEAVING, LEAVING_FOR_A_WHILE, Partitions, Subscription
from headrace.coordinator.consumer.table import Undo
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import INVALID_REQUEST, UNSUPPORTED_ASSIGNOR
from headrace.protocol.record_bytes import check_strings

NOT_SAID = -1


class Heartbeat(NamedTuple):
    """None, or NOT_SAID, is what the member left as it was."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_SAID
    topics: frozenset[str] | None = None
    pattern: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    fresh_id: str = ""  # random; the id of a new member that brought none, as version 0 allows
    version: int = 1

    @property
    def is_joining(self) -> bool:
        return self.member_epoch == JOINING

    @property
    def is_leaving(self) -> bool:
        return self.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE)

    @property
    def is_full(self) -> bool:
        """Everything was said: the member does not know what it was told last."""
        said = self.topics is not None or self.pattern is not None
        return self.is_joining or (said and self.rebalance_timeout_ms != NOT_SAID and self.owned is not None)

    def applied_to(self, known: Subscription) -> Subscription:
        """Who sends such a heartbeat does not speak the classic protocol any more."""
        if self._leaves(known):
            return known
        return Subscription(
            instance_id=known.instance_id if self.instance_id is None else self.instance_id,
            rack_id=known.rack_id if self.rack_id is None else self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            topics=known.topics if self.topics is None else self.topics,
            pattern=known.pattern if self.pattern is None else self.pattern,
            rebalance_timeout_ms=(
                known.rebalance_timeout_ms if self.rebalance_timeout_ms == NOT_SAID else self.rebalance_timeout_ms
            ),
            server_assignor=known.server_assignor if self.server_assignor is None else self.server_assignor,
        )

    def _leaves(self, known: Subscription) -> bool:
        """As most heartbeats do: it says nothing, and comes from where the last one came from."""
        return (
            self.topics is None
            and self.pattern is None
            and self.rebalance_timeout_ms == NOT_SAID
            and self.instance_id is None
            and self.rack_id is None
            and self.server_assignor is None
            and known.classic is None
            and known.client_id == self.client_id
            and known.client_host == self.client_host
        )


class ClassicSeedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


class ClassicSeed(NamedTuple):
    """The classic group that a consumer group becomes when its last member of the new kind is gone."""

    generation: int
    members: tuple[ClassicSeedMember, ...]
    must_rebalance: bool


@dataclass(slots=True)
class Decision:
    """Write the changes, then give the answer. `undo` takes them back, last first, if they cannot be written."""

    answer: Mapping[str, object]
    changes: Sequence[Change] = ()
    undo: Undo = field(default_factory=list)
    becomes: ClassicSeed | None = None  # its record is to be written with the changes, in one batch


def refused_heartbeat(code: int, message: str | None = None) -> Mapping[str, object]:
    return {"error_code": code, "error_message": message, "member_epoch": 0, "heartbeat_interval": 0}


def check_heartbeat(beat: Heartbeat, assignors: Sequence[str]) -> None:
    """Kafka's checks, in Kafka's order and words."""
    if beat.version >= 1 or beat.member_epoch > 0 or beat.member_epoch == LEAVING:
        _refuse_blank(beat.member_id, "MemberId")
    _refuse_blank(beat.group_id, "GroupId")
    _refuse_blank(beat.instance_id, "InstanceId")
    _refuse_blank(beat.rack_id, "RackId")
    check_strings((beat.group_id, beat.member_id, beat.instance_id, beat.client_id))
    if beat.is_joining:
        if beat.rebalance_timeout_ms == NOT_SAID:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if beat.owned is None or beat.owned:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if beat.topics is None and beat.pattern is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif beat.member_epoch == LEAVING_FOR_A_WHILE:
        if beat.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif beat.member_epoch < LEAVING_FOR_A_WHILE:
        raise _invalid("MemberEpoch is invalid.")
    if beat.server_assignor is not None and beat.server_assignor not in assignors:
        raise PeerError(
            UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {beat.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _refuse_blank(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> PeerError:
    return PeerError(INVALID_REQUEST, message)

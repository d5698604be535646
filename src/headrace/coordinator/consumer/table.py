"""What a consumer group is made of, and how a change alters it. The machine that decides on changes is
`state`; a restart feeds the same changes, read from the journal, through `apply` again.

Who owns a partition is indexed here: a member owns what is assigned to it and what it is still giving up.
"""

import uuid
from collections.abc import Callable, Iterable, KeysView, Mapping
from typing import Final, NamedTuple, TypeVar

from headrace.coordinator.consumer.changes import (
    Change,
    CurrentChange,
    EpochChange,
    PatternChange,
    SubscriptionChange,
    TargetChange,
    TargetEpochChange,
    TopicsForgotten,
)
from headrace.coordinator.consumer.member import (
    NO_SUBSCRIPTION,
    ConsumerGroupMember,
    CurrentAssignment,
    Partitions,
    Subscription,
    member_bytes,
)
from headrace.coordinator.consumer.subscription_counts import SubscriptionCounts
from headrace.coordinator.topic_view import TopicView
from headrace.core.errors import InvariantError

EMPTY: Final = "Empty"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"

K = TypeVar("K")
V = TypeVar("V")
Undo = list[Callable[[], None]]


class Epochs(NamedTuple):
    group: int = 1
    metadata_hash: int = 0
    target: int = 0
    target_timestamp_ms: int = 0


class ConsumerGroupTable:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epochs = Epochs()
        self.members: dict[str, ConsumerGroupMember] = {}
        self.static_members: dict[str, str] = {}  # the member's id by its instance id
        self.targets: dict[str, Partitions] = {}
        self.patterns: dict[str, frozenset[str]] = {}
        self.byte_count = 0  # of what all members say of themselves
        self.counts = SubscriptionCounts()
        self.owners: dict[uuid.UUID, dict[int, str]] = {}  # of each topic's partitions

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> str:
        if not self.members:
            return EMPTY
        if self.epochs.group > self.epochs.target:
            return ASSIGNING
        if all(member.is_reconciled_to(self.epochs.target) for member in self.members.values()):
            return STABLE
        return RECONCILING

    def static_member(self, instance_id: str | None) -> ConsumerGroupMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_taken(self, topic_id: uuid.UUID, partition: int) -> bool:
        owners = self.owners.get(topic_id)
        return owners is not None and partition in owners

    def topics_of(self, member: ConsumerGroupMember) -> frozenset[str]:
        wanted = member.subscription
        return wanted.topics | self.patterns.get(wanted.pattern, frozenset()) if wanted.pattern else wanted.topics

    def topics(self) -> KeysView[str]:
        """Every topic that anyone subscribes to, existing or not."""
        return self.counts.topics.keys()

    def is_waiting_for_others(self, member: ConsumerGroupMember) -> bool:
        """Whether something that is meant for the member is still held by another one."""
        return any(
            partition not in member.current.assigned.get(topic_id, {}) and self.is_taken(topic_id, partition)
            for topic_id, partitions in self.targets.get(member.member_id, {}).items()
            for partition in partitions
        )

    def tombstones(self) -> list[Change]:
        """What deletes the whole group from the journal, in Kafka's order."""
        return [
            *(CurrentChange(member_id, None) for member_id in self.members),
            *(TargetChange(member_id, None) for member_id in self.members),
            TargetEpochChange(None),
            *(SubscriptionChange(member_id, None) for member_id in self.members),
            *(PatternChange(pattern, None) for pattern in self.patterns),
            TopicsForgotten(),
            EpochChange(None),
        ]

    # ── changing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, change: Change, undo: Undo | None = None, *, replaying: bool = False) -> None:
        """`undo` collects what takes it back, to be called last first. A replay may meet a partition twice: what is
        compacted away between two records leaves them out of step for a while."""
        steps: Undo = [] if undo is None else undo
        if isinstance(change, EpochChange):
            epochs = self.epochs._replace(group=change.epoch or 1, metadata_hash=change.metadata_hash)
            self._set_epochs(epochs, steps)
        elif isinstance(change, TargetEpochChange):
            epoch = 0 if change.epoch is None else change.epoch
            self._set_epochs(self.epochs._replace(target=epoch, target_timestamp_ms=change.timestamp_ms), steps)
        elif isinstance(change, TargetChange):
            _put(self.targets, change.member_id, change.partitions, steps)
        elif isinstance(change, PatternChange):
            self._resolve(change, steps)
        elif isinstance(change, SubscriptionChange):
            self._subscribe(change, steps)
        elif isinstance(change, CurrentChange):
            self._assign(change, steps, replaying=replaying)

    def _set_epochs(self, epochs: Epochs, undo: Undo) -> None:
        before = self.epochs
        undo.append(lambda: setattr(self, "epochs", before))
        self.epochs = epochs

    def _resolve(self, change: PatternChange, undo: Undo) -> None:
        pattern, before = change.pattern, self.patterns.get(change.pattern)
        _put(self.patterns, pattern, change.topics, undo)
        self.counts.resolve(pattern, change.topics)
        undo.append(lambda: self.counts.resolve(pattern, before))

    def _subscribe(self, change: SubscriptionChange, undo: Undo) -> None:
        member = self.members.get(change.member_id)
        wanted = NO_SUBSCRIPTION if member is None else member.subscription
        wants = NO_SUBSCRIPTION if change.subscription is None else change.subscription
        member_id, added = change.member_id, member_bytes(change.member_id, wants)
        self._count(wanted, wants, added - member_bytes(member_id, wanted))
        undo.append(lambda: self._count(wants, wanted, member_bytes(member_id, wanted) - added))
        if change.subscription is None:
            if member is not None:
                self._disown(member, undo)
            _put(self.members, change.member_id, None, undo)
        else:
            known = member or ConsumerGroupMember(member_id=change.member_id)
            subscribed = ConsumerGroupMember(
                member_id=change.member_id, subscription=change.subscription, current=known.current
            )
            _put(self.members, change.member_id, subscribed, undo)
        before, after = wanted.instance_id, wants.instance_id
        if before is not None and before != after and self.static_members.get(before) == change.member_id:
            _put(self.static_members, before, None, undo)
        if after is not None:
            _put(self.static_members, after, change.member_id, undo)

    def _count(self, wanted: Subscription, wants: Subscription, added_bytes: int) -> None:
        self.byte_count += added_bytes
        self.counts.replace(wanted, wants)

    def _assign(self, change: CurrentChange, undo: Undo, *, replaying: bool) -> None:
        member = self.members.get(change.member_id)
        if member is None:
            if change.current is None:
                return
            member = ConsumerGroupMember(member_id=change.member_id)
        before, current = member.current, change.current or CurrentAssignment(epoch=-1, previous_epoch=-1)
        if replaying or before.assigned != current.assigned or before.revoking != current.revoking:
            self._disown(member, undo)
            self._own(change.member_id, current, undo, replaying=replaying)
        assigned = ConsumerGroupMember(member_id=change.member_id, subscription=member.subscription, current=current)
        _put(self.members, change.member_id, assigned, undo)

    def _own(self, member_id: str, current: CurrentAssignment, undo: Undo, *, replaying: bool) -> None:
        for part in (current.assigned, current.revoking):
            for topic_id, partitions in part.items():
                owners = self.owners.setdefault(topic_id, {})
                for partition in partitions:
                    if owners.get(partition, member_id) != member_id and not replaying:
                        raise InvariantError(f"{self.group_id}: {topic_id}-{partition} would belong to two members")
                    _put(owners, partition, member_id, undo)

    def _disown(self, member: ConsumerGroupMember, undo: Undo) -> None:
        for part in (member.current.assigned, member.current.revoking):
            for topic_id, partitions in part.items():
                owners = self.owners.setdefault(topic_id, {})
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        _put(owners, partition, None, undo)


def topic_ids(names: Iterable[str], topics: TopicView) -> frozenset[uuid.UUID]:
    """Those of them that exist."""
    return frozenset(found for found in map(topics.topic_id, names) if found is not None)


def _put(mapping: dict[K, V], key: K, value: V | None, undo: Undo) -> None:
    before = mapping.get(key)
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value
    undo.append(lambda: _restore(mapping, key, before))


def _restore(mapping: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def as_body(partitions: Mapping[uuid.UUID, Iterable[int]]) -> list[dict[str, object]]:
    return [{"topic_id": topic_id, "partitions": sorted(numbers)} for topic_id, numbers in partitions.items()]

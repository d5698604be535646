"""How a member gets from what it has to what it should have, one heartbeat at a time.

A member in STABLE has what its epoch's target says. When a newer target takes partitions away from it, it stays in its
epoch, in UNREVOKED_PARTITIONS, until it no longer reports them as owned. Only then does it move to the target's epoch
and get what is free of its new partitions; while some are still held by others it waits in UNRELEASED_PARTITIONS.
A partition that is assigned to or being revoked from another member is never given: that alone keeps two members from
owning one partition, whatever the targets say.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

from headrace.coordinator.consumer.member import CurrentAssignment, MemberState, Owned, Partitions
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import FENCED_MEMBER_EPOCH

IsTaken = Callable[[uuid.UUID, int], bool]


def reconcile(
    current: CurrentAssignment,
    *,
    target: Partitions,
    target_epoch: int,
    subscribed: frozenset[uuid.UUID],
    subscription_changed: bool,
    is_taken: IsTaken,
    owned: Partitions | None,
) -> CurrentAssignment:
    """The next step, or the same assignment when nothing can move.

    `owned` is what the member says it has (None: it said nothing), `is_taken` whether anyone holds a partition.
    """
    if current.state == MemberState.STABLE:
        if current.epoch != target_epoch:
            return _towards(current, target, target_epoch, subscribed, is_taken, owned)
        return _without_unsubscribed(current, subscribed, owned) if subscription_changed else current
    if current.state == MemberState.UNREVOKED_PARTITIONS and _owns_any(owned, current.revoking):
        return _without_unsubscribed(current, subscribed, owned) if subscription_changed else current
    if current.state == MemberState.UNKNOWN:
        if owned is None or any(owned.values()):
            raise PeerError(
                FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. The member must abandon all its partitions and"
                " rejoin.",
            )
        current = replace(current, epoch=target_epoch)
    return _towards(current, target, target_epoch, subscribed, is_taken, owned)


def _towards(
    current: CurrentAssignment,
    target: Partitions,
    target_epoch: int,
    subscribed: frozenset[uuid.UUID],
    is_taken: IsTaken,
    owned: Partitions | None,
) -> CurrentAssignment:
    kept: dict[uuid.UUID, dict[int, int]] = {}
    revoking: dict[uuid.UUID, dict[int, int]] = {}
    given: dict[uuid.UUID, list[int]] = {}
    must_wait = False
    for topic_id in {**target, **current.assigned}:
        wanted = target.get(topic_id, frozenset()) if topic_id in subscribed else frozenset()
        held = current.assigned.get(topic_id, {})
        leaving = current.revoking.get(topic_id, {})
        stays = {partition: epoch for partition, epoch in held.items() if partition in wanted}
        if stays:
            kept[topic_id] = stays
        if len(stays) < len(held):
            revoking[topic_id] = {partition: epoch for partition, epoch in held.items() if partition not in wanted}
        for partition in sorted([each for each in wanted if each not in held]):
            if partition not in leaving and is_taken(topic_id, partition):
                must_wait = True
            else:
                given.setdefault(topic_id, []).append(partition)
    if revoking and _owns_any(owned, revoking):
        return CurrentAssignment(
            epoch=current.epoch,
            previous_epoch=current.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            revoking=revoking,
        )
    for topic_id, partitions in given.items():
        kept.setdefault(topic_id, {}).update(dict.fromkeys(partitions, target_epoch))
    return CurrentAssignment(
        epoch=target_epoch,
        previous_epoch=current.epoch,
        state=MemberState.UNRELEASED_PARTITIONS if must_wait else MemberState.STABLE,
        assigned=kept,
    )


def _without_unsubscribed(
    current: CurrentAssignment, subscribed: frozenset[uuid.UUID], owned: Partitions | None
) -> CurrentAssignment:
    """The target is not new yet, but what the member no longer subscribes to it must give up at once."""
    dropped = {topic_id: held for topic_id, held in current.assigned.items() if topic_id not in subscribed}
    if not dropped:
        return current
    assigned = {topic_id: held for topic_id, held in current.assigned.items() if topic_id in subscribed}
    revoking = _merged(current.revoking, dropped)
    if _owns_any(owned, revoking):
        return replace(
            current,
            previous_epoch=current.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=assigned,
            revoking=revoking,
        )
    return replace(current, previous_epoch=current.epoch, assigned=assigned)


def _merged(first: Owned, second: Owned) -> Owned:
    merged: dict[uuid.UUID, Mapping[int, int]] = dict(first)
    for topic_id, held in second.items():
        merged[topic_id] = {**merged.get(topic_id, {}), **held}
    return merged


def _owns_any(owned: Partitions | None, revoking: Owned) -> bool:
    """A member that says nothing of its partitions is taken to have them all still."""
    if owned is None:
        return True
    return any(not partitions.isdisjoint(revoking.get(topic_id, ())) for topic_id, partitions in owned.items())

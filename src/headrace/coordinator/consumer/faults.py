"""Who may not go on: the checks of a member's name and epoch, with Kafka's codes and words."""

import uuid
from collections.abc import Callable

from headrace.coordinator.consumer.member import JOINING, ConsumerGroupMember, Partitions
from headrace.coordinator.consumer.table import ConsumerGroupTable
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    ILLEGAL_GENERATION,
    NONE,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNSUPPORTED_VERSION,
)

COMMIT_VERSION_LOW = 9  # of OffsetCommit, the first that members of the consumer protocol may use


def unknown_member(group_id: str, member_id: str) -> PeerError:
    return PeerError(UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def check_static(member: ConsumerGroupMember | None, member_id: str, instance_id: str) -> ConsumerGroupMember:
    if member is None:
        raise PeerError(UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise PeerError(
            FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


def check_epoch(member: ConsumerGroupMember, epoch: int, owned: Partitions | None) -> None:
    """A member one epoch behind is believed if it owns nothing new: the answer with its new epoch may have got lost."""
    if epoch in (JOINING, member.epoch):
        return
    if epoch < member.epoch and epoch == member.current.previous_epoch and _is_part(owned, member):
        return
    word = "greater" if epoch > member.epoch else "smaller"
    raise PeerError(
        FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {word} member epoch ({epoch}) than"
        f" the one known by the group coordinator ({member.epoch}). The member must abandon all its partitions and"
        " rejoin.",
    )


def _is_part(owned: Partitions | None, member: ConsumerGroupMember) -> bool:
    if owned is None:
        return False
    assigned = member.current.assigned
    return all(
        topic_id in assigned and partitions <= assigned[topic_id].keys() for topic_id, partitions in owned.items()
    )


PartitionCheck = Callable[[uuid.UUID | None, int], int]
"""Of a topic's id and a partition: the code with which a commit of it is refused, or 0."""


def check_commit(
    table: ConsumerGroupTable,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    *,
    in_transaction: bool,
    version: int,
) -> PartitionCheck:
    """Whether this member may commit. One that is an epoch behind may still commit what it has had since then."""
    if epoch < 0 and not table.members:
        return _anything
    if in_transaction and epoch == -1 and not member_id and instance_id is None:
        return _anything
    member = table.members.get(member_id)
    if member is None:
        raise unknown_member(table.group_id, member_id)
    if not in_transaction and not member.is_classic and version < COMMIT_VERSION_LOW:
        raise PeerError(
            UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        )
    if epoch == member.epoch:
        return _anything
    if epoch > member.epoch:
        raise PeerError(_stale(member), f"Received epoch {epoch} is newer than current member epoch {member.epoch}.")

    def check(topic_id: uuid.UUID | None, partition: int) -> int:
        since = None if topic_id is None else member.assignment_epoch(topic_id, partition)
        return _stale(member) if since is None or epoch < since else NONE

    return check


def check_fetch(table: ConsumerGroupTable, member_id: str | None, epoch: int) -> None:
    """Whether this member may read the committed offsets."""
    if member_id is None and epoch < 0:
        return
    member = table.members.get(member_id or "")
    if member is None:
        raise unknown_member(table.group_id, member_id or "")
    if epoch != member.epoch:
        raise PeerError(_stale(member), f"The received epoch {epoch} does not match the expected one, {member.epoch}.")


def _stale(member: ConsumerGroupMember) -> int:
    return ILLEGAL_GENERATION if member.is_classic else STALE_MEMBER_EPOCH


def _anything(topic_id: uuid.UUID | None, partition: int) -> int:
    return NONE

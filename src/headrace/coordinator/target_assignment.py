"""A group's new target: what an assignor makes of its members and their topics, as the changes that lead there."""

import uuid
from collections.abc import Sequence

from headrace.coordinator.assignors import ASSIGNORS, MemberWish
from headrace.coordinator.consumer_group_changes import Change, TargetChange, TargetEpochChange
from headrace.coordinator.consumer_group_table import ConsumerGroupTable
from headrace.coordinator.topic_view import TopicView


def preferred_assignor(table: ConsumerGroupTable, offered: Sequence[str]) -> str:
    """What most members ask for; the first that the broker offers if nobody asks."""
    votes: dict[str, int] = {}
    for member in table.members.values():
        name = member.subscription.server_assignor
        if name is not None and name in offered:
            votes[name] = votes.get(name, 0) + 1
    return max(votes, key=votes.__getitem__) if votes else offered[0]


def target_changes(table: ConsumerGroupTable, offered: Sequence[str], topics: TopicView, wall_ms: int) -> list[Change]:
    """Only members whose target is another one than before are in it; the epoch always is, as the last one."""
    ids: dict[str, uuid.UUID] = {}
    counts: dict[uuid.UUID, int] = {}
    for name in table.topics():
        topic_id, count = topics.topic_id(name), topics.partition_count(name)
        if topic_id is not None and count is not None:
            ids[name] = topic_id
            counts[topic_id] = count
    wishes = {}
    existing: dict[frozenset[str], frozenset[uuid.UUID]] = {}  # most members want the same
    for member_id, member in table.members.items():
        names = table.topics_of(member)
        if names not in existing:
            existing[names] = frozenset([ids[name] for name in names if name in ids])
        known = table.targets.get(member_id, {})
        wishes[member_id] = MemberWish(existing[names], known, member.subscription.instance_id)
    assign = ASSIGNORS[preferred_assignor(table, offered)]
    changes: list[Change] = [
        TargetChange(member_id, target)
        for member_id, target in assign(wishes, counts).items()
        if table.targets.get(member_id) != target
    ]
    return [*changes, TargetEpochChange(table.epochs.group, wall_ms)]

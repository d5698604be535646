"""A group's new target: what an assignor makes of its members and their topics, as the changes that lead there."""

import uuid
from collections.abc import Sequence
from typing import Final

from headrace.coordinator.consumer.assignors import ASSIGNORS, MemberWish
from headrace.coordinator.consumer.changes import Change, TargetChange, TargetEpochChange
from headrace.coordinator.consumer.member import Partitions
from headrace.coordinator.consumer.table import ConsumerGroupTable
from headrace.coordinator.topic_view import TopicView

MEMBERS_PER_STEP: Final = 500  # a group of no more has its target at once


def preferred_assignor(table: ConsumerGroupTable, offered: Sequence[str]) -> str:
    """What most members ask for; the first that the broker offers if nobody asks."""
    votes: dict[str, int] = {}
    for member in table.members.values():
        name = member.subscription.server_assignor
        if name is not None and name in offered:
            votes[name] = votes.get(name, 0) + 1
    return max(votes, key=votes.__getitem__) if votes else offered[0]


class TargetJob:
    """Works out a group's new target, a number of members at a step, so that a large group keeps nobody waiting.

    Members may come and go between two steps. That raises the group epoch, while the target is for the epoch at which
    the job began: so another job follows, for whoever this one has missed.
    """

    def __init__(self, table: ConsumerGroupTable, offered: Sequence[str], topics: TopicView) -> None:
        self.epoch = table.epochs.group
        self.is_done = False
        self._table = table
        self._offered = offered
        self._member_ids = list(table.members)
        self._at = 0  # in the members while there is no target, in the target then
        self._wishes: dict[str, MemberWish] = {}
        self._targets: list[tuple[str, Partitions]] | None = None
        self._existing: dict[frozenset[str], frozenset[uuid.UUID]] = {}  # most members want the same
        self._ids: dict[str, uuid.UUID] = {}
        self._counts: dict[uuid.UUID, int] = {}
        for name in table.topics():
            topic_id, count = topics.topic_id(name), topics.partition_count(name)
            if topic_id is not None and count is not None:
                self._ids[name] = topic_id
                self._counts[topic_id] = count

    def step(self, wall_ms: int) -> list[Change]:
        """Only members whose target is another one than before are in it; the epoch always is, as the last one."""
        if self._targets is not None:
            return self._compare(self._targets, wall_ms)
        if self._at < len(self._member_ids):
            self._ask()
        else:
            assign = ASSIGNORS[preferred_assignor(self._table, self._offered)]
            self._targets = list(assign(self._wishes, self._counts).items())
            self._at = 0
        return []

    def _ask(self) -> None:
        table, ids = self._table, self._ids
        for member_id in self._member_ids[self._at : self._at + MEMBERS_PER_STEP]:
            member = table.members.get(member_id)
            if member is None:
                continue
            names = table.topics_of(member)
            if names not in self._existing:
                self._existing[names] = frozenset([ids[name] for name in names if name in ids])
            known = table.targets.get(member_id, {})
            self._wishes[member_id] = MemberWish(self._existing[names], known, member.subscription.instance_id)
        self._at += MEMBERS_PER_STEP

    def _compare(self, targets: list[tuple[str, Partitions]], wall_ms: int) -> list[Change]:
        table = self._table
        changes: list[Change] = [
            TargetChange(member_id, target)
            for member_id, target in targets[self._at : self._at + MEMBERS_PER_STEP]
            if member_id in table.members and table.targets.get(member_id) != target
        ]
        self._at += MEMBERS_PER_STEP
        if self._at >= len(targets):
            self.is_done = True
            changes.append(TargetEpochChange(self.epoch, wall_ms))
        return changes

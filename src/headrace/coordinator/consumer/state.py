"""The consumer group of KIP-848, as a machine: heartbeats and deadlines in, decisions out. No clock, no disk.

Unlike the classic group, nobody waits for anybody. Three epochs tell how far things have come:

    group epoch ──────────► target epoch ───────────────► member epochs
    what is wanted changed   an assignor has said what     each member, at its own pace, gives up
                             each member should have       and takes over what the target says

- The **group epoch** is raised when a member joins, leaves or subscribes to something else, and when a topic that
  anyone subscribes to is made, deleted or grown.
- The **target** is computed again, by an assignor on the broker, when a heartbeat finds the group epoch ahead of it; at
  most once in `group.consumer.assignment.interval.ms`, so that a fleet that starts is assigned a few times only.
  That of a large group takes several turns of the loop; until it is there, heartbeats go by the former one.
- A **member** walks towards the target with its heartbeats (member_reconciliation): it gives up first, then goes to the
  target's epoch, then gets what is free. No partition has two owners at any time; a member that does not give up within
  its rebalance timeout is removed, one that is silent for the session timeout too.

A member joins with epoch 0 and leaves with -1. A static one (`group.instance.id`) may leave with -2: its place and its
partitions are kept until its session ends, for the next member that joins with the same instance id. A member whose
epoch is ahead of what is known here, or behind (unless only the answer with the new epoch may be lost) is fenced, and
starts again without partitions.

Members of the classic protocol may live in the group too: `classic_members`. When the last other member has gone,
the group becomes a classic one: `migration`.

The state is a fold of changes (consumer_group_table). A decision's changes are applied when it is taken, so that the
next heartbeat builds upon them; they are written before it is answered, and undone if they cannot be written. What is
not in the table - deadlines, which revision of the topics was looked at - may be lost by a restart.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from headrace.coordinator.consumer.changes import (
    Change,
    CurrentChange,
    EpochChange,
    SubscriptionChange,
    TargetChange,
)
from headrace.coordinator.consumer.faults import check_epoch, check_static, unknown_member
from headrace.coordinator.consumer.member import (
    LEAVING_FOR_A_WHILE,
    ConsumerGroupMember,
    MemberState,
    Partitions,
    Subscription,
    member_bytes,
)
from headrace.coordinator.consumer.migration import may_become_classic, seed
from headrace.coordinator.consumer.patterns import GroupPatterns
from headrace.coordinator.consumer.reconciliation import reconcile
from headrace.coordinator.consumer.requests import ClassicSeed, Decision, Heartbeat
from headrace.coordinator.consumer.table import ConsumerGroupTable, Undo, as_body, topic_ids
from headrace.coordinator.consumer.target_assignment import MEMBERS_PER_STEP, TargetJob
from headrace.coordinator.deadlines import Deadlines, Now
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.member_budget import MemberBudget
from headrace.coordinator.topic_view import TopicView
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import GROUP_MAX_SIZE_REACHED, NONE, UNRELEASED_INSTANCE_ID

SESSION: Final = "session"
REBALANCE: Final = "rebalance"
JOIN: Final = "join"
SYNC: Final = "sync"
TARGET: Final = "target"
TARGET_DUE: Final = (TARGET, "")
Key = tuple[str, str]  # what is due, and whose


class ConsumerGroup:
    def __init__(
        self, group_id: str, settings: GroupSettings, topics: TopicView, budget: MemberBudget | None = None
    ) -> None:
        self.group_id = group_id
        self.table = ConsumerGroupTable(group_id)
        self.deadlines: Deadlines[Key] = Deadlines()
        self.settings = settings
        self._budget = MemberBudget(settings) if budget is None else budget
        self.topic_view = topics
        self.patterns = GroupPatterns(self.table, topics)
        self._changes: list[Change] = []
        self._undo: Undo = []
        self._becomes: ClassicSeed | None = None
        self._revision_seen: int | None = None
        self._target_job: TargetJob | None = None  # of a large group, under way

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, beat: Heartbeat, now: Now) -> Decision:
        """Raises PeerError, and changes nothing, if the member may not go on. `beat` has been checked before."""
        try:
            return self.decided(self._leave(beat) if beat.is_leaving else self._live(beat, now))
        except PeerError:
            self.abandon()
            raise

    def _live(self, beat: Heartbeat, now: Now) -> dict[str, object]:
        self.refuse_if_full(beat.member_id)
        member_id = beat.member_id or beat.fresh_id
        former, comes_back = self._known_member(beat, member_id)
        before = former or ConsumerGroupMember(member_id=member_id)
        subscription = beat.applied_to(before.subscription)
        self.patterns.check(subscription.pattern)
        if comes_back:
            before = self.replace_member(before, member_id)
        self.subscribe(before, subscription, now)
        self.update_target(now)
        self.advance(
            member_id, beat.owned, now, subscription_changed=subscription.wants_other_than(before.subscription)
        )
        self.deadlines.set((SESSION, member_id), now.ms + self.settings.consumer_session_timeout_ms)
        for kind in (JOIN, SYNC):  # if it spoke the classic protocol until now
            self.deadlines.cancel((kind, member_id))
        member = self.table.members[member_id]
        is_news = beat.is_full or member.current.offers_other_than(before.current)
        return {
            "error_code": NONE,
            "member_id": member_id,
            "member_epoch": member.epoch,
            "heartbeat_interval": self.settings.consumer_heartbeat_interval_ms,
            "assignment": {"topic_partitions": as_body(member.current.assigned)} if is_news else None,
        }

    def expire(self, now: Now) -> Decision | None:
        """Removes whoever has run out of time, or a slice of them; None if nobody has. The rest leaves
        `deadlines.wake_ms` in the past."""
        gone = set()
        has_work = False
        self.deadlines.begin_slice()
        while (key := self.deadlines.take_due(now.ms)) is not None:
            kind, member_id = key
            if kind == TARGET:
                has_work = True
                continue
            member = self.table.members.get(member_id)
            if member is None:
                continue
            if kind != REBALANCE or member.state == MemberState.UNREVOKED_PARTITIONS:
                gone.add(member_id)
        if has_work:
            self._work_on_target(now)
        if not gone:
            return self.decided({}) if self._changes else None
        self.remove([self.table.members[member_id] for member_id in sorted(gone)])
        return self.decided({})

    def loaded(self, now: Now) -> None:
        """After a restart every member has its whole session to report again."""
        for member_id, member in self.table.members.items():
            self.expect_session(member, now)
            if member.state == MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
                self.deadlines.set((REBALANCE, member_id), now.ms + member.subscription.rebalance_timeout_ms)

    # ── a heartbeat's parts, which the classic protocol's requests share ─────────────────────────────────────────

    def refuse_if_full(self, member_id: str) -> None:
        limit = self.settings.consumer_max_size
        if len(self.table.members) >= limit and member_id not in self.table.members:
            raise PeerError(
                GROUP_MAX_SIZE_REACHED, f"The consumer group has reached its maximum capacity of {limit} members."
            )

    def _known_member(self, beat: Heartbeat, member_id: str) -> tuple[ConsumerGroupMember | None, bool]:
        """Whom the group knows it as, and whether it comes back in place of that one, as a static member does."""
        if beat.instance_id is None:
            member = self.table.members.get(member_id)
            if member is None and not beat.is_joining:
                raise unknown_member(self.group_id, member_id)
            if member is not None:
                check_epoch(member, beat.member_epoch, beat.owned)
            return member, False
        static = self.table.static_member(beat.instance_id)
        if not beat.is_joining:
            member = check_static(static, member_id, beat.instance_id)
            check_epoch(member, beat.member_epoch, beat.owned)
            return member, False
        if static is None:
            return self.table.members.get(member_id), False
        if not static.is_classic and static.epoch != LEAVING_FOR_A_WHILE:
            raise PeerError(
                UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {beat.instance_id} cannot join the group because the"
                f" instance id is owned by {static.member_id} member.",
            )
        return static, True

    def replace_member(self, old: ConsumerGroupMember, new_id: str) -> ConsumerGroupMember:
        """A static member takes over the place, the target and the partitions of its former self."""
        target = self.table.targets.get(old.member_id, {})
        self._target_job = None  # it knows the old id; another one begins with this heartbeat
        self._forget(old)
        self.change(SubscriptionChange(new_id, old.subscription))
        self.change(TargetChange(new_id, target))
        self.change(CurrentChange(new_id, replace(old.current, epoch=0, previous_epoch=0)))
        return self.table.members[new_id]

    def subscribe(self, before: ConsumerGroupMember, subscription: Subscription, now: Now) -> None:
        """Writes down what the member wants, and raises the group epoch if that, or a topic, is something new."""
        member_id = before.member_id
        if member_id not in self.table.members or subscription != before.subscription:
            self._admit(before, subscription, now)
            self.change(SubscriptionChange(member_id, subscription))
        changed = subscription.wants_other_than(before.subscription)
        if before.subscription.pattern != subscription.pattern:
            self._drop_unused_patterns()
        self.refresh(now, must_raise=changed)

    def _admit(self, before: ConsumerGroupMember, subscription: Subscription, now: Now) -> None:
        """PeerError if that is more than may be remembered."""
        size = member_bytes(before.member_id, subscription)
        self._budget.check_member(self.group_id, size)
        added = size - member_bytes(before.member_id, before.subscription)
        self._budget.admit(self.group_id, self.table.byte_count, added, now.ms)

    def refresh(self, now: Now, *, must_raise: bool) -> None:
        """Looks at the topics again, if they are others than last time."""
        revision = self.topic_view.revision
        is_stale = revision != self._revision_seen
        pattern_changes = self.patterns.resolved(now.wall_ms, is_stale=is_stale)
        for change in pattern_changes:
            self.change(change)
        self._revision_seen = revision
        if must_raise or is_stale or pattern_changes:
            found = self.table.counts.topics_digest(self.topic_view)
            if must_raise or pattern_changes or found != self.table.epochs.metadata_hash:
                self.change(EpochChange(self.table.epochs.group + 1, found))

    def update_target(self, now: Now) -> None:
        epochs = self.table.epochs
        interval_ms = self.settings.consumer_assignment_interval_ms
        if epochs.target >= epochs.group or (epochs.target_timestamp_ms + interval_ms > now.wall_ms and interval_ms):
            return
        if self._target_job is not None:
            return
        job = TargetJob(self.table, self.settings.consumer_assignors, self.topic_view)
        if len(self.table.members) > MEMBERS_PER_STEP:
            self._target_job = job
            self.deadlines.set(TARGET_DUE, now.ms)
            return
        while not job.is_done:
            for change in job.step(now.wall_ms):
                self.change(change)

    def _work_on_target(self, now: Now) -> None:
        job = self._target_job
        if job is None:
            return
        for change in job.step(now.wall_ms):
            self.change(change)
        if job.is_done:
            self._target_job = None
        else:
            self.deadlines.set(TARGET_DUE, now.ms)

    def advance(self, member_id: str, owned: Partitions | None, now: Now, *, subscription_changed: bool) -> None:
        """Brings the member one step nearer to its target."""
        member = self.table.members[member_id]
        if member.is_reconciled_to(self.table.epochs.target) and not subscription_changed:
            return
        current = reconcile(
            member.current,
            target=self.table.targets.get(member_id, {}),
            target_epoch=self.table.epochs.target,
            subscribed=topic_ids(self.table.topics_of(member), self.topic_view),
            subscription_changed=subscription_changed,
            is_taken=self.table.is_taken,
            owned=owned,
        )
        if current == member.current:
            return
        self.change(CurrentChange(member_id, current))
        if member.is_classic:
            return  # it has deadlines of its own, for joining and for syncing
        if current.state == MemberState.UNREVOKED_PARTITIONS:
            self.deadlines.set((REBALANCE, member_id), now.ms + member.subscription.rebalance_timeout_ms)
        else:
            self.deadlines.cancel((REBALANCE, member_id))

    # ── going ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _leave(self, beat: Heartbeat) -> dict[str, object]:
        if beat.instance_id is None:
            member = self.table.members.get(beat.member_id)
            if member is None:
                raise unknown_member(self.group_id, beat.member_id)
        else:
            member = check_static(self.table.static_member(beat.instance_id), beat.member_id, beat.instance_id)
        if beat.member_epoch == LEAVING_FOR_A_WHILE:
            kept = {topic_id: dict.fromkeys(held, 0) for topic_id, held in member.current.assigned.items()}
            away = replace(member.current, epoch=LEAVING_FOR_A_WHILE, assigned=kept, revoking={})
            self.change(CurrentChange(member.member_id, away))
        else:
            self.remove([member])
        told = {"member_id": beat.member_id, "member_epoch": beat.member_epoch, "heartbeat_interval": 0}
        return {"error_code": NONE, **told}

    def remove(self, members: list[ConsumerGroupMember]) -> None:
        """The rest is computed again at someone's next heartbeat, or goes on as a classic group."""
        if may_become_classic(self.table, members, self.settings):
            self.become_classic(seed(self.table, {each.member_id for each in members}, self.topic_view))
            return
        for member in members:
            self._forget(member)
            for kind in (SESSION, REBALANCE, JOIN, SYNC):
                self.deadlines.cancel((kind, member.member_id))
        self._drop_unused_patterns()
        self.change(EpochChange(self.table.epochs.group + 1, self.table.counts.topics_digest(self.topic_view)))

    def become_classic(self, seeded: ClassicSeed) -> None:
        self._becomes = seeded
        self._target_job = None
        for change in self.table.tombstones():
            self.change(change)
        self.deadlines.clear()

    def _drop_unused_patterns(self) -> None:
        for change in self.patterns.unused():
            self.change(change)

    def _forget(self, member: ConsumerGroupMember) -> None:
        self.change(CurrentChange(member.member_id, None))
        self.change(TargetChange(member.member_id, None))
        self.change(SubscriptionChange(member.member_id, None))

    # ── decisions ────────────────────────────────────────────────────────────────────────────────────────────────

    def change(self, change: Change) -> None:
        self.table.apply(change, self._undo)
        self._changes.append(change)

    def decided(self, answer: Mapping[str, object]) -> Decision:
        decision = Decision(answer, self._changes, self._undo, self._becomes)
        self._changes, self._undo, self._becomes = [], [], None
        return decision

    def abandon(self) -> None:
        """Nothing was decided after all."""
        self._take_back(self.decided({}))
        if self._target_job is not None and self._target_job.epoch > self.table.epochs.group:
            self._target_job = None  # it began with what was not decided

    def undo(self, decision: Decision) -> None:
        """The decision could not be written. Decisions are undone last first."""
        self._target_job = None  # a part of its target may be undone with this
        self._take_back(decision)

    def _take_back(self, decision: Decision) -> None:
        if decision.undo:
            for step in reversed(decision.undo):
                step()
            self._revision_seen = None
        self.patterns.forget_unused()

    def expect_session(self, member: ConsumerGroupMember, now: Now) -> None:
        classic = member.subscription.classic
        timeout_ms = self.settings.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
        self.deadlines.set((SESSION, member.member_id), now.ms + timeout_ms)

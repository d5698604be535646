"""The classic consumer group, as a machine: requests and deadlines in, effects out. No clock, no disk, no waiting.

A group is a set of members that share out some work, for consumers the partitions of topics. The broker knows nothing
of the work: it brings the members together, lets them agree on a protocol, has one of them, the leader, share out, and
hands each its part. One round of this is a rebalance; each that ends well begins a new generation, and whoever speaks
for an older one is sent back. Eager and cooperative consumers are the same to the broker: what a member gives up
meanwhile, or keeps, is between it and the leader.

    Empty ── a member joins ──► PreparingRebalance ── all have joined, or time is up ──► CompletingRebalance
      ▲                           │   ▲      ▲                                                │        │
      └──── nobody is left ───────┘   │      └── a member joins, changes, leaves or dies ─────┘        │ the leader's
                                      │                                                                ▼ word is stored
                                      └──────────── a member joins, changes, leaves or dies ───────── Stable

- **Preparing**: joins wait here. Members that were in the group and do not join again before the largest of the
  members' rebalance timeouts are removed, unless they are static (`group.instance.id`): those may be restarting, and
  only their session timeout removes them. A group that was empty waits `group.initial.rebalance.delay.ms` first, and
  again for as long as members keep coming, so that a fleet that starts does not rebalance once for each of its members.
- **Completing**: the leader knows all members, the others wait in SyncGroup for what it decides. That is written to the
  journal before anyone hears of it: what a member was told, the group must know after a restart too. Who never asks is
  removed when the rebalance timeout has passed once more.
- **Stable**: heartbeats keep sessions alive; a follower that joins again unchanged is told the current generation.
- **Dead**: deleted, or never written; whoever still holds it is told to look for the coordinator again.

A new dynamic member is first given an id and joins with it (KIP-394), so that a client that lost an answer does not
leave a second self behind. Until then it is pending: a rebalance waits for it, a session timeout forgets it.

A static member that comes back has no id but its instance: it takes over the place of its former self, which is fenced
from then on. In a stable group in which that changes nothing about the protocol, nobody else notices.

Every request that waits is a ticket; a ticket is answered exactly once, also when its member is removed or asks twice.

What an event leads to for each member takes several turns in a large group (`steps`). Whatever comes meanwhile waits
in line (`line`), but for heartbeats, commits and questions, which are answered by what is so at that moment: the old
generation until all that belongs to the new one is known, and the new one from then on.
"""

from collections.abc import Mapping

from headrace.coordinator.classic.effects import (
    Answer,
    AssignmentStored,
    Body,
    Effect,
    Store,
    Stored,
    join_refused,
    sync_refused,
    synced,
)
from headrace.coordinator.classic.facts import GroupFacts, GroupState
from headrace.coordinator.classic.members import Member, Ticket
from headrace.coordinator.classic.steps import MEMBERS_PER_STEP, Steps
from headrace.coordinator.deadlines import Deadlines, Now
from headrace.coordinator.group_records import encode_member
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.member_budget import MemberBudget
from headrace.core.errors import InvariantError, PeerError
from headrace.core.steps import finish
from headrace.protocol.error_codes import (
    FENCED_INSTANCE_ID,
    MESSAGE_TOO_LARGE,
    NONE,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)

LEGAL_NEXT: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.PREPARING: frozenset({GroupState.COMPLETING, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING: frozenset({GroupState.STABLE, GroupState.PREPARING, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}

JOIN_RETRY_MS_MIN = 1_000  # a client may set its rebalance timeout to nothing at all

JOIN, SYNC, SESSION = "join", "sync", "session"
Key = tuple[str, str]  # what is due, and for a session whose
JOIN_DUE: Key = (JOIN, "")
SYNC_DUE: Key = (SYNC, "")


class GroupMachine:
    """The states, and what leads from one to another. What each request does is `ClassicGroup`'s."""

    def __init__(self, facts: GroupFacts, settings: GroupSettings, budget: MemberBudget, now: Now) -> None:
        self.facts = facts
        self._settings = settings
        self._budget = budget
        self.deadlines: Deadlines[Key] = Deadlines()
        self.now = now  # of the event at hand
        self.effects: list[Effect] = []  # of the event at hand
        self._previous_state = GroupState.DEAD
        self._sync_missing: set[str] = set()  # members that have not asked for their part in this generation
        self._storing: int | None = None  # the generation whose assignment is being written
        self._initial: tuple[int, int] | None = None  # of a first rebalance: this delay, and what may follow, in ms
        self._newcomer = False  # someone came during that delay

    # ── deadlines, and what comes from outside ───────────────────────────────────────────────────────────────────

    def expire(self) -> Steps[None]:
        """What is due by now, or a slice of it: the rest leaves `deadlines.wake_ms` in the past."""
        self.deadlines.begin_slice()
        while (key := self.deadlines.take_due(self.now.ms)) is not None:
            kind, member_id = key
            if kind == SESSION:
                yield from self._session_ended(member_id)
            elif kind == JOIN:
                yield from self._join_time_is_up()
            else:
                yield from self._sync_time_is_up()

    def loaded(self) -> Steps[None]:
        """Read back at start: the members have their session timeouts to be heard of."""
        for at, member in enumerate(self.facts.roster, 1):
            self.expect_heartbeat(member.member_id, member.session_timeout_ms)
            if at % MEMBERS_PER_STEP == 0:
                yield
        if len(self.facts.roster) > self._settings.max_size:
            yield from self.prepare_rebalance()

    def rebalance(self) -> Steps[None]:
        # Else it is preparing already, or has died while this waited.
        if GroupState.PREPARING in LEGAL_NEXT[self.facts.state]:
            yield from self.prepare_rebalance()

    def die(self, code: int) -> Steps[None]:
        """Whoever waits is answered with the code."""
        self.deadlines.clear()
        if self.facts.state is not GroupState.DEAD:
            self._go(GroupState.DEAD)
        for at, member in enumerate(self.facts.roster, 1):
            self.answer(self.facts.roster.take_join(member), join_refused(code, member.member_id))
            self.answer_sync(member, sync_refused(code))
            if at % MEMBERS_PER_STEP == 0:
                yield

    # ── rebalancing ──────────────────────────────────────────────────────────────────────────────────────────────

    def rebalance_or_complete_join(self) -> Steps[None]:
        if GroupState.PREPARING in LEGAL_NEXT[self.facts.state]:
            # An empty group whose last pending member leaves has nothing to rebalance.
            if self.facts.state is not GroupState.EMPTY or self.facts.roster.members:
                yield from self.prepare_rebalance()
        elif self._previous_state is not GroupState.EMPTY:
            yield from self.complete_join_if_all_have()

    def prepare_rebalance(self) -> Steps[None]:
        if self.facts.state is GroupState.COMPLETING:
            yield from self._assign({})
            yield from self._answer_syncs(REBALANCE_IN_PROGRESS)
        self._sync_missing.clear()
        self.deadlines.cancel(SYNC_DUE)
        was_empty = self.facts.state is GroupState.EMPTY
        longest_ms = yield from self.facts.roster.rebalance_timeout_ms()
        self._go(GroupState.PREPARING)
        if was_empty:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._newcomer = False
            self._initial = (delay_ms, max(longest_ms - delay_ms, 0))
            self._wake_in(JOIN_DUE, delay_ms)
        elif self.facts.roster.all_joined:
            yield from self._complete_join()
        else:
            self._wake_in(JOIN_DUE, longest_ms)

    def _join_time_is_up(self) -> Steps[None]:
        if self._initial is None or not self._newcomer or self._initial[1] == 0:
            yield from self._complete_join()
            return
        delay_ms, left_ms = self._initial
        self._newcomer = False
        self._initial = (min(self._settings.initial_rebalance_delay_ms, left_ms), max(left_ms - delay_ms, 0))
        self._wake_in(JOIN_DUE, self._initial[0])

    def complete_join_if_all_have(self) -> Steps[None]:
        if self.facts.state is GroupState.PREPARING and self.facts.roster.all_joined:
            yield from self._complete_join()

    def _complete_join(self) -> Steps[None]:
        self.deadlines.cancel(JOIN_DUE)
        self._initial = None
        roster = self.facts.roster
        for at, member in enumerate(roster, 1):
            if member.join_ticket is None and member.instance_id is None:
                self.forget(member.member_id, UNKNOWN_MEMBER_ID)
            if at % MEMBERS_PER_STEP == 0:
                yield
        longest_ms = yield from roster.rebalance_timeout_ms()
        if not roster.members:
            self._becomes_empty()
        elif not roster.elect():
            # Only static members are left and none has come back: their session timeouts decide.
            self._wake_in(JOIN_DUE, max(longest_ms, JOIN_RETRY_MS_MIN))
        else:
            protocol_name = yield from roster.chosen_protocol()
            topics = yield from self.facts.topics_subscribed(protocol_name)
            self.facts.generation += 1
            self._sync_missing = set(roster.members)
            self.facts.protocol_name, self.facts.subscribed_topics = protocol_name, topics
            self._go(GroupState.COMPLETING)
            yield from self._answer_joins()
            self._wake_in(SYNC_DUE, longest_ms)

    def _becomes_empty(self) -> None:
        self.facts.roster.elect()
        self.facts.generation += 1
        self._sync_missing = set()
        self.facts.protocol_name = None
        self.facts.subscribed_topics = finish(self.facts.topics_subscribed(None))
        self._go(GroupState.EMPTY)
        self.effects.append(Store(finish(self.facts.written({}))))

    def _answer_joins(self) -> Steps[None]:
        roster = self.facts.roster
        told = yield from self.facts.members_told()
        for at, member in enumerate(roster, 1):
            members = told if member.member_id == roster.leader else []
            self.answer(roster.take_join(member), self.facts.joined(member, members))
            self.expect_heartbeat(member.member_id, member.session_timeout_ms)
            member.is_new = False
            if at % MEMBERS_PER_STEP == 0:
                yield

    def _sync_time_is_up(self) -> Steps[None]:
        if self._sync_missing and self.facts.state in (GroupState.COMPLETING, GroupState.STABLE):
            for at, member_id in enumerate(list(self._sync_missing), 1):
                self.forget(member_id, UNKNOWN_MEMBER_ID)
                if at % MEMBERS_PER_STEP == 0:
                    yield
            yield from self.prepare_rebalance()

    def asked_for_its_part(self, member_id: str) -> None:
        """It counts no more among those whose time runs out."""
        self._sync_missing.discard(member_id)
        if not self._sync_missing:
            self.deadlines.cancel(SYNC_DUE)

    def share_out(self, leader: Member, assignment: Mapping[str, bytes]) -> Steps[None]:
        """As the leader says, unless that is being written already."""
        if self._storing == self.facts.generation:
            return
        given: dict[str, bytes] = {}
        byte_count = 0
        for at, each in enumerate(self.facts.roster, 1):
            part = given[each.member_id] = assignment.get(each.member_id, b"")
            byte_count += len(part)
            if at % MEMBERS_PER_STEP == 0:
                yield
        if not self._may_assign(byte_count):
            self.answer_sync(leader, sync_refused(MESSAGE_TOO_LARGE))
            return
        self._storing = self.facts.generation
        yield from self.store(given, AssignmentStored(self.facts.generation, given))

    def _may_assign(self, byte_count: int) -> bool:
        try:
            self._budget.admit(self.facts.group_id, 0, byte_count, self.now.ms)
        except PeerError:
            return False
        return True

    def assignment_stored(self, what: AssignmentStored, code: int) -> Steps[None]:
        if self._storing == what.generation:
            self._storing = None
        if self.facts.state is not GroupState.COMPLETING or self.facts.generation != what.generation:
            return  # another rebalance has begun meanwhile, and all have been told
        yield from self._assign(what.assignment if code == NONE else {})
        if code == NONE:
            self._go(GroupState.STABLE)  # before the first of them is told, and commits
        yield from self._answer_syncs(code)
        if code != NONE:
            yield from self.prepare_rebalance()

    def _assign(self, assignment: Mapping[str, bytes]) -> Steps[None]:
        byte_count = 0
        for at, member in enumerate(self.facts.roster, 1):
            member.assignment = assignment.get(member.member_id, b"")
            byte_count += len(member.assignment)
            if at % MEMBERS_PER_STEP == 0:
                yield
        self.facts.roster.assignment_bytes = byte_count

    def _answer_syncs(self, code: int) -> Steps[None]:
        """To all who wait for their assignment."""
        for at, member in enumerate(self.facts.roster, 1):
            if member.sync_ticket is not None:
                body = synced(self.facts.protocol_type, self.facts.protocol_name, member.assignment)
                self.answer_sync(member, body if code == NONE else sync_refused(code))
                self.expect_heartbeat(member.member_id, member.session_timeout_ms)
            if at % MEMBERS_PER_STEP == 0:
                yield

    def store(self, assignment: Mapping[str, bytes] | None, then: Stored) -> Steps[None]:
        """Asks for the group to be written down. None: with the assignment that it has."""
        metadata = yield from self.facts.written(assignment)
        encoded: list[bytes] = []
        for at, each in enumerate(metadata.members, 1):
            encoded.append(encode_member(each))
            if at % MEMBERS_PER_STEP == 0:
                yield
        self.effects.append(Store(metadata, then, encoded_members=encoded))

    # ── coming and going ─────────────────────────────────────────────────────────────────────────────────────────

    def came(self) -> None:
        """A newcomer makes the first rebalance wait for more of them."""
        if self.facts.state is GroupState.PREPARING and self._previous_state is GroupState.EMPTY:
            self._newcomer = True

    def replace(self, member: Member, new_id: str) -> None:
        old_id = member.member_id
        self.answer(self.facts.roster.take_join(member), join_refused(FENCED_INSTANCE_ID, old_id))
        self.answer_sync(member, sync_refused(FENCED_INSTANCE_ID))
        self.deadlines.cancel((SESSION, old_id))
        self.facts.roster.rename(member, new_id)
        member.is_new = False
        if old_id in self._sync_missing:
            self._sync_missing.remove(old_id)
            self._sync_missing.add(new_id)
        self.expect_heartbeat(new_id, member.session_timeout_ms)

    def _session_ended(self, member_id: str) -> Steps[None]:
        if member_id in self.facts.roster.pending:
            self.forget(member_id, UNKNOWN_MEMBER_ID)
            yield from self.complete_join_if_all_have()
            return
        member = self.facts.roster.get(member_id)
        if member is None or member.is_waiting:
            return
        self.forget(member_id, UNKNOWN_MEMBER_ID)
        if self.facts.state is GroupState.PREPARING:
            yield from self.complete_join_if_all_have()
        else:
            yield from self.prepare_rebalance()

    def forget(self, member_id: str, code: int) -> None:
        member = self.facts.roster.get(member_id)
        if member is not None:
            self.answer(self.facts.roster.take_join(member), join_refused(code))
            self.answer_sync(member, sync_refused(code))
        self.facts.roster.remove(member_id)
        self._sync_missing.discard(member_id)
        self.deadlines.cancel((SESSION, member_id))

    # ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _go(self, state: GroupState) -> None:
        if state not in LEGAL_NEXT[self.facts.state]:
            raise InvariantError(f"group {self.facts.group_id}: {self.facts.state} cannot become {state}")
        self._previous_state, self.facts.state = self.facts.state, state
        self.facts.state_since_ms = self.now.wall_ms

    def _wake_in(self, key: Key, delay_ms: int) -> None:
        self.deadlines.set(key, self.now.ms + delay_ms)

    def expect_heartbeat(self, member_id: str, within_ms: int) -> None:
        self.deadlines.set((SESSION, member_id), self.now.ms + within_ms)

    def answer(self, ticket: Ticket | None, body: Body) -> None:
        if ticket is not None:
            self.effects.append(Answer(ticket, body))

    def answer_sync(self, member: Member, body: Body) -> None:
        ticket, member.sync_ticket = member.sync_ticket, None
        self.answer(ticket, body)

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

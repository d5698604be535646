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
in line, but for heartbeats, commits and questions, which are answered by what is so at that moment: the old generation
until all that belongs to the new one is known, and the new one from then on.
"""

from collections import deque
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
from headrace.coordinator.classic.facts import GroupFacts, State
from headrace.coordinator.classic.members import Member, Ticket
from headrace.coordinator.classic.steps import EVENTS_PER_STEP, MEMBERS_PER_STEP, Steps, at_once
from headrace.coordinator.deadlines import Deadlines, Now
from headrace.coordinator.group_records import encode_member
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.member_budget import MemberBudget
from headrace.core.errors import InvariantError
from headrace.protocol.error_codes import NONE, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID

LEGAL_NEXT: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY, State.DEAD}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING, State.DEAD}),
    State.DEAD: frozenset(),
}

JOIN_RETRY_MS_MIN = 1_000  # a client may set its rebalance timeout to nothing at all

JOIN, SYNC, SESSION = "join", "sync", "session"
Key = tuple[str, str]  # what is due, and for a session whose
JOIN_DUE: Key = (JOIN, "")
SYNC_DUE: Key = (SYNC, "")


class GroupState(GroupFacts):
    """The states and what leads from one to another. What each request does is `ClassicGroup`'s."""

    def __init__(self, group_id: str, settings: GroupSettings, now: Now, budget: MemberBudget | None = None) -> None:
        super().__init__(group_id, now)
        self._budget = MemberBudget(settings) if budget is None else budget
        self.deadlines: Deadlines[Key] = Deadlines()
        self._previous_state = State.DEAD
        self._settings = settings
        self._now = now  # of the event at hand
        self._effects: list[Effect] = []  # of the event at hand
        self._line: deque[Steps[None]] = deque()  # events that wait for the one under way
        self.expiry_waits = False  # in the line
        self._sync_missing: set[str] = set()  # members that have not asked for their part in this generation
        self._storing: int | None = None  # the generation whose assignment is being written
        self._initial: tuple[int, int] | None = None  # of a first rebalance: this delay, and what may follow, in ms
        self._newcomer = False  # someone came during that delay

    # ── events, one after the other ──────────────────────────────────────────────────────────────────────────────

    def go_on(self, now: Now) -> list[Effect]:
        """A step of the event under way, or the first steps of some that have waited for it."""
        self._now = now
        for _ in range(EVENTS_PER_STEP):
            event = self.under_way
            if event is None:
                if not self._line:
                    break
                event = self._line.popleft()
            self._step(event)
            if self.under_way is not None:
                break
        self.is_busy = self.under_way is not None or bool(self._line)
        return self._take_effects()

    def _happens(self, event: Steps[None], now: Now) -> list[Effect]:
        if self.is_busy:
            self._line.append(event)
            return []
        self._now = now
        self._step(event)
        self.is_busy = self.under_way is not None
        return self._take_effects()

    def _step(self, event: Steps[None]) -> None:
        self.under_way = None  # also if it fails: others go on
        try:
            next(event)
        except StopIteration:
            return
        self.under_way = event

    # ── deadlines, and what comes from outside ───────────────────────────────────────────────────────────────────

    def expire(self, now: Now) -> list[Effect]:
        """What is due by now, or a slice of it: the rest leaves `deadlines.wake_ms` in the past."""
        if self.expiry_waits:
            return []
        self.expiry_waits = True
        return self._happens(self._expire(), now)

    def _expire(self) -> Steps[None]:
        self.expiry_waits = False
        self.deadlines.begin_slice()
        while (key := self.deadlines.take_due(self._now.ms)) is not None:
            kind, member_id = key
            if kind == SESSION:
                yield from self._session_ended(member_id)
            elif kind == JOIN:
                yield from self._join_time_is_up()
            else:
                yield from self._sync_time_is_up()

    def loaded(self, now: Now) -> list[Effect]:
        """Read back at start: the members have their session timeouts to be heard of."""
        return self._happens(self._loaded(), now)

    def _loaded(self) -> Steps[None]:
        for at, member in enumerate(self.roster, 1):
            self._expect_heartbeat(member.member_id, member.session_timeout_ms)
            if at % MEMBERS_PER_STEP == 0:
                yield
        if len(self.roster) > self._settings.max_size:
            yield from self._prepare_rebalance()

    def rebalance(self, now: Now) -> list[Effect]:
        """From outside: the group came over from the other protocol."""
        return self._happens(self._rebalance(), now)

    def _rebalance(self) -> Steps[None]:
        if State.PREPARING in LEGAL_NEXT[self.state]:  # else it is preparing already, or has died while this waited
            yield from self._prepare_rebalance()

    def die(self, code: int, now: Now) -> list[Effect]:
        """Deleted, never written, or handed over: whoever waits is answered with the code. This waits for nothing: the
        event under way is given up, which has left every ticket with its member; those in line find a dead group."""
        self._now = now
        if self.under_way is not None:
            self.under_way.close()
        self.deadlines.clear()
        if self.state is not State.DEAD:
            self._go(State.DEAD)
        self._step(self._refuse_all(code))
        self.is_busy = self.under_way is not None or bool(self._line)
        return self._take_effects()

    def _refuse_all(self, code: int) -> Steps[None]:
        for at, member in enumerate(self.roster, 1):
            self._answer(self.roster.take_join(member), join_refused(code, member.member_id))
            self._answer_sync(member, sync_refused(code))
            if at % MEMBERS_PER_STEP == 0:
                yield

    # ── rebalancing ──────────────────────────────────────────────────────────────────────────────────────────────

    def _rebalance_or_complete_join(self) -> Steps[None]:
        if State.PREPARING in LEGAL_NEXT[self.state]:
            # An empty group whose last pending member leaves has nothing to rebalance.
            if self.state is not State.EMPTY or self.roster.members:
                yield from self._prepare_rebalance()
        elif self._previous_state is not State.EMPTY:
            yield from self._complete_join_if_all_have()

    def _prepare_rebalance(self) -> Steps[None]:
        if self.state is State.COMPLETING:
            yield from self._assign({})
            yield from self._answer_syncs(REBALANCE_IN_PROGRESS)
        self._sync_missing.clear()
        self.deadlines.cancel(SYNC_DUE)
        was_empty = self.state is State.EMPTY
        longest_ms = yield from self.roster.rebalance_timeout_ms()
        self._go(State.PREPARING)
        if was_empty:
            delay_ms = self._settings.initial_rebalance_delay_ms
            self._newcomer = False
            self._initial = (delay_ms, max(longest_ms - delay_ms, 0))
            self._wake_in(JOIN_DUE, delay_ms)
        elif self.roster.all_joined:
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

    def _complete_join_if_all_have(self) -> Steps[None]:
        if self.state is State.PREPARING and self.roster.all_joined:
            yield from self._complete_join()

    def _complete_join(self) -> Steps[None]:
        self.deadlines.cancel(JOIN_DUE)
        self._initial = None
        roster = self.roster
        for at, member in enumerate(roster, 1):
            if member.join_ticket is None and member.instance_id is None:
                self._forget(member.member_id, UNKNOWN_MEMBER_ID)
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
            topics = yield from self.topics_subscribed(protocol_name)
            self.generation += 1
            self._sync_missing = set(roster.members)
            self.protocol_name, self.subscribed_topics = protocol_name, topics
            self._go(State.COMPLETING)
            yield from self._answer_joins()
            self._wake_in(SYNC_DUE, longest_ms)

    def _becomes_empty(self) -> None:
        self.roster.elect()
        self.generation += 1
        self._sync_missing = set()
        self.protocol_name = None
        self.subscribed_topics = at_once(self.topics_subscribed(None))
        self._go(State.EMPTY)
        self._effects.append(Store(at_once(self.written({}))))

    def _answer_joins(self) -> Steps[None]:
        roster = self.roster
        told = yield from self.members_told()
        for at, member in enumerate(roster, 1):
            members = told if member.member_id == roster.leader else []
            self._answer(roster.take_join(member), self.joined(member, members))
            self._expect_heartbeat(member.member_id, member.session_timeout_ms)
            member.is_new = False
            if at % MEMBERS_PER_STEP == 0:
                yield

    def _sync_time_is_up(self) -> Steps[None]:
        if self._sync_missing and self.state in (State.COMPLETING, State.STABLE):
            for at, member_id in enumerate(list(self._sync_missing), 1):
                self._forget(member_id, UNKNOWN_MEMBER_ID)
                if at % MEMBERS_PER_STEP == 0:
                    yield
            yield from self._prepare_rebalance()

    def _assignment_stored(self, what: AssignmentStored, code: int) -> Steps[None]:
        if self._storing == what.generation:
            self._storing = None
        if self.state is not State.COMPLETING or self.generation != what.generation:
            return  # another rebalance has begun meanwhile, and all have been told
        yield from self._assign(what.assignment if code == NONE else {})
        if code == NONE:
            self._go(State.STABLE)  # before the first of them is told, and commits
        yield from self._answer_syncs(code)
        if code != NONE:
            yield from self._prepare_rebalance()

    def _assign(self, assignment: Mapping[str, bytes]) -> Steps[None]:
        byte_count = 0
        for at, member in enumerate(self.roster, 1):
            member.assignment = assignment.get(member.member_id, b"")
            byte_count += len(member.assignment)
            if at % MEMBERS_PER_STEP == 0:
                yield
        self.roster.assignment_bytes = byte_count

    def _answer_syncs(self, code: int) -> Steps[None]:
        """To all who wait for their assignment."""
        for at, member in enumerate(self.roster, 1):
            if member.sync_ticket is not None:
                body = synced(self.protocol_type, self.protocol_name, member.assignment)
                self._answer_sync(member, body if code == NONE else sync_refused(code))
                self._expect_heartbeat(member.member_id, member.session_timeout_ms)
            if at % MEMBERS_PER_STEP == 0:
                yield

    def _store(self, assignment: Mapping[str, bytes] | None, then: Stored) -> Steps[None]:
        """Asks for the group to be written down. None: with the assignment that it has."""
        metadata = yield from self.written(assignment)
        encoded: list[bytes] = []
        for at, each in enumerate(metadata.members, 1):
            encoded.append(encode_member(each))
            if at % MEMBERS_PER_STEP == 0:
                yield
        self._effects.append(Store(metadata, then, encoded_members=encoded))

    # ── going ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _session_ended(self, member_id: str) -> Steps[None]:
        if member_id in self.roster.pending:
            self._forget(member_id, UNKNOWN_MEMBER_ID)
            yield from self._complete_join_if_all_have()
            return
        member = self.roster.get(member_id)
        if member is None or member.is_waiting:
            return
        self._forget(member_id, UNKNOWN_MEMBER_ID)
        if self.state is State.PREPARING:
            yield from self._complete_join_if_all_have()
        else:
            yield from self._prepare_rebalance()

    def _forget(self, member_id: str, code: int) -> None:
        member = self.roster.get(member_id)
        if member is not None:
            self._answer(self.roster.take_join(member), join_refused(code))
            self._answer_sync(member, sync_refused(code))
        self.roster.remove(member_id)
        self._sync_missing.discard(member_id)
        self.deadlines.cancel((SESSION, member_id))

    # ── effects ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _go(self, state: State) -> None:
        if state not in LEGAL_NEXT[self.state]:
            raise InvariantError(f"group {self.group_id}: {self.state} cannot become {state}")
        self._previous_state, self.state = self.state, state
        self.state_since_ms = self._now.wall_ms

    def _wake_in(self, key: Key, delay_ms: int) -> None:
        self.deadlines.set(key, self._now.ms + delay_ms)

    def _expect_heartbeat(self, member_id: str, within_ms: int) -> None:
        self.deadlines.set((SESSION, member_id), self._now.ms + within_ms)

    def _answer(self, ticket: Ticket | None, body: Body) -> None:
        if ticket is not None:
            self._effects.append(Answer(ticket, body))

    def _answer_sync(self, member: Member, body: Body) -> None:
        ticket, member.sync_ticket = member.sync_ticket, None
        self._answer(ticket, body)

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

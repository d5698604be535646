"""A large classic group: whatever happens to it takes several turns, each of them short, and comes to the same."""

import itertools

import group_harness
import pytest
from calls import calls_of
from group_harness import ORDERS, Machine, Scheduler, World, join_request
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinator.classic import facts, members, state
from headrace.coordinator.classic.facts import GroupState
from headrace.coordinator.classic.group import ClassicGroup
from headrace.coordinator.classic.members import SyncRequest
from headrace.coordinator.classic.steps import MEMBERS_PER_STEP
from headrace.coordinator.consumer.requests import Heartbeat
from headrace.coordinator.deadlines import Now
from headrace.coordinator.group_settings import GroupSettings
from headrace.core.clock import ManualClock
from headrace.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    NON_EMPTY_GROUP,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
)

COUNT = 10 * MEMBERS_PER_STEP
CALLS_PER_STEP_MAX = 60 * MEMBERS_PER_STEP  # of functions, ours and Python's: all members at once are far above it
PAYMENTS = ORDERS.replace(b"orders", b"refund")


# ── any events, with steps of one member ─────────────────────────────────────────────────────────────────────────────

KINDS = ["join", "join", "static", "sync", "sync", "leave", "beat", "stored", "failed", "time", "on", "on", "die"]
events = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 4), st.integers(0, 3)), max_size=60)


def happens(it, kind, which, how):
    """One event; what it is answered with, if it is a request."""
    ids = ["", *sorted(it.group.facts.roster.pending), *it.group.facts.roster.members]
    member_id = ids[which % len(ids)]
    match kind:
        case "join":
            return it.join(member_id, metadata=PAYMENTS if how == 3 else ORDERS)
        case "static":
            return it.join(instance_id=f"i{which % 2}")
        case "sync":
            return it.sync(member_id, it.group.facts.generation, {member_id: b"x"})
        case "leave":
            return it.leave((member_id, f"i{which % 2}") if how == 3 else member_id)
        case "beat":
            it.heartbeat(member_id)
        case "time":
            it.pass_ms([1, 500, 9_000, 61_000][how])
        case "on" if it.group.is_busy:
            it.go_on()
        case "die" if how == 3 and which == 4:
            it.do(it.group.die(NOT_COORDINATOR, it.now))
        case "stored" | "failed":
            it.stored(NOT_COORDINATOR if kind == "failed" else NONE)
    return None


def ran(steps, members_per_step, *, interleaved=False):
    """The group after these events, with what each request was answered."""
    group_harness._ids = itertools.count(1)
    made = ClassicGroup("g", GroupSettings(initial_rebalance_delay_ms=500, max_size=4), Now(0, 0))
    it = Machine(made)
    with pytest.MonkeyPatch.context() as patch:
        for module in (facts, members, state):
            patch.setattr(module, "MEMBERS_PER_STEP", members_per_step)
        it.interleaved = interleaved
        boxes = [box for box in (happens(it, *step) for step in steps) if box is not None]
        it.interleaved = False
        it.do(())
    return it, boxes


@settings(max_examples=150, deadline=None)
@given(steps=events)
def test_steps_come_to_what_one_turn_comes_to(steps):
    (slow, slowly), (fast, at_once) = ran(steps, 1), ran(steps, MEMBERS_PER_STEP)
    assert [box.bodies for box in slowly] == [box.bodies for box in at_once]
    assert (slow.group.facts.state, slow.group.facts.generation) == (
        fast.group.facts.state,
        fast.group.facts.generation,
    )
    assert [store.metadata for store in slow.stores] == [store.metadata for store in fast.stores]


@settings(max_examples=250, deadline=None)
@given(steps=events)
def test_every_request_is_answered_once_whatever_comes_between_two_steps(steps):
    it, boxes = ran(steps, 1, interleaved=True)
    it.stored()
    it.pass_ms(1_000_000)
    it.stored()
    assert all(len(box.bodies) == 1 for box in boxes)
    assert it.group.facts.state in (GroupState.EMPTY, GroupState.DEAD)
    assert not it.group.facts.roster.joins_waiting


# ── one large group ──────────────────────────────────────────────────────────────────────────────────────────────────


class Turns(Scheduler):
    """What a timer sets for at once belongs to the next turn; the most that any of them did is kept."""

    most_calls = 0

    def turn(self):
        self.most_calls = max(self.most_calls, calls_of(self._turn))

    def _turn(self):
        due = [timer for at, _, timer in self._timers if at <= self._clock.monotonic()]
        self._timers = [each for each in self._timers if each[2] not in due]
        for timer in due:
            if timer.callback is not None:
                timer.callback()


class LargeGroup:
    """Members that have joined, over a journal; turns are taken by the test."""

    def __init__(self, *, protocols=("range",), **settings):
        self.clock = ManualClock()
        self.turns = Turns(self.clock)
        self.world = World(clock=self.clock, scheduler=self.turns, **settings)
        self.joined = []
        for _ in range(COUNT):
            self.ask(join_request(must_know_member_id=False, protocols=protocols), self.joined.append)

    def ask(self, request, told):
        self.turns.most_calls = max(self.turns.most_calls, calls_of(lambda: self.world.groups.join(request, told)))

    @property
    def group(self):
        return self.world.table().classic["g"]

    def turn_until(self, is_done):
        turns = 0
        while not is_done():
            self.turns.turn()
            turns += 1
            assert turns < 100 * COUNT
        return turns

    def settle(self):
        return self.turn_until(lambda: not self.group.is_busy)

    def sync(self, member_id, assignment, told):
        request = SyncRequest("g", member_id, self.group.facts.generation, None, "consumer", "range", assignment)
        self.turns.most_calls = max(self.turns.most_calls, calls_of(lambda: self.world.groups.sync(request, told)))

    def stable(self):
        """All have their share; each answer."""
        self.turn_until(lambda: len(self.joined) == COUNT)
        self.settle()
        told = []
        leader = self.group.facts.roster.leader
        for member_id in self.group.facts.roster.members:
            if member_id != leader:
                self.sync(member_id, {}, told.append)
        self.sync(leader, {each: each.encode() for each in self.group.facts.roster.members}, told.append)
        self.turn_until(lambda: len(told) == COUNT)
        self.settle()
        return told


def test_a_large_group_joins_and_syncs_in_short_steps():
    it = LargeGroup()
    told = it.stable()
    assert {body["error_code"] for body in it.joined} == {NONE}
    assert [len(body["members"]) for body in it.joined] == [COUNT] + [0] * (COUNT - 1)
    assert sorted(body["assignment"] for body in told) == sorted(
        each.encode() for each in it.group.facts.roster.members
    )
    assert it.turns.most_calls < CALLS_PER_STEP_MAX
    assert it.world.restarted().state() == "Stable", "all of it was written down, as one record"


def test_a_member_that_leaves_or_changes_a_large_group_costs_short_steps():
    it = LargeGroup()
    it.stable()
    it.turns.most_calls = 0
    answers = []
    again = list(it.group.facts.roster.members)
    it.world.groups.leave("g", [(again.pop(), None)], answers.append)
    for member_id in again:
        it.ask(join_request(member_id, must_know_member_id=False), answers.append)
    it.turn_until(lambda: len(answers) == COUNT)
    it.settle()
    assert (it.group.facts.state, it.group.facts.generation) == (GroupState.COMPLETING, 2)
    assert it.turns.most_calls < CALLS_PER_STEP_MAX
    answers.clear()
    it.turns.most_calls = 0
    it.clock.advance(9_000)
    for member_id in again:
        it.world.heartbeat(member_id, 2)
    it.clock.advance(51_000)
    it.turn_until(lambda: it.group.facts.state is GroupState.EMPTY)
    assert it.turns.most_calls < CALLS_PER_STEP_MAX, "nobody asked for his share in time, and all were removed"


def test_heartbeats_and_commits_see_one_generation_or_the_next_while_a_large_group_joins():
    it = LargeGroup()
    leader = None
    seen = []
    while it.group.is_busy or len(it.joined) < COUNT:
        it.turns.turn()
        leader = it.group.facts.roster.leader
        code = it.world.heartbeat(leader, it.group.facts.generation)
        seen.append((it.group.facts.generation, code, str(it.group.facts.state)))
    before, after = (0, REBALANCE_IN_PROGRESS, "PreparingRebalance"), (1, NONE, "CompletingRebalance")
    assert set(seen) == {before, after}
    assert seen == sorted(seen)


def test_a_large_group_can_be_described_while_a_member_that_changed_its_protocols_begins_a_rebalance():
    both = ("range", "roundrobin")
    it = LargeGroup(protocols=both)
    it.stable()
    changed = list(it.group.facts.roster.members)[-1]
    it.ask(join_request(changed, protocols=("roundrobin",), must_know_member_id=False), [].append)
    assert (it.group.facts.state, it.group.is_busy) == (GroupState.STABLE, True)
    members = it.world.groups.describe(["g"])[0]["members"]
    assert {member["member_metadata"] for member in members if member["member_id"] != changed} == {ORDERS}
    assert [member["member_metadata"] for member in members if member["member_id"] == changed] == [b""]


def test_a_large_group_in_a_rebalance_neither_goes_nor_changes_its_kind():
    it = LargeGroup()
    it.turns.turn()
    it.turns.turn()
    assert it.group.is_busy
    answered = []
    beat = Heartbeat(
        group_id="g", member_id="m", member_epoch=0, topics=frozenset({"orders"}), owned={}, rebalance_timeout_ms=1_000
    )
    it.world.groups.consumer_heartbeat(beat, answered.append)
    assert answered[0]["error_code"] == COORDINATOR_LOAD_IN_PROGRESS
    assert it.world.delete("g").body["results"][0]["error_code"] == NON_EMPTY_GROUP


def test_who_waits_behind_an_event_of_a_group_that_dies_is_told():
    it = LargeGroup()
    it.turns.turn()
    it.turns.turn()
    assert it.group.is_busy
    late = []
    it.world.groups.join(join_request(must_know_member_id=False), late.append)
    table, dying = it.world.table(), it.group
    table.abandon(dying)
    it.turn_until(lambda: not dying.is_busy)
    assert len(it.joined) == COUNT
    assert {body["error_code"] for body in it.joined} <= {NONE, NOT_COORDINATOR}
    assert [body["error_code"] for body in late] == [COORDINATOR_NOT_AVAILABLE]


def test_a_rebalance_that_waits_behind_an_event_of_a_group_that_dies_does_not_begin():
    it = LargeGroup()
    it.stable()
    table, dying = it.world.table(), it.group
    table.perform(dying, dying.loaded(table.now()))  # as when it comes over from the other protocol
    table.perform(dying, dying.rebalance(table.now()))
    assert dying.is_busy
    table.abandon(dying)
    it.turn_until(lambda: not dying.is_busy)
    assert dying.facts.state is GroupState.DEAD


def test_an_event_that_fails_does_not_hold_up_those_behind_it(monkeypatch):
    it = LargeGroup()
    it.turns.turn()
    it.turns.turn()
    assert it.group.is_busy
    late = []
    it.world.groups.join(join_request(), late.append)
    with monkeypatch.context() as patch:
        patch.setattr(it.group._line, "_under_way", iter(_failing()))
        with pytest.raises(ZeroDivisionError):
            it.turns.turn()
    it.turn_until(lambda: late)
    assert not it.group.is_busy


def _failing():
    yield 1 // 0

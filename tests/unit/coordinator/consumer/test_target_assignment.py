"""The target of a large group is worked out in steps, between which others are served and members come and go."""

import random

import pytest
from test_consumer_group_state import Bench

from headrace.coordinator.consumer import state as consumer_group_state
from headrace.coordinator.consumer import target_assignment

STEP = 4


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    monkeypatch.setattr(consumer_group_state, "MEMBERS_PER_STEP", STEP)
    monkeypatch.setattr(target_assignment, "MEMBERS_PER_STEP", STEP)


def work(bench, *, steps_max=1000):
    """The turns of the loop until nothing is due, and the decisions that were made in them."""
    decisions = []
    for turn in range(steps_max):
        if bench.group.deadlines.wake_ms > bench.now_ms:
            return turn, decisions
        decision = bench.group.expire(bench.now)
        if decision is not None:
            decisions.append(decision)
    raise AssertionError("the work never ends")


def large_group(count, **settings):
    """One whose members have joined, and none of which has its part yet."""
    bench = Bench({"orders": 40}, consumer_assignment_interval_ms=1000, **settings)
    bench.now_ms = 10_000_000
    for number in range(count):
        bench.join(f"m{number}")
    bench.now_ms += 1000
    return bench


def settle(bench, members):
    for _ in range(30):
        bench.now_ms += 1000
        for member_id in members:
            bench.go_on(member_id)
        work(bench)
    assert bench.group.table.state() == "Stable"
    owners = [partition for each in members for held in bench.owned[each].values() for partition in held]
    assert sorted(owners) == list(range(40)), "each partition has one owner"


def test_target_of_a_large_group_takes_a_turn_for_each_step():
    bench = large_group(20)
    bench.go_on("m0")
    assert bench.group.table.epochs.target < bench.group.table.epochs.group, "nobody waits for it"
    turns, decisions = work(bench)
    assert turns == 20 // STEP + 1 + 20 // STEP
    assert bench.group.table.epochs.target == bench.group.table.epochs.group
    assert max(len(each.changes) for each in decisions) <= STEP + 1
    settle(bench, [f"m{number}" for number in range(20)])


def test_target_of_a_small_group_is_there_at_once():
    bench = large_group(STEP)
    bench.go_on("m0")
    assert bench.group.table.epochs.target == bench.group.table.epochs.group


def test_members_are_served_while_the_target_is_worked_out():
    bench = large_group(20)
    bench.go_on("m0")
    for number in range(11):
        assert bench.group._target_job is not None
        bench.group.expire(bench.now)
        bench.go_on(f"m{number}")
    assert bench.group._target_job is None


def test_static_member_that_comes_back_meanwhile_gets_a_part():
    bench = large_group(10)
    bench.join("s", instance_id="one")
    bench.now_ms += 1000
    work(bench)
    bench.go_on("m0")
    for _ in range(4):
        bench.group.expire(bench.now)
    bench.beat("s", -2, instance_id="one")
    bench.join("s2", instance_id="one")
    work(bench)
    assert bench.group.table.targets["s2"]
    settle(bench, ["s2", *(f"m{number}" for number in range(10))])


def test_target_that_cannot_be_written_is_worked_out_again():
    bench = large_group(10)
    bench.go_on("m0")
    decision = None
    while decision is None:
        decision = bench.group.expire(bench.now)
    bench.group.undo(decision)
    work(bench)
    assert bench.group.table.epochs.target < bench.group.table.epochs.group
    settle(bench, [f"m{number}" for number in range(10)])


def test_target_that_a_refused_heartbeat_began_is_dropped():
    bench = large_group(10)
    bench.go_on("m0")
    work(bench)
    bench.now_ms += 1000
    group = bench.group
    group.refresh(bench.now, must_raise=True)
    group.update_target(bench.now)
    assert group._target_job is not None
    group.abandon()
    assert group._target_job is None
    work(bench)
    settle(bench, [f"m{number}" for number in range(10)])


@pytest.mark.parametrize("seed", range(8))
def test_every_partition_has_one_owner_in_the_end_whatever_happens_meanwhile(seed):
    chance = random.Random(seed)
    bench = large_group(12, consumer_session_timeout_ms=86_400_000)
    members = [f"m{number}" for number in range(12)]
    for number in range(150):
        bench.now_ms += chance.choice((0, 100, 1000))
        what, member_id = chance.random(), chance.choice(members)
        if what < 0.1:
            members.append(f"n{number}")
            bench.join(members[-1])
        elif what < 0.2 and len(members) > 6:
            members.remove(member_id)
            bench.beat(member_id, -1)
        elif what < 0.6:
            bench.go_on(member_id)
        else:
            decision = bench.group.expire(bench.now)
            if decision is not None and chance.random() < 0.1:
                bench.group.undo(decision)
    settle(bench, members)

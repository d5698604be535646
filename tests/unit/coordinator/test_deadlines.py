"""Deadlines are found without looking at all of them, and expire in slices."""

import random

from group_harness import Scheduler, World, join_request

from headrace.coordinator.deadlines import DEADLINES_PER_TURN, NEVER, STALE_MAX, Deadlines
from headrace.core.clock import ManualClock


class CountedKey(str):
    """A key that counts how often it is looked at."""

    looks = 0

    def __hash__(self):
        CountedKey.looks += 1
        return super().__hash__()


def take_all(deadlines, now_ms):
    """What is due, in order, and how many slices it took."""
    taken, slices = [], 0
    while deadlines.wake_ms <= now_ms:
        slices += 1
        deadlines.begin_slice()
        while (key := deadlines.take_due(now_ms)) is not None:
            taken.append(key)
    return taken, slices


def test_many_deadlines_are_taken_in_slices():
    deadlines = Deadlines()
    for number in range(10 * DEADLINES_PER_TURN):
        deadlines.set(number, 5)
    taken, slices = take_all(deadlines, 5)
    assert taken == list(range(10 * DEADLINES_PER_TURN))
    assert slices == 10
    assert deadlines.wake_ms == NEVER


def test_deadlines_that_were_put_off_count_in_a_slice_too():
    deadlines = Deadlines()
    for number in range(2 * DEADLINES_PER_TURN):
        deadlines.set(number, 5)
        deadlines.set(number, 50)
    deadlines.begin_slice()
    assert deadlines.take_due(10) is None
    assert deadlines.wake_ms == 5, "the slice has ended before all were looked at"
    assert take_all(deadlines, 10) == ([], 1)
    assert deadlines.wake_ms == 50


def test_taking_a_deadline_costs_the_same_among_few_and_among_many():
    def looks_per_deadline(count):
        deadlines = Deadlines()
        for number in range(count):
            deadlines.set(CountedKey(number), number)
        CountedKey.looks = 0
        taken, _ = take_all(deadlines, count)
        assert len(taken) == count
        return CountedKey.looks / count

    assert looks_per_deadline(4000) <= looks_per_deadline(100)


def test_keys_that_come_and_go_leave_nothing_behind():
    deadlines = Deadlines()
    for number in range(10_000):
        deadlines.set(number, 1_000_000 - number)
        deadlines.cancel(number)
    deadlines.set("same", 900_000)
    for number in range(10_000):
        deadlines.set("same", 900_000 - number)  # earlier each time
    assert len(deadlines._heap) <= STALE_MAX + 4
    assert take_all(deadlines, 2_000_000)[0] == ["same"]


def test_deadlines_are_those_of_a_plain_table_whatever_is_done_to_them():
    chance = random.Random(4)
    deadlines, plain, now_ms = Deadlines(), {}, 0
    for _ in range(5_000):
        key = chance.randrange(40)
        if chance.random() < 0.6:
            plain[key] = now_ms + chance.randrange(1, 100)
            deadlines.set(key, plain[key])
        elif chance.random() < 0.5:
            plain.pop(key, None)
            deadlines.cancel(key)
        else:
            now_ms += chance.randrange(20)
            due = {each: at for each, at in plain.items() if at <= now_ms}
            taken, _ = take_all(deadlines, now_ms)
            assert [plain.pop(each) for each in taken] == sorted(due.values())
            assert set(taken) == set(due)
        assert deadlines.wake_ms <= min(plain.values(), default=NEVER)
        assert (key in deadlines) == (key in plain)


# ── the loop around them ─────────────────────────────────────────────────────────────────────────────────────────────


class Turns(Scheduler):
    """Counts turns: what a timer sets for at once belongs to the next one."""

    def turn(self):
        """Runs what was due when the turn began."""
        due = [timer for at, _, timer in self._timers if at <= self._clock.monotonic()]
        self._timers = [each for each in self._timers if each[2] not in due]
        for timer in due:
            if timer.callback is not None:
                timer.callback()
        return len(due)


def turning_world():
    clock = ManualClock()
    world = World(clock=clock, scheduler=Turns(clock), initial_rebalance_delay_ms=0)
    return world, world.scheduler, clock


def test_pending_members_expire_in_slices_and_others_are_served_between():
    world, turns, clock = turning_world()
    for _ in range(5 * DEADLINES_PER_TURN):
        world.groups.join(join_request(session_timeout_ms=6_000), lambda _: None)
    group = world.table().classic["g"]
    clock.advance(6_000)
    left = []
    while group.facts.roster.pending:
        turns.turn()
        left.append(len(group.facts.roster.pending))
        assert world.groups.heartbeat("other", "a", 1, None) != 0, "another request is answered in between"
    assert left == [each * DEADLINES_PER_TURN for each in (4, 3, 2, 1, 0)]

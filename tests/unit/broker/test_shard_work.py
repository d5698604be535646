"""Loads and unloads a little at a time: what is small is done at once, what is large holds nobody up."""

import pytest

from headrace.broker.shard_work import RECORDS_AT_START, RECORDS_PER_TURN, ShardWork
from headrace.coordinator.journal_loading import WAITING
from headrace.core.errors import InvariantError


class Loop:
    def __init__(self, *, is_serving=True):
        self.soon, self.timers, self.log = [], [], []
        self.work = ShardWork(self.soon.append, self.call_later, is_serving=is_serving)

    def call_later(self, seconds, callback):
        self.timers.append(callback)

    def turn(self):
        soon, self.soon[:] = list(self.soon), []
        for callback in soon:
            callback()

    def steps(self, name, count, records):
        for _ in range(count):
            self.log.append(name)
            yield records


def test_what_has_nothing_to_read_is_done_at_once():
    loop = Loop()
    for number in range(5 * RECORDS_PER_TURN):
        loop.work.begin(loop.steps(number, 0, 0))
    loop.work.begin(loop.steps("first", 1, 1))
    assert loop.log == ["first"]


def test_nothing_to_do_is_no_work():
    loop = Loop()
    loop.work.begin(None)
    assert loop.soon == []


def test_a_turn_ends_after_so_many_records_and_the_next_one_goes_on():
    loop = Loop()
    loop.work.begin(loop.steps("a", 5, RECORDS_PER_TURN))
    assert len(loop.log) == 1
    for done in range(2, 6):
        loop.turn()
        assert len(loop.log) == done


def test_what_is_small_does_not_wait_for_what_is_large():
    loop = Loop()
    loop.work.begin(loop.steps("large", 100, RECORDS_PER_TURN // 2))
    loop.work.begin(loop.steps("small", 2, 1))
    while loop.log.count("small") < 2:
        loop.turn()
    assert loop.log.count("large") < 10


def test_before_anybody_is_served_very_much_is_done_at_once():
    loop = Loop(is_serving=False)
    count = RECORDS_AT_START // RECORDS_PER_TURN
    loop.work.begin(loop.steps("start", count, RECORDS_PER_TURN))
    assert len(loop.log) == count
    loop.turn()
    loop.work.begin(loop.steps("later", count, RECORDS_PER_TURN))
    assert loop.log.count("later") == 1, "only before"


def test_work_that_waits_is_tried_again_later_and_not_in_each_turn():
    loop = Loop()
    ready = []

    def work():
        while not ready:
            loop.log.append("asked")
            yield WAITING
        loop.log.append("done")
        yield 1

    loop.work.begin(work())
    loop.work.begin(loop.steps("other", 1, 1))
    for _ in range(5):
        loop.turn()
    assert loop.log == ["asked", "other"]
    ready.append(True)
    loop.timers.pop()()
    assert loop.log == ["asked", "other", "done"]


def test_work_that_fails_takes_nothing_else_with_it():
    loop = Loop()

    def broken():
        yield 1
        raise ValueError("a slip of ours")

    loop.work.begin(broken())
    loop.work.begin(loop.steps("other", 1, 1))
    loop.turn()
    assert loop.log == ["other"]


def test_a_broken_invariant_is_not_contained():
    loop = Loop()

    def broken():
        raise InvariantError("a shard with two owners")
        yield 1

    with pytest.raises(InvariantError):
        loop.work.begin(broken())


def test_work_may_begin_other_work():
    loop = Loop()

    def outer():
        loop.work.begin(loop.steps("inner", 1, 1))
        loop.log.append("outer")
        yield 1

    loop.work.begin(outer())
    assert loop.log == ["outer", "inner"]

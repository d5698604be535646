import gc
import uuid
import weakref
from types import SimpleNamespace

import pytest

from headrace.broker.partition import Partition
from headrace.broker.purgatory import RETRIES_PER_ROUND, FetchWait, Purgatory
from headrace.net.reactor import Timer


class Timers:
    """Stands for the reactor: timers that go off when told."""

    def __init__(self):
        self.timers = []

    def call_later(self, seconds, callback):
        timer = Timer(callback)
        self.timers.append((seconds, timer))
        return timer

    def go_off(self, number):
        callback = self.timers[number][1].callback
        if callback is not None:
            callback()


class Fetch:
    """One waiting fetch, that is content when told."""

    def __init__(self, purgatory, partitions, wait_ms=500, *, enough=False):
        self.enough = enough
        self.attempts = []
        self.wait = FetchWait(purgatory, partitions, wait_ms, self.attempt)

    def attempt(self, last):
        self.attempts.append(last)
        return self.enough or last


@pytest.fixture
def reactor():
    return Timers()


@pytest.fixture
def purgatory(reactor):
    return Purgatory(reactor)


def made(index=0):
    log = SimpleNamespace(on_high_watermark=[], leader_epoch=3, fail_uncommitted=lambda error: None)
    return Partition("t", uuid.UUID(int=1), index, log, 0)


def grow(partition):
    """What a log does when more of it may be seen."""
    for heard in partition.local.on_high_watermark:
        heard()


def test_a_fetch_is_tried_again_at_the_end_of_the_turn_in_which_its_partition_grew(purgatory):
    partition = made()
    fetch = Fetch(purgatory, [partition])
    assert purgatory.count == 1
    grow(partition)
    grow(partition)
    assert fetch.attempts == []
    purgatory.end_of_turn()
    assert fetch.attempts == [False]
    purgatory.end_of_turn()
    assert fetch.attempts == [False]
    assert purgatory.count == 1


def test_a_fetch_that_has_enough_is_done_and_forgotten(purgatory, reactor):
    partition = made()
    fetch = Fetch(purgatory, [partition], enough=True)
    grow(partition)
    purgatory.end_of_turn()
    assert purgatory.count == 0
    grow(partition)
    purgatory.end_of_turn()
    reactor.go_off(0)
    assert fetch.attempts == [False]
    assert purgatory.count == 0


def test_a_fetch_whose_time_is_over_is_answered_with_what_there_is(purgatory, reactor):
    partition = made()
    fetch = Fetch(purgatory, [partition], 1500)
    assert reactor.timers[0][0] == 1.5
    reactor.go_off(0)
    assert fetch.attempts == [True]
    assert purgatory.count == 0
    grow(partition)
    purgatory.end_of_turn()
    assert fetch.attempts == [True]


def test_time_that_is_over_in_the_turn_in_which_the_log_grew_gives_one_answer(purgatory, reactor):
    partition = made()
    fetch = Fetch(purgatory, [partition])
    grow(partition)
    reactor.go_off(0)
    purgatory.end_of_turn()
    assert fetch.attempts == [True]
    assert purgatory.count == 0


def test_growth_of_any_partition_wakes_a_fetch_once_a_turn(purgatory):
    partitions = [made(i) for i in range(3)]
    fetch = Fetch(purgatory, partitions)
    for partition in partitions:
        grow(partition)
    purgatory.end_of_turn()
    assert fetch.attempts == [False]
    grow(partitions[2])
    purgatory.end_of_turn()
    assert fetch.attempts == [False, False]


def test_all_who_wait_for_a_partition_are_tried_in_the_order_in_which_they_came(purgatory):
    partition = made()
    order = []
    for number in range(4):
        fetch = Fetch(purgatory, [partition], enough=True)
        fetch.wait._attempt = lambda last, number=number: order.append(number) or True
    grow(partition)
    purgatory.end_of_turn()
    assert order == [0, 1, 2, 3]
    assert purgatory.count == 0


def test_one_that_stops_waiting_does_not_take_the_others_along(purgatory):
    partition = made()
    first, second = Fetch(purgatory, [partition]), Fetch(purgatory, [partition])
    first.wait.cancel()
    assert purgatory.count == 1
    grow(partition)
    purgatory.end_of_turn()
    assert (first.attempts, second.attempts) == ([], [False])


def test_cancelling_twice_or_after_the_time_counts_once(purgatory, reactor):
    waits = [Fetch(purgatory, [made()]) for _ in range(3)]
    waits[0].wait.cancel()
    waits[0].wait.cancel()
    reactor.go_off(1)
    waits[1].wait.cancel()
    assert purgatory.count == 1


def test_a_connection_that_closes_during_the_attempt_is_forgotten_once(purgatory):
    partition = made()
    fetch = Fetch(purgatory, [partition])
    fetch.wait._attempt = lambda last: fetch.wait.cancel() or True
    grow(partition)
    purgatory.end_of_turn()
    assert purgatory.count == 0
    assert purgatory.ready == {}


def test_a_fetch_that_is_woken_while_others_are_tried_is_tried_in_the_same_turn(purgatory):
    partitions = [made(0), made(1)]
    second = Fetch(purgatory, [partitions[1]])
    first = Fetch(purgatory, [partitions[0]])
    first.wait._attempt = lambda last: grow(partitions[1]) or True
    grow(partitions[0])
    purgatory.end_of_turn()
    assert list(purgatory.ready) == [second.wait], "the end of the turn has another round for it"
    purgatory.end_of_turn()
    assert second.attempts == [False]
    assert purgatory.ready == {}


def test_of_many_fetches_that_are_woken_together_some_are_tried_in_each_round(purgatory):
    partition = made()
    fetches = [Fetch(purgatory, [partition]) for _ in range(RETRIES_PER_ROUND + 5)]
    grow(partition)
    purgatory.end_of_turn()
    assert sum(len(fetch.attempts) for fetch in fetches) == RETRIES_PER_ROUND
    purgatory.end_of_turn()
    assert [fetch.attempts for fetch in fetches] == [[False]] * len(fetches)


def test_those_who_wait_for_a_log_that_goes_offline_are_told(purgatory):
    partition = made()
    fetch = Fetch(purgatory, [partition])
    partition.go_offline()
    assert partition.led is None
    assert partition.leader_epoch == 3
    purgatory.end_of_turn()
    assert fetch.attempts == [False]
    fetch.wait.cancel()
    assert purgatory.count == 0


def test_waiting_for_an_offline_log_is_possible(purgatory, reactor):
    partition = Partition("t", uuid.UUID(int=1), 0, None, 0)
    fetch = Fetch(purgatory, [partition])
    reactor.go_off(0)
    assert fetch.attempts == [True]


def test_only_those_who_still_wait_are_woken(purgatory):
    partition = made()
    grow(partition)
    first, second = Fetch(purgatory, [partition]), Fetch(purgatory, [partition])
    first.wait.cancel()
    grow(partition)
    assert list(purgatory.ready) == [second.wait]
    second.wait.cancel()
    grow(partition)
    assert not purgatory.ready


@pytest.mark.parametrize("how", ["enough", "time is over", "cancelled"])
def test_a_fetch_that_is_over_is_freed_without_the_garbage_collector(purgatory, reactor, how):
    """The collector stops the loop for milliseconds: waiting fetches are many, and must not be what calls for it."""
    partition = made()
    fetch = Fetch(purgatory, [partition], enough=how == "enough")
    seen = weakref.ref(fetch)
    gc.disable()
    try:
        if how == "enough":
            grow(partition)
            purgatory.end_of_turn()
        elif how == "cancelled":
            fetch.wait.cancel()
        else:
            reactor.go_off(0)
        assert purgatory.count == 0
        del fetch
        assert seen() is None
    finally:
        gc.enable()

import contextlib
import os
import select
import socket
import threading
import time

import pytest
from waits import WAIT_S_MAX, eventually

from headrace.net import reactor as reactor_module
from headrace.net.reactor import READ, WRITE, Reactor


@pytest.fixture
def reactor():
    made = Reactor()
    yield made
    made.close()


@pytest.fixture
def running(reactor):
    """The loop on a thread of its own."""
    thread = threading.Thread(target=reactor.run, daemon=True)
    thread.start()
    yield reactor
    reactor.stop()
    thread.join(WAIT_S_MAX)
    assert not thread.is_alive()


def run(reactor, until):
    """Turns on this thread until `until()` holds at the end of a turn."""

    def check():
        if until() or time.monotonic() > deadline:
            reactor.stop()

    deadline = time.monotonic() + WAIT_S_MAX
    reactor._stopping = False
    reactor.end_of_turn.append(check)
    reactor.call_later(WAIT_S_MAX, lambda: None)
    reactor.run()
    reactor.end_of_turn.remove(check)
    reactor.run_pending()
    assert until(), "it never came"


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_timers_run_in_the_order_of_their_times_and_then_of_their_making(reactor):
    seen = []
    for name, seconds in (("c", 2000), ("a", 0), ("b", 1000), ("d", 2000)):
        reactor.call_later(seconds, lambda name=name: seen.append(name))
    reactor.advance(3000)
    run(reactor, lambda: len(seen) == 4)
    assert seen == ["a", "b", "c", "d"]


def test_a_timer_does_not_run_early(reactor):
    seen = []
    turns = []
    reactor.end_of_turn.append(lambda: turns.append(len(seen)))
    reactor.call_later(3000, lambda: seen.append("late"))
    for due in (False, False, True):
        if due:
            reactor.advance(2001)
        reactor.advance(500)
        before = len(turns)
        reactor.call_from_thread(lambda: None)
        run(reactor, lambda before=before: len(turns) > before)
        assert bool(seen) is due


def test_a_cancelled_timer_never_runs_and_wakes_nobody(reactor):
    seen = []
    for seconds in (0.0, 0.001):
        reactor.call_later(seconds, lambda: seen.append("no")).cancel()
    reactor.call_later(0.02, lambda: seen.append("yes"))
    run(reactor, lambda: bool(seen))
    assert seen == ["yes"]
    assert [timer for _, _, timer in reactor._timers if timer.callback is None] == []


def test_timers_that_are_due_together_run_in_slices_with_descriptors_served_between(reactor, monkeypatch):
    monkeypatch.setattr(reactor_module, "TIMERS_S_PER_TURN", WAIT_S_MAX)
    count = 3 * reactor_module.TIMERS_PER_TURN
    near, far = socket.socketpair()
    ran, served = [], []
    with near, far:
        far.send(b"x")  # stays unread: ready in every turn
        reactor.add(near.fileno(), READ, lambda _: served.append(len(ran)))
        for number in range(count):
            reactor.call_later(0.0, lambda number=number: ran.append(number))
        run(reactor, lambda: len(ran) == count)
        reactor.remove(near.fileno())
    assert ran == list(range(count))
    assert served == [0, reactor_module.TIMERS_PER_TURN, 2 * reactor_module.TIMERS_PER_TURN]


def test_a_timer_that_takes_long_leaves_the_others_to_the_next_turn(reactor, monkeypatch):
    monkeypatch.setattr(reactor_module, "TIMERS_S_PER_TURN", -1.0)  # any time is too long
    ran, turns = [], []
    reactor.end_of_turn.append(lambda: turns.append(len(ran)))
    for number in range(3):
        reactor.call_later(0.0, lambda number=number: ran.append(number))
    run(reactor, lambda: len(ran) == 3)
    assert turns == [1, 2, 3]


def test_a_timer_may_cancel_another_that_is_due(reactor):
    seen = []
    later = []
    reactor.call_later(0.0, lambda: later[0].cancel())
    later.append(reactor.call_later(0.0, lambda: seen.append("no")))
    reactor.call_later(0.005, lambda: seen.append("end"))
    run(reactor, lambda: bool(seen))
    assert seen == ["end"]


def test_what_is_asked_for_again_and_again_comes_again_even_after_a_failure(reactor):
    seen = []

    def work():
        seen.append(len(seen))
        if len(seen) == 2:
            raise RuntimeError("a bug")

    reactor.every(0.001, work)
    run(reactor, lambda: len(seen) == 5)


# ── descriptors ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_owner_is_told_what_its_descriptor_is_ready_for(reactor):
    left, right = socket.socketpair()
    masks = []
    reactor.add(left.fileno(), READ, lambda mask: (masks.append(mask), left.recv(10)))
    right.send(b"x")
    run(reactor, lambda: bool(masks))
    assert masks == [READ]
    reactor.change(left.fileno(), WRITE)
    masks.clear()
    reactor._owners[left.fileno()] = lambda mask: (masks.append(mask), reactor.change(left.fileno(), 0))
    run(reactor, lambda: bool(masks))
    assert masks == [WRITE]
    masks.clear()
    right.close()
    run(reactor, lambda: bool(masks))
    assert masks[0] & select.EPOLLHUP
    left.close()


def test_a_descriptor_removed_in_this_turn_is_not_told_any_more(reactor):
    pairs = [socket.socketpair() for _ in range(2)]
    seen = []

    def owner(number):
        def told(_):
            seen.append(number)
            for ours, _theirs in pairs:
                reactor.remove(ours.fileno())

        return told

    for number, (ours, theirs) in enumerate(pairs):
        reactor.add(ours.fileno(), READ, owner(number))
        theirs.send(b"x")
    run(reactor, lambda: bool(seen))
    assert len(seen) == 1
    for ours, theirs in pairs:
        reactor.remove(ours.fileno())
        ours.close()
        theirs.close()


# ── turns ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_turn_ends_after_descriptors_threads_and_timers(reactor):
    seen = []
    left, right = socket.socketpair()
    reactor.add(left.fileno(), READ, lambda _: (seen.append("descriptor"), left.recv(10)))
    reactor.end_of_turn.append(lambda: seen.append("end"))
    reactor.call_later(0.0, lambda: seen.append("timer"))
    reactor.call_from_thread(lambda: seen.append("thread"))
    right.send(b"x")
    run(reactor, lambda: "end" in seen)
    assert seen[:4] == ["descriptor", "thread", "timer", "end"]
    left.close()
    right.close()


def test_what_threads_send_during_a_turn_comes_with_the_next(reactor):
    seen = []
    turns = []
    reactor.end_of_turn.append(lambda: turns.append(len(seen)))
    reactor.call_from_thread(lambda: (seen.append(1), reactor.call_from_thread(lambda: seen.append(2))))
    run(reactor, lambda: len(seen) == 2)
    assert turns[:2] == [1, 2]


def test_an_interrupted_wait_is_just_a_turn(reactor):
    class Interrupted:
        def __init__(self, epoll):
            self._epoll = epoll
            self.count = 0

        def poll(self, *arguments):
            self.count += 1
            if self.count == 1:
                raise InterruptedError(4, "a signal")
            return self._epoll.poll(*arguments)

        def close(self):
            self._epoll.close()

    reactor._epoll = Interrupted(reactor._epoll)
    seen = []
    reactor.call_later(0.0, lambda: seen.append(1))
    run(reactor, lambda: bool(seen))


# ── threads ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_call_from_a_thread_wakes_a_loop_that_sleeps(running):
    for _ in range(50):
        done = threading.Event()
        running.call_from_thread(done.set)
        assert done.wait(WAIT_S_MAX)


def test_calls_from_many_threads_all_come_in_the_order_of_each_thread(running):
    seen = []
    all_here = threading.Event()

    def note(value):
        seen.append(value)
        if len(seen) == 4 * 500:
            all_here.set()

    def work(number):
        for i in range(500):
            running.call_from_thread(lambda i=i: note((number, i)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all_here.wait(WAIT_S_MAX)
    for number in range(4):
        assert [i for n, i in seen if n == number] == list(range(500))


@pytest.mark.parametrize("moment", ["before", "after"])
def test_no_wake_up_is_lost_to_one_that_comes_while_the_last_is_taken(reactor, monkeypatch, moment):
    """Another thread calls at the very moment when the loop empties the eventfd; later calls must still wake it."""
    seen = []
    real = os.eventfd_read
    raced = []

    def racing(fd):
        if moment == "before" and not raced:
            raced.append(True)
            reactor.call_from_thread(lambda: seen.append("raced"))
        value = real(fd)
        if moment == "after" and not raced:
            raced.append(True)
            reactor.call_from_thread(lambda: seen.append("raced"))
        return value

    monkeypatch.setattr(reactor_module.os, "eventfd_read", racing)
    thread = threading.Thread(target=reactor.run, daemon=True)
    thread.start()
    reactor.call_from_thread(lambda: seen.append("first"))
    woken = threading.Event()
    eventually(lambda: "raced" in seen, "the call that raced comes")
    time.sleep(0.02)  # the loop sleeps again
    reactor.call_from_thread(woken.set)
    found = woken.wait(WAIT_S_MAX)
    reactor._woken = False
    reactor.stop()
    thread.join(WAIT_S_MAX)
    assert seen == ["first", "raced"]
    assert found


def test_a_loop_can_be_stopped_from_another_thread(reactor):
    thread = threading.Thread(target=reactor.run, daemon=True)
    thread.start()
    time.sleep(0.01)
    reactor.stop()
    thread.join(WAIT_S_MAX)
    assert not thread.is_alive()


def test_what_threads_sent_before_the_stop_can_still_be_run(reactor):
    seen = []
    reactor.call_from_thread(lambda: seen.append(1))
    reactor._stopping = True
    reactor.run()
    assert seen == []
    reactor.run_pending()
    assert seen == [1]


def test_a_closed_loop_leaves_no_descriptor_open():
    before = set(os.listdir("/proc/self/fd"))
    made = Reactor()
    made.close()
    with contextlib.suppress(OSError):
        assert set(os.listdir("/proc/self/fd")) <= before


def test_a_loop_is_not_closed_under_a_thread_that_wakes_it(monkeypatch):
    """A loop that has ended by itself, a moment after it was told to, may be closed before who told it has woken it."""
    made, write = Reactor(), os.eventfd_write
    closing = threading.Thread(target=made.close, daemon=True)

    def late(fd, value):
        closing.start()
        closing.join(0.05)
        write(fd, value)

    monkeypatch.setattr(reactor_module.os, "eventfd_write", late)
    made.call_from_thread(lambda: None)
    closing.join(WAIT_S_MAX)
    assert not closing.is_alive()

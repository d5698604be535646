"""A failure fails the request, group, partition or timer that met it, with one line in the log, and nothing else."""

import logging
import threading

import pytest
from waits import WAIT_S_MAX

from headrace.coordinator.deadlines import Alarm
from headrace.core.errors import InvariantError
from headrace.core.telemetry import failure
from headrace.log.append_set import tell
from headrace.net.reactor import Reactor


class BrokenError(Exception):
    pass


def broken(*_):
    raise BrokenError("a bug")


def errors(caplog):
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.fixture
def reactor():
    made = Reactor()
    yield made
    made.close()


def run(reactor):
    """A few turns."""
    reactor._stopping = False
    reactor.call_later(0.002, reactor.stop)
    reactor.run()


@pytest.mark.parametrize("kind", ["timer", "soon", "thread", "hook"])
def test_a_call_that_fails_fails_alone(reactor, caplog, kind):
    seen = []
    for work in (broken, lambda: seen.append("after")):
        if kind == "timer":
            reactor.call_later(0, work)
        elif kind == "soon":
            reactor.call_soon(work)
        elif kind == "thread":
            reactor.call_from_thread(work)
        else:
            reactor.end_of_turn.append(work)
    run(reactor)
    assert seen
    lines = errors(caplog)
    assert len(lines) == (len(seen) if kind == "hook" else 1)
    assert lines[0].fields["error"] == "BrokenError: a bug"
    assert lines[0].fields["at"].startswith("test_containment.py:")
    assert lines[0].exc_info is None, "one line"


@pytest.mark.parametrize("kind", ["timer", "soon", "thread", "hook"])
def test_a_broken_invariant_ends_the_loop(reactor, kind):
    def work():
        raise InvariantError("data")

    if kind == "timer":
        reactor.call_later(0, work)
    elif kind == "soon":
        reactor.call_soon(work)
    elif kind == "thread":
        reactor.call_from_thread(work)
    else:
        reactor.end_of_turn.append(work)
    reactor.call_later(WAIT_S_MAX, reactor.stop)
    reactor.call_soon(lambda: None)  # so that there is a turn
    with pytest.raises(InvariantError, match="data"):
        reactor.run()


def test_a_group_that_fails_at_a_deadline_is_woken_again(caplog):
    timers = []
    rings = []

    def ring():
        rings.append(1)
        if len(rings) == 1:
            raise BrokenError("a bug")

    alarm = Alarm(lambda seconds, fire: timers.append((seconds, fire)) or threading.Event(), ring, "orders")
    alarm.set(5, 0)
    timers.pop()[1]()
    assert errors(caplog)[0].fields["group"] == "orders"
    timers.pop()[1]()
    assert rings == [1, 1]


def test_those_who_wait_for_a_write_are_all_told_though_one_fails(caplog):
    told = []

    class Waiter:
        def __init__(self, work):
            self.done = work

    log = type("Log", (), {"name": "orders-0"})()
    tell([Waiter(broken), Waiter(lambda log, error: told.append(error))], log, None)
    assert told == [None]
    assert errors(caplog)[0].fields["partition"] == "orders-0"
    with pytest.raises(InvariantError):
        tell([Waiter(lambda log, error: (_ for _ in ()).throw(InvariantError("data")))], log, None)


def test_a_failure_is_one_line_and_its_traceback_is_for_debugging(caplog):
    caplog.set_level(logging.DEBUG)
    logger = logging.getLogger("headrace.test")
    try:
        broken()
    except BrokenError as error:
        failure(logger, "it failed", error, what="this")
    line, trace = caplog.records
    assert (line.getMessage(), line.fields["what"], line.exc_info) == ("it failed", "this", None)
    assert trace.levelno == logging.DEBUG
    assert trace.exc_info is not None

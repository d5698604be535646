"""Threads that are given up: nothing that races them may block the loop, and none of them reaches a closed loop."""

import threading
from queue import Empty

from headrace.net.reactor import Reactor
from headrace.net.workers import Workers


class EmptiedQueue:
    """As it looks when a thread takes the last job between the question and the answer."""

    def __init__(self):
        self.put_back = []

    def empty(self):
        return False

    def get(self):
        raise AssertionError("this would block for good")

    def get_nowait(self):
        raise Empty

    def put(self, entry):
        self.put_back.append(entry)


def test_giving_up_does_not_wait_for_a_job_that_a_thread_took_first():
    reactor = Reactor()
    workers = Workers("test", 2, reactor)
    workers._queue = queue = EmptiedQueue()
    workers.abandon(0)
    assert queue.put_back == [None, None]
    reactor.close()


def test_jobs_that_have_not_begun_are_given_up():
    reactor = Reactor()
    workers = Workers("test", 1, reactor)
    begun, go_on, ran = threading.Event(), threading.Event(), []

    def first():
        begun.set()
        go_on.wait()
        ran.append("first")

    workers.submit(first, lambda result, error: None)
    workers.submit(lambda: ran.append("second"), lambda result, error: None)
    begun.wait()
    workers.abandon(0)
    go_on.set()
    workers._threads[0].join()
    assert ran == ["first"]
    reactor.close()


def test_a_thread_that_comes_late_does_not_write_to_a_closed_descriptor():
    reactor = Reactor()
    reactor.close()
    reactor.call_from_thread(lambda: None)  # an OSError, or worse: a byte in a file that has the same number now

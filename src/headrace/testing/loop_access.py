"""How a test reaches what belongs to a server's loop: work is done there and waited for; a gate holds the loop."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from headrace.core.errors import HeadraceError
from headrace.net.reactor import Reactor

ANSWER_S_MAX = 20.0

Result = TypeVar("Result")


def call(reactor: Reactor, work: Callable[[], Result]) -> Result:
    done: Future[Result] = Future()

    def do() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    reactor.call_from_thread(do)
    return done.result(ANSWER_S_MAX)


def hold(reactor: Reactor, what: str) -> threading.Event:
    """The loop stands still until the event is set."""
    gate, entered = threading.Event(), threading.Event()

    def stand_still() -> None:
        entered.set()
        gate.wait()

    reactor.call_from_thread(stand_still)
    if not entered.wait(ANSWER_S_MAX):
        gate.set()
        raise HeadraceError(f"the {what}'s loop did not answer within {ANSWER_S_MAX:g} s")
    return gate

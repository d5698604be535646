"""How a test reaches what belongs to a server's loop: work is done there and waited for; a gate holds the loop.

`ServerUnderTest` is what a broker and a keeper under test have in common.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from headrace.core.errors import HeadraceError
from headrace.net.reactor import Reactor

ANSWER_S_MAX = 20.0

Result = TypeVar("Result")


class ServerUnderTest:
    """A server on a thread of its own, which a test may hold."""

    _called = "server"  # in messages
    _gate: threading.Event | None = None

    @property
    def _reactor(self) -> Reactor:
        raise NotImplementedError

    def pause(self) -> None:
        """The server stands still, as after SIGSTOP: connections stay open, nothing is answered, no session ends."""
        if self._gate is None:
            self._gate = hold(self._reactor, self._called)

    def resume(self) -> None:
        """Goes on after `pause()`; what clients have asked meanwhile is answered."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.set()

    @property
    def paused(self) -> bool:
        return self._gate is not None

    def _on_loop(self, work: Callable[[], Result]) -> Result:
        if self.paused:
            raise HeadraceError(f"the {self._called} is paused; call resume() first")
        return call(self._reactor, work)


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

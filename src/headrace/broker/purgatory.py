"""Fetches that wait until there is enough to read, or until their time is over."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from headrace.net.reactor import Reactor

if TYPE_CHECKING:
    from headrace.broker.partition import Partition


RETRIES_PER_ROUND: Final = 64  # others are written for and answered before more are tried


class FetchWait:
    """One waiting fetch. `attempt(last)` answers it and returns True, or returns False to wait on.

    When it is over it lets go of who waited: each of them holds the other, and what only the garbage collector can
    free makes it stop the loop, for milliseconds after every thousand fetches.
    """

    __slots__ = ("_attempt", "_partitions", "_purgatory", "_timer")

    def __init__(
        self,
        purgatory: Purgatory,
        partitions: list[Partition],
        wait_ms: int,
        attempt: Callable[[bool], bool],
    ) -> None:
        self._purgatory = purgatory
        self._partitions = partitions
        self._attempt: Callable[[bool], bool] | None = attempt
        self._timer = purgatory.reactor.call_later(wait_ms / 1000, self.expire)
        purgatory.count += 1
        for partition in partitions:
            partition.await_growth(self)

    def expire(self) -> None:
        """Its time is over, or its connection takes memory that others need: it is answered with what there is."""
        attempt = self._attempt
        self.cancel()
        if attempt is not None:
            attempt(True)

    def wake(self) -> None:
        self._purgatory.ready[self] = None

    def retry(self) -> None:
        if self._attempt is not None and self._attempt(False):
            self.cancel()

    def cancel(self) -> None:
        if self._timer.callback is not None:
            self._purgatory.count -= 1
        self._timer.cancel()
        self._purgatory.ready.pop(self, None)
        for partition in self._partitions:
            partition.forget(self)
        self._attempt = None


class Purgatory:
    def __init__(self, reactor: Reactor) -> None:
        self.reactor = reactor
        self.ready: dict[FetchWait, None] = {}  # to be tried again at the end of this turn, in order
        self.count = 0

    def end_of_turn(self) -> None:
        """Tries some of them again; who else is ready stays so."""
        ready = self.ready
        for wait in list(islice(ready, RETRIES_PER_ROUND)):
            if wait in ready:  # and not cancelled meanwhile
                del ready[wait]
                wait.retry()

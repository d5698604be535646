"""Loads and unloads of the coordinators' shards, worked off a little in each turn, so that nobody is held up.

Each piece of work is a generator that says how many records its last step was about. What fits into a turn is done
at once, so that a topic that was made just now, and so has nothing in it, is served in the same turn. Before anybody
is served at all, much more fits: clients of a broker that has just started do not notice that it had to read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.coordinator.deadlines import CallLater
from headrace.coordinator.journal_loading import WAITING, Steps
from headrace.core.errors import InvariantError
from headrace.core.telemetry import failure

RECORDS_PER_TURN: Final = 300
RECORDS_AT_START: Final = 50_000  # less than a second of a slow core
WAIT_S: Final = 0.02  # until work that cannot go on is tried again

logger = logging.getLogger(__name__)


class ShardWork:
    def __init__(
        self, call_soon: Callable[[Callable[[], None]], None], call_later: CallLater, *, is_serving: bool
    ) -> None:
        self._call_soon = call_soon
        self._call_later = call_later
        self._queue: deque[Steps] = deque()
        self._left = RECORDS_PER_TURN if is_serving else RECORDS_AT_START  # that are worked off in this turn
        self._is_running = False
        self._is_due = False  # in the next turn it goes on

    def begin(self, work: Steps | None) -> None:
        """None: there is nothing to do."""
        if work is not None:
            self._queue.append(work)
            self._run()

    def _run(self) -> None:
        if self._is_running:
            return  # one piece of work has begun another
        self._is_running = True
        try:
            while self._queue and self._left > 0:
                self._step(self._queue.popleft())
        finally:
            self._is_running = False
            if not self._is_due:
                self._is_due = True
                self._call_soon(self._next_turn)

    def _step(self, work: Steps) -> None:
        """One step; then others have theirs, so that what is small does not wait for what is large."""
        try:
            count = next(work)
        except StopIteration:
            return
        except Exception as error:
            if isinstance(error, InvariantError):
                raise
            failure(logger, "work for a coordinator's shard failed", error)
            return
        if count == WAITING:
            self._call_later(WAIT_S, lambda: self.begin(work))
        else:
            self._left -= max(count, 1)
            self._queue.append(work)

    def _next_turn(self) -> None:
        self._is_due = False
        self._left = RECORDS_PER_TURN
        if self._queue:
            self._run()

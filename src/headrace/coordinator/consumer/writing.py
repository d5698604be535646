"""A group's decisions on their way into the journal, in order. Nobody is told of a decision before it is written; what
needs no writing waits for what was decided before it, since it was seen in that light.

When a decision cannot be written, it is undone, and with it every later one, which built upon it.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from headrace.coordinator.consumer.requests import Decision
from headrace.coordinator.consumer.state import ConsumerGroup
from headrace.coordinator.journal import Pair
from headrace.protocol.error_codes import COORDINATOR_NOT_AVAILABLE, NONE

Body = Mapping[str, object]
Append = Callable[[Sequence[Pair], Callable[[int], None]], None]
Told = Callable[[int], None]
"""Is called with 0 when the decision may be told, or with the code that is told instead."""


class _Writing:
    __slots__ = ("decision", "is_undone", "waiting")

    def __init__(self, decision: Decision, told: Told) -> None:
        self.decision = decision
        self.waiting = [told]
        self.is_undone = False


class DecisionQueue:
    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._writing: deque[_Writing] = deque()

    def add(self, decision: Decision, records: Sequence[Pair], told: Told, append: Append) -> None:
        if not records:
            if self._writing:
                self._writing[-1].waiting.append(told)
            else:
                told(NONE)
            return
        writing = _Writing(decision, told)
        self._writing.append(writing)
        append(records, lambda code: self._written(writing, code))

    def _written(self, writing: _Writing, code: int) -> None:
        if code != NONE and not writing.is_undone:
            while True:
                last = self._writing.pop()
                self._group.undo(last.decision)
                last.is_undone = True
                if last is writing:
                    break
        elif not writing.is_undone:
            self._writing.remove(writing)
        if writing.is_undone:
            code = code or COORDINATOR_NOT_AVAILABLE
        for told in writing.waiting:
            told(code)

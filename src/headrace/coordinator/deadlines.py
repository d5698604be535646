"""Points in time at which a machine wants to be woken, by name; and the one timer that a loop keeps for them.

Deadlines are in milliseconds of a clock that never jumps; a session must not end because somebody set the date.
"""

import heapq
import logging
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from headrace.core.errors import InvariantError
from headrace.core.telemetry import failure

logger = logging.getLogger(__name__)

NEVER: Final = 1 << 62
DEADLINES_PER_TURN: Final = 64  # of one group; other connections are served before the next ones
RETRY_S: Final = 1.0  # after a failure of ours
STALE_MAX: Final = 64  # entries of a heap that may be out of date, beyond as many as there are deadlines


class Now:
    """The time of an event: as the calendar has it, for what is written down; and as deadlines are counted."""

    __slots__ = ("ms", "wall_ms")

    def __init__(self, wall_ms: int, ms: int) -> None:
        self.wall_ms = wall_ms
        self.ms = ms


Key = TypeVar("Key")


class Deadlines(Generic[Key]):
    """Putting a deadline off is one store into a dict, as most heartbeats only do that: its place in the heap stays
    where it was, and is looked at again when that time comes. One client can set as many deadlines as it can make
    members, so they are taken in slices; what is left is due at once, in the next turn."""

    def __init__(self) -> None:
        self._at: dict[Key, int] = {}
        self._heap: list[tuple[int, int, Key]] = []  # a time, a number that makes it unique, whose it is
        self._places: dict[Key, tuple[int, int]] = {}  # the one entry of each key in the heap that counts
        self._number = 0
        self._slice_left = DEADLINES_PER_TURN
        self.wake_ms = NEVER  # never later than the earliest deadline; earlier when that one was put off

    def __contains__(self, key: Key) -> bool:
        return key in self._at

    def set(self, key: Key, at_ms: int) -> None:
        self._at[key] = at_ms
        place = self._places.get(key)
        if place is None or at_ms < place[0]:
            self._push(key, at_ms)
        if at_ms < self.wake_ms:
            self.wake_ms = at_ms

    def cancel(self, key: Key) -> None:
        self._at.pop(key, None)

    def clear(self) -> None:
        self._at.clear()
        self._heap.clear()
        self._places.clear()
        self.wake_ms = NEVER

    def begin_slice(self) -> None:
        self._slice_left = DEADLINES_PER_TURN

    def take_due(self, now_ms: int) -> Key | None:
        """The earliest of those that are due, which is forgotten with that. None if none is, or if the slice has ended:
        `wake_ms` then says which."""
        heap = self._heap
        while heap:
            at_ms, number, key = heap[0]
            self.wake_ms = at_ms
            if at_ms > now_ms and self._at.get(key) == at_ms:
                return None
            if self._slice_left <= 0:
                return None
            self._slice_left -= 1
            heapq.heappop(heap)
            if self._places.get(key) != (at_ms, number):
                continue  # an earlier time was set since
            del self._places[key]
            wanted_ms = self._at.get(key)
            if wanted_ms is None:
                continue
            if wanted_ms > at_ms:
                self._push(key, wanted_ms)
                continue
            del self._at[key]
            return key
        self.wake_ms = NEVER
        return None

    def _push(self, key: Key, at_ms: int) -> None:
        if len(self._heap) > 2 * len(self._at) + STALE_MAX:
            self._rebuild()  # with the new time: it is in `_at`
            return
        self._number += 1
        self._places[key] = (at_ms, self._number)
        heapq.heappush(self._heap, (at_ms, self._number, key))

    def _rebuild(self) -> None:
        """Cancelled deadlines leave their entries behind; without this, members that come and go would pile up."""
        self._heap[:] = [(at_ms, number, key) for number, (key, at_ms) in enumerate(self._at.items())]
        self._places = {key: (at_ms, number) for at_ms, number, key in self._heap}
        self._number = len(self._heap)
        heapq.heapify(self._heap)


class PendingCall(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], PendingCall]


class Alarm:
    """One timer for all the deadlines of a machine. It may ring too early, never too late; who is woken looks again."""

    def __init__(self, call_later: CallLater, ring: Callable[[], None], group_id: str = "") -> None:
        self._group_id = group_id  # for the log
        self._call_later = call_later
        self._ring = ring
        self._at_ms = NEVER
        self._timer: PendingCall | None = None

    def set(self, wake_ms: int, now_ms: int) -> None:
        """Rings at that time at the latest."""
        if wake_ms >= self._at_ms:
            return
        self.cancel()
        self._at_ms = wake_ms
        self._timer = self._call_later(max(wake_ms - now_ms, 0) / 1000, self._fire)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._at_ms = NEVER

    def _fire(self) -> None:
        self._timer = None
        self._at_ms = NEVER
        try:
            self._ring()
        except Exception as error:
            if isinstance(error, InvariantError):
                raise
            failure(logger, "group failed at a deadline: it is tried again", error, group=self._group_id)
            self._timer = self._call_later(RETRY_S, self._fire)

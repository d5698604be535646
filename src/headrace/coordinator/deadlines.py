"""Points in time at which a machine wants to be woken, by name; and the one timer that a loop keeps for them.

Deadlines are in milliseconds of a clock that never jumps; a session must not end because somebody set the date.
"""

from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

NEVER: Final = 1 << 62


class Now:
    """The time of an event: as the calendar has it, for what is written down; and as deadlines are counted."""

    __slots__ = ("ms", "wall_ms")

    def __init__(self, wall_ms: int, ms: int) -> None:
        self.wall_ms = wall_ms
        self.ms = ms


Key = TypeVar("Key")


class Deadlines(Generic[Key]):
    """Putting a deadline off is one store into a dict, as most heartbeats only do that; finding the next one is a scan,
    done when a loop wakes up."""

    def __init__(self) -> None:
        self._at: dict[Key, int] = {}
        self.wake_ms = NEVER  # never later than the earliest deadline; earlier when that one was put off

    def __contains__(self, key: Key) -> bool:
        return key in self._at

    def set(self, key: Key, at_ms: int) -> None:
        self._at[key] = at_ms
        if at_ms < self.wake_ms:
            self.wake_ms = at_ms

    def cancel(self, key: Key) -> None:
        self._at.pop(key, None)

    def clear(self) -> None:
        self._at.clear()
        self.wake_ms = NEVER

    def take_due(self, now_ms: int) -> Key | None:
        """The earliest of those that are due, which is forgotten with that; None, and `wake_ms` exact, if none is."""
        if not self._at:
            self.wake_ms = NEVER
            return None
        key = min(self._at, key=self._at.__getitem__)
        self.wake_ms = self._at[key]
        if self.wake_ms > now_ms:
            return None
        del self._at[key]
        return key


class Timer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], Timer]


class Alarm:
    """One timer for all the deadlines of a machine. It may ring too early, never too late; who is woken looks again."""

    def __init__(self, call_later: CallLater, ring: Callable[[], None]) -> None:
        self._call_later = call_later
        self._ring = ring
        self._at_ms = NEVER
        self._timer: Timer | None = None

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
        self._ring()

"""The clock of a broker in a test: it goes on by itself, and can be sent ahead."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta


class MovableClock:
    """`broker.clock.advance(hours=2)`: whatever is due until then happens now."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._lock = threading.Lock()
        self.on_advance: Callable[[int], None] = lambda ms: None

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_ms / 1000

    @property
    def ahead(self) -> timedelta:
        """How far it is ahead of the real time."""
        return timedelta(milliseconds=self._ahead_ms)

    def advance(
        self,
        delta: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        ms: float = 0,
    ) -> None:
        """Returns when the broker has seen the new time: retention, session and transaction timeouts have happened.

        Clients go on with their own clocks; records that they stamp are so much older than the broker's time.
        """
        step = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=ms)
        step_ms = round(((delta or timedelta()) + step).total_seconds() * 1000)
        if step_ms <= 0:
            raise ValueError(
                f"advance by {step_ms} ms: time only goes forward; give days, hours, minutes, seconds or ms"
            )
        with self._lock:
            self._ahead_ms += step_ms
        self.on_advance(step_ms)

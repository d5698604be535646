"""Keeps a sender at about a number of records per second."""

import time

_SLEEP_S_MIN = 0.002  # shorter sleeps cost more than they pace


class SendingPace:
    def __init__(self, per_second: float) -> None:
        """A rate below 0 means as fast as it goes; of 0, that nothing is sent after the first."""
        self._per_second = per_second
        self._begin = time.monotonic()

    def wait_after(self, sent: int) -> float:
        """How long to wait before the next, now that so many were sent; too short a time counts as none."""
        if self._per_second < 0:
            return 0.0
        if self._per_second == 0:
            return float("inf")
        ahead = sent / self._per_second - (time.monotonic() - self._begin)
        return ahead if ahead >= _SLEEP_S_MIN else 0.0

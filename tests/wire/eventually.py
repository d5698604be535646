"""Waiting for what a broker does in its own time and no client call can await, such as a retention run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

WAIT_S_MAX = 15.0  # the deadline of every wait in these tests, unless a test says otherwise
_POLL_S = 0.05


def eventually(check: Callable[[], Result], what: str, wait_s_max: float = WAIT_S_MAX) -> Result:
    """Call until the result is true, and return it; at the deadline fail with the last result."""
    deadline = time.monotonic() + wait_s_max
    while True:
        result = check()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {wait_s_max:g} s; last seen {result!r}")
        time.sleep(_POLL_S)

"""How long a test waits. No test depends on the speed of the machine: these limits end a hang and nothing else.

What happens by itself is awaited for `WAIT_S_MAX` at most; a test that gets there has failed on any machine. What must
not happen by itself during a test, such as the end of a session, is set to `NEVER_MS`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WAIT_S_MAX = 120.0
WAIT_MS_MAX = 120_000
NEVER_MS = 900_000  # far beyond WAIT_S_MAX; the most that a broker allows a transaction by default
SESSION_MS = 300_000  # of a client that must not lose its place, however slow the machine: its longest by default

Result = TypeVar("Result")


def eventually(
    check: Callable[[], Result], what: str, wait_s_max: float = WAIT_S_MAX, *, poll_s: float = 0.02
) -> Result:
    """Call until the result is true, and return it; at the limit fail with the last result."""
    deadline = time.monotonic() + wait_s_max
    while True:
        result = check()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {wait_s_max:g} s; last seen {result!r}")
        time.sleep(poll_s)

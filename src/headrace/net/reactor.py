"""The event loop: one thread, one epoll, and every piece of a broker's state belongs to it.

A turn is: wait, hand each ready descriptor to its owner, go on with what earlier turns left over (in rotation, for a
bounded time), run what threads sent back, run timers that are due (a bounded number of them; the rest in the next
turns), then the end-of-turn hooks (write what was staged, send what was answered). Each of these calls is contained:
one that fails is logged, and the next one is made. Only an InvariantError ends the loop.
Grouping by turns is what makes it fast: under load one turn serves many connections with few system calls. It is
written by hand since a turn must have an end to hook on to, and since asyncio's handles cost as much as a whole small
request (docs/internals/decisions.md).
"""

import contextlib
import errno
import heapq
import logging
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Final

from headrace.core.errors import InvariantError
from headrace.core.telemetry import failure

READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
BROKEN: Final = select.EPOLLHUP | select.EPOLLERR
EVENTS_MAX: Final = 512  # per turn
TIMERS_PER_TURN: Final = 64  # so that many that are due together do not keep connections waiting
TIMERS_S_PER_TURN: Final = 0.005  # no further timer is begun after this long
SOON_S_PER_TURN: Final = 0.005  # nothing more of what was left over is gone on with after this long
CANCELLED_PER_TURN: Final = 1024  # cancelled timers taken out of the heap, which cost next to nothing each

logger = logging.getLogger(__name__)


class Timer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Reactor:
    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._owners: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._from_threads: deque[Callable[[], None]] = deque()
        self._soon: deque[Callable[[], None]] = deque()  # what goes on in the next turn, in its order
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._woken = False
        self._stopping = False
        self.end_of_turn: list[Callable[[], None]] = []
        self.turn_started = 0.0  # on the clock of time.perf_counter; latencies are counted from it
        self._ahead_s = 0.0  # of time.monotonic, for tests that move time
        # Who wakes the loop is through with its descriptor before that is closed; a signal may come in between.
        self._waking = threading.RLock()
        self._epoll.register(self._wake_fd, READ)
        self._owners[self._wake_fd] = self._drain_wake

    # ── descriptors ──────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, fd: int, events: int, owner: Callable[[int], None]) -> None:
        self._owners[fd] = owner
        self._epoll.register(fd, events)

    def change(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def remove(self, fd: int) -> None:
        if self._owners.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (time.monotonic() + self._ahead_s + seconds, next(self._order), timer))
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        """In the next turn, after the descriptors that are ready then, and after those who asked before; on the loop
        only. It is how work that is too long for one turn goes on."""
        self._soon.append(callback)

    def advance(self, seconds: float) -> None:
        """Timers are due so much earlier; on the loop only. It is how a test lets hours pass."""
        self._ahead_s += seconds

    def every(self, seconds: float, callback: Callable[[], None]) -> None:
        """Again and again, counted from the end of the last time."""

        def again() -> None:
            try:
                callback()
            finally:
                self.call_later(seconds, again)

        self.call_later(seconds, again)

    # ── threads ──────────────────────────────────────────────────────────────────────────────────────────────────

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        """The only way from another thread (or a signal handler) into the loop."""
        self._from_threads.append(callback)
        if not self._woken:
            with self._waking:
                if not self._woken:
                    self._woken = True
                    os.eventfd_write(self._wake_fd, 1)

    def _drain_wake(self, _: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)
        self._woken = False  # after the read: whoever comes later writes again, whoever came earlier runs this turn

    def stop(self) -> None:
        self._stopping = True
        self.call_from_thread(lambda: None)

    def run_once_more(self, until: Callable[[], bool]) -> None:
        """After the loop has ended: what its owner still has to say to others."""
        self._stopping = False
        try:
            self.run(until)
        finally:
            self._stopping = True

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    # ── the loop ─────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Until it is stopped; or, before its owner serves anybody, until something has come about."""
        poll = self._epoll.poll
        owners = self._owners
        hooks = self.end_of_turn
        from_threads = self._from_threads
        soon = self._soon
        clock = time.perf_counter
        while not self._stopping and (until is None or not until()):
            try:
                events = poll(self._wait_seconds(), EVENTS_MAX)
            except OSError as error:
                if error.errno != errno.EINTR:
                    raise
                events = []
            self.turn_started = clock()
            for fd, mask in events:
                owner = owners.get(fd)
                if owner is not None:
                    try:
                        owner(mask)
                    except Exception as error:
                        _contain("event of a descriptor", error)
            if soon:
                self.run_soon()
            if from_threads:
                self.run_pending()
            if self._timers:
                self._run_timers()
            for hook in hooks:
                try:
                    hook()
                except Exception as error:
                    _contain("end of a turn", error)

    def run_pending(self) -> None:
        """What threads have sent back so far."""
        for _ in range(len(self._from_threads)):
            callback = self._from_threads.popleft()
            try:
                callback()
            except Exception as error:
                _contain("result of a thread", error)

    def run_soon(self) -> None:
        """What was left over, each once; what there is no time for stays in front for the next turn."""
        soon = self._soon
        began = time.perf_counter()
        for _ in range(len(soon)):
            callback = soon.popleft()
            try:
                callback()
            except Exception as error:
                _contain("work left over from a turn", error)
            if time.perf_counter() - began > SOON_S_PER_TURN:
                return

    def _wait_seconds(self) -> float:
        if self._from_threads or self._soon:
            return 0
        timers = self._timers
        for _ in range(CANCELLED_PER_TURN):
            if not timers or timers[0][2].callback is not None:
                break
            heapq.heappop(timers)
        return max(0.0, timers[0][0] - time.monotonic() - self._ahead_s) if timers else -1

    def _run_timers(self) -> None:
        timers = self._timers
        began = time.monotonic()
        now = began + self._ahead_s
        for _ in range(TIMERS_PER_TURN):
            if not timers or (timers[0][0] > now and timers[0][2].callback is not None):
                return
            callback = heapq.heappop(timers)[2].callback
            if callback is not None:
                try:
                    callback()
                except Exception as error:
                    _contain("timer", error)
                if time.monotonic() - began > TIMERS_S_PER_TURN:
                    return

    def close(self) -> None:
        with self._waking:
            self._woken = True  # who comes late must not write to a descriptor that is somebody else's by then
            self._owners.clear()
            self._epoll.close()
            os.close(self._wake_fd)


def _contain(what: str, error: Exception) -> None:
    """What failed has failed alone; a broken invariant guards data, and ends the broker."""
    if isinstance(error, InvariantError):
        raise error
    failure(logger, f"{what} failed: the broker goes on without it", error)

"""The broker's loop and threads, without epoll and without threads: the simulation decides what happens when."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count

from headrace.core.clock import ManualClock
from headrace.net.reactor import Reactor, Timer
from headrace.net.workers import Done, Job


class SimReactor(Reactor):
    """Takes the place of the event loop: `turn` is one turn of it, with the events that it is given."""

    def __init__(self, clock: ManualClock) -> None:  # not the real one's: that would open an epoll
        self._clock = clock
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._from_threads: deque[Callable[[], None]] = deque()
        self.owners: dict[int, Callable[[int], None]] = {}
        self.interest: dict[int, int] = {}
        self.end_of_turn: list[Callable[[], None]] = []
        self.turn_started = 0.0
        self.lanes: list[SimWorkers] = []

    def add(self, fd: int, events: int, owner: Callable[[int], None]) -> None:
        self.owners[fd] = owner
        self.interest[fd] = events

    def change(self, fd: int, events: int) -> None:
        self.interest[fd] = events

    def remove(self, fd: int) -> None:
        self.owners.pop(fd, None)
        self.interest.pop(fd, None)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (self._clock.monotonic() + seconds, next(self._order), timer))
        return timer

    def call_from_thread(self, callback: Callable[[], None]) -> None:
        self._from_threads.append(callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._from_threads.append(callback)

    def stop(self) -> None:
        raise AssertionError("nobody stops a simulated loop")

    def run(self) -> None:
        raise AssertionError("a simulated loop is turned by hand")

    def close(self) -> None:
        self.owners.clear()

    # ── what the simulation does ─────────────────────────────────────────────────────────────────────────────────

    @property
    def has_results(self) -> bool:
        return bool(self._from_threads)

    def next_timer_ms(self) -> int | None:
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        return round(timers[0][0] * 1000) if timers else None

    def turn(self, events: list[tuple[int, int]]) -> None:
        self.turn_started += 1
        for fd, mask in events:
            owner = self.owners.get(fd)
            if owner is not None:
                owner(mask)
        self.run_pending()
        now = self._clock.monotonic()
        timers = self._timers
        while timers and (timers[0][0] <= now or timers[0][2].callback is None):
            callback = heapq.heappop(timers)[2].callback
            if callback is not None:
                callback()
        for hook in self.end_of_turn:
            hook()

    def jobs(self) -> list[tuple[SimWorkers, int]]:
        """What may be run now: a lane of two threads has begun its two oldest jobs, and either may end first."""
        return [(lane, at) for lane in self.lanes for at in range(min(lane.thread_count, len(lane.queue)))]


class SimWorkers:
    def __init__(self, name: str, thread_count: int, reactor: SimReactor) -> None:
        self.name = name
        self.thread_count = thread_count
        self.queue: list[tuple[Job, Done]] = []
        self._reactor = reactor
        reactor.lanes.append(self)

    def submit(self, job: Job, done: Done) -> None:
        self.queue.append((job, done))

    def run_one(self, at: int = 0) -> None:
        job, done = self.queue.pop(at)
        result: object = None
        error: Exception | None = None
        try:
            result = job()
        except Exception as failure:  # a crash is no Exception, and goes on up
            error = failure
        self._reactor.call_from_thread(lambda: done(result, error))

    def close(self) -> None:
        while self.queue:
            self.run_one()

    def abandon(self, wait_s_max: float) -> None:
        self.queue.clear()

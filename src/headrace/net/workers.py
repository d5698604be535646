"""A few threads for what blocks: writing, flushing, deleting. They get a job and give back its result to the loop.

A job must not touch a broker's state: it works on descriptors and bytes that were handed to it.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from headrace.net.reactor import Reactor

Job = Callable[[], object]
Done = Callable[[object, BaseException | None], None]


class Workers:
    """A lane of `count` threads. Jobs are begun in order."""

    def __init__(self, name: str, count: int, reactor: Reactor) -> None:
        self._reactor = reactor
        self._queue: SimpleQueue[tuple[Job, Done] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{i}", daemon=True) for i in range(count)]
        self._started = False

    def submit(self, job: Job, done: Done) -> None:
        if not self._started:
            self._started = True  # an idle broker has no idle threads
            for thread in self._threads:
                thread.start()
        self._queue.put((job, done))

    def _work(self) -> None:
        while True:
            entry = self._queue.get()
            if entry is None:
                return
            job, done = entry
            result: object = None
            error: BaseException | None = None
            try:
                result = job()
            except BaseException as failure:
                error = failure
            self._reactor.call_from_thread(_Back(done, result, error))

    def close(self) -> None:
        """After the jobs that were submitted already."""
        for _ in self._threads:
            self._queue.put(None)
        if self._started:
            for thread in self._threads:
                thread.join()

    def abandon(self, wait_s_max: float) -> None:
        """Without the jobs that have not begun; one that does not end in time is left to itself."""
        with contextlib.suppress(Empty):
            while True:  # a thread may take the last one first: asking whether it is there would not help
                self._queue.get_nowait()
        for _ in self._threads:
            self._queue.put(None)
        if self._started:
            deadline = time.monotonic() + wait_s_max
            for thread in self._threads:
                thread.join(max(0.0, deadline - time.monotonic()))


class _Back:
    """A result on its way to the loop."""

    __slots__ = ("_done", "_error", "_result")

    def __init__(self, done: Done, result: object, error: BaseException | None) -> None:
        self._done = done
        self._result = result
        self._error = error

    def __call__(self) -> None:
        self._done(self._result, self._error)

"""What happens to a group, one event after the other: an event is work in steps, and the next one waits for its end."""

from collections import deque

from headrace.coordinator.classic.steps import EVENTS_PER_STEP, Steps


class EventLine:
    def __init__(self) -> None:
        self.is_busy = False  # an event takes several turns, or some wait in line behind it
        self._under_way: Steps[None] | None = None
        self._waiting: deque[Steps[None]] = deque()

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def add(self, event: Steps[None]) -> None:
        """Behind all that wait."""
        self._waiting.append(event)

    def begin(self, event: Steps[None]) -> None:
        """When nothing else is under way."""
        self._step(event)
        self.is_busy = self._under_way is not None

    def go_on(self) -> None:
        """A step of the event under way, or the first steps of some that have waited for it."""
        for _ in range(EVENTS_PER_STEP):
            event = self._under_way
            if event is None:
                if not self._waiting:
                    break
                event = self._waiting.popleft()
            self._step(event)
            if self._under_way is not None:
                break
        self.is_busy = self._under_way is not None or bool(self._waiting)

    def interrupt(self, event: Steps[None]) -> None:
        """In front of all that wait, and instead of what is under way."""
        if self._under_way is not None:
            self._under_way.close()
        self._step(event)
        self.is_busy = self._under_way is not None or bool(self._waiting)

    def _step(self, event: Steps[None]) -> None:
        self._under_way = None  # also if it fails: others go on
        try:
            next(event)
        except StopIteration:
            return
        self._under_way = event

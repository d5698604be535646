"""SIGINT and SIGTERM, counted and not raised: the first asks for an orderly end, another one for an end at once."""

import signal
from types import TracebackType
from typing import Any, Self


class StopSignals:
    """`with StopSignals() as stops: while not stops.count: …`"""

    def __init__(self) -> None:
        self.count = 0
        self.exit_code = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heard(self, number: int, frame: object) -> None:
        self.count += 1
        self.exit_code = 128 + number

"""Writes to the log what was staged, one write at a time, and says when it is on the disk.

Whoever asks meanwhile has to wait for that write in any case, since every output is held until its zxid is synced. So
where a sync takes less time than handing it to a thread and back, the loop makes it itself. On a slower disk, and at
first, a thread does, while the loop takes in what the next write will hold.
"""

from collections.abc import Callable
from typing import Final

from headrace.core.clock import Clock
from headrace.keeper.txn_log import TxnLog
from headrace.net.reactor import Reactor
from headrace.net.workers import Workers

HELD_S_MAX: Final = 0.001  # a mean write that takes longer does not hold the loop
_WEIGHT: Final = 0.2  # of the last write in that mean


class LogWriter:
    def __init__(
        self, log: TxnLog, reactor: Reactor, clock: Clock, workers: Callable[[str, int, Reactor], Workers] = Workers
    ) -> None:
        self._log = log
        self._clock = clock
        self._lane = workers("keeper-log", 1, reactor)
        self._mean_s = 2 * HELD_S_MAX
        self.busy = False
        self.bytes_under_way = 0

    def write(self, pieces: list[bytes], written: Callable[[BaseException | None], None]) -> None:
        """`written` is called on the loop, with what went wrong; then it is not known what the disk holds."""
        self.busy = True
        self.bytes_under_way = sum(map(len, pieces))
        if self._mean_s > HELD_S_MAX:
            self._lane.submit(lambda: self._timed(pieces), lambda _, error: self._done(written, error))
            return
        failed: BaseException | None = None
        try:
            self._timed(pieces)
        except Exception as error:
            failed = error
        self._done(written, failed)

    def _timed(self, pieces: list[bytes]) -> None:
        began = self._clock.monotonic()
        self._log.write(pieces)
        self._mean_s += _WEIGHT * (self._clock.monotonic() - began - self._mean_s)

    def _done(self, written: Callable[[BaseException | None], None], error: BaseException | None) -> None:
        self.busy = False
        self.bytes_under_way = 0
        written(error)

    def close(self) -> None:
        """After the write that is under way."""
        self._lane.close()

    def abandon(self, wait_s_max: float) -> None:
        self._lane.abandon(wait_s_max)

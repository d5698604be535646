"""Makes a snapshot beside all other work: some nodes in each turn of the loop, written by a thread.

It goes on with a next piece when the last one is written, so one piece is all that it holds in memory.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final

from headrace.core.files import Disk
from headrace.core.telemetry import event
from headrace.keeper import snapshot
from headrace.keeper.snapshot import SnapshotFile
from headrace.keeper.znode import Znode
from headrace.net.reactor import Reactor
from headrace.net.workers import Workers

PIECE_BYTES: Final = 1 << 20

logger = logging.getLogger(__name__)


class Snapshotting:
    def __init__(self, reactor: Reactor, disk: Disk, workers: Callable[[str, int, Reactor], Workers] = Workers) -> None:
        self._reactor = reactor
        self._disk = disk
        self._lane = workers("keeper-snapshot", 1, reactor)
        self._steps: Iterator[bytes] = iter(())
        self._piece = bytearray()
        self._file: SnapshotFile | None = None
        self._and_then: Callable[[], object] = lambda: None
        self._may_finish: Callable[[], bool] = lambda: True
        self._held = False  # whole, but for its end

    @property
    def busy(self) -> bool:
        return self._file is not None

    def begin(
        self,
        directory: str,
        zxid: int,
        nodes: dict[str, Znode],
        sessions: dict[int, int],
        and_then: Callable[[], object],
        may_finish: Callable[[], bool] = lambda: True,
    ) -> None:
        """`nodes` and `sessions` are copies. `and_then` is called on the thread when the snapshot is there.

        It gets its name only when it may: whoever knows that this has changed calls `go_on`.
        """
        self._file = SnapshotFile(directory, zxid, self._disk)
        self._steps = snapshot.pieces(nodes, sessions)
        self._and_then = and_then
        self._may_finish = may_finish
        self._reactor.call_soon(self._step)

    def _step(self) -> None:
        file = self._file
        if file is None:
            return
        more = next(self._steps, None)
        if more is not None:
            self._piece += more
            if len(self._piece) < PIECE_BYTES:
                self._reactor.call_soon(self._step)
                return
        elif not self._may_finish():
            self._held = True
            return
        piece, self._piece = bytes(self._piece), bytearray()
        ends = more is None
        self._lane.submit(lambda: self._write(file, piece, ends), lambda _, error: self._written(ends, error))

    def go_on(self) -> None:
        if self._held and self._may_finish():
            self._held = False
            self._step()

    def _write(self, file: SnapshotFile, piece: bytes, ends: bool) -> None:
        """On the thread."""
        file.write(piece)
        if ends:
            file.finish()
            self._and_then()

    def _written(self, ended: bool, error: BaseException | None) -> None:
        file = self._file
        if error is None and not ended:
            self._reactor.call_soon(self._step)
            return
        self._file, self._steps, self._piece = None, iter(()), bytearray()
        self._held = False
        if error is not None and file is not None:
            event(logger, logging.WARNING, "snapshot not written; it is tried again later", reason=str(error))
            self._lane.submit(file.give_up, lambda _, __: None)

    def close(self) -> bool:
        """Whether one was under way, which is given up: the log has all that it would hold."""
        file, self._file = self._file, None
        self._lane.close()
        if file is not None:
            file.give_up()
        return file is not None

    def abandon(self, wait_s_max: float) -> None:
        self._file = None
        self._lane.abandon(wait_s_max)

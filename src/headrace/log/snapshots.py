"""Where the state of idempotent producers is kept: in memory, and in `<offset>.snapshot` files beside the log.

A snapshot holds the state as it was when the log ended at that offset. One is taken when a segment is rolled, at each
recovery point and at a clean stop; recovery begins from the newest one and reads the log on from there. The state is
loaded on first use, since most of ten thousand partitions have no idempotent producer at work.
"""

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from headrace.core.files import Disk
from headrace.log.producer_state import ProducerState
from headrace.log.segment import segment_name

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

SUFFIX = ".snapshot"

logger = logging.getLogger(__name__)


class Snapshots:
    __slots__ = ("_disk", "_offsets", "_path", "_rolls", "_state", "damaged")

    def __init__(self, path: str, disk: Disk, offsets: list[int], state: ProducerState | None = None) -> None:
        self._path = path
        self._disk = disk
        self._offsets = sorted(offsets)
        self._state = state
        self.damaged = False  # one could not be read
        self._rolls: list[tuple[int, bytes]] = []  # taken when a roll was staged, not yet in a file

    def state(self) -> ProducerState:
        if self._state is None:
            self._state = self.load(None)[1]
        return self._state

    def open_transactions(self) -> dict[int, int]:
        """Producer id and first offset of each open transaction. Where there is no snapshot, nothing is read."""
        return self.state().open_transactions() if self._offsets or self._state is not None else {}

    def use(self, state: ProducerState) -> None:
        self._state = state

    def load(self, offset_max: int | None) -> tuple[int, ProducerState]:
        """The newest readable snapshot at or below `offset_max`, and its offset; an empty state at 0 otherwise."""
        for offset in sorted(self._offsets, reverse=True):
            if offset_max is not None and offset > offset_max:
                continue
            data = self._disk.read_file(self._file(offset))
            try:
                if data is not None:
                    return offset, ProducerState.decode_snapshot(data)
            except ValueError as error:
                logger.warning("%s is damaged and is made again from the log: %s", self._file(offset), error)
                self.damaged = True
                self._disk.unlink(self._file(offset))
            # Torn or gone: an older one, and more of the log, make the same state. It can be taken again.
            self._offsets.remove(offset)
        return 0, ProducerState()

    def stage_roll(self, offset: int) -> None:
        self._rolls.append((offset, self.state().encode_snapshot()))

    def roll_committed(self, log: "PartitionLog") -> None:
        while self._rolls and self._rolls[0][0] <= log.end_offset:
            self._write(*self._rolls.pop(0))

    def take(self, offset: int, *, small: bool = False) -> None:
        """The state as it is now, which must be that of a log that ends at `offset`. An empty one counts too:
        it saves recovery from reading the log before it, unless that is `small` anyway."""
        if offset not in self._offsets and not (small and not self._offsets and not len(self.state())):
            self._write(offset, self.state().encode_snapshot())

    @property
    def newest_offset(self) -> int:
        return self._offsets[-1] if self._offsets else -1

    def newest(self) -> list[str]:
        """The path of the newest snapshot, if there is one."""
        return [self._file(self._offsets[-1])] if self._offsets else []

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        if self._state is not None:
            self._state.expire(now_ms, expiration_ms)

    def _write(self, offset: int, data: bytes) -> None:
        self._disk.replace_file(self._file(offset), data, sync=False)
        self._offsets = sorted({*self._offsets, offset})

    def keep_from(self, recovery_point: int) -> None:
        """A start after a crash needs the newest one at or below the recovery point; what is older can go."""
        older = [offset for offset in self._offsets if offset <= recovery_point][:-1]
        for offset in older:
            with contextlib.suppress(OSError):  # one too many harms nobody
                self._disk.unlink(self._file(offset))
                self._offsets.remove(offset)

    def forget_from(self, offset: int) -> None:
        """Snapshots of a log that turned out to be shorter."""
        self._rolls = [roll for roll in self._rolls if roll[0] < offset]
        for each in [o for o in self._offsets if o > offset]:
            self._disk.unlink(self._file(each))
            self._offsets.remove(each)

    def _file(self, offset: int) -> str:
        return os.path.join(self._path, segment_name(offset) + SUFFIX)

"""Reads everything stored, little by little, so that damage is found while there is still a backup.

One segment at a time, a slice in each job on a worker thread, at most so many bytes per second. A batch counts as at
least `BATCH_BYTES_MIN`, since a small one costs as much to look at. Where it stands is kept in memory only: after a
restart it begins again. It changes no file; what it finds is noted as readers would note it.
"""

import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from headrace.core.files import Disk, OpenFile
from headrace.log import detour
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.log.store import LogStore
from headrace.log.survey import Damage, Surveyor

SLICE_BYTES_MAX = 1 << 20  # of one job
BATCH_BYTES_MIN = 4096
AUTOMATIC = -1
AUTOMATIC_BYTES_PER_SECOND = 4 << 20

Later = Callable[[float, Callable[[], None]], object]
Submit = Callable[[Callable[[], object], Callable[[object, BaseException | None], None]], None]

logger = logging.getLogger(__name__)


class ScrubSettings(NamedTuple):
    bytes_per_second: int = 0  # 0: off
    interval_ms: int = 7 * 24 * 3_600_000  # from the beginning of a pass to that of the next


def budget(setting: int) -> int:
    """Bytes per second. By itself it is on where the loop does not need the only core."""
    if setting != AUTOMATIC:
        return setting
    return AUTOMATIC_BYTES_PER_SECOND if len(os.sched_getaffinity(0)) > 1 else 0


class _Slice(NamedTuple):
    """What one job found."""

    cost: int
    size: int
    damages: list[Damage]


class Scrub:
    def __init__(self, store: LogStore, submit: Submit, later: Later, settings: ScrubSettings) -> None:
        self._store = store
        self._submit = submit
        self._later = later
        self.settings = settings
        self._todo: Iterator[tuple[PartitionLog, Segment]] = iter(())
        self._log: PartitionLog | None = None
        self._segment: Segment | None = None
        self._position = self._offset = 0
        self._spent_s = 0.0  # in this pass
        self._closed = False
        self.bytes = 0
        self.passes = 0

    def start(self) -> None:
        """A pass over all that is stored now; the next one begins `interval_ms` after this one did."""
        if self._closed or self.settings.bytes_per_second <= 0:
            return
        self._spent_s = 0.0
        logs = list(self._store.logs.values())
        self._todo = ((log, segment) for log in logs for segment in list(log.segments))
        self._next()

    def close(self) -> None:
        self._closed = True

    def _next(self) -> None:
        """The next slice, of this segment or of the next one."""
        if self._closed:
            return
        log, segment = self._log, self._segment
        while log is None or segment is None or not self._is_left(log, segment):
            found = next(self._todo, None)
            if found is None:
                self._log = self._segment = None
                self._passed()
                return
            log, segment = self._log, self._segment = found
            self._position, self._offset = 0, segment.base_offset
        try:
            file = segment.file()
        except OSError as error:
            self._failed(error)
            return
        file.pins += 1
        end_offset = detour.end_of(log, log.segment_of(segment.base_offset))
        read = partial(_pread, self._store.files.disk, file)
        surveyor = Surveyor(read, segment.size, segment.base_offset, end_offset)
        work = partial(_scrub, surveyor, self._position, self._offset)
        self._submit(work, partial(self._done, log, segment, surveyor, file))

    def _is_left(self, log: PartitionLog, segment: Segment) -> bool:
        return (
            not log.deleted
            and not segment.deleted
            and log.directory.online
            and self._position < segment.size
            and log.segments[log.segment_of(segment.base_offset)] is segment
        )

    def _done(
        self,
        log: PartitionLog,
        segment: Segment,
        surveyor: Surveyor,
        file: OpenFile,
        result: object,
        error: BaseException | None,
    ) -> None:
        file.unpin()
        if self._closed:
            return
        if error is not None or not isinstance(result, _Slice):
            self._failed(error)
            return
        if result.damages and not log.deleted and not segment.deleted:
            known = {damage.position for damage in segment.damages}
            detour.add_damages(log, segment, [each for each in result.damages if each.position not in known])
        self._position, self._offset = surveyor.position, surveyor.offset
        self.bytes += result.size
        wait_s = result.cost / self.settings.bytes_per_second if self.settings.bytes_per_second > 0 else 0.0
        self._spent_s += wait_s
        self._later(wait_s, self._next)

    def _failed(self, error: BaseException | None) -> None:
        if self._segment is not None:
            logger.warning("scrub: %s could not be read: %s", self._segment.log_path, error)
            self._position = self._segment.size
        self._later(1.0, self._next)

    def _passed(self) -> None:
        self.passes += 1
        logger.info("scrub: everything stored was read, pass %d", self.passes)
        self._later(max(self.settings.interval_ms / 1000 - self._spent_s, 1.0), self.start)


def _pread(disk: Disk, file: OpenFile, count: int, position: int) -> bytes:
    return disk.read(file.fd, count, position)


def _scrub(surveyor: Surveyor, position: int, offset: int) -> _Slice:
    """One slice, on a thread: it touches nothing but the file."""
    cost = 0
    damages = []
    for found in surveyor.run(position, offset):
        if isinstance(found, Damage):
            damages.append(found)
            cost += found.end - found.position
        else:
            cost += max(found[0].size, BATCH_BYTES_MIN)
        if cost >= SLICE_BYTES_MAX:
            break
    return _Slice(cost, surveyor.position - position, damages)

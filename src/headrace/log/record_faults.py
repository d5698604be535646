"""Batches in a log whose CRC is right and whose records make no sense: said and counted, and kept.

Such a batch is as it was acknowledged, by a version that did not look at records or by another broker; a reader that
can make something of it may. So nothing is cut, and nothing decided here. Records are looked at only by the native
walk: without it, a recovery would take as long as producing the log did.
"""

import logging
from typing import Final

from headrace.protocol.batch import BatchHeader
from headrace.protocol.record_check import fault_of_stored
from headrace.protocol.record_walk import IS_NATIVE

FAULTS_NAMED_MAX: Final = 5  # per file

logger = logging.getLogger(__name__)


class RecordFaults:
    """What was found in one file."""

    def __init__(self, path: str) -> None:
        self.count = 0
        self._path = path

    def look(self, batch: memoryview, header: BatchHeader, position: int) -> None:
        """At one batch, whole and with a CRC that matches."""
        fault = fault_of_stored(batch, header) if IS_NATIVE else None
        if fault is None:
            return
        self.count += 1
        if self.count <= FAULTS_NAMED_MAX:
            logger.warning(
                "%s: the batch at byte %d (offsets %d to %d) was stored with records that make no sense, and is kept:"
                " %s; readers may stop at it: have them go on at offset %d",
                self._path,
                position,
                header.base_offset,
                header.last_offset,
                fault,
                header.last_offset + 1,
            )

    def end(self) -> int:
        """How many there were; those that were not named are said in one line."""
        if self.count > FAULTS_NAMED_MAX:
            more = self.count - FAULTS_NAMED_MAX
            logger.warning("%s: %d more batches with records that make no sense are kept", self._path, more)
        return self.count

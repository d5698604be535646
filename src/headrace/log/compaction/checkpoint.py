"""How far each log of a directory was compacted: `cleaner-offset-checkpoint`, in Kafka's format.

It is a hint: what is lost of it costs work, never a record. So it is not flushed, and a damaged one counts as empty.
"""

import logging
from typing import TYPE_CHECKING

from headrace.core.errors import OperatorError
from headrace.log.directory import LogDirectory

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"

logger = logging.getLogger(__name__)


def read_clean_offsets(directory: LogDirectory) -> dict[tuple[str, int], int]:
    try:
        return directory.read_offsets(CLEANER_OFFSET_FILE)
    except OperatorError as error:
        logger.warning("%s: its logs are compacted from their start again: %s", directory.path, error)
        return {}


class CleanOffsets:
    """By log, not by name: a topic that is deleted and made again is dirty from its start."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, int], tuple[PartitionLog, int]] = {}

    def load(self, logs: dict[tuple[str, int], "PartitionLog"], directories: list[LogDirectory]) -> None:
        for directory in directories:
            for key, offset in read_clean_offsets(directory).items() if directory.online else ():
                log = logs.get(key)
                if log is not None and log.directory is directory:
                    self._offsets[key] = log, offset

    def get(self, log: "PartitionLog") -> int | None:
        found = self._offsets.get((log.topic, log.index))
        return found[1] if found is not None and found[0] is log else None

    def put(self, log: "PartitionLog", offset: int) -> None:
        self._offsets[log.topic, log.index] = log, offset
        self._write(log.directory)

    def forget_deleted(self) -> None:
        gone = [key for key, (log, _) in self._offsets.items() if log.deleted]
        directories = {self._offsets.pop(key)[0].directory for key in gone}
        for directory in directories:
            self._write(directory)

    def _write(self, directory: LogDirectory) -> None:
        if not directory.online:
            return
        entries = {key: offset for key, (log, offset) in self._offsets.items() if log.directory is directory}
        try:
            directory.write_offsets(CLEANER_OFFSET_FILE, entries, sync=False)
        except OSError as error:
            logger.warning("%s: %s could not be written: %s", directory.path, CLEANER_OFFSET_FILE, error.strerror)

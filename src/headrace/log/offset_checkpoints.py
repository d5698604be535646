"""The offset checkpoints of the log directories: gathered on the loop, written there at a stop and else in a thread.

Each of the three files is flushed before it takes its place, and a flush lasts as long as the disk likes: on the loop
it would keep every client waiting.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.log import checkpoints
from headrace.log.directory import LogDirectory
from headrace.log.partition_log import PartitionLog

Offsets = dict[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class DirectoryOffsets:
    recovery_points: Offsets = field(default_factory=dict)
    starts: Offsets = field(default_factory=dict)  # only of logs that begin behind the start of their first segment
    high_watermarks: Offsets = field(default_factory=dict)
    logs: list[tuple[PartitionLog, int]] = field(default_factory=list)  # each with its recovery point


Gathered = dict[LogDirectory, DirectoryOffsets]


def gather(directories: Iterable[LogDirectory], logs: Iterable[PartitionLog]) -> Gathered:
    """As the logs stand now, for each directory that is online."""
    found: Gathered = {directory: DirectoryOffsets() for directory in directories if directory.online}
    for log in logs:
        offsets = found.get(log.directory)
        if offsets is None:
            continue
        key, point = (log.topic, log.index), log.recovery_point
        offsets.logs.append((log, point))
        offsets.recovery_points[key] = point
        offsets.high_watermarks[key] = log.high_watermark
        if log.start_offset > log.segments[0].base_offset:
            offsets.starts[key] = log.start_offset
    return found


def write(gathered: Gathered) -> dict[LogDirectory, OSError]:
    """Returns why it did not work, where it did not. Looks at no log, so that a thread may run it."""
    failures: dict[LogDirectory, OSError] = {}
    for directory, offsets in gathered.items():
        try:
            directory.write_offsets(checkpoints.RECOVERY_POINT_FILE, offsets.recovery_points)
            directory.write_offsets(checkpoints.LOG_START_FILE, offsets.starts)
            directory.write_offsets(checkpoints.HIGH_WATERMARK_FILE, offsets.high_watermarks)
        except OSError as error:
            failures[directory] = error
    return failures

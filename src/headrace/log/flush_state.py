"""How far a log is on the disk for certain, and which append sets wait until that is further."""

from typing import TYPE_CHECKING

from headrace.core.files import OpenFile
from headrace.log.append_set import AppendSet, tell

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog


class FlushState:
    """Of one log, which is passed in where it is needed: nothing here refers back to it."""

    __slots__ = (
        "flushed_offset",
        "is_under_way",
        "spill_wanted_offset",
        "spilled_offset",
        "unflushed_since_ms",
        "waiting",
    )

    def __init__(self, flushed_offset: int) -> None:
        self.flushed_offset = flushed_offset
        self.spilled_offset = flushed_offset  # below it, indexes and a snapshot of the producers are on the disk
        self.spill_wanted_offset = flushed_offset  # they are in files up to here, and the next flush takes them along
        self.unflushed_since_ms = 0
        self.is_under_way = False
        self.waiting: list[AppendSet] = []  # written, and held back until they are flushed

    @property
    def recovery_point(self) -> int:
        """All below it is on the disk for certain, with all that belongs to it."""
        return min(self.flushed_offset, self.spilled_offset)

    def holds_back(self, append_set: AppendSet, messages_max: int) -> bool:
        """Whether it must be flushed before anybody sees it: so many are not, or one before it must."""
        return bool(self.waiting) or append_set.end_offset - self.flushed_offset >= messages_max

    def files(self, log: "PartitionLog") -> list[OpenFile]:
        """Those that hold what is written but not yet on the disk for certain; pinned."""
        paths = []
        for segment in reversed(log.segments):
            if segment.size:
                paths.append(segment.log_path)
            if segment.base_offset <= self.flushed_offset:
                break
        if self.spill_wanted_offset > self.spilled_offset:
            paths += log.snapshots.newest()
            for segment in reversed(log.segments):
                paths += segment.index_paths()
                if segment.base_offset <= self.spilled_offset:
                    break
        found = []
        for path in paths:
            file = log.files.get(path)
            file.pins += 1
            found.append(file)
        return found

    def want_spilled(self, offset: int) -> None:
        """Indexes and snapshots are in files up to there."""
        self.spill_wanted_offset = max(self.spill_wanted_offset, offset)

    def spilled(self, offset: int) -> None:
        """They are on the disk up to there."""
        self.spilled_offset = max(self.spilled_offset, offset)

    def all_on_disk(self, end_offset: int) -> None:
        self.flushed_offset = self.spilled_offset = end_offset

    def lower(self, offset: int) -> None:
        """The log is to be cut there."""
        self.flushed_offset = min(self.flushed_offset, offset)
        self.spilled_offset = min(self.spilled_offset, offset)
        self.spill_wanted_offset = min(self.spill_wanted_offset, offset)

    def flushed(self, log: "PartitionLog", offset: int) -> bool:
        """All below `offset` is on the disk. True if another flush is wanted."""
        self.flushed_offset = max(self.flushed_offset, offset)
        waiting = self.waiting
        while waiting and waiting[0].end_offset <= offset:
            log.settle(waiting.pop(0))
        return bool(waiting) or self.spill_wanted_offset > self.spilled_offset

    def failed(self, log: "PartitionLog", error: Exception) -> None:
        waiting, self.waiting = self.waiting, []
        for append_set in waiting:
            tell(append_set.waiters, log, error)
            tell(append_set.commit_waiters, log, error)

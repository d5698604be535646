"""What one turn of the event loop stages for one segment, written together and answered together."""

import logging
from typing import TYPE_CHECKING, Protocol

from headrace.core.errors import InvariantError
from headrace.core.telemetry import failure
from headrace.log.producer_state import ProducerEntry
from headrace.log.segment import Segment
from headrace.log.transactions import Marker

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog


logger = logging.getLogger(__name__)


class Waiter(Protocol):
    """Someone who is answered when a batch is written or committed, or could not be."""

    def done(self, log: "PartitionLog", error: Exception | None) -> None:
        """Once per batch."""

    def written(self, log: "PartitionLog") -> None:
        """The bytes are in the file, and other replicas do not have them yet: `done` comes later."""


def tell(waiters: list[Waiter], log: "PartitionLog", error: Exception | None) -> None:
    """All of them, also when what one of them does with it fails."""
    for waiter in waiters:
        try:
            waiter.done(log, error)
        except Exception as failed:
            if isinstance(failed, InvariantError):
                raise
            failure(logger, "answer to a written request failed", failed, partition=log.name)


class AppendSet:
    __slots__ = (
        "batches",
        "commit_waiters",
        "end_offset",
        "epochs",
        "markers",
        "max_timestamp",
        "max_timestamp_offset",
        "position",
        "segment",
        "size",
        "undo",
        "views",
        "waiters",
    )

    def __init__(self, segment: Segment, position: int) -> None:
        self.segment = segment
        self.position = position
        self.size = 0
        self.end_offset = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.views: list[memoryview | bytearray] = []
        self.batches: list[tuple[int, int, int]] = []  # size, last offset and largest timestamp of each
        self.markers: list[tuple[Marker, int]] = []  # ends of transactions, and the offsets they got
        self.epochs: list[tuple[int, int]] = []  # leader epochs that begin in it, and their first offsets
        self.waiters: list[Waiter] = []  # told when it is written here
        self.commit_waiters: list[Waiter] = []  # told when every replica in sync has it
        self.undo: list[tuple[int, ProducerEntry | None]] = []  # a producer and the state it had before

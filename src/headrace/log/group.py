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
    """Someone who is answered when a group is written, or could not be."""

    def done(self, log: "PartitionLog", error: Exception | None) -> None: ...


def tell(waiters: list[Waiter], log: "PartitionLog", error: Exception | None) -> None:
    """All of them, also when what one of them does with it fails."""
    for waiter in waiters:
        try:
            waiter.done(log, error)
        except Exception as failed:
            if isinstance(failed, InvariantError):
                raise
            failure(logger, "answer to a written request failed", failed, partition=log.name)


class Group:
    __slots__ = (
        "end_offset",
        "markers",
        "marks",
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
        self.marks: list[tuple[int, int, int]] = []  # size, last offset and largest timestamp of each batch
        self.markers: list[tuple[Marker, int]] = []  # ends of transactions, and the offsets they got
        self.waiters: list[Waiter] = []
        self.undo: list[tuple[int, ProducerEntry | None]] = []  # a producer and the state it had before

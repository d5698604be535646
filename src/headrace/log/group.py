"""What one turn of the event loop stages for one segment, written together and answered together."""

from typing import TYPE_CHECKING, Protocol

from headrace.log.producer_state import ProducerEntry
from headrace.log.segment import Segment
from headrace.log.transactions import Marker

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog


class Waiter(Protocol):
    """Someone who is answered when a group is written, or could not be."""

    def done(self, log: "PartitionLog", error: Exception | None) -> None: ...


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

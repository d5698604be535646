"""The way by which the ends of transactions reach the partitions that took part in them: a port.

The ledger decides what is written where, and goes on asking until all of it is. Who leads those partitions, and how
their broker is reached, is for whoever implements this to know.
"""

from typing import NamedTuple, Protocol

from headrace.coordinator.journal import Done
from headrace.coordinator.topic_view import TopicPartition


class TransactionEnd(NamedTuple):
    """What a marker says."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int  # the leader epoch of the id's partition of `__transaction_state`
    commit: bool


class MarkerPort(Protocol):
    def write(self, end: TransactionEnd, partitions: list[TopicPartition], done: Done) -> None:
        """`done` is called once: when a marker in each of them is durable, or one could not be written. A topic that
        was deleted is left out. The same end may be written again."""

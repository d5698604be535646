"""Partitions on their way into a transaction.

Unlike Kafka, a partition that is added while the last transaction's markers are still being written waits for them
for a moment, instead of being refused at once: the client would ask again only after a pause.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from headrace.coordinator.deadlines import CallLater, PendingCall
from headrace.coordinator.topic_view import TopicPartition
from headrace.coordinator.transactions.ledger import Held, TransactionLedger
from headrace.coordinator.transactions.transaction import Write
from headrace.core.clock import Clock
from headrace.protocol.error_codes import CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, NOT_COORDINATOR

WAIT_S = 0.1  # as long as a produce of Kafka's tries

Decided = Callable[[int], None]  # with an error code


@dataclass(slots=True, eq=False)
class Addition:
    held: Held
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]
    client_version: int
    decided: Decided
    timer: PendingCall | None = None

    def stop_waiting(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class Additions:
    """Those of one shard that wait, at most one per connection."""

    def __init__(self, ledger: TransactionLedger, clock: Clock, call_later: CallLater) -> None:
        self._ledger = ledger
        self._clock = clock
        self._call_later = call_later
        self._waiting: dict[str, list[Addition]] = {}
        ledger.on_settled = self._settled

    def add(self, addition: Addition) -> None:
        verdict = addition.held.machine.add_partitions(
            addition.producer_id,
            addition.producer_epoch,
            addition.partitions,
            addition.client_version,
            self._clock.now_ms(),
        )
        if isinstance(verdict, Write):
            addition.stop_waiting()
            self._ledger.persist(addition.held, verdict, lambda code, mark: addition.decided(code))
        elif verdict.code == CONCURRENT_TRANSACTIONS:
            self._waiting.setdefault(addition.held.transactional_id, []).append(addition)
            if addition.timer is None:
                addition.timer = self._call_later(WAIT_S, lambda: self._give_up(addition))
        else:
            addition.stop_waiting()
            addition.decided(verdict.code)

    def _give_up(self, addition: Addition) -> None:
        transactional_id = addition.held.transactional_id
        self._waiting[transactional_id].remove(addition)
        if not self._waiting[transactional_id]:
            del self._waiting[transactional_id]
        addition.decided(CONCURRENT_TRANSACTIONS)

    def _settled(self, transactional_id: str) -> None:
        for addition in self._waiting.pop(transactional_id, ()):
            if self._ledger.get(transactional_id) is addition.held:
                self.add(addition)
            else:  # it has expired meanwhile
                addition.stop_waiting()
                addition.decided(INVALID_PRODUCER_ID_MAPPING)

    def close(self) -> None:
        """Another broker has the ids now. As many wait as there are connections at most."""
        waiting, self._waiting = self._waiting, {}
        for additions in waiting.values():
            for addition in additions:
                addition.stop_waiting()
                addition.decided(NOT_COORDINATOR)

"""The machines of all transactional ids, and the journal that has what they decided before anybody is told of it.

A decided transaction is carried to its end, whatever fails: its markers are written, and its completion recorded,
until both have succeeded. Nothing else may end it.
"""

import logging
from collections.abc import Callable, Collection, Iterator

from headrace.coordinator.journal import Journal, JournalRecord
from headrace.coordinator.journal_loading import replay_all
from headrace.coordinator.placing import partition_for
from headrace.coordinator.transactions.records import decode_key, decode_value, encode_key, encode_value
from headrace.coordinator.transactions.state import TransactionMachine
from headrace.coordinator.transactions.transaction import Mark, State, TopicPartition, Transaction, Write
from headrace.core.clock import Clock
from headrace.core.telemetry import event
from headrace.protocol.error_codes import COORDINATOR_NOT_AVAILABLE, NONE

RETRY_S = 0.5  # after markers, or the record behind them, could not be written

Done = Callable[[Exception | None], None]
# producer id, its epoch, the coordinator's epoch, whether to commit, the partitions, whom to tell when all are durable
WriteMarkers = Callable[[int, int, int, bool, list[TopicPartition], Done], None]
Written = Callable[[int, Mark | None], None]  # an error code, and the markers that follow

logger = logging.getLogger(__name__)


class Held:
    """A machine, and under which key the journal has it."""

    __slots__ = ("key", "machine")

    def __init__(self, machine: TransactionMachine) -> None:
        self.machine = machine
        self.key = encode_key(machine.current.transactional_id)

    @property
    def transactional_id(self) -> str:
        return self.machine.current.transactional_id


class TransactionLedger:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        call_later: Callable[[float, Callable[[], None]], object],
        write_markers: WriteMarkers,
        coordinator_epoch: int,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._call_later = call_later
        self._write_markers = write_markers
        self._coordinator_epoch = coordinator_epoch
        self._lost: frozenset[int] = frozenset()  # partitions of the journal that could not be read
        self._held: dict[str, Held] = {}
        self._ongoing: dict[str, Held] = {}
        self.on_settled: Callable[[str], None] = lambda transactional_id: None  # nothing is pending any more

    def load(self) -> None:
        self._lost = replay_all(self._journal, self._replay)
        if self._lost:  # what is known of such an id may be too old to act on
            self._held = {each: held for each, held in self._held.items() if not self.is_lost(each)}
        for held in self._held.values():
            self._track(held)

    def is_lost(self, transactional_id: str) -> bool:
        """Its partition of the journal could not be read: nothing may be decided for it."""
        return bool(self._lost) and self.partition_of(transactional_id) in self._lost

    def resume(self) -> None:
        """What was decided before a restart is carried on."""
        for held in self.all():
            mark = held.machine.resume(self._clock.now_ms())
            if mark is not None:
                self._mark(held, mark)

    # ── the machines ─────────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return len(self._held)

    def get(self, transactional_id: str) -> Held | None:
        return self._held.get(transactional_id)

    def all(self) -> tuple[Held, ...]:
        return tuple(self._held.values())

    def ongoing(self) -> tuple[Held, ...]:
        """Those whose transaction is open, and may time out."""
        return tuple(self._ongoing.values())

    def transactions(self) -> Iterator[Transaction]:
        return (held.machine.current for held in self._held.values())

    def hold(self, machine: TransactionMachine) -> Held:
        held = self._held[machine.current.transactional_id] = Held(machine)
        return held

    def partition_of(self, transactional_id: str) -> int:
        """Asked for each record: until the journal's topic is made, its number of partitions may still change."""
        return partition_for(transactional_id, self._journal.partition_count)

    def drop(self, held: Held) -> None:
        """For one that was never written down."""
        self._held.pop(held.transactional_id, None)

    # ── carrying out what a machine decided ──────────────────────────────────────────────────────────────────────

    def persist(self, held: Held, write: Write, then: Written) -> None:
        def done(error: Exception | None) -> None:
            if error is not None:
                event(logger, logging.WARNING, "transaction state not written", error=error)
                held.machine.failed()
                then(COORDINATOR_NOT_AVAILABLE, None)
                self.on_settled(held.transactional_id)
                return
            mark = held.machine.written(self._clock.now_ms())
            self._track(held)
            then(NONE, mark)
            if mark is None:
                self.on_settled(held.transactional_id)
            else:
                self._mark(held, mark)

        self._append(held, write.next, done)

    def bury(self, partition: int, expired: Collection[Held]) -> None:
        """Tombstones for ids that have expired, and are forgotten once those are written."""

        def buried(error: Exception | None) -> None:
            for held in expired:
                if error is None:
                    del self._held[held.transactional_id]
                else:
                    held.machine.failed()
                self.on_settled(held.transactional_id)

        self._journal.append(partition, [(held.key, None) for held in expired], buried)

    def _mark(self, held: Held, mark: Mark) -> None:
        def marked(error: Exception | None) -> None:
            if error is None:
                self._complete(held, mark.complete)
            else:
                event(logger, logging.WARNING, "transaction markers not written", error=error)
                self._call_later(RETRY_S, lambda: self._mark(held, mark))

        if not mark.partitions:
            marked(None)
            return
        epoch = self._coordinator_epoch
        self._write_markers(mark.producer_id, mark.producer_epoch, epoch, mark.commit, list(mark.partitions), marked)

    def _complete(self, held: Held, complete: Transaction) -> None:
        def done(error: Exception | None) -> None:
            if error is None:
                held.machine.written(self._clock.now_ms())
                self.on_settled(held.transactional_id)
            else:
                event(logger, logging.WARNING, "transaction state not written", error=error)
                self._call_later(RETRY_S, lambda: self._complete(held, complete))

        self._append(held, complete, done)

    def _append(self, held: Held, transaction: Transaction, done: Done) -> None:
        self._journal.append(self.partition_of(held.transactional_id), ((held.key, encode_value(transaction)),), done)

    # ── loading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _replay(self, partition: int, record: JournalRecord) -> None:
        if record.is_control:
            return
        transactional_id = decode_key(record.key)
        if transactional_id is None:
            event(logger, logging.WARNING, "transaction record of an unknown version", partition=partition)
            return
        if record.value is None:
            self._held.pop(transactional_id, None)
            return
        transaction = decode_value(transactional_id, record.value)
        if transaction is None or transaction.state in (State.DEAD, State.PREPARE_EPOCH_FENCE):
            event(logger, logging.WARNING, "transaction record of an unknown version", partition=partition)
        else:
            self._held[transactional_id] = Held(TransactionMachine(transaction))

    def _track(self, held: Held) -> None:
        if held.machine.current.state is State.ONGOING:
            self._ongoing[held.transactional_id] = held
        else:
            self._ongoing.pop(held.transactional_id, None)

"""The transactional ids of one partition of `__transaction_state`: their machines, and the journal that has what they
decided before anybody is told of it.

A decided transaction is carried to its end, whatever fails: its markers are written, and its completion recorded,
until both have succeeded. Nothing else may end it, unless another broker takes the partition over: then it is that
one's to carry on, and nothing more comes from here.
"""

import logging
from collections.abc import Callable, Collection
from typing import Final

from headrace.coordinator.journal import AllOf, Done, JournalRecord
from headrace.coordinator.journal_loading import Steps
from headrace.coordinator.shard_journal import ShardJournal
from headrace.coordinator.transactions.markers import MarkerPort, TransactionEnd
from headrace.coordinator.transactions.records import decode_key, decode_value, encode_key, encode_value
from headrace.coordinator.transactions.state import DECIDED, TransactionMachine
from headrace.coordinator.transactions.transaction import Transaction, TransactionState, Write, WriteMarkers
from headrace.core.clock import Clock
from headrace.core.telemetry import event
from headrace.protocol.error_codes import COORDINATOR_NOT_AVAILABLE, NONE, NOT_COORDINATOR

RETRY_S = 0.5  # after markers, or the record behind them, could not be written
IDS_PER_STEP: Final = 256
MARKERS_PER_TURN: Final = 40  # of one transaction; each is a write to another log

Written = Callable[[int, WriteMarkers | None], None]  # an error code, and the markers that follow

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
        journal: ShardJournal,
        epoch: int,
        clock: Clock,
        call_later: Callable[[float, Callable[[], None]], object],
        markers: MarkerPort,
    ) -> None:
        self.journal = journal
        self.epoch = epoch
        self._clock = clock
        self._call_later = call_later
        self._markers = markers
        self._held: dict[str, Held] = {}
        self._ongoing: dict[str, Held] = {}
        self._decided: list[Held] = []  # before the load: to be carried on when it has ended
        self.on_settled: Callable[[str], None] = lambda transactional_id: None  # nothing is pending any more

    @property
    def is_closed(self) -> bool:
        """Given up: what happens to its transactions is for another broker to say."""
        return self.journal.is_closed

    # ── coming and going ─────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, record: JournalRecord) -> None:
        if record.is_control:
            return
        partition = self.journal.partition
        transactional_id = decode_key(record.key)
        if transactional_id is None:
            event(logger, logging.WARNING, "transaction record of an unknown version", partition=partition)
            return
        if record.value is None:
            self._held.pop(transactional_id, None)
            return
        transaction = decode_value(transactional_id, record.value)
        if transaction is None or transaction.state in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE):
            event(logger, logging.WARNING, "transaction record of an unknown version", partition=partition)
        else:
            self._held[transactional_id] = Held(TransactionMachine(transaction))

    def prepared(self) -> Steps:
        for at, held in enumerate(self.all(), 1):
            self._track(held)
            if held.machine.current.state in DECIDED:
                self._decided.append(held)
            if at % IDS_PER_STEP == 0:
                yield IDS_PER_STEP

    def begun(self) -> Steps:
        """What was decided before is carried on. Until an id has its turn it can only wait: it is decided."""
        while self._decided and not self.is_closed:
            held = self._decided.pop()
            markers = held.machine.resume(self._clock.now_ms())
            if markers is not None:
                self._write_markers(held, markers)
            yield 1

    def emptied(self) -> Steps:
        while count := self.journal.tell_some():
            yield count
        for each in (self._ongoing, self._held):
            while each:
                for _ in range(min(IDS_PER_STEP, len(each))):
                    each.popitem()
                yield IDS_PER_STEP

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

    def hold(self, machine: TransactionMachine) -> Held:
        held = self._held[machine.current.transactional_id] = Held(machine)
        return held

    def drop(self, held: Held) -> None:
        """For one that was never written down."""
        self._held.pop(held.transactional_id, None)

    # ── carrying out what a machine decided ──────────────────────────────────────────────────────────────────────

    def persist(self, held: Held, write: Write, then: Written) -> None:
        def done(error: Exception | None) -> None:
            if error is not None:
                if not self.is_closed:
                    event(logger, logging.WARNING, "transaction state not written", error=error)
                held.machine.failed()
                then(NOT_COORDINATOR if self.is_closed else COORDINATOR_NOT_AVAILABLE, None)
                self.on_settled(held.transactional_id)
                return
            markers = held.machine.written(self._clock.now_ms())
            self._track(held)
            then(NONE, markers)
            if markers is None:
                self.on_settled(held.transactional_id)
            else:
                self._write_markers(held, markers)

        self._append(held, write.next, done)

    def bury(self, expired: Collection[Held]) -> None:
        """Tombstones for ids that have expired, and are forgotten once those are written."""

        def buried(error: Exception | None) -> None:
            for held in expired:
                if error is None:
                    self._held.pop(held.transactional_id, None)
                else:
                    held.machine.failed()
                self.on_settled(held.transactional_id)

        self.journal.append([(held.key, None) for held in expired], buried)

    def _write_markers(self, held: Held, markers: WriteMarkers) -> None:
        def written(error: Exception | None) -> None:
            if self.is_closed:
                return
            if error is None:
                self._complete(held, markers.complete)
            else:
                event(logger, logging.WARNING, "transaction markers not written", error=error)
                self._call_later(RETRY_S, lambda: self._write_markers(held, markers))

        if not self.is_closed:
            self._write_some_markers(markers, 0, AllOf(written))

    def _write_some_markers(self, markers: WriteMarkers, first: int, waiting: AllOf) -> None:
        """Some in each turn: a client may add as many partitions to a transaction as there are. A shard that is given
        up meanwhile leaves the rest to the next coordinator, and nobody waits for `waiting` any more."""
        some = list(markers.partitions[first : first + MARKERS_PER_TURN])
        if some:
            end = TransactionEnd(markers.producer_id, markers.producer_epoch, self.epoch, markers.commit)
            waiting.expect()
            self._markers.write(end, some, waiting.told)
        after = first + MARKERS_PER_TURN
        if after >= len(markers.partitions):
            waiting.told(None)
        else:
            self._call_later(0, lambda: self._write_rest_of_markers(markers, after, waiting))

    def _write_rest_of_markers(self, markers: WriteMarkers, first: int, waiting: AllOf) -> None:
        if not self.is_closed:
            self._write_some_markers(markers, first, waiting)

    def _complete(self, held: Held, complete: Transaction) -> None:
        def done(error: Exception | None) -> None:
            if error is None:
                held.machine.written(self._clock.now_ms())
                self.on_settled(held.transactional_id)
            elif not self.is_closed:
                event(logger, logging.WARNING, "transaction state not written", error=error)
                self._call_later(RETRY_S, lambda: self._complete(held, complete))

        self._append(held, complete, done)

    def _append(self, held: Held, transaction: Transaction, done: Done) -> None:
        self.journal.append(((held.key, encode_value(transaction)),), done)

    def _track(self, held: Held) -> None:
        if held.machine.current.state is TransactionState.ONGOING:
            self._ongoing[held.transactional_id] = held
        else:
            self._ongoing.pop(held.transactional_id, None)

"""All transactional ids of this broker, as its handlers ask about them: the thin loop around their machines.

It holds no rule of its own (those are in `state`) and answers nothing that is not in the journal
(`ledger` sees to that). It looks for transactions that take too long, and for ids that nobody uses.
"""

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence

from headrace.coordinator.journal import Journal
from headrace.coordinator.transactions import views
from headrace.coordinator.transactions.additions import Addition, Additions, CallLater, Decided
from headrace.coordinator.transactions.ledger import Held, TransactionLedger, WriteMarkers
from headrace.coordinator.transactions.settings import IDS_KEY, TransactionSettings
from headrace.coordinator.transactions.state import TransactionMachine
from headrace.coordinator.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    VERSION_0,
    VERSION_2,
    Mark,
    TopicPartition,
    Transaction,
    Write,
)
from headrace.core.clock import Clock
from headrace.core.errors import StorageError
from headrace.core.telemetry import event
from headrace.protocol.error_codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    NONE,
    NOT_COORDINATOR,
    POLICY_VIOLATION,
    TRANSACTIONAL_ID_NOT_FOUND,
)

OFFSETS_TOPIC = "__consumer_offsets"
ID_BYTES_MAX = 0x7FFF  # what a key's string can hold
TOMBSTONES_MAX = 1_000  # in one batch
IDS_PER_TURN = 256  # that are looked at for what is over

logger = logging.getLogger(__name__)

Answer = Callable[[Mapping[str, object]], None]


class Transactions:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        call_later: CallLater,
        settings: TransactionSettings,
        producer_ids: Callable[[], int],
        write_markers: WriteMarkers,
        offsets_partition: Callable[[str], int],
        *,
        coordinator_epoch: int = 0,
    ) -> None:
        """`write_markers` calls back once every marker is durable; `producer_ids` may raise StorageError."""
        self._clock = clock
        self._call_later = call_later
        self.settings = settings
        self._new_producer_id = producer_ids
        self._offsets_partition = offsets_partition
        self._loaded = False
        self._ledger = TransactionLedger(journal, clock, call_later, write_markers, coordinator_epoch)
        self._additions = Additions(self._ledger, clock, call_later)

    def load(self) -> None:
        """Replays the journal. Until then every request is answered with COORDINATOR_LOAD_IN_PROGRESS."""
        self._ledger.load()
        self._loaded = True

    def start(self) -> None:
        """After `load`, when markers can be written: carries on what was decided, and begins to watch the time."""
        self._ledger.resume()
        self._every(lambda: self.settings.abort_check_interval_ms, self.abort_timed_out)
        self._every(lambda: self.settings.expire_check_interval_ms, self.remove_expired)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None, answer: Answer
    ) -> None:
        """`expected`: the id and epoch that the producer has, if it has any."""

        def respond(code: int, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_EPOCH) -> None:
            answer({"error_code": code, "producer_id": producer_id, "producer_epoch": producer_epoch})

        if not transactional_id or len(transactional_id.encode()) > ID_BYTES_MAX:
            return respond(INVALID_REQUEST)
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            return respond(INVALID_TRANSACTION_TIMEOUT)
        if not self._loaded:
            return respond(COORDINATOR_LOAD_IN_PROGRESS)
        if self._ledger.is_lost(transactional_id):
            return respond(NOT_COORDINATOR)
        now_ms = self._clock.now_ms()
        held = self._ledger.get(transactional_id)
        try:
            if held is None and len(self._ledger) >= self.settings.ids_max:
                message = "transactional id refused: there are too many"
                event(
                    logger, logging.WARNING, message, id=transactional_id, limit=self.settings.ids_max, setting=IDS_KEY
                )
                return respond(POLICY_VIOLATION)
            if held is None:
                producer_id = self._new_producer_id()
                held = self._ledger.hold(TransactionMachine.new(transactional_id, producer_id, timeout_ms, now_ms))
            verdict = held.machine.init_producer_id(timeout_ms, expected, now_ms, self._new_producer_id)
        except StorageError:
            return respond(COORDINATOR_NOT_AVAILABLE)
        if not isinstance(verdict, Write):
            return respond(verdict.code)
        holder, given = held, verdict.next

        def written(code: int, mark: Mark | None) -> None:
            if code != NONE:
                if holder.machine.current.producer_epoch == NO_EPOCH:
                    self._ledger.drop(holder)
                respond(code)
            elif mark is not None:
                respond(CONCURRENT_TRANSACTIONS)  # an ongoing transaction is being aborted: ask again
            else:
                respond(NONE, given.producer_id, given.producer_epoch)

        return self._ledger.persist(held, verdict, written)

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        client_version: int,
        decided: Decided,
    ) -> None:
        """All of them or none, with one error code."""
        held = self._ledger.get(transactional_id)
        if held is None:
            decided(self._unknown(transactional_id))
        else:
            self._additions.add(Addition(held, producer_id, producer_epoch, partitions, client_version, decided))

    def add_implicitly(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        decided: Decided,
    ) -> None:
        """Produce v12 and TxnOffsetCommit v5 add what they write to; the client does not ask for it before."""
        self.add_partitions(transactional_id, producer_id, producer_epoch, partitions, VERSION_2, decided)

    def add_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str, answer: Answer
    ) -> None:
        """The group's partition of the offsets' topic becomes a part of the transaction."""
        partitions = ((OFFSETS_TOPIC, self._offsets_partition(group_id)),)
        self.add_partitions(
            transactional_id,
            producer_id,
            producer_epoch,
            partitions,
            VERSION_0,
            lambda code: answer({"error_code": code}),
        )

    def verify(self, transactional_id: str, producer_id: int, producer_epoch: int, topic: str, partition: int) -> int:
        """Whether a batch of this transaction may be appended to this partition now, as an error code."""
        held = self._ledger.get(transactional_id)
        if held is None:
            return self._unknown(transactional_id)
        return held.machine.verify(producer_id, producer_epoch, (topic, partition))

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        client_version: int,
        answer: Answer,
    ) -> None:
        """Answered once the outcome is durable; the markers follow. Version 2 tells the next epoch to use."""

        def respond(code: int, after: Transaction | None = None) -> None:
            body: dict[str, object] = {"error_code": code}
            if after is not None and client_version >= VERSION_2:
                body.update(producer_id=after.producer_id, producer_epoch=after.producer_epoch)
            answer(body)

        held = self._ledger.get(transactional_id)
        if held is None:
            return respond(self._unknown(transactional_id))
        machine, now_ms = held.machine, self._clock.now_ms()
        try:
            verdict = machine.end(producer_id, producer_epoch, commit, client_version, now_ms, self._new_producer_id)
        except StorageError:
            return respond(COORDINATOR_NOT_AVAILABLE)
        if not isinstance(verdict, Write):
            return respond(verdict.code, machine.current if verdict.code == NONE else None)
        return self._ledger.persist(held, verdict, lambda code, mark: respond(code, mark.complete if mark else None))

    def describe(self, transactional_ids: Iterable[str]) -> list[Mapping[str, object]]:
        return [self._described(each) for each in transactional_ids]

    def find(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        duration_ms: int = -1,
        id_pattern: str | None = None,
    ) -> Generator[None, None, Mapping[str, object]]:
        """The body of ListTransactions, in steps."""
        if not self._loaded:
            return {"error_code": COORDINATOR_LOAD_IN_PROGRESS, "transaction_states": []}
        return (
            yield from views.chosen(
                (held.machine.current for held in self._ledger.all()),
                states=states,
                producer_ids=producer_ids,
                duration_ms=duration_ms,
                id_pattern=id_pattern,
                now_ms=self._clock.now_ms(),
            )
        )

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def abort_timed_out(self) -> None:
        self._in_slices(self._ledger.ongoing(), self._abort_if_timed_out)

    def _abort_if_timed_out(self, some: Sequence[Held]) -> None:
        now_ms = self._clock.now_ms()
        for held in some:
            try:
                write = held.machine.time_out(now_ms, self._new_producer_id)
            except StorageError:
                continue  # no id to go on with: next time
            if write is not None:
                self._ledger.persist(held, write, lambda code, mark: None)

    def remove_expired(self) -> None:
        self._in_slices(self._ledger.all(), self._remove_if_expired)

    def _in_slices(self, every: Sequence[Held], work: Callable[[Sequence[Held]], None], at: int = 0) -> None:
        """Some in each turn, since one client can open a great many transactions."""
        work(every[at : at + IDS_PER_TURN])
        if len(every) > at + IDS_PER_TURN:
            self._call_later(0, lambda: self._in_slices(every, work, at + IDS_PER_TURN))

    def _remove_if_expired(self, some: Sequence[Held]) -> None:
        now_ms = self._clock.now_ms()
        by_partition: dict[int, list[Held]] = {}
        for held in some:
            if held.machine.expire(now_ms, self.settings.id_expiration_ms):
                by_partition.setdefault(self._ledger.partition_of(held.transactional_id), []).append(held)
        for partition, expired in by_partition.items():
            for at in range(0, len(expired), TOMBSTONES_MAX):
                self._ledger.bury(partition, expired[at : at + TOMBSTONES_MAX])

    def _every(self, interval_ms: Callable[[], int], work: Callable[[], None]) -> None:
        def again() -> None:
            try:
                work()
            finally:
                self._every(interval_ms, work)

        self._call_later(interval_ms() / 1000, again)

    def _unknown(self, transactional_id: str) -> int:
        if not transactional_id:
            return INVALID_REQUEST
        return self.absence(transactional_id) or INVALID_PRODUCER_ID_MAPPING

    def absence(self, transactional_id: str) -> int:
        """Why the id has no coordinator now, as Kafka answers it; NONE if it has one."""
        if not self._loaded:
            return COORDINATOR_LOAD_IN_PROGRESS
        return NOT_COORDINATOR if self._ledger.is_lost(transactional_id) else NONE

    def _described(self, transactional_id: str) -> Mapping[str, object]:
        held = self._ledger.get(transactional_id)
        if held is not None:
            return views.described(held.machine.current)
        code = self._unknown(transactional_id)
        if code == INVALID_PRODUCER_ID_MAPPING:
            code = TRANSACTIONAL_ID_NOT_FOUND
        return views.not_described(transactional_id, code)

"""All transactional ids of this broker, as its handlers ask about them: the thin loop around their machines.

It holds no rule of its own (those are in `state`) and answers nothing that is not in the journal (`ledger` sees to
that, for the ids of one partition of `__transaction_state`). An id has a coordinator here as long as this broker leads
its partition. Transactions that take too long, and ids that nobody uses, are looked for here.
"""

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence

from headrace.coordinator.deadlines import CallLater
from headrace.coordinator.journal import Journal
from headrace.coordinator.journal_loading import Steps
from headrace.coordinator.placing import OFFSETS_TOPIC
from headrace.coordinator.shard_journal import ShardJournal
from headrace.coordinator.shards import Shards
from headrace.coordinator.topic_view import TopicPartition
from headrace.coordinator.transactions import views
from headrace.coordinator.transactions.additions import Addition, Decided
from headrace.coordinator.transactions.ledger import Held
from headrace.coordinator.transactions.markers import MarkerPort
from headrace.coordinator.transactions.settings import IDS_KEY, TransactionSettings
from headrace.coordinator.transactions.shard import TransactionShard
from headrace.coordinator.transactions.state import TransactionMachine
from headrace.coordinator.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    VERSION_0,
    VERSION_2,
    Transaction,
    Write,
    WriteMarkers,
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
    POLICY_VIOLATION,
    TRANSACTIONAL_ID_NOT_FOUND,
)

ID_BYTES_MAX = 0x7FFF  # what a key's string can hold
TOMBSTONES_MAX = 1_000  # in one batch
IDS_PER_TURN = 256  # that are looked at for what is over

logger = logging.getLogger(__name__)

Answer = Callable[[Mapping[str, object]], None]
Found = tuple[TransactionShard, Held]


class Transactions:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        call_later: CallLater,
        settings: TransactionSettings,
        producer_ids: Callable[[], int],
        markers: MarkerPort,
        offsets_partition: Callable[[str], int],
    ) -> None:
        """`producer_ids` may raise StorageError."""
        self._clock = clock
        self._call_later = call_later
        self.settings = settings
        self._new_producer_id = producer_ids
        self._markers = markers
        self._offsets_partition = offsets_partition
        self.shards = Shards(journal, self._new_shard)

    def _new_shard(self, journal: ShardJournal, epoch: int) -> TransactionShard:
        return TransactionShard(journal, epoch, self._clock, self._call_later, self._markers)

    def load(self, partition: int, epoch: int) -> Steps | None:
        """This broker leads the partition from now on: to be done in steps. None if there is nothing to do."""
        return self.shards.load(partition, epoch)

    def unload(self, partition: int, epoch: int | None) -> Steps | None:
        """Another broker leads it; None: the topic is deleted."""
        return self.shards.unload(partition, epoch)

    def start(self) -> None:
        """Begins to watch the time. Once."""
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
        shard = self.shards.get(transactional_id)
        if isinstance(shard, int):
            return respond(shard)
        now_ms = self._clock.now_ms()
        held = shard.ledger.get(transactional_id)
        try:
            if held is None and sum(len(each.ledger) for each in self.shards.active.values()) >= self.settings.ids_max:
                message = "transactional id refused: there are too many"
                event(
                    logger, logging.WARNING, message, id=transactional_id, limit=self.settings.ids_max, setting=IDS_KEY
                )
                return respond(POLICY_VIOLATION)
            if held is None:
                producer_id = self._new_producer_id()
                held = shard.ledger.hold(TransactionMachine.new(transactional_id, producer_id, timeout_ms, now_ms))
            verdict = held.machine.init_producer_id(timeout_ms, expected, now_ms, self._new_producer_id)
        except StorageError:
            return respond(COORDINATOR_NOT_AVAILABLE)
        if not isinstance(verdict, Write):
            return respond(verdict.code)
        holder, holders, given = held, shard.ledger, verdict.next

        def written(code: int, markers: WriteMarkers | None) -> None:
            if code != NONE:
                if holder.machine.current.producer_epoch == NO_EPOCH:
                    holders.drop(holder)
                respond(code)
            elif markers is not None:
                respond(CONCURRENT_TRANSACTIONS)  # an ongoing transaction is being aborted: ask again
            else:
                respond(NONE, given.producer_id, given.producer_epoch)

        return shard.ledger.persist(held, verdict, written)

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
        found = self._find(transactional_id)
        if isinstance(found, int):
            decided(found)
        else:
            shard, held = found
            shard.additions.add(Addition(held, producer_id, producer_epoch, partitions, client_version, decided))

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
        found = self._find(transactional_id)
        if isinstance(found, int):
            return found
        return found[1].machine.verify(producer_id, producer_epoch, (topic, partition))

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

        found = self._find(transactional_id)
        if isinstance(found, int):
            return respond(found)
        shard, held = found
        machine, now_ms = held.machine, self._clock.now_ms()
        try:
            verdict = machine.end(producer_id, producer_epoch, commit, client_version, now_ms, self._new_producer_id)
        except StorageError:
            return respond(COORDINATOR_NOT_AVAILABLE)
        if not isinstance(verdict, Write):
            return respond(verdict.code, machine.current if verdict.code == NONE else None)
        return shard.ledger.persist(
            held, verdict, lambda code, markers: respond(code, markers.complete if markers else None)
        )

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
        if not self.shards.is_loaded:
            return {"error_code": COORDINATOR_LOAD_IN_PROGRESS, "transaction_states": []}
        return (
            yield from views.chosen(
                (held.machine.current for shard in self.shards.all() for held in shard.ledger.all()),
                states=states,
                producer_ids=producer_ids,
                duration_ms=duration_ms,
                id_pattern=id_pattern,
                now_ms=self._clock.now_ms(),
            )
        )

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def abort_timed_out(self) -> None:
        self._in_slices(
            [(shard, held) for shard in self.shards.all() for held in shard.ledger.ongoing()], self._abort_if_due
        )

    def _abort_if_due(self, some: Sequence[Found]) -> None:
        now_ms = self._clock.now_ms()
        for shard, held in some:
            if shard.ledger.is_closed:
                continue
            try:
                write = held.machine.time_out(now_ms, self._new_producer_id)
            except StorageError:
                continue  # no id to go on with: next time
            if write is not None:
                shard.ledger.persist(held, write, lambda code, markers: None)

    def remove_expired(self) -> None:
        self._in_slices(
            [(shard, held) for shard in self.shards.all() for held in shard.ledger.all()], self._remove_if_expired
        )

    def _in_slices(self, every: Sequence[Found], work: Callable[[Sequence[Found]], None], at: int = 0) -> None:
        """Some in each turn, since one client can open a great many transactions."""
        work(every[at : at + IDS_PER_TURN])
        if len(every) > at + IDS_PER_TURN:
            self._call_later(0, lambda: self._in_slices(every, work, at + IDS_PER_TURN))

    def _remove_if_expired(self, some: Sequence[Found]) -> None:
        now_ms = self._clock.now_ms()
        by_shard: dict[TransactionShard, list[Held]] = {}
        for shard, held in some:
            if not shard.ledger.is_closed and held.machine.expire(now_ms, self.settings.id_expiration_ms):
                by_shard.setdefault(shard, []).append(held)
        for shard, expired in by_shard.items():
            for at in range(0, len(expired), TOMBSTONES_MAX):
                shard.ledger.bury(expired[at : at + TOMBSTONES_MAX])

    def _every(self, interval_ms: Callable[[], int], work: Callable[[], None]) -> None:
        def again() -> None:
            try:
                work()
            finally:
                self._every(interval_ms, work)

        self._call_later(interval_ms() / 1000, again)

    def _find(self, transactional_id: str) -> Found | int:
        """The id with its shard, or the error code of why there is none."""
        if not transactional_id:
            return INVALID_REQUEST
        shard = self.shards.get(transactional_id)
        if isinstance(shard, int):
            return shard
        held = shard.ledger.get(transactional_id)
        return INVALID_PRODUCER_ID_MAPPING if held is None else (shard, held)

    def _described(self, transactional_id: str) -> Mapping[str, object]:
        found = self._find(transactional_id)
        if not isinstance(found, int):
            return views.described(found[1].machine.current)
        code = TRANSACTIONAL_ID_NOT_FOUND if found == INVALID_PRODUCER_ID_MAPPING else found
        return views.not_described(transactional_id, code)

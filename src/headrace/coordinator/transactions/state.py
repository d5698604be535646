"""One transactional id, as a machine: what may happen to it, and what must be written down first. Sans-IO.

A transaction spans many partitions, and must become visible in all of them or in none. What makes it so is one
record: the moment `PrepareCommit` or `PrepareAbort` is durable in the journal, the outcome is decided and nothing can
change it. Before that moment a crash leads to abort (nobody has promised anything); after it, whoever loads the
journal goes on to write the markers, which are idempotent, and then `CompleteCommit` or `CompleteAbort`. So there is
no state in between, only one that is not finished yet.

Each change therefore has two halves. An event method decides and returns `Write` with the next `Transaction`, which
from now on is `pending`; the loop persists it and calls `written`, and only then is it `current` and may be answered;
or `failed`, and it never happened. While something is pending nothing else may begin: CONCURRENT_TRANSACTIONS. The
completion stays pending from the moment the outcome is decided until its record is written behind the markers.

A zombie is kept out by the epoch. InitProducerId gives a higher one, a transaction that takes too long is aborted
under a higher one, and (transaction version 2) each end of a transaction gives a higher one, so that a late batch of
the last transaction cannot slip into the next. Fencing an ongoing transaction is a step of its own,
`PrepareEpochFence`, which is never written: it goes straight on to `PrepareAbort`. Epochs end: the last one that a
client may hold is 32766, so that the coordinator can always fence it with 32767; then a new producer id begins at
epoch 0. Under version 2 that id is chosen when the outcome is written (`next_producer_id`) and taken into use when
the markers, which still bear the old one, are.

A client may retry an EndTxn whose answer it lost. Under version 1 the state tells (the same end again is fine).
Under version 2 the epoch does: one below the current one is a retry, the current one is a new transaction's end.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from headrace.coordinator.topic_view import TopicPartition
from headrace.coordinator.transactions.transaction import (
    CLIENT_EPOCH_MAX,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    VERSION_0,
    VERSION_2,
    Refuse,
    Transaction,
    TransactionState,
    Write,
    WriteMarkers,
)
from headrace.core.errors import InvariantError
from headrace.protocol.error_codes import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    NONE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
)

IDLE = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)  # no transaction is open; may expire
DECIDED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})

# From which states each may be reached. An abort out of an idle state ends a transaction of version 2 to which
# nothing was added: it has no markers, but it bumps the epoch.
LEGAL_PREVIOUS: Mapping[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: IDLE,
    TransactionState.ONGOING: IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: IDLE | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
    TransactionState.DEAD: IDLE,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset({TransactionState.ONGOING}),
}


NewProducerId = Callable[[], int]  # asked only where one is needed; may raise StorageError


class TransactionMachine:
    __slots__ = ("current", "pending")

    def __init__(self, current: Transaction) -> None:
        self.current = current
        self.pending: Transaction | None = None

    @classmethod
    def new(cls, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> "TransactionMachine":
        """Before its first InitProducerId: it has an id, and no epoch yet."""
        return cls(
            Transaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                timeout_ms=timeout_ms,
                partitions={},
                updated_ms=now_ms,
            )
        )

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    def init_producer_id(
        self, timeout_ms: int, expected: tuple[int, int] | None, now_ms: int, new_producer_id: NewProducerId
    ) -> Refuse | Write:
        """`expected` is the id and epoch that the producer believes it has, if it has any.

        An ongoing transaction is fenced and aborted first; the client asks again.
        """
        now = self.current
        if self.pending is not None:
            return Refuse(CONCURRENT_TRANSACTIONS)
        if expected is not None and not _may_be_of(expected, now):
            return Refuse(PRODUCER_FENCED)
        if now.state in DECIDED:
            return Refuse(CONCURRENT_TRANSACTIONS)
        if now.state is TransactionState.ONGOING:
            return self._fence(now_ms, new_producer_id)
        producer_id, epoch, last = now.producer_id, now.producer_epoch + 1, NO_EPOCH
        if expected is not None and now.producer_epoch != NO_EPOCH and expected[1] != now.producer_epoch:
            if expected[1] != now.last_producer_epoch:
                return Refuse(PRODUCER_FENCED)
            epoch, last = now.producer_epoch, now.last_producer_epoch  # the answer was lost: the same again
        else:
            if expected is not None:
                last = now.producer_epoch
            if now.epoch_exhausted:
                producer_id, epoch = new_producer_id(), 0
        return self._write(
            TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last,
            timeout_ms=timeout_ms,
            partitions={},
            started_ms=NO_TIME,
            updated_ms=now_ms,
        )

    def add_partitions(
        self, producer_id: int, epoch: int, added: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> Refuse | Write:
        now = self.current
        if self.pending is not None:
            return Refuse(CONCURRENT_TRANSACTIONS)
        code = self._of_another(producer_id, epoch)
        if code != NONE:
            return Refuse(code)
        if now.state in DECIDED:
            return Refuse(CONCURRENT_TRANSACTIONS)
        partitions = {**now.partitions, **dict.fromkeys(added)}
        if now.state is TransactionState.ONGOING and len(partitions) == len(now.partitions):
            return Refuse(NONE)
        return self._write(
            TransactionState.ONGOING,
            partitions=partitions,
            started_ms=now.started_ms if now.state is TransactionState.ONGOING else now_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )

    def verify(self, producer_id: int, epoch: int, partition: TopicPartition) -> int:
        """May this producer write to this partition now?

        What is pending is not asked: until the markers are written, a record still belongs to this transaction.
        """
        code = self._of_another(producer_id, epoch)
        if code != NONE:
            return code
        if self.current.state in DECIDED:
            return CONCURRENT_TRANSACTIONS
        return NONE if partition in self.current.partitions else TRANSACTION_ABORTABLE

    def end(
        self, producer_id: int, epoch: int, commit: bool, client_version: int, now_ms: int, new_id: NewProducerId
    ) -> Refuse | Write:
        """EndTxn of a client."""
        if client_version < VERSION_2:
            return self._end_same_epoch(producer_id, epoch, commit, now_ms)
        return self._end_next_epoch(producer_id, epoch, commit, now_ms, new_id)

    def time_out(self, now_ms: int, new_producer_id: NewProducerId) -> Write | None:
        """The abort of a transaction that has taken longer than its producer allowed; None if it has not."""
        now = self.current
        if (
            self.pending is not None
            or now.state is not TransactionState.ONGOING
            or now.started_ms + now.timeout_ms >= now_ms
        ):
            return None
        return self._fence(now_ms, new_producer_id)

    def expire(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether nobody has used this id for so long; if so it is dying: write a tombstone, then forget it."""
        now = self.current
        if self.pending is not None or now.state not in IDLE or now.updated_ms > now_ms - expiration_ms:
            return False
        self._write(TransactionState.DEAD, partitions={})
        return True

    # ── the other half ───────────────────────────────────────────────────────────────────────────────────────────

    def written(self, now_ms: int) -> WriteMarkers | None:
        """What was pending is durable. If an outcome is now decided, these are its markers."""
        if self.pending is None or self.pending.state is TransactionState.DEAD:
            raise InvariantError(f"{self.current.transactional_id}: written, but {self.pending} was pending")
        self.current, self.pending = self.pending, None
        return self.resume(now_ms)

    def failed(self) -> None:
        """What was pending could not be written: it never happened."""
        self.pending = None

    def resume(self, now_ms: int) -> WriteMarkers | None:
        """The markers that are still due, after a write or a load. From now on their completion is pending."""
        now = self.current
        if now.state not in DECIDED:
            return None
        commit = now.state is TransactionState.PREPARE_COMMIT
        replaced = now.client_version >= VERSION_2 and now.next_producer_id != NO_PRODUCER_ID
        complete = self._write(
            TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT,
            producer_id=now.next_producer_id if replaced else now.producer_id,
            producer_epoch=0 if replaced else now.producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions={},
            updated_ms=now_ms,
        )
        return WriteMarkers(now.producer_id, now.producer_epoch, commit, tuple(now.partitions), complete.next)

    # ── decisions ────────────────────────────────────────────────────────────────────────────────────────────────

    def _of_another(self, producer_id: int, epoch: int) -> int:
        if self.current.producer_id != producer_id:
            return INVALID_PRODUCER_ID_MAPPING
        return NONE if self.current.producer_epoch == epoch else PRODUCER_FENCED

    def _end_same_epoch(self, producer_id: int, epoch: int, commit: bool, now_ms: int) -> Refuse | Write:
        code = self._of_another(producer_id, epoch)
        if code != NONE:
            return Refuse(code)
        if self.pending is not None:
            return Refuse(CONCURRENT_TRANSACTIONS)
        state = self.current.state
        if state is TransactionState.ONGOING:
            return self._write(
                TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
                next_producer_id=NO_PRODUCER_ID,
                updated_ms=now_ms,
                client_version=VERSION_0,
            )
        if state is (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT):
            return Refuse(CONCURRENT_TRANSACTIONS)
        return Refuse(
            NONE
            if state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
            else INVALID_TXN_STATE
        )

    def _end_next_epoch(
        self, producer_id: int, epoch: int, commit: bool, now_ms: int, new_producer_id: NewProducerId
    ) -> Refuse | Write:
        now, state = self.current, self.current.state
        if self.pending is not None:
            return Refuse(CONCURRENT_TRANSACTIONS)
        replaced = (
            now.previous_producer_id == producer_id and epoch == CLIENT_EPOCH_MAX and now.producer_epoch == 0
        )  # a retry, after the end that gave a new producer id
        again = state not in (TransactionState.ONGOING, TransactionState.EMPTY) and (
            now.producer_epoch == epoch + 1 or replaced
        )
        if now.producer_id != producer_id and not replaced:
            return Refuse(INVALID_PRODUCER_ID_MAPPING)
        if not again and (now.producer_epoch != epoch or state in DECIDED):
            return Refuse(PRODUCER_FENCED)
        if state in DECIDED:
            return Refuse(
                CONCURRENT_TRANSACTIONS if commit == (state is TransactionState.PREPARE_COMMIT) else INVALID_TXN_STATE
            )
        if again:
            return Refuse(NONE if commit == (state is TransactionState.COMPLETE_COMMIT) else INVALID_TXN_STATE)
        if state is TransactionState.ONGOING:
            return self._decide(
                TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT, now_ms, new_producer_id
            )
        if commit:
            return Refuse(INVALID_TXN_STATE)
        return self._decide(TransactionState.PREPARE_ABORT, now_ms, new_producer_id)

    def _fence(self, now_ms: int, new_producer_id: NewProducerId) -> Write:
        """Ongoing → PrepareEpochFence → PrepareAbort: the abort's own bump of the epoch is the fence."""
        _check(self.current, TransactionState.PREPARE_EPOCH_FENCE)
        return self._decide(TransactionState.PREPARE_ABORT, now_ms, new_producer_id)

    def _decide(self, outcome: TransactionState, now_ms: int, new_producer_id: NewProducerId) -> Write:
        now = self.current
        return self._write(
            outcome,
            next_producer_id=new_producer_id() if now.epoch_exhausted else NO_PRODUCER_ID,
            producer_epoch=min(now.producer_epoch + 1, EPOCH_MAX),
            last_producer_epoch=now.producer_epoch,
            started_ms=now.started_ms if now.state is TransactionState.ONGOING else now_ms,
            updated_ms=now_ms,
            client_version=VERSION_2,
        )

    def _write(self, state: TransactionState, **changes: object) -> Write:
        if self.pending is not None:
            raise InvariantError(f"{self.current.transactional_id}: {state.label} while {self.pending} is pending")
        _check(self.current, state)
        previous = self.current.producer_id
        self.pending = replace(self.current, state=state, previous_producer_id=previous, **changes)  # type: ignore[arg-type]
        return Write(self.pending)


def _check(current: Transaction, state: TransactionState) -> None:
    if current.state not in LEGAL_PREVIOUS[state]:
        raise InvariantError(f"{current.transactional_id}: {state.label} cannot follow {current.state.label}")


def _may_be_of(expected: tuple[int, int], now: Transaction) -> bool:
    """Whether a producer with this id may go on: it is the current one, or a retry of getting a new one."""
    producer_id, epoch = expected
    return (
        now.producer_epoch == NO_EPOCH
        or producer_id == now.producer_id
        or (producer_id == now.previous_producer_id and epoch >= CLIENT_EPOCH_MAX)
    )

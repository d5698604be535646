"""A transaction as the journal keeps it, and what its machine (`state`) may ask to be done about it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from headrace.coordinator.topic_view import TopicPartition

NO_PRODUCER_ID, NO_EPOCH, NO_TIME = -1, -1, -1
EPOCH_MAX = (1 << 15) - 1  # only ever used to fence
CLIENT_EPOCH_MAX = EPOCH_MAX - 1
VERSION_0, VERSION_2 = 0, 2  # transaction.version: 2 bumps the epoch with each transaction (KIP-890)

Partitions = Mapping[TopicPartition, None]  # a set that keeps its order, and is never changed in place


class TransactionState(Enum):
    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"
    DEAD = 6, "Dead"
    PREPARE_EPOCH_FENCE = 7, "PrepareEpochFence"

    def __init__(self, number: int, label: str) -> None:
        self.number = number
        self.label = label


BY_NUMBER: Mapping[int, TransactionState] = {state.number: state for state in TransactionState}
BY_LABEL: Mapping[str, TransactionState] = {state.label: state for state in TransactionState}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What is known of a transactional id; all but the last epoch is in the journal."""

    transactional_id: str
    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID  # as of before the last change: the same one, unless it was replaced
    next_producer_id: int = NO_PRODUCER_ID  # takes over once the markers are written
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: Partitions
    started_ms: int = NO_TIME
    updated_ms: int
    client_version: int = VERSION_0

    @property
    def epoch_exhausted(self) -> bool:
        return self.producer_epoch >= CLIENT_EPOCH_MAX


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with this code at once. NONE: it is done already."""

    code: int


@dataclass(frozen=True, slots=True)
class Write:
    """Persist this, then call `written` or `failed`."""

    next: Transaction


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write these markers, then persist `complete`."""

    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    complete: Transaction

"""The transactional ids whose records are in one partition of `__transaction_state`, and who waits for one of them."""

from headrace.coordinator.deadlines import CallLater
from headrace.coordinator.journal import JournalRecord
from headrace.coordinator.journal_loading import Steps
from headrace.coordinator.shard_journal import ShardJournal
from headrace.coordinator.transactions.additions import Additions
from headrace.coordinator.transactions.ledger import TransactionLedger
from headrace.coordinator.transactions.markers import MarkerPort
from headrace.core.clock import Clock


class TransactionShard:
    """Made for each time in which this broker leads the partition, and never used again afterwards."""

    def __init__(
        self, journal: ShardJournal, epoch: int, clock: Clock, call_later: CallLater, markers: MarkerPort
    ) -> None:
        self.journal = journal
        self.ledger = TransactionLedger(journal, epoch, clock, call_later, markers)
        self.additions = Additions(self.ledger, clock, call_later)

    @property
    def epoch(self) -> int:
        return self.ledger.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        """A newer one of this broker's own: the markers that are written from now on bear it."""
        self.ledger.epoch = epoch

    def replay(self, record: JournalRecord) -> None:
        self.ledger.replay(record)

    def prepared(self) -> Steps:
        return self.ledger.prepared()

    def begun(self) -> Steps:
        return self.ledger.begun()

    def emptied(self) -> Steps:
        self.additions.close()
        yield from self.ledger.emptied()

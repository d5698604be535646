"""Makes the two coordinators of a broker, groups and transactions, over its internal topics, and sees to it that they
are in charge of what this broker leads: a partition of such a topic that is led here is loaded, one that is given up
is let go.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Mapping

from headrace.broker.cluster_transactions import RemoteTransactions
from headrace.broker.internal_topics import BrokerTopics, TopicJournal
from headrace.broker.local_markers import LocalMarkers
from headrace.broker.partition import Partition
from headrace.broker.shard_work import ShardWork
from headrace.broker.topic_controller import TopicController
from headrace.broker.topics import Topics
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.group_shard import FORGOTTEN_PER_STEP, GroupShard
from headrace.coordinator.groups import Groups
from headrace.coordinator.journal import AllOf, Done
from headrace.coordinator.journal_loading import Steps
from headrace.coordinator.placing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from headrace.coordinator.topic_view import TopicPartition
from headrace.coordinator.transactions.coordinator import Transactions
from headrace.coordinator.transactions.markers import MarkerPort, TransactionEnd
from headrace.coordinator.transactions.settings import TransactionSettings
from headrace.core.clock import Clock
from headrace.core.settings.broker import BrokerSettings
from headrace.log.partition_log import PartitionLog
from headrace.net.reactor import Reactor
from headrace.protocol.error_codes import NONE, NOT_COORDINATOR


class Coordination:
    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        controller: TopicController,
        clock: Clock,
        reactor: Reactor,
        producer_ids: Callable[[], int],
        *,
        is_serving: bool,
        markers: Callable[[MarkerPort], MarkerPort] = lambda local: local,
        elsewhere: RemoteTransactions | None = None,
    ) -> None:
        """`is_serving`: clients are connected already, and must not wait until all is loaded. `markers` reaches
        partitions of other brokers, too, and `elsewhere` their coordinators."""
        self._topics = topics

        def journal(name: str, partition_count: int, segment_bytes: int) -> TopicJournal:
            return TopicJournal(name, partition_count, segment_bytes, topics, controller, clock, epoch_is_committed)

        self._offsets = journal(
            OFFSETS_TOPIC, settings.offsets_topic_num_partitions, settings.offsets_topic_segment_bytes
        )
        self._journal = journal(
            TRANSACTIONS_TOPIC,
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_segment_bytes,
        )
        self._work = ShardWork(reactor.call_soon, reactor.call_later, is_serving=is_serving)
        self.groups = Groups(self._offsets, clock, reactor.call_later, _group_settings(settings), BrokerTopics(topics))
        self._elsewhere = elsewhere
        self._local_markers = LocalMarkers(topics, clock, self.groups.transaction_ended)
        self.transactions = Transactions(
            self._journal,
            clock,
            reactor.call_later,
            _transaction_settings(settings),
            producer_ids,
            markers(self._local_markers),
            lambda group_id: partition_for(group_id, self._offsets.partition_count),
        )

    def start(self) -> None:
        """Once: what this broker leads already is loaded, and what was left to be done there is done."""
        self.groups.start()
        self.transactions.start()
        for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
            topic = self._topics.get(name)
            for partition in topic.partitions if topic is not None else ():
                self.follow(partition)

    # ── who is in charge ─────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, partition: Partition, *, is_deleted: bool = False) -> None:
        """A partition of an internal topic has the role that it has now, or is gone with its topic."""
        coordinator = self.groups if partition.topic == OFFSETS_TOPIC else self.transactions
        if is_deleted:
            self._work.begin(coordinator.unload(partition.index, None))
        elif partition.led is not None:
            self._work.begin(coordinator.load(partition.index, partition.leader_epoch))
        else:
            self._work.begin(coordinator.unload(partition.index, partition.leader_epoch))

    # ── records ──────────────────────────────────────────────────────────────────────────────────────────────────

    def end_of_turn(self) -> None:
        """What the coordinators wrote down in this turn goes to the logs."""
        self._offsets.end_of_turn()
        self._journal.end_of_turn()

    @property
    def has_gathered(self) -> bool:
        return self._offsets.has_gathered or self._journal.has_gathered

    # ── the internal topics ──────────────────────────────────────────────────────────────────────────────────────

    def make_topic(self, name: str) -> None:
        """One of the two internal topics, if it is not there yet; StorageError if it cannot be made."""
        (self._offsets if name == OFFSETS_TOPIC else self._journal).make()

    def why_absent(self, name: str, key: str) -> str:
        """Why the log of a group or a transactional id, by the internal topic that has it, cannot be read; empty if it
        can."""
        lost = (self.groups if name == OFFSETS_TOPIC else self.transactions).shards.lost
        return lost.get(self.partition_of(name, key), "") if lost else ""

    def partition_of(self, name: str, key: str) -> int:
        """The partition of an internal topic whose leader is the coordinator of a group or a transactional id."""
        journal = self._offsets if name == OFFSETS_TOPIC else self._journal
        return partition_for(key, journal.partition_count)

    def damage(self) -> Mapping[str, object]:
        """What could not be read of the internal topics, as metrics."""
        skipped = {OFFSETS_TOPIC: self._offsets.skipped_records, TRANSACTIONS_TOPIC: self._journal.skipped_records}
        lost = {OFFSETS_TOPIC: self.groups.shards.lost, TRANSACTIONS_TOPIC: self.transactions.shards.lost}
        return {
            "internal_records_skipped": {(name,): count for name, count in skipped.items()},
            "coordinator_partitions_lost": {(name,): len(each) for name, each in lost.items()},
        }

    # ── topics that are deleted ──────────────────────────────────────────────────────────────────────────────────

    def topics_deleted(self, names: Container[str], done: Done) -> Generator[None, None, None]:
        """Offsets of a topic that is gone mean nothing, and must not be found if one of that name is made again. `done`
        when that is written down."""
        waiting = AllOf(done)
        shards = self.groups.shards
        for partition in shards.loading():
            waiting.expect()
            shards.when_loaded(partition, lambda shard: self._work.begin(_forgetting(shard, names, waiting)))
        for shard in shards.all():
            yield from shard.forget_topics(names, waiting)
        waiting.told(None)

    # ── transactions that are coordinated here or elsewhere ──────────────────────────────────────────────────────

    def ask_transaction(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        decided: Callable[[int], None],
        *,
        adds: bool,
    ) -> None:
        """Whether these partitions are in the open transaction of that producer, with `adds` from now on; as an error
        code for all of them."""
        producer = (transactional_id, producer_id, producer_epoch)
        elsewhere = self._elsewhere
        if elsewhere is not None and self.transactions.verify(*producer, *partitions[0]) == NOT_COORDINATOR:
            elsewhere.ask(*producer, partitions, decided, adds=adds)
        elif adds:
            self.transactions.add_implicitly(*producer, partitions, decided)
        else:
            codes = [self.transactions.verify(*producer, *each) for each in partitions]
            decided(next((code for code in codes if code != NONE), NONE))

    def verify_again(self, transactional_id: str, producer_id: int, epoch: int, topic: str, index: int) -> int:
        """Of what was verified a moment ago. Another broker is not asked again."""
        code = self.transactions.verify(transactional_id, producer_id, epoch, topic, index)
        return NONE if code == NOT_COORDINATOR and self._elsewhere is not None else code

    # ── markers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def write_marker(self, end: TransactionEnd, topic: str, index: int, done: Done) -> None:
        """The end of a transaction in one partition, as somebody else decided it; `done` once it is durable."""
        self._local_markers.write(end, [(topic, index)], done)


def epoch_is_committed(log: PartitionLog) -> bool:
    """Whether all that was written before this broker began to lead is on every replica in sync: what is not may yet
    be lost with this broker. Alone, it is at once."""
    starts: Iterable[int] = (start for epoch, start in log.epochs.entries if epoch == log.leader_epoch)
    return log.high_watermark >= next(iter(starts), log.end_offset)


def _forgetting(shard: GroupShard | None, names: Container[str], waiting: AllOf) -> Steps:
    """None: its groups are another broker's."""
    if shard is not None:
        for _ in shard.forget_topics(names, waiting):
            yield FORGOTTEN_PER_STEP
    waiting.told(None)


def _group_settings(settings: BrokerSettings) -> GroupSettings:
    return GroupSettings(
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        max_size=settings.group_max_size,
        pending_members_max=settings.group_pending_members_max,
        pending_members_total_max=settings.group_pending_members_total_max,
        member_metadata_bytes_max=settings.group_member_metadata_bytes_max,
        group_metadata_bytes_max=settings.group_metadata_bytes_max,
        total_metadata_bytes_max=settings.group_metadata_bytes_total_max,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=settings.offsets_retention_check_interval_ms,
        offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
        consumer_heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
        consumer_session_timeout_ms=settings.group_consumer_session_timeout_ms,
        consumer_assignment_interval_ms=settings.group_consumer_assignment_interval_ms,
        consumer_max_size=settings.group_consumer_max_size,
        consumer_assignors=settings.group_consumer_assignors,
        consumer_migration_policy=settings.group_consumer_migration_policy,
    )


def _transaction_settings(settings: BrokerSettings) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=settings.transaction_max_timeout_ms,
        id_expiration_ms=settings.transactional_id_expiration_ms,
        abort_check_interval_ms=settings.transaction_abort_check_interval_ms,
        expire_check_interval_ms=settings.transaction_expire_check_interval_ms,
        ids_max=settings.transactional_ids_max,
    )

"""Makes the two coordinators of a broker, groups and transactions, over its internal topics."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Mapping
from typing import Final

from headrace.broker.internal_topics import AllOf, BrokerTopics, Markers, TopicJournal
from headrace.broker.standalone import StandaloneController
from headrace.broker.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.broker.topics import Topics
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.groups import Groups
from headrace.coordinator.journal import Done
from headrace.coordinator.offsets.store import TopicPartition
from headrace.coordinator.placing import partition_for
from headrace.coordinator.transactions.coordinator import Transactions
from headrace.coordinator.transactions.settings import TransactionSettings
from headrace.core.clock import Clock
from headrace.core.settings.broker import BrokerSettings
from headrace.log.transactions import Marker
from headrace.net.reactor import Reactor

OFFSETS_PER_STEP: Final = 32  # of a deleted topic, that are forgotten at once


class Coordination:
    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        controller: StandaloneController,
        clock: Clock,
        reactor: Reactor,
        producer_ids: Callable[[], int],
    ) -> None:
        self._offsets = TopicJournal(
            OFFSETS_TOPIC,
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_segment_bytes,
            topics,
            controller,
            clock,
        )
        self._journal = TopicJournal(
            TRANSACTIONS_TOPIC,
            settings.transaction_state_log_num_partitions,
            settings.transaction_state_log_segment_bytes,
            topics,
            controller,
            clock,
        )
        self._markers = Markers(topics, clock)
        self.groups = Groups(self._offsets, clock, reactor.call_later, _group_settings(settings), BrokerTopics(topics))
        self.transactions = Transactions(
            self._journal,
            clock,
            reactor.call_later,
            _transaction_settings(settings),
            producer_ids,
            self._write_markers,
            lambda group_id: partition_for(group_id, self._offsets.partition_count),
        )

    def load(self) -> None:
        """What was decided before the last stop, and what was left to be done then."""
        self.groups.load()
        self.transactions.load()
        self.transactions.start()

    def end_of_turn(self) -> None:
        """What the coordinators wrote down in this turn goes to the logs."""
        self._offsets.end_of_turn()
        self._journal.end_of_turn()

    @property
    def has_gathered(self) -> bool:
        return self._offsets.has_gathered or self._journal.has_gathered

    def make_topic(self, name: str) -> None:
        """One of the two internal topics, if it is not there yet; StorageError if it cannot be made."""
        (self._offsets if name == OFFSETS_TOPIC else self._journal).make()

    def why_absent(self, name: str, key: str) -> str:
        """Why a group or a transactional id, by the internal topic that has it, has no coordinator; empty if it has."""
        journal = self._offsets if name == OFFSETS_TOPIC else self._journal
        lost = journal.lost_partitions
        return lost.get(partition_for(key, journal.partition_count), "") if lost else ""

    def partition_of(self, name: str, key: str) -> int:
        """The partition of an internal topic whose leader is the coordinator of a group or a transactional id."""
        journal = self._offsets if name == OFFSETS_TOPIC else self._journal
        return partition_for(key, journal.partition_count)

    def damage(self) -> Mapping[str, object]:
        """What could not be read of the internal topics, as metrics."""
        journals = {OFFSETS_TOPIC: self._offsets, TRANSACTIONS_TOPIC: self._journal}
        return {
            "internal_records_skipped": {(name,): each.skipped_records for name, each in journals.items()},
            "coordinator_partitions_lost": {(name,): len(each.lost_partitions) for name, each in journals.items()},
        }

    def topics_deleted(self, names: Container[str], done: Done) -> Generator[None, None, None]:
        """Offsets of a topic that is gone mean nothing, and must not be found if one of that name is made again. `done`
        when that is written down."""
        waiting = AllOf(done)
        found = yield from self.groups.offsets.partitions_of_topics(names)
        for group_id, partitions in found.items():
            for first in range(0, len(partitions), OFFSETS_PER_STEP):
                waiting.expect()
                self._forget_offsets(group_id, partitions[first : first + OFFSETS_PER_STEP], waiting.told)
                yield
        waiting.told(None)

    def _forget_offsets(self, group_id: str, partitions: list[TopicPartition], done: Done) -> None:
        store = self.groups.offsets

        def written(error: Exception | None) -> None:
            if error is None:
                store.forget(group_id, partitions)
            done(error)

        records = store.delete_records(group_id, partitions)
        if records:
            self._offsets.append(partition_for(group_id, self._offsets.partition_count), records, written)
        else:
            done(None)

    def write_marker(self, marker: Marker, topic: str, index: int, done: Done) -> None:
        """The end of a transaction in one partition, as somebody else decided it; `done` once it is durable."""
        partitions = [(topic, index)]
        self._write_markers(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.commit, partitions, done
        )

    def _write_markers(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        partitions: list[tuple[str, int]],
        done: Done,
    ) -> None:
        def written(error: Exception | None) -> None:
            if error is None:
                for topic, index in partitions:
                    if topic == OFFSETS_TOPIC:
                        self.groups.transaction_ended(producer_id, index, commit)
            done(error)

        self._markers.write(producer_id, producer_epoch, coordinator_epoch, commit, partitions, written)


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

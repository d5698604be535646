"""The internal topics as journals: where the coordinators write down what they decide.

A topic is made when somebody first asks for its coordinator, so a broker that nobody uses for groups has none. What
one turn appends to a partition becomes one batch: staged at the end of the turn, written, then told.
"""

from __future__ import annotations

import functools
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.journal_reader import LogJournalReader
from headrace.broker.topic_config import internal_overrides
from headrace.coordinator.journal import Done, Pair
from headrace.core.clock import Clock
from headrace.core.errors import InvariantError, PeerError, StorageError
from headrace.core.telemetry import event, failure
from headrace.protocol.records import build_plain_batch

if TYPE_CHECKING:
    from headrace.broker.topic_controller import TopicController
    from headrace.broker.topics import Topics
    from headrace.log.partition_log import PartitionLog


BATCH_RECORDS_MAX: Final = 1_000

logger = logging.getLogger(__name__)


class Told:
    """Someone who wants to know when a batch of our own is written."""

    __slots__ = ("_done",)

    def __init__(self, done: Done) -> None:
        self._done = done

    def written(self, log: PartitionLog) -> None:
        """Others do not have it yet: there is nothing to say."""

    def done(self, log: PartitionLog, error: Exception | None) -> None:
        self._done(error)


class _All:
    """Everyone whose records are in one batch. A class, since a function inside a compiled one refers to itself: what
    it holds would wait for the garbage collector."""

    __slots__ = ("_dones",)

    def __init__(self, dones: list[Done]) -> None:
        self._dones = dones

    def __call__(self, error: Exception | None) -> None:
        for done in self._dones:
            try:
                done(error)
            except Exception as failed:
                if isinstance(failed, InvariantError):
                    raise
                failure(logger, "what follows a coordinator's record failed", failed)


class TopicJournal:
    def __init__(
        self,
        name: str,
        partition_count: int,
        segment_bytes: int,
        topics: Topics,
        controller: TopicController,
        clock: Clock,
        is_settled: Callable[[PartitionLog], bool],
    ) -> None:
        """`is_settled`: whether what earlier leaders wrote to a log is committed, so that it may be acted on."""
        self._name = name
        self._topics = topics
        self._controller = controller
        self._clock = clock
        self._is_settled = is_settled
        self._wanted_count = partition_count
        self._gathered: dict[int, tuple[list[Pair], list[Done]]] = {}  # by partition: what this turn appended
        self.skipped_records = 0
        self._overrides = internal_overrides(segment_bytes)

    @property
    def partition_count(self) -> int:
        topic = self._topics.get(self._name)
        return len(topic.partitions) if topic is not None else self._wanted_count

    def make(self) -> None:
        if self._topics.get(self._name) is not None:
            return
        try:
            self._controller.create(self._name, self._wanted_count, self._overrides)
        except PeerError as error:
            raise StorageError(f"{self._name} could not be made: {error.message}") from error

    def _log(self, partition: int) -> PartitionLog:
        found = self._topics.partition(self._name, partition)
        if found is None:
            raise StorageError(f"{self._name}-{partition}: there is no such partition")
        if found.led is None:
            raise StorageError(found.refusal().message)
        return found.led

    def append(
        self, partition: int, records: Sequence[Pair], done: Done, *, producer: tuple[int, int] | None = None
    ) -> None:
        if producer is not None:
            self._stage_gathered(partition)  # what was appended before stands before
            self._stage(partition, records, done, producer)
            return
        pairs, dones = self._gathered.setdefault(partition, ([], []))
        pairs += records
        dones.append(done)
        if len(pairs) >= BATCH_RECORDS_MAX:
            self._stage_gathered(partition)

    @property
    def has_gathered(self) -> bool:
        return bool(self._gathered)

    def end_of_turn(self) -> None:
        for partition in list(self._gathered):
            self._stage_gathered(partition)

    def _stage_gathered(self, partition: int) -> None:
        gathered = self._gathered.pop(partition, None)
        if gathered is not None:
            pairs, dones = gathered
            self._stage(partition, pairs, _All(dones), None)

    def _stage(self, partition: int, records: Sequence[Pair], done: Done, producer: tuple[int, int] | None) -> None:
        now_ms = self._clock.now_ms()
        batch = build_plain_batch(
            records,
            now_ms,
            producer_id=producer[0] if producer else -1,
            producer_epoch=producer[1] if producer else -1,
            transactional=producer is not None,
        )
        try:
            self._log(partition).appender.stage_own(batch, now_ms, Told(done))
        except StorageError as error:
            done(error)
        except OSError as error:
            done(StorageError(f"{self._name}-{partition}: {error.strerror or error}"))
        except Exception as error:
            if isinstance(error, InvariantError):
                raise
            failure(logger, "coordinator's record could not be staged", error, topic=self._name, partition=partition)
            done(StorageError(f"{self._name}-{partition}: {error}"))

    # ── taking over, and giving up ───────────────────────────────────────────────────────────────────────────────

    def reader(self, partition: int) -> LogJournalReader:
        return LogJournalReader(self._log(partition), functools.partial(self.skipped, partition))

    def is_ready(self, partition: int) -> bool:
        log = self._log(partition)
        return log.next_offset == log.end_offset and self._is_settled(log)

    def let_go(self, partition: int) -> None:
        pairs_and_dones = self._gathered.pop(partition, None)
        if pairs_and_dones is not None:
            _All(pairs_and_dones[1])(StorageError(f"{self._name}-{partition}: this broker does not lead it any more"))

    def skipped(self, partition: int, offset: int, error: Exception) -> None:
        self.skipped_records += 1
        message = "record of an internal topic skipped: it cannot be read"
        event(logger, logging.WARNING, message, topic=self._name, partition=partition, offset=offset, error=error)

    def lost(self, partition: int, error: Exception) -> None:
        message = "partition of an internal topic cannot be read: what belongs to it has no coordinator"
        event(logger, logging.ERROR, message, topic=self._name, partition=partition, error=error)


class BrokerTopics:
    """The broker's topics, as its coordinators may see them."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    @property
    def revision(self) -> int:
        return self._topics.revision

    def partition_count(self, topic: str) -> int | None:
        found = self._topics.get(topic)
        return len(found.partitions) if found is not None else None

    def topic_id(self, topic: str) -> uuid.UUID | None:
        found = self._topics.get(topic)
        return found.id if found is not None else None

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        found = self._topics.by_id(topic_id)
        return found.name if found is not None else None

    def all_topics(self) -> Iterable[str]:
        return [topic.name for topic in self._topics.all()]

"""The internal topics as journals: where the coordinators write down what they decide.

A topic is made when somebody first asks for its coordinator, so a broker that nobody uses for groups has none. What
one turn appends to a partition becomes one batch: staged at the end of the turn, written, then told.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from headrace.coordinator.journal import ABORT, COMMIT, Done, JournalRecord, Pair
from headrace.core.clock import Clock
from headrace.core.errors import PeerError, StorageError
from headrace.log.recovery import segment_headers
from headrace.log.transactions import Marker, build_marker, read_marker
from headrace.protocol.batch import CONTROL
from headrace.protocol.records import build_plain_batch, iter_records

if TYPE_CHECKING:
    from headrace.broker.topics import Topic, Topics
    from headrace.log.partition_log import PartitionLog


BATCH_RECORDS_MAX: Final = 1_000


class _Told:
    """Someone who wants to know when a batch of our own is written."""

    __slots__ = ("_done",)

    def __init__(self, done: Done) -> None:
        self._done = done

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
            done(error)


class TopicJournal:
    def __init__(self, name: str, partition_count: int, segment_bytes: int, topics: Topics, clock: Clock) -> None:
        self._name = name
        self._topics = topics
        self._clock = clock
        self._wanted_count = partition_count
        self._gathered: dict[int, tuple[list[Pair], list[Done]]] = {}  # by partition: what this turn appended
        self._gathered_count = partition_count  # of partitions, when the first of it was appended
        self._overrides = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(segment_bytes),
        }

    @property
    def partition_count(self) -> int:
        topic = self._topics.get(self._name)
        return len(topic.partitions) if topic is not None else self._wanted_count

    def make(self) -> Topic:
        topic = self._topics.get(self._name)
        if topic is not None:
            return topic
        try:
            return self._topics.create(self._name, self._wanted_count, self._overrides)
        except PeerError as error:
            raise StorageError(f"{self._name} could not be made: {error.message}") from error

    def _log(self, partition: int) -> PartitionLog:
        partitions = self.make().partitions
        if len(partitions) != self._gathered_count:
            # A client made the topic in this turn, after the partition had been chosen by another number of them.
            raise StorageError(f"{self._name}: has {len(partitions)} partitions, not {self._gathered_count}; try again")
        log = partitions[partition].log
        if log is None:
            raise StorageError(f"{self._name}-{partition}: its log directory is offline")
        return log

    def append(
        self, partition: int, records: Sequence[Pair], done: Done, *, producer: tuple[int, int] | None = None
    ) -> None:
        if not self._gathered:
            self._gathered_count = self.partition_count
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
            self._log(partition).stage_own(batch, now_ms, _Told(done))
        except StorageError as error:
            done(error)
        except OSError as error:
            done(StorageError(f"{self._name}-{partition}: {error.strerror or error}"))

    def read_all(self, partition: int) -> Iterator[JournalRecord]:
        topic = self._topics.get(self._name)
        log = topic.partitions[partition].log if topic is not None else None
        if log is None:
            return
        for segment in log.segments:
            for header, position in segment_headers(segment, 0):
                if header.last_offset < log.start_offset:
                    continue
                producer = (header.producer_id, header.producer_epoch)
                batch = log.read_batch_at(segment, position, header.size)
                if header.attributes & CONTROL:
                    marker = read_marker(batch, *producer)
                    if marker is not None:
                        kind = COMMIT if marker.commit else ABORT
                        yield JournalRecord(b"", None, header.base_offset, header.max_timestamp, *producer, True, kind)
                    continue
                for record in iter_records(batch):
                    if record.key is not None:
                        yield JournalRecord(record.key, record.value, record.offset, record.timestamp, *producer)


class Markers:
    """Writes the ends of transactions to the partitions that took part in them."""

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock

    def write(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        partitions: Iterable[tuple[str, int]],
        done: Done,
    ) -> None:
        """`done` is called once, when all are durable or one could not be written. Deleted topics are left out."""
        marker = Marker(producer_id, producer_epoch, coordinator_epoch, commit)
        waiting = _AllOf(done)
        now_ms = self._clock.now_ms()
        for topic, index in partitions:
            partition = self._topics.partition(topic, index)
            if partition is None:
                continue
            waiting.expect()
            if partition.log is None:
                waiting.told(StorageError(f"{topic}-{index}: its log directory is offline"))
                continue
            try:
                partition.log.stage_own(build_marker(marker, now_ms), now_ms, _Told(waiting.told), marker)
            except OSError as error:
                waiting.told(StorageError(f"{topic}-{index}: {error.strerror or error}"))
        waiting.told(None)


class _AllOf:
    """Calls back once, when all that was expected has been told; with the first error, if there was one."""

    __slots__ = ("_done", "_error", "_left")

    def __init__(self, done: Done) -> None:
        self._done = done
        self._left = 1
        self._error: Exception | None = None

    def expect(self) -> None:
        self._left += 1

    def told(self, error: Exception | None) -> None:
        self._error = self._error or error
        self._left -= 1
        if self._left == 0:
            self._done(self._error)


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

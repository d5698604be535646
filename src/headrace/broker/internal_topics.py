"""The internal topics as journals: where the coordinators write down what they decide.

A topic is made when somebody first asks for its coordinator, so a broker that nobody uses for groups has none. What
one turn appends to a partition becomes one batch: staged at the end of the turn, written, then told.
"""

from __future__ import annotations

import logging
import struct
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.topic_config import internal_overrides
from headrace.coordinator.journal import ABORT, COMMIT, Done, JournalRecord, Pair
from headrace.core.clock import Clock
from headrace.core.errors import InvariantError, PeerError, StorageError
from headrace.core.telemetry import event, failure
from headrace.log import detour
from headrace.log.scanning import scan
from headrace.log.transactions import Marker, build_marker, read_marker
from headrace.protocol.batch import CONTROL, BatchHeader
from headrace.protocol.records import build_plain_batch, iter_records

if TYPE_CHECKING:
    from headrace.broker.standalone import StandaloneController
    from headrace.broker.topics import Topic, Topics
    from headrace.log.partition_log import PartitionLog


BATCH_RECORDS_MAX: Final = 1_000

logger = logging.getLogger(__name__)


class _Told:
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
        controller: StandaloneController,
        clock: Clock,
    ) -> None:
        self._name = name
        self._topics = topics
        self._controller = controller
        self._clock = clock
        self._wanted_count = partition_count
        self._gathered: dict[int, tuple[list[Pair], list[Done]]] = {}  # by partition: what this turn appended
        self.skipped_records = 0
        self.lost_partitions: dict[int, str] = {}  # and why
        self._gathered_count = partition_count  # of partitions, when the first of it was appended
        self._overrides = internal_overrides(segment_bytes)

    @property
    def partition_count(self) -> int:
        topic = self._topics.get(self._name)
        return len(topic.partitions) if topic is not None else self._wanted_count

    def make(self) -> Topic:
        topic = self._topics.get(self._name)
        if topic is not None:
            return topic
        try:
            return self._controller.create(self._name, self._wanted_count, self._overrides)
        except PeerError as error:
            raise StorageError(f"{self._name} could not be made: {error.message}") from error

    def _log(self, partition: int) -> PartitionLog:
        partitions = self.make().partitions
        if len(partitions) != self._gathered_count:
            # A client made the topic in this turn, after the partition had been chosen by another number of them.
            raise StorageError(f"{self._name}: has {len(partitions)} partitions, not {self._gathered_count}; try again")
        log = partitions[partition].led
        if log is None:
            raise StorageError(partitions[partition].refusal().message)
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
            self._log(partition).appender.stage_own(batch, now_ms, _Told(done))
        except StorageError as error:
            done(error)
        except OSError as error:
            done(StorageError(f"{self._name}-{partition}: {error.strerror or error}"))
        except Exception as error:
            if isinstance(error, InvariantError):
                raise
            failure(logger, "coordinator's record could not be staged", error, topic=self._name, partition=partition)
            done(StorageError(f"{self._name}-{partition}: {error}"))

    def read_all(self, partition: int) -> Iterator[JournalRecord]:
        """StorageError where a batch is damaged: what stands behind it may depend on it."""
        topic = self._topics.get(self._name)
        if topic is None:
            return
        log = topic.partitions[partition].led
        if log is None:
            raise StorageError(topic.partitions[partition].refusal().message)
        for entry in log.directory.damage.entries:
            # The start found it, and may have cut it: what was decided there is not known.
            if entry.log == log.name and entry.path != log.path:
                raise StorageError(
                    f"{entry.text}; stop the broker, and restore {log.path} from a backup or run `headrace log repair"
                    f" {log.directory.path}`, which says what is lost"
                )
        for segment in log.segments:
            end = 0
            for header, position in scan(segment, log.files, 0, segment.size, verify=True) if segment.size else ():
                end = position + header.size
                if header.last_offset >= log.start_offset:
                    yield from self._read_batch(partition, header, log.read_batch_at(segment, position, header.size))
            if end != segment.size:
                detour.survey_now(log, segment)  # so that metrics and /health know, too
                raise StorageError(
                    f"{segment.log_path}: no whole batch with the right checksum at byte {end} of {segment.size}; stop"
                    f" the broker, and restore {log.path} from a backup or run `headrace log repair"
                    f" {log.directory.path}`, which says what is lost"
                )

    def _read_batch(self, partition: int, header: BatchHeader, batch: bytes) -> Iterator[JournalRecord]:
        producer = (header.producer_id, header.producer_epoch)
        at = header.base_offset
        found: list[JournalRecord] = []
        try:
            if header.attributes & CONTROL:
                marker = read_marker(batch, *producer)
                if marker is not None:
                    kind = COMMIT if marker.commit else ABORT
                    found.append(JournalRecord(b"", None, at, header.max_timestamp, *producer, True, kind))
                return iter(found)
            for record in iter_records(batch):
                at = record.offset
                if record.key is None:
                    self.skipped(partition, at, ValueError("it has no key"))
                else:
                    found.append(JournalRecord(record.key, record.value, at, record.timestamp, *producer))
                at += 1
        except (PeerError, ValueError, struct.error) as error:  # a whole batch whose records make no sense
            self.skipped(partition, at, error)
        return iter(found)

    def skipped(self, partition: int, offset: int, error: Exception) -> None:
        self.skipped_records += 1
        message = "record of an internal topic skipped: it cannot be read"
        event(logger, logging.WARNING, message, topic=self._name, partition=partition, offset=offset, error=error)

    def lost(self, partition: int, error: Exception) -> None:
        self.lost_partitions[partition] = str(error)
        message = "partition of an internal topic cannot be read: what belongs to it has no coordinator"
        event(logger, logging.ERROR, message, topic=self._name, partition=partition, error=error)


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
        waiting = AllOf(done)
        now_ms = self._clock.now_ms()
        for topic, index in partitions:
            partition = self._topics.partition(topic, index)
            if partition is None:
                continue
            waiting.expect()
            log = partition.led
            if log is None:
                waiting.told(StorageError(partition.refusal().message))
                continue
            try:
                log.appender.stage_own(build_marker(marker, now_ms), now_ms, _Told(waiting.told), marker)
            except OSError as error:
                waiting.told(StorageError(f"{topic}-{index}: {error.strerror or error}"))
        waiting.told(None)


class AllOf:
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

"""The topics of this broker: which there are, what they are set to, and which partitions they have.

The one owner of the topic table. A change is checked, written to the catalog, done to the logs, and then
seen, in that order, so that a crash at any point leaves a catalog whose promise the next start keeps: a
topic that is listed has all its partitions, and of a topic that was deleted nothing comes back. What takes
long with many partitions is a generator that yields where others may be served; a topic that one of them is
at cannot be changed by another meanwhile.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.broker import strays, topic_config
from headrace.broker.answer_cache import AnswerCache
from headrace.broker.catalog import Catalog, TopicEntry
from headrace.broker.partition import Partition
from headrace.broker.steps import finish
from headrace.broker.topic_names import INTERNAL, check_collision, check_name, folded
from headrace.core.errors import PeerError, StorageError
from headrace.core.settings.broker import BrokerSettings
from headrace.log.config import LogConfig
from headrace.log.store import LogStore
from headrace.protocol import error_codes

LOGS_PER_STEP = 4

_log = logging.getLogger(__name__)


class Topic:
    __slots__ = ("config", "id", "internal", "name", "overrides", "partitions")

    def __init__(self, name: str, topic_id: uuid.UUID, overrides: Mapping[str, str], config: LogConfig) -> None:
        self.name = name
        self.id = topic_id
        self.overrides = dict(overrides)
        self.config = config
        self.internal = name in INTERNAL
        self.partitions: list[Partition] = []

    def entry(self) -> TopicEntry:
        return TopicEntry(name=self.name, id=self.id, partition_count=len(self.partitions), overrides=self.overrides)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic that was checked and may be made."""

    name: str
    id: uuid.UUID
    partition_count: int
    overrides: dict[str, str]


class Topics:
    def __init__(self, catalog: Catalog, store: LogStore, settings: BrokerSettings) -> None:
        self.revision = 0
        self.on_deleted: Callable[[Sequence[Topic]], Iterable[None]] = lambda topics: ()  # in steps
        self._catalog = catalog
        self._store = store
        self._settings = settings
        self.by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._by_wire_id: dict[bytes, Topic] = {}  # the same, as Produce and Fetch have ids on the wire
        self._by_folded: dict[str, str] = {}
        self._changing: set[str] = set()  # topics that are made, grown or deleted in steps
        self._changing_folded: dict[str, str] = {}
        self._configs: dict[frozenset[tuple[str, str]], LogConfig] = {}
        self.metadata_answers = AnswerCache()
        self.packs_anew = False  # some topic has a compression of its own

    def load(self) -> None:
        """The topics of the catalog, with the logs that the store found. Once, at start."""
        strays.sort_out(self._catalog, self._store, self._settings)
        for entry in self._catalog.topics.values():
            topic = Topic(entry.name, entry.id, entry.overrides, self._config(entry.overrides))
            self._find_partitions(topic, entry.partition_count)
            self._add(topic)
        self.revision += 1

    # ── looking up ──────────────────────────────────────────────────────────────────────────────────────────

    def get(self, name: str) -> Topic | None:
        return self.by_name.get(name)

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def by_wire_id(self, topic_id: bytes) -> Topic | None:
        return self._by_wire_id.get(topic_id)

    def all(self) -> Iterable[Topic]:
        return self.by_name.values()

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self.by_name.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    # ── changing ────────────────────────────────────────────────────────────────────────────────────────────

    def plan(self, name: str, partition_count: int, overrides: Mapping[str, str | None]) -> NewTopic:
        """A new topic, checked and not yet made. Raises `PeerError` with Kafka's code and words."""
        check_name(name)
        if name in self.by_name or name in self._changing:
            raise PeerError(error_codes.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        alike = folded(name)
        check_collision(name, self._by_folded.get(alike) or self._changing_folded.get(alike))
        checked = topic_config.check(overrides, self._settings)
        if partition_count <= 0:
            why = "Number of partitions was set to an invalid non-positive value."
            raise PeerError(error_codes.INVALID_PARTITIONS, why)
        return NewTopic(name=name, id=_new_id(), partition_count=partition_count, overrides=checked)

    def make(self, planned: Sequence[NewTopic]) -> list[Topic | PeerError]:
        return finish(self.make_in_steps(planned))

    def make_in_steps(self, planned: Sequence[NewTopic]) -> Generator[None, None, list[Topic | PeerError]]:
        """Makes them all, with one fsync of the catalog. One whose logs cannot be made is taken back."""
        entries = [
            TopicEntry(name=new.name, id=new.id, partition_count=new.partition_count, overrides=new.overrides)
            for new in planned
        ]
        names = {new.name for new in planned}
        self._begin(names)
        made: list[Topic | PeerError] = []
        try:
            self._record(lambda: self._catalog.put_topics(entries))
            for new in planned:
                topic = Topic(new.name, new.id, new.overrides, self._config(new.overrides))
                try:
                    yield from self._add_partitions(topic, new.partition_count)
                except StorageError as error:
                    self._record(lambda name=new.name: self._catalog.delete_topics([name]))  # type: ignore[misc]
                    self._catalog.deletion_finished(new.id)
                    made.append(PeerError(error_codes.KAFKA_STORAGE_ERROR, str(error)))
                    continue
                self._follow(topic)
                self._add(topic)
                made.append(topic)
        finally:
            self._end(names)
        return made

    def create(
        self,
        name: str,
        partition_count: int,
        overrides: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> Topic:
        planned = self.plan(name, partition_count, overrides)
        if validate_only:
            return Topic(name, planned.id, planned.overrides, self._config(planned.overrides))
        made = self.make([planned])[0]
        if isinstance(made, PeerError):
            raise made
        return made

    def ensure(self, name: str, *, allowed: bool = True) -> Topic:
        """The topic, made on first use where the client and `auto.create.topics.enable` allow it."""
        topic = self.by_name.get(name)
        if topic is not None:
            return topic
        check_name(name)
        if name in self._changing:
            raise PeerError(error_codes.LEADER_NOT_AVAILABLE, f"The topic '{name}' is being made or deleted.")
        if not allowed or not self._settings.auto_create_topics_enable or name in INTERNAL:
            why = "This server does not host this topic-partition."
            raise PeerError(error_codes.UNKNOWN_TOPIC_OR_PARTITION, why)
        return self.create(name, self._settings.num_partitions, {})

    def delete(self, *names: str) -> None:
        finish(self.delete_in_steps(*names))

    def delete_in_steps(self, *names: str) -> Generator[None, None, None]:
        """Deletes them all, with one fsync of the catalog. Clients see none of them from the first step on, and after a
        stop or a crash at any later one the next start removes what is left."""
        topics = [self._existing(name) for name in names]
        self._begin(names)
        try:
            self._record(lambda: self._catalog.delete_topics(names))
            for topic in topics:
                del self.by_name[topic.name], self._by_id[topic.id], self._by_wire_id[topic.id.bytes]
                self._by_folded.pop(folded(topic.name), None)
            self.revision += 1
            for topic in topics:
                for partition in topic.partitions:
                    if partition.local is not None:
                        self._store.delete(partition.local)
                    if partition.index % LOGS_PER_STEP == 0:
                        yield
            # While the names are taken: what is said of a new topic of that name must stay.
            yield from self.on_deleted(topics)
        finally:
            self._end(names)

    def grow(self, name: str, total: int) -> None:
        finish(self.grow_in_steps(name, total))

    def grow_in_steps(self, name: str, total: int) -> Generator[None, None, None]:
        topic = self._existing(name)
        grown = TopicEntry(name=name, id=topic.id, partition_count=total, overrides=topic.overrides)
        self._begin([name])
        try:
            self._record(lambda: self._catalog.put_topics([grown]))
            try:
                yield from self._add_partitions(topic, total)
            except StorageError as error:
                self._record(lambda: self._catalog.put_topics([topic.entry()]))
                raise PeerError(error_codes.KAFKA_STORAGE_ERROR, str(error)) from error
            self._follow(topic)
        finally:
            self._end([name])

    def alter(self, name: str, overrides: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Replaces all that the topic sets itself."""
        topic = self._existing(name)
        checked = topic_config.check(overrides, self._settings)
        if topic.internal:
            topic_config.keep_compacted(name, checked)
        if validate_only:
            return
        entry = TopicEntry(name=name, id=topic.id, partition_count=len(topic.partitions), overrides=checked)
        self._record(lambda: self._catalog.put_topics([entry]))
        topic.overrides = checked
        self._reconfigure(topic)
        self.revision += 1

    def settings_changed(self, settings: BrokerSettings) -> None:
        """The broker's defaults are others now: every topic follows where it does not decide for itself."""
        self._settings = settings
        self._configs.clear()
        for topic in self.by_name.values():
            self._reconfigure(topic)

    def _begin(self, names: Iterable[str]) -> None:
        for name in names:
            self._changing.add(name)
            self._changing_folded[folded(name)] = name

    def _end(self, names: Iterable[str]) -> None:
        for name in names:
            self._changing.discard(name)
            self._changing_folded.pop(folded(name), None)
        self.revision += 1

    # ── parts ───────────────────────────────────────────────────────────────────────────────────────────────

    def _existing(self, name: str) -> Topic:
        topic = self.by_name.get(name)
        if topic is None:
            why = f"The topic '{name}' does not exist."
            raise PeerError(error_codes.UNKNOWN_TOPIC_OR_PARTITION, why)
        if name in self._changing:
            why = f"The topic '{name}' is being changed by another request; try again when that is answered."
            raise PeerError(error_codes.REQUEST_TIMED_OUT, why)
        return topic

    def _record(self, write: Callable[[], None]) -> None:
        try:
            write()
        except StorageError as error:
            raise PeerError(error_codes.KAFKA_STORAGE_ERROR, str(error)) from error

    def _add(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self._by_id[topic.id] = topic
        self._by_wire_id[topic.id.bytes] = topic
        self._by_folded[folded(topic.name)] = topic.name

    def _config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Most topics set nothing: ten thousand of them share one config."""
        key = frozenset(overrides.items())
        config = self._configs.get(key)
        if config is None:
            config = self._configs[key] = topic_config.log_config(overrides, self._settings)
            self.packs_anew = self.packs_anew or config.compression_type != "producer"
        return config

    def _reconfigure(self, topic: Topic) -> None:
        topic.config = self._config(topic.overrides)
        for partition in topic.partitions:
            if partition.local is not None:
                partition.local.reconfigure(topic.config)

    def _follow(self, topic: Topic) -> None:
        """The broker's settings may have changed while logs were made: those made before that are told."""
        topic.config = self._config(topic.overrides)
        for partition in topic.partitions:
            if partition.local is not None and partition.local.config is not topic.config:
                partition.local.reconfigure(topic.config)

    def _find_partitions(self, topic: Topic, total: int) -> None:
        for index in range(total):
            log = self._store.find(topic.name, index)
            if log is not None:
                log.reconfigure(topic.config)
            elif self._store.is_complete:
                # The broker stopped between the catalog and the log. With a directory away, the log is taken
                # to be there instead: making it again would hide its records.
                try:
                    log = self._store.create(topic.name, index, topic.id, topic.config)
                except StorageError as error:
                    _log.error("%s-%d is offline: %s", topic.name, index, error)
            topic.partitions.append(Partition(topic.name, topic.id, index, log, self._settings.node_id))

    def _add_partitions(self, topic: Topic, total: int) -> Generator[None, None, None]:
        """All of them, or `StorageError` and none."""
        added: list[Partition] = []
        try:
            for index in range(len(topic.partitions), total):
                log = self._store.create(topic.name, index, topic.id, topic.config)
                added.append(Partition(topic.name, topic.id, index, log, self._settings.node_id))
                if index % LOGS_PER_STEP == 0:
                    yield
        except StorageError:
            for partition in added:
                if partition.local is not None:
                    self._store.delete(partition.local)
            raise
        topic.partitions += added


def partition_count(topics: Collection[Topic | None], enough: int) -> int:
    """How many they have together, at least; no more than `enough` topics are looked at."""
    if len(topics) > enough:
        return len(topics)
    return sum([len(topic.partitions) if topic is not None else 1 for topic in topics])


def _new_id() -> uuid.UUID:
    """Kafka keeps ids that begin with a dash in their text form out of use, and so do we."""
    while True:
        topic_id = uuid.uuid4()
        if topic_id.bytes[0] >> 2 != 62:  # the sixth-bit value that base64 writes as a dash
            return topic_id

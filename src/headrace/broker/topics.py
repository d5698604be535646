"""The topics as this broker serves them: which there are, their partitions, and the logs of those that are here.

The one owner of the table that handlers look things up in. It follows the cluster's image: a partition leads, follows,
is offline or is elsewhere as the image says. Logs are made and deleted by `make_logs` and `reconcile`, in steps with
others served in between; this module never decides which topics there are.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from weakref import WeakValueDictionary

from headrace.broker import topic_config
from headrace.broker.partition import Partition
from headrace.broker.topic_names import INTERNAL
from headrace.core.errors import StorageError
from headrace.core.settings.broker import BrokerSettings
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.log.store import LogStore
from headrace.replication.image import ClusterImage, ImageDelta, PartitionImage, TopicImage

LOGS_PER_STEP = 4

_log = logging.getLogger(__name__)


class Topic:
    __slots__ = ("config", "id", "internal", "name", "overrides", "partitions")

    def __init__(self, name: str, topic_id: uuid.UUID, overrides: Mapping[str, str], config: LogConfig) -> None:
        self.name = name
        self.id = topic_id
        self.overrides = overrides
        self.config = config
        self.internal = name in INTERNAL
        self.partitions: list[Partition] = []


class Topics:
    def __init__(self, store: LogStore, settings: BrokerSettings) -> None:
        self._store = store
        self._settings = settings
        self._broker_id = settings.node_id
        self.by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._by_wire_id: dict[bytes, Topic] = {}  # the same, as Produce and Fetch have ids on the wire
        self._configs: WeakValueDictionary[frozenset[tuple[str, str]], LogConfig] = WeakValueDictionary()
        self._wanted: dict[Partition, None] = {}  # those that belong here and have no log yet
        self._unwanted: list[tuple[Partition, PartitionLog]] = []
        self._to_lead: dict[Partition, PartitionImage] = {}  # as soon as all that was fetched is written
        self._coordinated: list[tuple[Partition, bool]] = []  # of internal topics, changed by the delta at hand
        # A partition of an internal topic has another role, or (True) is gone: told when a whole delta is followed.
        self.on_coordinated: Callable[[Partition, bool], None] = lambda partition, is_deleted: None
        # In a cluster: a partition has this role now, or its topic is gone; and which incarnation this broker is.
        self.on_placed: Callable[[Partition, PartitionImage], None] = lambda partition, image: None
        self.on_gone: Callable[[Partition], None] = lambda partition: None
        self.incarnation: Callable[[], int] | None = None
        self.revision = 0  # another one after each change of a topic
        self.packs_anew = False  # some topic has a compression of its own

    # ── looking up ──────────────────────────────────────────────────────────────────────────────────────────

    def get(self, name: str) -> Topic | None:
        return self.by_name.get(name)

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def by_wire_id(self, topic_id: bytes) -> Topic | None:
        return self._by_wire_id.get(topic_id)

    def by_key(self, key: str | bytes) -> Topic | None:
        """By name or by id, whichever the version of a Produce, Fetch or OffsetCommit has."""
        return self.by_name.get(key) if isinstance(key, str) else self._by_wire_id.get(key)

    def all(self) -> Iterable[Topic]:
        return self.by_name.values()

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self.by_name.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    # ── following the image ─────────────────────────────────────────────────────────────────────────────────

    def follow(self, before: ClusterImage, delta: ImageDelta) -> None:
        """The table is as the image says; which logs that needs is left to `reconcile`."""
        self.revision += bool(delta.topics)
        for name, image in delta.topics.items():
            known = self.by_name.get(name)
            if known is not None and (image is None or image.id != known.id):
                self._drop(known)
                known = None
            if image is None:
                continue
            old = before.topics.get(name) if known is not None else None
            if known is None:
                known = Topic(name, image.id, image.overrides, self._config(image.overrides))
                self._add(known)
            elif old is None or old.overrides != image.overrides:
                known.overrides = image.overrides
                self._reconfigure(known)
            self._follow_partitions(known, image, old.partitions if old is not None else ())
        self._tell_coordinators()

    def _tell_coordinators(self) -> None:
        """They may look at any topic at once: an open transaction is ended in all that took part in it."""
        changed, self._coordinated = self._coordinated, []
        for partition, is_deleted in changed:
            self.on_coordinated(partition, is_deleted)

    def _follow_partitions(self, topic: Topic, image: TopicImage, before: tuple[PartitionImage, ...]) -> None:
        for index, now in enumerate(image.partitions):
            if index < len(before) and before[index] is now:
                continue
            if index == len(topic.partitions):
                log = self._store.find(topic.name, index) if self._broker_id in now.replicas else None
                topic.partitions.append(Partition(topic.name, topic.id, index, log, self._broker_id))
                if self.incarnation is not None:
                    topic.partitions[index].hold()
                if log is not None and log.config is not topic.config:
                    log.reconfigure(topic.config)
            self._place(topic.partitions[index], now)

    def _place(self, partition: Partition, image: PartitionImage) -> None:
        me = self._broker_id
        self._wanted.pop(partition, None)
        self._to_lead.pop(partition, None)
        if me not in image.replicas:
            if partition.local is not None:
                self._unwanted.append((partition, partition.local))
            partition.go_elsewhere(image.leader_epoch, image.replicas)
        elif me in image.offline:
            partition.go_offline(image.leader_epoch, image.replicas)
        elif partition.local is None:
            partition.go_offline(image.leader_epoch, image.replicas)
            self._wanted[partition] = None
        elif self._leads(image) and not partition.local.appender.is_idle and partition.led is None:
            # What was fetched from the leader before is still being written, and belongs to that leader's epoch.
            partition.follow(image.leader_epoch, image.replicas)
            self._to_lead[partition] = image
        elif self._leads(image):
            partition.lead(image.leader_epoch, image.isr, image.replicas)
        else:
            partition.follow(image.leader_epoch, image.replicas)
        self.on_placed(partition, image)
        if partition.topic in INTERNAL:
            self._coordinated.append((partition, False))

    def _leads(self, image: PartitionImage) -> bool:
        """Whether it is this start of this broker that leads."""
        return image.leader == self._broker_id and (
            self.incarnation is None or image.leader_incarnation == self.incarnation()
        )

    def lead_what_is_written(self) -> None:
        """Partitions whose last fetched batches had to be written first. At the end of each turn; mostly there are
        none."""
        if self._to_lead:
            written = {each: image for each, image in self._to_lead.items() if _is_idle(each)}
            for partition, image in written.items():
                self._place(partition, image)
            self._tell_coordinators()

    def _add(self, topic: Topic) -> None:
        self.by_name[topic.name] = topic
        self._by_id[topic.id] = topic
        self._by_wire_id[topic.id.bytes] = topic

    def _drop(self, topic: Topic) -> None:
        del self.by_name[topic.name], self._by_id[topic.id], self._by_wire_id[topic.id.bytes]
        for partition in topic.partitions:
            self._wanted.pop(partition, None)
            self._to_lead.pop(partition, None)
            if partition.local is not None:
                self._unwanted.append((partition, partition.local))
            self.on_gone(partition)
            if topic.internal:
                self._coordinated.append((partition, True))

    def resign(self) -> None:
        """What this broker leads it leads no more: the session that it was given in is over. The image will say who
        does."""
        self._to_lead.clear()
        for topic in self.by_name.values():
            for partition in topic.partitions:
                if partition.led is not None:
                    partition.follow(partition.leader_epoch)
                    self.on_gone(partition)
                    if topic.internal:
                        self._coordinated.append((partition, False))
        self._tell_coordinators()

    # ── logs ────────────────────────────────────────────────────────────────────────────────────────────────

    def make_logs(self, image: TopicImage, first: int = 0) -> Generator[None, None, None]:
        """The logs that this broker will need for the topic, from one partition on, before the image tells of them:
        all, or `StorageError` and none."""
        made: list[PartitionLog] = []
        try:
            for index in range(first, len(image.partitions)):
                if self._broker_id in image.partitions[index].replicas:
                    made.append(self._store.create(image.name, index, image.id, self._config(image.overrides)))
                if index % LOGS_PER_STEP == 0:
                    yield
        except StorageError:
            for log in made:
                self._store.delete(log)
            raise

    @property
    def is_reconciled(self) -> bool:
        return not (self._wanted or self._unwanted)

    def reconcile(self, image: ClusterImage) -> Generator[None, None, None]:
        """Makes the logs that the image gives to this broker, deletes those that it took away. A log that cannot be
        made leaves its partition offline."""
        done = 0
        while self._unwanted or self._wanted:
            if self._unwanted:
                partition, log = self._unwanted.pop()
                self._store.delete(log)
                partition.wake()  # who waits for records learns that none will come
            else:
                partition = next(iter(self._wanted))
                del self._wanted[partition]
                self._make_wanted(partition, image.partition(partition.topic, partition.index))
            done += 1
            if done % LOGS_PER_STEP == 0:
                yield

    def _make_wanted(self, partition: Partition, image: PartitionImage | None) -> None:
        topic = self.by_name.get(partition.topic)
        if image is None or topic is None or topic.id != partition.topic_id:
            return
        try:
            log = self._store.create(topic.name, partition.index, topic.id, topic.config)
        except StorageError as error:
            _log.error("%s is offline: %s", partition.name, error)
            return
        partition.attach(log)
        self._place(partition, image)
        self._tell_coordinators()

    # ── settings ────────────────────────────────────────────────────────────────────────────────────────────

    def settings_changed(self, settings: BrokerSettings) -> None:
        """The broker's defaults are others now: every topic follows where it does not decide for itself."""
        self._settings = settings
        self._configs.clear()
        for topic in self.by_name.values():
            self._reconfigure(topic)

    def _config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Most topics set nothing: ten thousand of them share one config. It goes with the last topic that has it."""
        key = frozenset(overrides.items())
        config = self._configs.get(key)
        if config is None:
            self._configs[key] = config = topic_config.log_config(overrides, self._settings)
            self.packs_anew = self.packs_anew or config.compression_type != "producer"
        return config

    def _reconfigure(self, topic: Topic) -> None:
        topic.config = self._config(topic.overrides)
        for partition in topic.partitions:
            if partition.local is not None:
                partition.local.reconfigure(topic.config)


def _is_idle(partition: Partition) -> bool:
    return partition.local is None or partition.local.appender.is_idle


def partition_count(topics: Collection[Topic | TopicImage | None], enough: int) -> int:
    """How many they have together, at least; no more than `enough` topics are looked at."""
    if len(topics) > enough:
        return len(topics)
    return sum([len(topic.partitions) if topic is not None else 1 for topic in topics])

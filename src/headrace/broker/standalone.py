"""The controller of a broker that stands alone: it decides which topics there are, and leads every partition itself.

A change is checked, written to the catalog, done to the logs, and then put into the cluster's image, in that order, so
that a crash at any point leaves a catalog whose promise the next start keeps: a topic that is listed has all its
partitions, and of a topic that was deleted nothing comes back. What takes long with many partitions is a generator that
yields where others may be served; a topic that one of them is at cannot be changed by another meanwhile. In a cluster
ZooKeeper's tree stands in the place of the catalog, and the elected controller in the place of this one.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Final

from headrace.broker import strays, topic_config
from headrace.broker.assignment import check_replicas
from headrace.broker.catalog import Catalog, TopicEntry
from headrace.broker.topic_names import INTERNAL, check_name
from headrace.broker.topic_plans import NewTopic, Replicas, TopicPlans, check_count, new_topic_id, too_few_brokers
from headrace.broker.topics import Topic, Topics
from headrace.core.errors import PeerError, StorageError
from headrace.core.settings.broker import BrokerSettings
from headrace.core.steps import finish
from headrace.log.directory import LogDirectory
from headrace.log.store import LogStore
from headrace.protocol import error_codes
from headrace.replication.cluster import Cluster
from headrace.replication.image import NO_LEADER, ImageDelta, PartitionImage, TopicImage

DEFAULT_FACTOR: Final = -1  # of a client that leaves the number of replicas to the controller


class StandaloneController:
    def __init__(
        self, catalog: Catalog, store: LogStore, topics: Topics, cluster: Cluster, settings: BrokerSettings
    ) -> None:
        self.on_deleted: Callable[[Sequence[TopicImage]], Iterable[None]] = lambda topics: ()  # in steps
        self._catalog = catalog
        self._store = store
        self._topics = topics
        self._cluster = cluster
        self._settings = settings
        self._plans = TopicPlans(lambda: cluster.image)
        self._partitions: dict[tuple[int, bool], PartitionImage] = {}  # most are equal: they share one value

    def load(self) -> None:
        """The topics of the catalog, with the logs that the store found. Once, at start."""
        strays.sort_out(self._catalog, self._store, self._settings)
        found: dict[str, TopicImage] = {}
        for entry in self._catalog.topics.values():
            found[entry.name] = self._image(entry)
        self._plans.follow(found)
        self._cluster.apply(ImageDelta(topics=found))
        # The broker may have stopped between the catalog and a log: that log is made now.
        finish(self._topics.reconcile(self._cluster.image))
        self._cluster.apply(ImageDelta(topics=self._failed(self._topics.all())))

    # ── changing ────────────────────────────────────────────────────────────────────────────────────────────

    def placed(self, count: int, factor: int = DEFAULT_FACTOR) -> Sequence[Replicas]:
        """Where so many new partitions go: here, each of them. The default is one replica whatever
        default.replication.factor says: the start warned of it."""
        if factor > 1:
            raise too_few_brokers(factor, 1)
        return ((self._settings.node_id,),) * count

    def assigned(self, manual: Sequence[Sequence[int]]) -> Sequence[Replicas]:
        """The replicas of new partitions as a client assigns them. One that gives them to another broker is refused:
        what is promised must be so after the next start, and the catalog keeps no replicas."""
        me = self._settings.node_id
        for broker_ids in manual:
            check_replicas(broker_ids, self._cluster.image.brokers)
            for other in broker_ids:
                if other != me:
                    why = f"includes broker {other}, but broker {me} is its own controller and keeps every partition"
                    raise PeerError(
                        error_codes.INVALID_REPLICA_ASSIGNMENT,
                        f"The manual partition assignment {why}; assign each of them to broker {me} alone.",
                    )
        return [tuple(broker_ids) for broker_ids in manual]

    def plan(self, name: str, partition_count: int, overrides: Mapping[str, str | None]) -> NewTopic:
        """A new topic, checked and not yet made. Raises `PeerError` with Kafka's code and words."""
        checked = self._plans.check(name, overrides, self._settings)
        check_count(partition_count)
        return NewTopic(name=name, id=new_topic_id(), replicas=self.placed(partition_count), overrides=checked)

    def make(self, planned: Sequence[NewTopic]) -> list[Topic | PeerError]:
        return finish(self.make_in_steps(planned))

    def make_in_steps(self, planned: Sequence[NewTopic]) -> Generator[None, None, list[Topic | PeerError]]:
        """Makes them all, with one fsync of the catalog. One whose logs cannot be made is taken back."""
        entries = [
            TopicEntry(name=new.name, id=new.id, partition_count=new.partition_count, overrides=new.overrides)
            for new in planned
        ]
        names = {new.name for new in planned}
        self._plans.begin(names)
        problems: dict[str, PeerError] = {}
        try:
            self._record(lambda: self._catalog.put_topics(entries))
            made: dict[str, TopicImage] = {}
            for entry in entries:
                image = self._image(entry, all_led=True)
                try:
                    yield from self._topics.make_logs(image)
                except StorageError as error:
                    self._record(lambda name=entry.name: self._catalog.delete_topics([name]))  # type: ignore[misc]
                    self._catalog.deletion_finished(entry.id)
                    problems[entry.name] = PeerError(error_codes.KAFKA_STORAGE_ERROR, str(error))
                    continue
                made[entry.name] = image
            self._plans.follow(made)
            self._cluster.apply(ImageDelta(topics=made))
        finally:
            self._plans.end(names)
        return [problems.get(new.name) or self._topics.by_name[new.name] for new in planned]

    def create(
        self,
        name: str,
        partition_count: int,
        overrides: Mapping[str, str | None],
    ) -> Topic:
        made = self.make([self.plan(name, partition_count, overrides)])[0]
        if isinstance(made, PeerError):
            raise made
        return made

    def ensure(self, name: str, *, allowed: bool = True) -> Topic:
        """The topic, made on first use where the client and `auto.create.topics.enable` allow it."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        check_name(name)
        if self._plans.is_changing(name):
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
        topics = [self._plans.existing(name) for name in names]
        self._plans.begin(names)
        try:
            self._record(lambda: self._catalog.delete_topics(names))
            gone: dict[str, TopicImage | None] = dict.fromkeys(names)
            self._plans.follow(gone)
            self._cluster.apply(ImageDelta(topics=gone))
            yield from self._topics.reconcile(self._cluster.image)
            # While the names are taken: what is said of a new topic of that name must stay.
            yield from self.on_deleted(topics)
        finally:
            self._plans.end(names)

    def grow(self, name: str, total: int) -> None:
        finish(self.grow_in_steps(name, total))

    def grow_in_steps(self, name: str, total: int) -> Generator[None, None, None]:
        topic = self._plans.existing(name)
        before = len(topic.partitions)
        grown = TopicEntry(name=name, id=topic.id, partition_count=total, overrides=topic.overrides)
        self._plans.begin([name])
        try:
            self._record(lambda: self._catalog.put_topics([grown]))
            image = self._image(grown, all_led=True)
            try:
                yield from self._topics.make_logs(image, before)
            except StorageError as error:
                shrunk = TopicEntry(name=name, id=topic.id, partition_count=before, overrides=topic.overrides)
                self._record(lambda: self._catalog.put_topics([shrunk]))
                raise PeerError(error_codes.KAFKA_STORAGE_ERROR, str(error)) from error
            partitions = self._existing_partitions(name) + image.partitions[before:]
            self._cluster.apply(ImageDelta(topics={name: _with_partitions(image, partitions)}))
        finally:
            self._plans.end([name])

    def alter(self, name: str, overrides: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Replaces all that the topic sets itself."""
        topic = self._plans.existing(name)
        checked = topic_config.check(overrides, self._settings)
        if name in INTERNAL:
            topic_config.keep_compacted(name, checked)
        if validate_only:
            return
        entry = TopicEntry(name=name, id=topic.id, partition_count=len(topic.partitions), overrides=checked)
        self._record(lambda: self._catalog.put_topics([entry]))
        altered = TopicImage(name=name, id=topic.id, partitions=topic.partitions, overrides=checked)
        self._cluster.apply(ImageDelta(topics={name: altered}))

    def alter_in_steps(
        self, name: str, overrides: Mapping[str, str | None], *, validate_only: bool = False
    ) -> Generator[None, None, None]:
        """In one step, as it is here."""
        yield from ()
        self.alter(name, overrides, validate_only=validate_only)

    def settings_changed(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._topics.settings_changed(settings)

    def directory_failed(self, directory: LogDirectory) -> None:
        """Its partitions have no leader from now on."""
        hit = [
            topic
            for topic in self._topics.all()
            if any(each.local is not None and each.local.directory is directory for each in topic.partitions)
        ]
        self._cluster.apply(ImageDelta(topics=self._failed(hit, directory)))

    # ── parts ───────────────────────────────────────────────────────────────────────────────────────────────

    def _failed(self, topics: Iterable[Topic], directory: LogDirectory | None = None) -> dict[str, TopicImage]:
        """Images in which each partition that has no log here, or has it in that directory, is offline."""
        changed: dict[str, TopicImage] = {}
        for topic in topics:
            image = self._cluster.image.topics[topic.name]
            partitions = tuple(
                self._partition(each.leader_epoch, led=False)
                if each.local is None or each.local.directory is directory
                else now
                for each, now in zip(topic.partitions, image.partitions, strict=True)
            )
            if partitions != image.partitions:
                changed[topic.name] = _with_partitions(image, partitions)
        return changed

    def _image(self, entry: TopicEntry, *, all_led: bool = False) -> TopicImage:
        """With the logs that are there; `all_led` for one whose logs are about to be made."""
        partitions = []
        for index in range(entry.partition_count):
            log = None if all_led else self._store.find(entry.name, index)
            # With a directory away, a missing log is taken to be in it: making it again would hide its records.
            led = all_led or log is not None or self._store.is_complete
            partitions.append(self._partition(log.leader_epoch if log is not None else 0, led=led))
        return TopicImage(name=entry.name, id=entry.id, partitions=tuple(partitions), overrides=entry.overrides)

    def _partition(self, leader_epoch: int, *, led: bool) -> PartitionImage:
        image = self._partitions.get((leader_epoch, led))
        if image is None:
            me = self._settings.node_id
            image = PartitionImage(
                replicas=(me,),
                leader=me if led else NO_LEADER,
                leader_epoch=leader_epoch,
                isr=(me,),
                offline=() if led else (me,),
            )
            self._partitions[leader_epoch, led] = image
        return image

    def _existing_partitions(self, name: str) -> tuple[PartitionImage, ...]:
        return self._cluster.image.topics[name].partitions

    def _record(self, write: Callable[[], None]) -> None:
        try:
            write()
        except StorageError as error:
            raise PeerError(error_codes.KAFKA_STORAGE_ERROR, str(error)) from error


def _with_partitions(image: TopicImage, partitions: tuple[PartitionImage, ...]) -> TopicImage:
    return TopicImage(name=image.name, id=image.id, partitions=partitions, overrides=image.overrides)

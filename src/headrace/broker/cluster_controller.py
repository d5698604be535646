"""What a broker of a cluster does when its clients ask for a change of topics: it writes the wish into the tree.

Any broker may be asked. It checks, as the controller of a broker that stands alone does, places the replicas, and
writes what is wanted; the elected controller and the brokers do the rest, and all learn of it from the tree. Whoever
asked is answered when this broker has read that it is done; where that takes too long the answer is REQUEST_TIMED_OUT,
and the work goes on, as in Kafka.
"""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from random import Random
from typing import Final

from headrace.broker import topic_config
from headrace.broker.assignment import check_replicas
from headrace.broker.steps import Pause
from headrace.broker.topic_names import INTERNAL, check_name
from headrace.broker.topic_plans import NewTopic, Replicas, TopicPlans, check_count, new_topic_id, too_few_brokers
from headrace.broker.topics import Topic, Topics
from headrace.client.zookeeper.calls import create_request
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.core.errors import OperatorError, PeerError
from headrace.core.settings.broker import BrokerSettings
from headrace.log.directory import LogDirectory
from headrace.protocol import error_codes
from headrace.protocol.zookeeper import codes, requests
from headrace.replication import znodes
from headrace.replication.cluster import Cluster
from headrace.replication.dialogue import Asking, Dialogue, Talk, ensured, multi, read_data
from headrace.replication.image import NO_LEADER, ClusterImage, ImageDelta, TopicImage
from headrace.replication.placement import place
from headrace.replication.znodes import Assignment

DEFAULT_FACTOR: Final = -1  # of a client that leaves the number of replicas to the broker
WAIT_S_MAX: Final = 30.0  # for what was written to be done

Waiting = Generator[Pause | None, None, None]


class ClusterController:
    def __init__(
        self,
        cluster: Cluster,
        topics: Topics,
        settings: BrokerSettings,
        internal_factor: int,
        *,
        client: Callable[[], Asking | None],
        call_soon: Callable[[Callable[[], None]], None],
        call_later: Callable[[float, Callable[[], None]], object],
        directory_failed: Callable[[LogDirectory], None],
        random: Random | None = None,
    ) -> None:
        """`internal_factor` is how many replicas internal topics get, where there are so many brokers. `client` is None
        while there is no connection with ZooKeeper: then nothing can be changed."""
        self.on_deleted: Callable[[Sequence[TopicImage]], Iterable[None]] = lambda topics: ()
        self.directory_failed = directory_failed
        self._cluster = cluster
        self._topics = topics
        self._settings = settings
        self._internal_factor = internal_factor
        self._client = client
        self._call_soon = call_soon
        self._call_later = call_later
        self._random = random or Random()
        self._plans = TopicPlans(lambda: cluster.image)
        self._connecting: list[Pause] = []  # who waits for a connection
        self._pauses: dict[Pause, Callable[[ClusterImage], bool]] = {}
        cluster.on_change.append(self._changed)

    def connected(self) -> None:
        """There is a connection with ZooKeeper again."""
        waiting, self._connecting = self._connecting, []
        for pause in waiting:
            pause.end()

    # ── what the tree says ───────────────────────────────────────────────────────────────────────────────────────

    def _changed(self, _: ClusterImage, delta: ImageDelta) -> None:
        self._plans.follow(delta.topics)
        image = self._cluster.image
        for pause in [each for each, is_so in self._pauses.items() if is_so(image)]:
            self._pauses.pop(pause, None)
            pause.end()

    def _until(self, is_so: Callable[[ClusterImage], bool]) -> Generator[Pause | None, None, bool]:
        """Whether it came to be so in time."""
        if is_so(self._cluster.image):
            return True
        pause = Pause()
        self._pauses[pause] = is_so

        def late() -> None:
            self._pauses.pop(pause, None)
            pause.end()

        self._call_later(WAIT_S_MAX, late)
        yield pause
        return is_so(self._cluster.image)

    def _done(self, dialogue: Dialogue[None]) -> Waiting:
        """Carries the dialogue out. PeerError where ZooKeeper is away, or refuses."""
        client = self._client()
        if client is None:
            connected = Pause()
            self._connecting.append(connected)
            self._call_later(WAIT_S_MAX, connected.end)
            yield connected
            client = self._client()
        if client is None:
            raise _away()
        pause = Pause()
        failures: list[ZooKeeperError | OperatorError] = []

        def ended(error: ZooKeeperError | OperatorError | None) -> None:
            if error is not None:
                failures.append(error)
            pause.end()

        talk = Talk(client, dialogue, self._call_soon, ended)
        self._call_later(WAIT_S_MAX, pause.end)
        yield pause
        if failures:
            if isinstance(failures[0], ZooKeeperError) and failures[0].code == codes.CONNECTION_LOSS:
                raise _away()
            raise failures[0]
        talk.stop()

    # ── new topics ───────────────────────────────────────────────────────────────────────────────────────────────

    def placed(self, count: int, factor: int = DEFAULT_FACTOR, first_index: int = 0) -> Sequence[Replicas]:
        """Where so many new partitions go."""
        brokers = [each for each in self._cluster.image.brokers.values() if not each.shutting_down]
        if factor == DEFAULT_FACTOR:
            factor = self._settings.default_replication_factor
        if factor > len(brokers):
            raise too_few_brokers(factor, len(brokers))
        return place(brokers, count, factor, first_index=first_index, random=self._random)

    def assigned(self, manual: Sequence[Sequence[int]]) -> Sequence[Replicas]:
        """The replicas of new partitions as a client assigns them."""
        for broker_ids in manual:
            check_replicas(broker_ids, self._cluster.image.brokers)
            if len(broker_ids) != len(manual[0]):
                why = (
                    "The manual partition assignment includes a partition with"
                    f" {len(broker_ids)} replica(s), but this is not consistent with previous partitions, which have"
                    f" {len(manual[0])} replica(s)."
                )
                raise PeerError(error_codes.INVALID_REPLICA_ASSIGNMENT, why)
        return [tuple(broker_ids) for broker_ids in manual]

    def plan(self, name: str, partition_count: int, overrides: Mapping[str, str | None]) -> NewTopic:
        """A new topic, checked and not yet made; with one replica of each partition until somebody says more."""
        checked = self._plans.check(name, overrides, self._settings)
        check_count(partition_count)
        return NewTopic(name=name, id=new_topic_id(), replicas=((),) * partition_count, overrides=checked)

    def make_in_steps(self, planned: Sequence[NewTopic]) -> Generator[Pause | None, None, list[Topic | PeerError]]:
        """Writes them all, and waits until each partition has a leader."""
        names = [new.name for new in planned]
        problems: dict[str, PeerError] = {}
        self._plans.begin(names)
        try:
            for new in planned:
                try:
                    yield from self._done(self._made(new))
                except PeerError as error:
                    problems[new.name] = error
                except ZooKeeperError as error:
                    problems[new.name] = _refused(new.name, error)
                except OperatorError as error:
                    problems[new.name] = PeerError(error_codes.UNKNOWN_SERVER_ERROR, str(error))
            for new in planned:
                if new.name not in problems and not (yield from self._until(_is_led(new))):
                    why = f"Topic '{new.name}' is made, and not all of its partitions have a leader yet."
                    problems[new.name] = PeerError(error_codes.REQUEST_TIMED_OUT, why)
        finally:
            self._plans.end(names)
        found: list[Topic | PeerError] = []
        for name in names:
            topic = self._topics.get(name)
            if name in problems:
                found.append(problems[name])
            elif topic is not None:
                found.append(topic)
            else:
                found.append(PeerError(error_codes.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' was deleted again."))
        return found

    def _made(self, new: NewTopic) -> Dialogue[None]:
        if (yield from read_data(znodes.deleted_topic(new.name))) is not None:
            raise ZooKeeperError(codes.NODE_EXISTS, znodes.topic(new.name))
        steps = [
            create_request(
                znodes.topic(new.name),
                znodes.write_assignment(Assignment(id=new.id, replicas=tuple(new.replicas))),
            )
        ]
        path = znodes.topic_settings(new.name)
        written = znodes.write_settings(new.overrides)
        # Settings may lie there without a topic, as Kafka's tools leave them.
        there = yield from read_data(path)
        if there is None:
            yield multi([create_request(path, written), *steps])
        else:
            yield multi([requests.SetData(path, written, there.stat.version), *steps])

    def ensure(self, name: str, *, allowed: bool = True) -> Topic:
        """The topic; made on first use where the client and `auto.create.topics.enable` allow it, for the next try of
        the client: this one is told that it has no leader yet."""
        topic = self._topics.get(name)
        if topic is not None:
            return topic
        check_name(name)
        if not allowed or not self._settings.auto_create_topics_enable or name in INTERNAL:
            why = "This server does not host this topic-partition."
            raise PeerError(error_codes.UNKNOWN_TOPIC_OR_PARTITION, why)
        self.begin_making(name, self._settings.num_partitions, {}, DEFAULT_FACTOR)
        raise PeerError(error_codes.LEADER_NOT_AVAILABLE, f"Topic '{name}' is being made.")

    def begin_making(self, name: str, partition_count: int, overrides: Mapping[str, str | None], factor: int) -> None:
        """Nobody waits for it: who asked asks again."""
        if self._plans.is_changing(name):
            return
        client = self._client()
        if client is None:
            raise _away()
        new = self.plan(name, partition_count, overrides)
        new = NewTopic(name=name, id=new.id, replicas=self.placed(partition_count, factor), overrides=new.overrides)
        self._plans.begin([name])
        Talk(client, self._made(new), self._call_soon, lambda _: self._plans.end([name]))

    def create(self, name: str, partition_count: int, overrides: Mapping[str, str | None]) -> Topic:
        """An internal topic: for the next try of whoever needs it."""
        topic = self._topics.get(name)
        if topic is None:
            alive = len(self._cluster.image.brokers)
            factor = min(self._internal_factor, max(1, alive))
            self.begin_making(name, partition_count, overrides, factor)
            raise PeerError(error_codes.COORDINATOR_NOT_AVAILABLE, f"{name} is being made; ask again")
        return topic

    # ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def delete_in_steps(self, *names: str) -> Waiting:
        """Clients see none of them when this is over."""
        for name in names:
            self._plans.existing(name)
        self._plans.begin(names)
        try:
            yield from self._changed_in_tree(names, lambda name: ensured(znodes.deleted_topic(name)))
            gone = yield from self._until(lambda image: not any(name in image.topics for name in names))
            if not gone:
                raise PeerError(error_codes.REQUEST_TIMED_OUT, "The topics are being deleted.")
        finally:
            self._plans.end(names)

    def grow_in_steps(self, name: str, total: int) -> Waiting:
        topic = self._plans.existing(name)
        before = len(topic.partitions)
        more = self.placed(total - before, topic.replication_factor, before)
        self._plans.begin([name])
        try:
            yield from self._changed_in_tree([name], lambda _: self._grown(name, before, tuple(more)))

            def is_led(image: ClusterImage) -> bool:
                found = image.topics.get(name)
                return found is None or (
                    len(found.partitions) >= total and all(each.leader != NO_LEADER for each in found.partitions)
                )

            if not (yield from self._until(is_led)):
                raise PeerError(error_codes.REQUEST_TIMED_OUT, f"Topic '{name}' is being grown.")
        finally:
            self._plans.end([name])

    def _grown(self, name: str, before: int, more: tuple[Replicas, ...]) -> Dialogue[None]:
        path = znodes.topic(name)
        found = yield from read_data(path)
        if found is None:
            raise ZooKeeperError(codes.NO_NODE, path)
        told = znodes.read_assignment(name, found.data or b"")
        if len(told.replicas) != before:
            raise ZooKeeperError(codes.BAD_VERSION, path)
        grown = Assignment(id=told.id, replicas=(*told.replicas, *more), adding=told.adding, removing=told.removing)
        yield requests.SetData(path, znodes.write_assignment(grown), found.stat.version)

    def alter_in_steps(self, name: str, overrides: Mapping[str, str | None], *, validate_only: bool = False) -> Waiting:
        """Replaces all that the topic sets itself."""
        self._plans.existing(name)
        checked = topic_config.check(overrides, self._settings)
        if name in INTERNAL:
            topic_config.keep_compacted(name, checked)
        if validate_only:
            return

        def written(_: str) -> Dialogue[None]:
            path = znodes.topic_settings(name)
            yield from ensured(path, znodes.write_settings({}))
            yield requests.SetData(path, znodes.write_settings(checked), -1)

        yield from self._changed_in_tree([name], written)

        def is_altered(image: ClusterImage) -> bool:
            topic = image.topics.get(name)
            return topic is None or topic.overrides == checked

        if not (yield from self._until(is_altered)):
            raise PeerError(error_codes.REQUEST_TIMED_OUT, f"Topic '{name}' is being changed.")

    def _changed_in_tree(self, names: Collection[str], change: Callable[[str], Dialogue[None]]) -> Waiting:
        for name in names:
            try:
                yield from self._done(change(name))
            except ZooKeeperError as error:
                raise _refused(name, error) from error
            except OperatorError as error:
                raise PeerError(error_codes.UNKNOWN_SERVER_ERROR, str(error)) from error

    def settings_changed(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._topics.settings_changed(settings)


def _is_led(new: NewTopic) -> Callable[[ClusterImage], bool]:
    def is_led(image: ClusterImage) -> bool:
        found = image.topics.get(new.name)
        return (
            found is not None
            and len(found.partitions) == new.partition_count
            and all(each.leader != NO_LEADER for each in found.partitions)
        )

    return is_led


def _away() -> PeerError:
    why = "ZooKeeper cannot be reached now, so nothing can be changed; try again when it is back"
    return PeerError(error_codes.REQUEST_TIMED_OUT, why)


def _refused(name: str, error: ZooKeeperError) -> PeerError:
    if error.code == codes.NODE_EXISTS:
        return PeerError(error_codes.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if error.code == codes.NO_NODE:
        return PeerError(error_codes.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if error.code == codes.BAD_VERSION:
        why = f"The topic '{name}' was changed by another request at this moment; try again."
        return PeerError(error_codes.REQUEST_TIMED_OUT, why)
    return PeerError(error_codes.UNKNOWN_SERVER_ERROR, f"Topic '{name}': {error}")

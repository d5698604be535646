"""A broker's part in a cluster, put together: its session with ZooKeeper, what it reads of the tree, and its replicas.

`Node` makes one of these instead of a `StandaloneController`'s catalog and journal; everything above the image stays as
it is. It is started once the broker listens, and `is_ready` when it is registered and has read all of the tree.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Final

from headrace.broker.catalog import Catalog
from headrace.broker.cluster_controller import ClusterController
from headrace.broker.cluster_producer_ids import ClusterProducerIds
from headrace.broker.cluster_settings import ClusterSettings
from headrace.broker.cluster_transactions import ClusterMarkers, RemoteTransactions
from headrace.broker.handlers.replica_fetch import ReplicaFetchHandler
from headrace.broker.peers import Peers
from headrace.broker.producer_ids import BLOCK_SIZE
from headrace.broker.replicas import Replicas
from headrace.broker.strays import set_aside, topic_id_of
from headrace.client.zookeeper.events import StateChanged
from headrace.client.zookeeper.on_loop import LoopClient
from headrace.client.zookeeper.session import Resumed
from headrace.coordinator.placing import TRANSACTIONS_TOPIC, partition_for
from headrace.coordinator.transactions.markers import MarkerPort
from headrace.core.clock import Clock
from headrace.core.errors import OperatorError, StorageError
from headrace.core.settings.broker import BrokerSettings
from headrace.core.telemetry import event as log_event
from headrace.log.directory import LogDirectory
from headrace.log.partition_log import PartitionLog
from headrace.log.store import LogStore
from headrace.net.reactor import Reactor
from headrace.net.workers import Workers
from headrace.replication import znodes
from headrace.replication.cluster import Cluster
from headrace.replication.cluster_session import ClusterSession
from headrace.replication.fetcher import LeaderFetcher
from headrace.replication.fetchers import Fetchers
from headrace.replication.image import NO_LEADER, BrokerImage, ClusterImage, Endpoint, ImageDelta, TopicImage
from headrace.replication.leading import Leading
from headrace.replication.membership import Membership
from headrace.replication.participant import Participant
from headrace.replication.znodes import Registration

if TYPE_CHECKING:
    from headrace.broker.handlers.fetch import FetchHandler
    from headrace.broker.topics import Topics

SESSION_FILE: Final = "headrace-zookeeper-session"
BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"

logger = logging.getLogger(__name__)


class ClusterPart:
    def __init__(
        self,
        settings: BrokerSettings,
        own: ClusterSettings,
        catalog: Catalog,
        *,
        cluster: Cluster,
        topics: Topics,
        store: LogStore,
        reactor: Reactor,
        resolving: Workers,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._own = own
        self._catalog = catalog
        self._cluster = cluster
        self._topics = topics
        self._store = store
        self._reactor = reactor
        self._resolving = resolving
        self._clock = clock
        self.refusal: OperatorError | None = None  # it can never be a broker of that cluster
        self.is_ready = False
        self._is_reconciling = False
        self._reconciled: ClusterImage | None = None
        self._participant: Participant | None = None
        self._session: ClusterSession | None = None
        self._client: LoopClient | None = None
        self._fetch: ReplicaFetchHandler | None = None
        self.leading = Leading(
            settings.node_id,
            clock=clock,
            image=lambda: cluster.image,
            lag_ms_max=lambda: own.lag_ms_max,
            controller_epoch=self._controller_epoch,
            read_again=self._read_again,
        )
        self.fetchers = Fetchers(self._fetcher)
        self.peers = Peers(settings.node_id, lambda: cluster.image, settings.inter_broker_listener, reactor, resolving)
        self.transactions = RemoteTransactions(self.peers, self._coordinator_of)
        self.producer_ids = ClusterProducerIds(settings.node_id, lambda: self._client, reactor.call_soon)
        self.replicas = Replicas(self.leading, self.fetchers, lambda: cluster.image, settings.inter_broker_listener)
        self.controller = ClusterController(
            cluster,
            topics,
            settings,
            own.internal_factor,
            client=lambda: self._client,
            call_soon=reactor.call_soon,
            call_later=reactor.call_later,
            directory_failed=self._directory_failed,
        )
        topics.incarnation = self._incarnation
        topics.on_placed = self.replicas.placed
        topics.on_gone = self.replicas.gone
        cluster.on_change.insert(0, self._before_change)
        cluster.on_change.append(self._changed)

    # ── starting and ending ──────────────────────────────────────────────────────────────────────────────────────

    def start(self, endpoints: Mapping[str, Endpoint], fetch: FetchHandler) -> None:
        """The broker listens: others may know of it."""
        settings, reactor = self._settings, self._reactor
        self._fetch = fetch.replicas = ReplicaFetchHandler(fetch, self.leading)
        online = [directory for directory in self._store.directories if directory.online]
        told = Registration(
            broker=BrokerImage(id=settings.node_id, endpoints=endpoints, rack=settings.broker_rack),
            started_ms=self._clock.now_ms(),
        )

        def membership(joined: Callable[[Registration], None]) -> Membership:
            return Membership(
                told,
                cluster_id=next((each.cluster_id for each in online if each.cluster_id), ""),
                new_cluster_id=lambda: self._catalog.cluster_id,
                boot_id=_boot_id(),
                directories=frozenset(each.directory_id for each in online),
                was_clean=all(each.was_clean for each in online),
                call_soon=reactor.call_soon,
                call_later=reactor.call_later,
                joined=joined,
                refused=self._refused,
            )

        participant = self._participant = Participant(
            settings.node_id,
            self._cluster,
            now_ms=self._clock.now_ms,
            call_soon=reactor.call_soon,
            membership=membership,
            is_unclean=self._is_unclean,
        )
        participant.on_settled.append(self._settled)
        participant.on_expired.append(self._expired)
        self._session = ClusterSession(self._open_client, self, self._save)
        self._session.start(self._former())
        reactor.end_of_turn.append(self._topics.lead_what_is_written)
        reactor.end_of_turn.append(self.leading.look)
        reactor.every(self._own.lag_ms_max / 2000, self._tick)

    def markers(self, local: MarkerPort) -> MarkerPort:
        """Ends of transactions are written by whoever leads their partitions."""
        return ClusterMarkers(local, self._topics, lambda: self._cluster.image, self.peers)

    def _coordinator_of(self, transactional_id: str) -> int:
        image = self._cluster.image
        topic = image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            return NO_LEADER
        return image.live_leader(topic.partitions[partition_for(transactional_id, len(topic.partitions))])

    def _tick(self) -> None:
        if self._fetch is not None:
            self._fetch.refresh()
        self.leading.look_at_all()

    def close(self, closed: Callable[[], None]) -> None:
        """The session ends, and with it the registration: others are elected at once."""
        self._hang_up()
        if self._session is None:
            closed()
        else:
            self._session.close(closed)

    def _hang_up(self) -> None:
        self.fetchers.close()
        self.peers.close()

    def abandon(self) -> None:
        self._hang_up()
        if self._session is not None:
            self._session.abandon()

    def _refused(self, error: OperatorError) -> None:
        self.refusal = error

    # ── the session ──────────────────────────────────────────────────────────────────────────────────────────────

    def _open_client(self, resumed: Resumed | None, heard: Callable[[StateChanged], None]) -> LoopClient:
        own = self._own
        client = LoopClient(
            self._reactor,
            self._resolving,
            self._clock,
            own.connect,
            timeout_ms=own.session_timeout_ms,
            resumed=resumed,
            on_state=heard,
        )
        client.start()
        return client

    def connected(self, client: LoopClient, session: int, *, is_new: bool) -> None:
        self._client = client
        self.leading.connected(client)
        if self._participant is not None:
            self._participant.connected(client, session, is_new=is_new)
        self.controller.connected()

    def disconnected(self) -> None:
        """A lost connection changes no role."""
        self._client = None
        self.leading.disconnected()
        if self._participant is not None:
            self._participant.disconnected()

    def expired(self) -> None:
        log_event(logger, logging.ERROR, "the session with ZooKeeper has expired: this broker joins again")
        if self._participant is not None:
            self._participant.expired()

    def _expired(self) -> None:
        self._topics.resign()

    def _session_file(self) -> str:
        return os.path.join(self._settings.log_dirs[0], SESSION_FILE)

    def _save(self, credentials: Resumed) -> None:
        data = json.dumps({"id": credentials.id, "password": credentials.password.hex()}).encode()
        try:
            self._store.files.disk.replace_file(self._session_file(), data)
            os.chmod(self._session_file(), 0o600)
        except OSError as error:
            log_event(logger, logging.WARNING, "the session with ZooKeeper could not be noted", reason=error.strerror)

    def _former(self) -> Resumed | None:
        try:
            data = self._store.files.disk.read_file(self._session_file())
            found = json.loads(data) if data else None
            return Resumed(int(found["id"]), bytes.fromhex(found["password"])) if found else None
        except (OSError, ValueError, KeyError, TypeError):
            return None  # the former session ends by itself

    # ── the tree ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _incarnation(self) -> int:
        told = self._participant.membership.registration if self._participant is not None else None
        return told.broker.incarnation if told is not None else -1

    def _controller_epoch(self, place: tuple[str, int]) -> int:
        return self._participant.view.controller_epoch(*place) if self._participant is not None else 0

    def _read_again(self, path: str) -> None:
        if self._participant is not None:
            self._participant.reader.read_again(path)

    def _is_unclean(self, topic: TopicImage) -> bool:
        text = topic.overrides.get("unclean.leader.election.enable")
        return text == "true" if text is not None else self._settings.unclean_leader_election_enable

    def _before_change(self, _: ClusterImage, delta: ImageDelta) -> None:
        """Logs of topics that are not these: they were deleted while this broker was away, or never of this cluster."""
        for name, topic in delta.topics.items():
            if topic is None or self._topics.get(name) is not None:
                continue
            for index, partition in enumerate(topic.partitions):
                log = self._store.find(name, index) if self._settings.node_id in partition.replicas else None
                if log is not None and topic_id_of(log, self._store) not in (None, topic.id):
                    set_aside(log, self._store)

    def _changed(self, before: ClusterImage, delta: ImageDelta) -> None:
        for number, told in delta.brokers.items():
            if told is None and self._fetch is not None:
                self._fetch.close_of(number)
        self.replicas.changed(before, delta)
        if not self._is_reconciling:
            self._is_reconciling = True
            self._reactor.call_soon(lambda: self._reconcile(self._topics.reconcile(self._cluster.image)))

    def _reconcile(self, steps: Generator[None, None, None]) -> None:
        """Logs are made and deleted a few at a time; the image may have changed meanwhile."""
        try:
            next(steps)
        except StopIteration:
            if self._topics.is_reconciled:
                self._is_reconciling = False
                return
            steps = self._topics.reconcile(self._cluster.image)
        except StorageError as error:
            log_event(logger, logging.ERROR, "a log could not be deleted", reason=str(error))
        self._reactor.call_soon(lambda: self._reconcile(steps))

    def _settled(self) -> None:
        """Everything was read."""
        self.leading.all_read()
        if not self.is_ready and self._participant is not None and self._participant.membership.is_joined:
            self.is_ready = True
            self._catalog.join(self._cluster.image.cluster_id)
            self.producer_ids.fetch(BLOCK_SIZE)
            self._set_strays_aside()

    def _set_strays_aside(self) -> None:
        """Once: what no topic of the cluster has, or has elsewhere."""
        me, image = self._settings.node_id, self._cluster.image
        for log in list(self._store.logs.values()):
            partition = image.partition(log.topic, log.index)
            if partition is None or me not in partition.replicas:
                set_aside(log, self._store)

    def _directory_failed(self, directory: LogDirectory) -> None:
        """Its partitions have no leader here, and no member of the ISR."""
        offline: dict[str, tuple[int, ...]] = {}
        for topic in self._topics.all():
            lost = [each.index for each in topic.partitions if _is_in(each.local, directory)]
            if lost:
                offline[topic.name] = tuple(lost)
        if self._participant is not None:
            told = self._participant.membership.registration
            known = told.offline if told is not None else {}
            both = {name: (*known.get(name, ()), *offline.get(name, ())) for name in {*known, *offline}}
            self._participant.membership.update(offline=both)

    # ── fetchers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _fetcher(self, leader: int, endpoint: Endpoint) -> LeaderFetcher:
        return LeaderFetcher(
            leader,
            endpoint,
            broker=self._settings.node_id,
            incarnation=self._incarnation,
            reactor=self._reactor,
            resolving=self._resolving,
            clock=self._clock,
            store=self._store,
            settings=self._own.fetch,
            read_again=lambda log: self._read_again(znodes.state(log.topic, log.index)),
        )


def _is_in(log: PartitionLog | None, directory: LogDirectory) -> bool:
    return log is not None and log.directory is directory


def _boot_id() -> str:
    try:
        with open(BOOT_ID_FILE) as file:
            return file.read().strip()
    except OSError:
        return ""  # where it cannot be told, each start counts as one of the machine

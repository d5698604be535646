"""The composition root: makes every part of a broker, starts every loop, and stops them in order.

Nothing else decides which part gets which. All timers are started in `_start_loops`.
"""

from __future__ import annotations

import os
import resource
import threading
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Final

from headrace.broker.answer_cache import AnswerCache
from headrace.broker.catalog import Catalog
from headrace.broker.cluster_part import ClusterPart
from headrace.broker.cluster_settings import ClusterSettings
from headrace.broker.counters import counters
from headrace.broker.dynamic_settings import DynamicSettings
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.handlers import NAMES
from headrace.broker.handlers.fetch import FetchHandler
from headrace.broker.handlers.produce import ProduceHandler
from headrace.broker.metrics import Metrics
from headrace.broker.partition import Partition
from headrace.broker.parts import Parts
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.purgatory import Purgatory
from headrace.broker.quotas import Quota, Throttle
from headrace.broker.rights import Authorizer, Rights
from headrace.broker.router import Router
from headrace.broker.server import Server
from headrace.broker.standalone import StandaloneController
from headrace.broker.topic_controller import TopicController
from headrace.broker.topics import Topics
from headrace.broker.turn_clock import TurnClock
from headrace.coordinator.placing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.core.clock import Clock, SystemClock
from headrace.core.errors import InvariantError
from headrace.core.files import Disk, OpenFiles
from headrace.core.settings.broker import BrokerSettings
from headrace.core.steps import finish
from headrace.log.compaction.compactor import CompactionSettings, Compactor
from headrace.log.compaction.process import CompactionProcess
from headrace.log.housekeeping import Housekeeping
from headrace.log.log_writer import LogWriter
from headrace.log.partition_log import PartitionLog
from headrace.log.scrub import Scrub, ScrubSettings, budget
from headrace.log.store import LogStore
from headrace.net.reactor import READ, Reactor, Timer
from headrace.net.workers import Workers
from headrace.replication.cluster import Cluster
from headrace.replication.image import BrokerImage, ClusterImage, Endpoint, ImageDelta, TopicImage

if TYPE_CHECKING:
    from headrace.broker.coordination import Coordination
    from headrace.broker.http import MetricsServer
    from headrace.coordinator.groups import Groups
    from headrace.coordinator.transactions.coordinator import Transactions

DOOMED_FILES_INTERVAL_S: Final = 15.0
PRODUCERS_INTERVAL_S: Final = 600.0
SNAPSHOT_TIMEOUT_S: Final = 1.0
WRITERS_MAX: Final = 4  # threads that copy large appends into the page cache
DESCRIPTORS_WANTED: Final = 65_536
END_S_MAX: Final = 0.005  # the end of a turn begins no further round after this long
STOP_S_MAX: Final = 2.0  # a stop waits so long for what nobody was promised: another compression, a compaction
LOGS_PER_TURN: Final = 100  # that housekeeping looks at


class Node:
    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        reactor: Reactor | None = None,
        workers: Callable[[str, int, Reactor], Workers] = Workers,
        authorizer: Authorizer | None = None,
        quota: Quota | None = None,
        cluster: ClusterSettings | None = None,
    ) -> None:
        """Clock, disk, loop and threads may be passed in, so that a simulation decides what happens when. Without an
        authorizer every client may do everything, without a quota nobody has to wait."""
        _raise_descriptor_limit()
        self.settings = settings
        self.clock: Clock = clock or SystemClock()
        self.disk = disk or Disk()
        self.metrics = Metrics()
        self.rights = Rights(authorizer)
        self.throttle = Throttle(quota)
        self.reactor = reactor or Reactor()
        self.ports: Mapping[str, int] = {}  # bound, by the listener's name
        self.cluster_id = ""
        self._closed = False
        self._opened = False
        self._cluster_settings = cluster
        self.cluster_part: ClusterPart | None = None  # of a broker that does not stand alone
        self._http: MetricsServer | None = None
        self._coordination: Coordination | None = None
        writers = min(WRITERS_MAX, len(os.sched_getaffinity(0)))
        self._make_workers = workers
        self._resolvers: Workers | None = None
        self._writers = workers("headrace-writer", writers, self.reactor)
        self._flushers = workers("headrace-flush", 2, self.reactor)
        self.slow_workers = workers("headrace-slow", 1, self.reactor)
        self._cleaners = workers("headrace-cleaner", 1, self.reactor)
        self._scrubbers = workers("headrace-scrub", 1, self.reactor)
        self.files = OpenFiles(self.disk, settings.open_files_max)
        self.writer = LogWriter(self.disk, self._writers.submit, self._flushers.submit, writers)
        self.store = LogStore(settings.log_dirs, self.files, self.writer, self.clock)
        self.housekeeping = Housekeeping(self.store, settings.producer_id_expiration_ms)
        self._compaction_process = CompactionProcess(self._cleaners.submit)
        self._compaction_timer: Timer | None = None
        self.compactor = Compactor(
            self.store, self.housekeeping, self.clock, self._compaction_process.run, _compaction_settings(settings)
        )
        self.scrub = Scrub(
            self.store,
            self._scrubbers.submit,
            self.reactor.call_later,
            ScrubSettings(budget(settings.log_scrub_bytes_per_second), settings.log_scrub_interval_ms),
        )
        self.purgatory = Purgatory(self.reactor)
        self.fetch_sessions = FetchSessions(settings.max_incremental_fetch_session_cache_slots)
        self.server = Server(settings, self.reactor, self.metrics)

    def open(self) -> None:
        """Locks and recovers the data, then listens. Raises OperatorError with what to do about it."""
        settings = self.settings
        self.store.open(settings.node_id)
        self._opened = True
        online = [directory for directory in self.store.directories if directory.online]
        known = next((directory.cluster_id for directory in online if directory.cluster_id), "")
        self.catalog = Catalog.open([directory.path for directory in online], self.disk, known)
        self.cluster_id = self.catalog.cluster_id
        if self._cluster_settings is None:
            for directory in online:
                directory.write_meta(self.cluster_id, settings.node_id)
        self.dynamic_settings = DynamicSettings(settings, self.catalog)
        self.dynamic_settings.on_change.append(self._settings_changed)
        self.settings = self.dynamic_settings.effective
        self.server.use(self.settings)
        if self._cluster_settings is not None:
            self._begin_in_cluster(self._cluster_settings, known)
        else:
            self._begin_alone()
        self.topics.on_coordinated = self._coordinated
        self.controller.on_deleted = self._topics_deleted
        self.store.on_offline = self.controller.directory_failed
        if any(self.topics.get(name) is not None for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)):
            _ = self.coordination  # there is something to load, and perhaps to finish
        finish(self._forget_topics(dict(self.catalog.deleted)))
        self.parts = self._parts()
        self.router = self._router()
        self.metrics.api_names = NAMES
        self.server.dispatch = self.router.dispatch
        self.server.metadata_bytes = self._group_bytes
        self.ports = self.server.listen()
        self.reactor.end_of_turn.append(self._end_of_turn)
        if self.cluster_part is not None:
            self._join(self.cluster_part)
        else:
            self.cluster.apply(ImageDelta(brokers={settings.node_id: self._registration()}))
        self._start_loops()
        if settings.metrics_port >= 0:
            from headrace.broker.http import MetricsServer

            self._http = MetricsServer(self, settings.metrics_host, settings.metrics_port)
            self._http.start()

    def _begin_alone(self) -> None:
        """The journal says which topics there are, and this broker leads them."""
        self.cluster = Cluster(ClusterImage(cluster_id=self.cluster_id, controller_id=self.settings.node_id))
        self.topics = Topics(self.store, self.settings)
        self.cluster.on_change.append(self.topics.follow)
        alone = StandaloneController(self.catalog, self.store, self.topics, self.cluster, self.settings)
        self.controller: TopicController = alone
        alone.load()
        self.store.flush_recovered()
        self.producer_ids = ProducerIds(self.catalog.take_producer_ids)

    def _begin_in_cluster(self, own: ClusterSettings, cluster_id: str) -> None:
        """ZooKeeper's tree says so, and who leads what; nothing is known before it was read."""
        self.cluster = Cluster(ClusterImage(cluster_id=cluster_id))
        self.topics = Topics(self.store, self.settings)
        self.cluster.on_change.append(self.topics.follow)
        self.store.flush_recovered()
        self._resolvers = self._make_workers("headrace-resolver", 1, self.reactor)
        self.cluster_part = ClusterPart(
            self.settings,
            own,
            self.catalog,
            cluster=self.cluster,
            topics=self.topics,
            store=self.store,
            reactor=self.reactor,
            resolving=self._resolvers,
            clock=self.clock,
        )
        self.controller = self.cluster_part.controller
        self.producer_ids = ProducerIds(self.cluster_part.producer_ids.take)

    def _join(self, part: ClusterPart) -> None:
        """Registers, and reads the tree; then clients are served."""
        self.server.hold()
        part.start(self._registration().endpoints, self.router.fetch_handler)
        self.reactor.run(lambda: part.is_ready or part.refusal is not None)
        if part.refusal is not None:
            raise part.refusal
        self.cluster_id = self.cluster.image.cluster_id
        for directory in self.store.directories:
            if directory.online:
                directory.write_meta(self.cluster_id, self.settings.node_id)
        self.server.go_on()

    def _parts(self) -> Parts:
        """What handlers see of this broker."""
        return Parts(
            rights=self.rights,
            clock=self.clock,
            topics=self.topics,
            cluster=self.cluster,
            controller=self.controller,
            store=self.store,
            dynamic_settings=self.dynamic_settings,
            producer_ids=self.producer_ids,
            metadata_answers=AnswerCache(),
            software=self.server.software,
            coordinators=lambda: self.coordination,
        )

    def _router(self) -> Router:
        parts, serving = self.parts, (self.server, self.metrics, self.throttle)
        produce = ProduceHandler(parts, TurnClock(self.clock, self.reactor), *serving, self.slow_workers)
        fetch = FetchHandler(parts, *serving, self.fetch_sessions, self.purgatory, self.settings.fetch_max_bytes)
        return Router(parts, produce, fetch, *serving)

    def _start_loops(self) -> None:
        settings, every, keeper = self.settings, self.reactor.every, self.housekeeping
        every(settings.log_retention_check_interval_ms / 1000, lambda: self._in_slices(keeper.delete_expired))
        every(DOOMED_FILES_INTERVAL_S, keeper.remove_doomed)
        every(
            settings.log_flush_offset_checkpoint_interval_ms / 1000,
            lambda: self._in_slices(keeper.flush_for_checkpoint, self.store.save_checkpoints_soon),
        )
        flush_ms = min(settings.log_flush_scheduler_interval_ms, 1000)
        every(flush_ms / 1000, keeper.flush_due)
        every(PRODUCERS_INTERVAL_S, keeper.expire_producers)
        self.compactor.open()
        self._compact_later()
        self.reactor.call_later(settings.log_scrub_delay_ms / 1000, self.scrub.start)

    def _compact_later(self) -> None:
        if self._compaction_timer is not None:
            self._compaction_timer.cancel()
        self._compaction_timer = self.reactor.call_later(self.settings.log_cleaner_backoff_ms / 1000, self._compact)

    def _compact(self) -> None:
        try:
            self.compactor.tick()
        finally:
            self._compact_later()

    def _in_slices(
        self, work: Callable[[list[PartitionLog]], object], finish: Callable[[], object] = lambda: None
    ) -> None:
        """Over all logs, some in each turn, so that ten thousand of them hold nobody up."""
        logs = list(self.store.logs.values())

        def step(at: int) -> None:
            work(logs[at : at + LOGS_PER_TURN])
            if at + LOGS_PER_TURN < len(logs):
                self.reactor.call_later(0, lambda: step(at + LOGS_PER_TURN))
            else:
                finish()

        step(0)

    def _end_of_turn(self) -> None:
        writer, purgatory, server = self.writer, self.purgatory, self.server
        began = 0.0
        while True:
            coordination = self._coordination  # None: nobody has needed it yet
            if coordination is not None and coordination.has_gathered:
                coordination.end_of_turn()
            try:
                writer.end_of_turn()
            except Exception as error:
                raise _unwritten(error) from error
            if purgatory.ready:
                # Readers first: they have waited for the record, its producer only waits for a receipt.
                acknowledged, server.dirty = server.dirty, []
                purgatory.end_of_turn()
                server.dirty += acknowledged
            if server.dirty:
                server.send_answers()
            if not (
                writer.fresh
                or purgatory.ready
                or server.dirty
                or (coordination is not None and coordination.has_gathered)
            ):
                break
            if began == 0.0:
                began = perf_counter()
            elif perf_counter() - began > END_S_MAX:
                self.reactor.call_soon(_nothing)  # the next turn begins at once, and serves those who have waited
                break
        server.pool.end_of_turn()

    @property
    def coordination(self) -> Coordination:
        """The coordinators, made when they are first needed: most of a broker's code is theirs."""
        if self._coordination is None:
            from headrace.broker.coordination import Coordination

            self._coordination = Coordination(
                self.settings,
                self.topics,
                self.controller,
                self.clock,
                self.reactor,
                self.producer_ids.next,
                is_serving=self.port >= 0,
                markers=self.cluster_part.markers if self.cluster_part is not None else lambda local: local,
                elsewhere=self.cluster_part.transactions if self.cluster_part is not None else None,
            )
            self._coordination.start()
        return self._coordination

    def _coordinated(self, partition: Partition, is_deleted: bool) -> None:
        """A partition of an internal topic is led here from now on, or not any more."""
        if self._coordination is not None:
            self._coordination.follow(partition, is_deleted=is_deleted)
        elif partition.led is not None and partition.led.end_offset and not is_deleted:
            _ = self.coordination  # there is something to load, and perhaps to finish

    @property
    def groups(self) -> Groups:
        return self.coordination.groups

    @property
    def transactions(self) -> Transactions:
        return self.coordination.transactions

    def _group_bytes(self) -> int:
        return self._coordination.groups.metadata_bytes() if self._coordination is not None else 0

    def _settings_changed(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.server.use(settings)
        self.housekeeping.producer_expiration_ms = settings.producer_id_expiration_ms
        self.controller.settings_changed(settings)
        self.compactor.settings = _compaction_settings(settings)
        self._compact_later()

    def _registration(self) -> BrokerImage:
        """This broker, as others know it."""
        settings = self.settings
        endpoints = {name: Endpoint(host=host, port=port) for name, host, port in settings.told(self.ports)}
        return BrokerImage(id=settings.node_id, endpoints=endpoints, rack=settings.broker_rack)

    def _topics_deleted(self, topics: Sequence[TopicImage]) -> Generator[None, None, None]:
        yield from self._forget_topics({topic.id: topic.name for topic in topics})

    def _forget_topics(self, deleted: Mapping[uuid.UUID, str]) -> Generator[None, None, None]:
        """What groups have committed for deleted topics. Their deletion is over when that is written down."""

        def done(error: Exception | None) -> None:
            if error is None:
                for topic_id in deleted:
                    self.catalog.deletion_finished(topic_id)

        # What is committed for one that was made again is of the new one.
        names = {name for name in deleted.values() if self.topics.get(name) is None}
        if self._coordination is None or not names:
            done(None)
        else:
            yield from self._coordination.topics_deleted(names, done)

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Until `stop`."""
        self.reactor.run()

    def hear(self, descriptor: int, heard: Callable[[int], None]) -> None:
        """Calls `heard` on the loop whenever the descriptor can be read: how a process learns of signals."""
        self.reactor.add(descriptor, READ, heard)

    def stop(self) -> None:
        """From any thread, or from a signal handler."""
        self.reactor.stop()

    @property
    def port(self) -> int:
        """That of the first listener; -1 before it is bound."""
        return next(iter(self.ports.values()), -1)

    @property
    def metrics_port(self) -> int:
        return self._http.port if self._http is not None else -1

    def snapshot(self) -> Mapping[str, object]:
        """The counters, as the loop sees them; asked from another thread."""
        found: dict[str, object] = {}
        ready = threading.Event()

        def take() -> None:
            found.update(counters(self, self._coordination))
            ready.set()

        self.reactor.call_from_thread(take)
        if not ready.wait(SNAPSHOT_TIMEOUT_S):
            raise TimeoutError(f"the broker's loop did not answer within {SNAPSHOT_TIMEOUT_S:g} s")
        return found

    def _stop_listening(self) -> bool:
        """False if that was done before."""
        if self._closed:
            return False
        self._closed = True
        if self._http is not None:
            self._http.stop()
        self.server.stop_listening()
        return True

    def close(self) -> None:
        """Stops listening, writes all that is staged, flushes, and marks the directories as cleanly stopped."""
        if not self._stop_listening():
            return
        self._leave_cluster()
        self.compactor.close()
        self.scrub.close()
        self._compaction_process.close()
        deadline = perf_counter() + STOP_S_MAX
        for workers in (self.slow_workers, self._cleaners, self._scrubbers):
            workers.abandon(max(0.0, deadline - perf_counter()))
        self._writers.close()
        self.writer.closing = True
        self.reactor.run_pending()
        if self._coordination is not None:
            self._coordination.end_of_turn()
        self.writer.drain()
        self._flushers.close()
        self.reactor.run_pending()
        self.server.send_answers()
        self.server.drop_all()
        if self._opened:
            self.store.close()
            if hasattr(self, "catalog"):
                self.catalog.close()
        self.reactor.close()

    def _leave_cluster(self) -> None:
        """Others are told at once that this broker is gone."""
        part = self.cluster_part
        if part is None:
            return
        left: list[bool] = []
        part.close(lambda: left.append(True))
        until = perf_counter() + STOP_S_MAX
        self.reactor.call_later(STOP_S_MAX, _nothing)
        self.reactor.run_once_more(lambda: bool(left) or perf_counter() > until)
        if self._resolvers is not None:
            self._resolvers.abandon(0.0)

    def abandon(self) -> None:
        """Leaves everything as `kill -9` would: nothing more is written, flushed or answered. For tests; the loop must
        have ended."""
        if not self._stop_listening():
            return
        if self.cluster_part is not None:
            self.cluster_part.abandon()
        self._compaction_process.close()
        # What was handed to a thread may still reach the disk, as it may when a process is killed.
        for workers in (self.slow_workers, self._cleaners, self._scrubbers, self._writers, self._flushers):
            workers.close()
        self.server.drop_all()
        self.files.close()
        self.store.close_locks()
        if hasattr(self, "catalog"):
            self.catalog.close()
        self.reactor.close()


def _nothing() -> None:
    pass


def _unwritten(error: Exception) -> InvariantError:
    """It is not known what of this turn is in the logs: going on could answer what was never written."""
    if isinstance(error, InvariantError):
        return error
    return InvariantError(f"what a turn staged could not be written: {type(error).__name__}: {error}")


def _compaction_settings(settings: BrokerSettings) -> CompactionSettings:
    return CompactionSettings(
        enabled=settings.log_cleaner_enable,
        dedupe_bytes=settings.log_cleaner_dedupe_buffer_size,
        load_factor=settings.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes=settings.log_cleaner_io_buffer_size,
        bytes_per_second_max=settings.log_cleaner_io_max_bytes_per_second,
    )


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(DESCRIPTORS_WANTED, hard) if hard != resource.RLIM_INFINITY else DESCRIPTORS_WANTED
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

"""One simulated world: a broker, its disk, its clients and the time, all under one random seed.

Each step is one thing that may happen: bytes arrive, a turn of the loop, a thread ends its job, time goes by, or
something breaks. Nothing else is random and nothing real is waited for, so a seed replays what it did.
"""

from __future__ import annotations

import os
import random
import traceback
import uuid
from collections.abc import Callable, Mapping
from unittest import mock

from sim_client import CREATE_TOPICS, Client, Life
from sim_disk import FULL, SimDisk
from sim_history import CommittedOffsets, Ownership, Records, ViolationError, check
from sim_network import Link
from sim_reactor import SimReactor, SimWorkers
from sim_server import ServerWorld

from headrace.broker.node import Node
from headrace.broker.server import TICK_SECONDS
from headrace.core.errors import OperatorError
from headrace.core.listeners import PLAINTEXT, ListenerAddress
from headrace.core.settings.broker import BrokerSettings
from headrace.log import log_writer

STEPS = 400
REST_STEPS_MAX = 6_000
TOPICS = {"a": 2, "b": 2, "out": 2}
SMALL, LARGE = 0, 48 << 10

LISTENER = ListenerAddress(PLAINTEXT, "127.0.0.1", 9092)


class World(ServerWorld[Node, Client]):
    server = "broker"
    rooms = (150, 1 << 20, 1 << 20, 1 << 20)

    def __init__(
        self,
        seed: int,
        populate: Callable[[World], list[Client]],
        look: Callable[[World, list[Client]], None],
        *,
        steps: int = STEPS,
    ) -> None:
        super().__init__(seed)
        self.steps = steps
        self._populate = populate
        self._look = look
        self.records = Records()
        self.offsets = CommittedOffsets()
        self.ownership = Ownership()
        self.inits: dict[str, list[tuple[tuple[int, int], str, int]]] = {}  # by transactional id: producer, who, when
        self.transaction_count = 0
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.partitions = [(name, index) for name in ("a", "b") for index in range(TOPICS[name])]
        self.loses_power = self.rng.random() < 0.5
        self._badness = self.rng.choice((0.3, 1.0, 1.0, 2.0))  # how often things break
        self.ending = False
        self.counts: dict[str, int] = {}
        self._must_restart = False
        self._seen_ends: dict[tuple[str, int], int] = {}

    # ── a whole run ──────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        inline = self.rng.choice((SMALL, 150, LARGE))
        ids = random.Random(self.rng.random())

        def fresh_id() -> uuid.UUID:
            return uuid.UUID(int=ids.getrandbits(128), version=4)

        with self._directory() as stack:
            stack.enter_context(mock.patch.object(log_writer, "INLINE_BYTES_MAX", inline))
            stack.enter_context(mock.patch.object(uuid, "uuid4", fresh_id))
            self._live()

    def _live(self) -> None:
        self.disk = SimDisk(self._root, self.rng, loses_power=self.loses_power)
        self._settings = self._choose_settings()
        self._start()
        self._rest([_TopicMaker(self, "admin")])
        self.clients = self._populate(self)
        self.calm = False
        for client in self.clients:
            client.begin()
        for _ in range(self.steps):
            self.step()
        self.calm = self.ending = True
        self.disk.heal()
        lived = self.clients
        self._rest([])
        self.let_time_pass(3_000)
        self._look(self, lived)

    def _choose_settings(self) -> BrokerSettings:
        return BrokerSettings(
            port=0,
            log_dirs=(os.path.join(self._root, "data"),),
            offsets_topic_num_partitions=2,
            transaction_state_log_num_partitions=2,
            offsets_topic_segment_bytes=self.rng.choice((1 << 20, 100 << 20)),
            group_initial_rebalance_delay_ms=self.rng.choice((0, 300)),
            group_consumer_session_timeout_ms=8_000,
            group_consumer_heartbeat_interval_ms=1_000,
            group_consumer_assignment_interval_ms=self.rng.choice((0, 1_000)),
            log_flush_interval_messages=1 if self.loses_power else (1 << 62),
            log_flush_offset_checkpoint_interval_ms=self.rng.choice((700, 60_000)),
            log_index_interval_bytes=self.rng.choice((100, 4096)),
            transaction_abort_check_interval_ms=1_000,
            offsets_retention_check_interval_ms=86_400_000,  # a group that is forgotten would begin at generation 1
            open_files_max=self.rng.choice((16, 1024)),
        )

    def finish(self, clients: list[Client]) -> None:
        """Lets more clients live, in peace, to their end: for the last look."""
        self._rest(clients)

    def _rest(self, more: list[Client]) -> None:
        self.clients += more
        for client in more:
            client.begin()
        for _ in range(REST_STEPS_MAX):
            if self.clients and all(client.finished for client in self.clients):
                self.clients = []
                return
            self.step()
        waiting = [client.name for client in self.clients if not client.finished]
        raise ViolationError(f"{waiting} did not come to an end within {REST_STEPS_MAX} steps without a fault")

    def let_time_pass(self, ms: int) -> None:
        """In peace, with all that the broker has to do in it."""
        end = self.clock.now_ms() + ms
        while self.clock.now_ms() < end:
            self.clock.advance(250)
            self._turn()
            self._run_jobs()

    def _run_jobs(self) -> None:
        while self.node is not None and self.node.reactor.jobs():
            self._job()
            self._turn()

    # ── one step ─────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> None:
        choices: list[tuple[float, Callable[[], None]]] = [(0.7, self._pass_time)]
        if self.node is None:
            choices.append((0.5, self._start))
        choices += self._steps()
        if self.node is not None and (self._must_restart or self._is_offline()):
            choices.append((0.3 if not self.calm else 5, self._kill))
        choices += self._deliveries()
        if not self.calm:
            bad = self._badness
            choices += [(0.1 * bad, self._cut), (0.04 * bad, self._jump)]
            if self.node is not None:
                choices += [(0.03 * bad, self._kill), (0.02 * bad, self._stop), (0.05 * bad, self._break_disk)]
        name = self._take(choices)
        self.counts[name] = self.counts.get(name, 0) + 1
        self._check_logs()

    def _turned(self) -> None:
        reactor = self.node.reactor
        if not reactor.has_results and not reactor.jobs() and not any(link.left for link in self._links):
            self.offsets.nothing_under_way()

    def _pass_time(self) -> None:
        self.clock.advance(self.rng.choice((1, 20, 100, 300, 1000)))
        self._wake()

    def _wake(self) -> None:
        now_ms = self.clock.now_ms()
        for client in self.clients:
            if client.wake_at is not None and client.wake_at <= now_ms:
                client.wake_at = None
                client.go_on()
        self._turn()

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _jump(self) -> None:
        self.clock.advance(self.rng.choices((2_000, 7_000, 15_000, 70_000), (4, 3, 2, 1))[0])
        self._wake()

    def _fill_disk(self) -> None:
        self.disk.refusals += [("write", FULL)] * self.rng.randint(1, 3)

    def _disk_is_broken(self) -> None:
        self._must_restart = True

    def _is_offline(self) -> bool:
        return not all(directory.online for directory in self.node.store.directories)

    def _lose_power(self) -> None:
        if self.loses_power and self.rng.random() < 0.7:
            self.counts["power lost"] = self.counts.get("power lost", 0) + 1
            self.disk.lose_power()

    def _all_links_end(self) -> None:
        super()._all_links_end()
        self.offsets.nothing_under_way()
        self._seen_ends.clear()

    # ── the broker ───────────────────────────────────────────────────────────────────────────────────────────────

    def _welcome(self, link: Link) -> None:
        self.node.server._welcome(LISTENER, link.socket, ("127.0.0.1", 1))

    def _close_locks(self, node: Node) -> None:
        node.store.close_locks()

    def _start(self) -> None:
        self.disk.start_again()
        self._must_restart = False
        if not self.calm and self.rng.random() < 0.15:
            self.disk.crash_in = self.rng.randint(0, 60)
        reactor = SimReactor(self.clock)
        node = Node(self._settings, clock=self.clock, disk=self.disk, reactor=reactor, workers=SimWorkers)
        node.writer.hand_over_bytes_min = 0

        def listen() -> Mapping[str, int]:
            reactor.every(TICK_SECONDS, node.server._tick)
            return {PLAINTEXT: LISTENER.port}

        node.server.listen = listen  # type: ignore[method-assign]
        self.node = node
        try:
            node.open()
        except OperatorError as error:
            raise ViolationError(f"the broker did not start: {error}") from error
        except Exception as error:
            raise ViolationError(f"the broker did not start: {error!r}\n{traceback.format_exc()}") from error

    def _check_logs(self) -> None:
        """After each step: nothing acknowledged is beyond what is visible, and what is visible never shrinks."""
        if self.node is None:
            return
        for key, log in self.node.store.logs.items():
            ends = log.start_offset, log.high_watermark, log.end_offset, log.next_offset
            check(list(ends) == sorted(ends), f"{log.name}: its ends are out of order: {ends}")
            acked_end = self.records.acked_end[key]
            check(log.high_watermark >= acked_end, f"{log.name}: acknowledged up to {acked_end}, visible are {ends}")
            before = self._seen_ends.get(key, 0)
            check(log.high_watermark >= before, f"{log.name}: visible up to {before}, and now to {log.high_watermark}")
            self._seen_ends[key] = log.high_watermark


class _TopicMaker(Client):
    def life(self) -> Life:
        configs = {"internal.segment.bytes": self.rng.choice(("400", "1500", "1048576"))}
        topics = [
            {
                "name": name,
                "num_partitions": count,
                "replication_factor": -1,
                "assignments": [],
                "configs": [{"name": key, "value": value} for key, value in configs.items()],
            }
            for name, count in TOPICS.items()
        ]
        answer = yield from self.call(CREATE_TOPICS, 7, {"topics": topics, "timeout": 1000})
        for topic in answer.topics:
            assert topic.error_code == 0, topic
            self.world.topic_ids[topic.name] = topic.topic_id

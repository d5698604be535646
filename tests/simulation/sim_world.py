"""One simulated world: a broker, its disk, its clients and the time, all under one random seed.

Each step is one thing that may happen: bytes arrive, a turn of the loop, a thread ends its job, time goes by, or
something breaks. Nothing else is random and nothing real is waited for, so a seed replays what it did.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import tempfile
import traceback
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from unittest import mock

from sim_client import CREATE_TOPICS, Client, Life
from sim_disk import BROKEN, FULL, Crash, SimDisk
from sim_history import CommittedOffsets, Ownership, Records, ViolationError, check
from sim_network import Link
from sim_reactor import SimReactor, SimWorkers

from headrace.broker.node import Node
from headrace.broker.server import TICK_SECONDS
from headrace.core.clock import ManualClock
from headrace.core.errors import OperatorError
from headrace.core.listeners import PLAINTEXT, ListenerAddress
from headrace.core.settings.broker import BrokerSettings
from headrace.log import log_writer

STEPS = 400
REST_STEPS_MAX = 6_000
TOPICS = {"a": 2, "b": 2, "out": 2}
SMALL, LARGE = 0, 48 << 10

LISTENER = ListenerAddress(PLAINTEXT, "127.0.0.1", 9092)


class World:
    def __init__(
        self,
        seed: int,
        populate: Callable[[World], list[Client]],
        look: Callable[[World, list[Client]], None],
        *,
        steps: int = STEPS,
    ) -> None:
        self.rng = random.Random(seed)
        self.steps = steps
        self._populate = populate
        self._look = look
        self.clock = ManualClock()
        self.records = Records()
        self.offsets = CommittedOffsets()
        self.ownership = Ownership()
        self.inits: dict[str, list[tuple[tuple[int, int], str, int]]] = {}  # by transactional id: producer, who, when
        self.transaction_count = 0
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.partitions = [(name, index) for name in ("a", "b") for index in range(TOPICS[name])]
        self.loses_power = self.rng.random() < 0.5
        self._badness = self.rng.choice((0.3, 1.0, 1.0, 2.0))  # how often things break
        self.node: Node | None = None
        self.ending = False
        self.calm = True  # nothing breaks
        self.clients: list[Client] = []
        self.trace: list[str] = []
        self.counts: dict[str, int] = {}
        self._links: list[Link] = []
        self._must_restart = False
        self._seen_ends: dict[tuple[str, int], int] = {}

    # ── a whole run ──────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        base = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self._root = tempfile.mkdtemp(prefix="headrace-simulation-", dir=base)
        inline = self.rng.choice((SMALL, 150, LARGE))
        ids = random.Random(self.rng.random())

        def fresh_id() -> uuid.UUID:
            return uuid.UUID(int=ids.getrandbits(128), version=4)

        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self._root, True)
            stack.callback(self._bury)
            stack.enter_context(mock.patch.object(log_writer, "INLINE_BYTES_MAX", inline))
            stack.enter_context(mock.patch.object(uuid, "uuid4", fresh_id))
            stack.callback(logging.disable, logging.root.manager.disable)
            logging.disable(logging.CRITICAL)
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
        else:
            reactor = self.node.reactor
            if reactor.has_results or any(link.busy or link.socket.inbox for link in self._links):
                choices.append((5, self._turn))
            if reactor.jobs():
                choices.append((3, self._job))
            if self._must_restart or self._is_offline():
                choices.append((0.3 if not self.calm else 5, self._kill))
        if any(link.socket.outbox or link.socket.closed for link in self._links):
            choices.append((5, self._deliver))
        if not self.calm:
            bad = self._badness
            choices += [(0.1 * bad, self._cut), (0.04 * bad, self._jump)]
            if self.node is not None:
                choices += [(0.03 * bad, self._kill), (0.02 * bad, self._stop), (0.05 * bad, self._break_disk)]
        actions = [action for _, action in choices]
        action = self.rng.choices(actions, [weight for weight, _ in choices])[0]
        name = action.__name__
        self.trace.append(name)
        self.counts[name] = self.counts.get(name, 0) + 1
        try:
            action()
        except Crash:
            self._died()
        self._check_logs()

    def _guarded(self, work: Callable[[], object]) -> None:
        """What the broker does; an error that comes out of it would have ended it."""
        try:
            work()
        except Exception as error:
            raise ViolationError(f"the broker ended itself: {error!r}\n{traceback.format_exc()}") from error

    def _turn(self) -> None:
        node = self.node
        if node is None:
            return
        links = self._links[:]
        self.rng.shuffle(links)
        events = []
        for link in links:
            socket = link.socket
            if link.up and self.rng.random() < 0.7:
                size = len(link.up) if self.rng.random() < 0.9 else self.rng.randint(1, len(link.up))
                socket.inbox += link.up[:size]
                del link.up[:size]
            elif link.left and not link.up and not socket.inbox:
                socket.ended = True
            mask = socket.events(node.reactor.interest.get(socket.fileno(), 0))
            if mask:
                events.append((socket.fileno(), mask))
        self._guarded(lambda: node.reactor.turn(events))
        self._links = [link for link in self._links if not (link.left and link.socket.closed)]
        if not node.reactor.has_results and not node.reactor.jobs() and not any(link.left for link in self._links):
            self.offsets.nothing_under_way()

    def _job(self) -> None:
        assert self.node is not None
        lane, at = self.rng.choice(self.node.reactor.jobs())
        self._guarded(lambda: lane.run_one(at))

    def _deliver(self) -> None:
        """Answers, or the end of a connection, reach a client."""
        ready = [link for link in self._links if link.socket.outbox or link.socket.closed]
        self.rng.shuffle(ready)
        for link in ready[: self.rng.randint(1, len(ready))]:
            outbox = link.socket.outbox
            if outbox:
                size = len(outbox) if self.rng.random() < 0.9 else self.rng.randint(1, len(outbox))
                data = bytes(outbox[:size])
                del outbox[:size]
                if not link.left:
                    link.client.received(link, data)
            else:
                self._links.remove(link)
                if not link.left:
                    link.client.lost(link)

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

    # ── connections ──────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, client: Client) -> Link | None:
        node = self.node
        if node is None:
            return None
        link = Link(client, self.rng.choice((150, 1 << 20, 1 << 20, 1 << 20)))
        self._guarded(lambda: node.server._welcome(LISTENER, link.socket, ("127.0.0.1", 1)))  # type: ignore[arg-type]
        self._links.append(link)
        return link

    def leave(self, link: Link) -> None:
        """Its client has given it up. What is on its way is lost, or comes later."""
        link.left = True
        if not link.client.stragglers or self.rng.random() < 0.5:
            link.up.clear()

    # ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _cut(self) -> None:
        """A connection is lost: with a request on its way, or with an answer."""
        candidates = [link for link in self._links if not link.left]
        if candidates:
            link = self.rng.choice(candidates)
            client = link.client
            self.leave(link)
            client.lost(link)

    def _jump(self) -> None:
        self.clock.advance(self.rng.choices((2_000, 7_000, 15_000, 70_000), (4, 3, 2, 1))[0])
        self._wake()

    def _kill(self) -> None:
        raise Crash

    def _stop(self) -> None:
        """A clean stop."""
        node = self.node
        assert node is not None
        self._guarded(node.close)
        self.node = None
        self._all_links_end()

    def _break_disk(self) -> None:
        kind = self.rng.choice(("full", "full", "write", "sync", "crash", "crash", "crash"))
        if kind == "full":
            self.disk.refusals += [("write", FULL)] * self.rng.randint(1, 3)
        elif kind == "crash":
            self.disk.crash_in = self.rng.randint(0, 12)
        else:
            self.disk.refusals.append((kind, BROKEN))
            self._must_restart = True

    def _is_offline(self) -> bool:
        assert self.node is not None
        return not all(directory.online for directory in self.node.store.directories)

    def _died(self) -> None:
        self._bury()
        if self.loses_power and self.rng.random() < 0.7:
            self.counts["power lost"] = self.counts.get("power lost", 0) + 1
            self.disk.lose_power()
        self._all_links_end()

    def _bury(self) -> None:
        node, self.node = self.node, None
        self.disk.broker_died()
        if node is not None:
            node.store.close_locks()

    def _all_links_end(self) -> None:
        links, self._links = self._links, []
        self.rng.shuffle(links)
        for link in links:
            if not link.left:
                if link.socket.outbox and self.rng.random() < 0.5:
                    link.client.received(link, bytes(link.socket.outbox))
                link.client.lost(link)
        self.offsets.nothing_under_way()
        self._seen_ends.clear()

    # ── the broker ───────────────────────────────────────────────────────────────────────────────────────────────

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

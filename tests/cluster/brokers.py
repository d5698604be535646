"""Brokers of one cluster in this process, each on a loop and a thread of its own, with a keeper between them."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import raw
from waits import eventually

from headrace.broker.cluster_settings import ClusterSettings
from headrace.broker.node import Node
from headrace.core.settings.broker import BrokerSettings
from headrace.net.node_thread import NodeThread
from headrace.replication.fetcher import FetchSettings
from headrace.testing import Keeper, loop_access

SESSION_MS = 6_000
SETTINGS: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 3,
    "transaction_state_log_num_partitions": 3,
}
Value = TypeVar("Value")


class Brokers:
    """`start`, `kill`, `stop` by number; a broker keeps its port and its directory over its restarts."""

    def __init__(self, directory: Path, keeper: Keeper, count: int = 3, **settings: Any) -> None:
        self.directory = directory
        self.keeper = keeper
        self._settings = {**SETTINGS, **settings}
        self._ports: dict[int, int] = {}
        self.running: dict[int, NodeThread[Node]] = {}
        self._gates: dict[int, threading.Event] = {}  # of brokers that stand still
        for number in range(1, count + 1):
            self.start(number)
        self.until("all know all", lambda node: len(node.cluster.image.brokers) == count)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def path(self, number: int) -> Path:
        return self.directory / f"broker-{number}"

    def start(self, number: int) -> None:
        settings = BrokerSettings(
            host="127.0.0.1",
            port=self._ports.get(number, 0),
            node_id=number,
            log_dirs=(str(self.path(number)),),
            **self._settings,
        )
        own = ClusterSettings(
            connect=self.keeper.hosts, session_timeout_ms=SESSION_MS, fetch=FetchSettings(backoff_ms=100)
        )
        running = NodeThread(lambda: Node(settings, cluster=own), f"broker-{number}")
        running.start_and_wait()
        self.running[number] = running
        self._ports[number] = running.node.port

    def stop(self, number: int) -> None:
        self.running.pop(number).stop_and_wait()

    def kill(self, number: int) -> None:
        self.running.pop(number).kill_and_wait()

    def pause(self, number: int) -> None:
        """As SIGSTOP: its connections stay open, nothing is answered."""
        self._gates[number] = loop_access.hold(self.node(number).reactor, f"broker-{number}")

    def resume(self, number: int) -> None:
        self._gates.pop(number).set()

    def replace_disk(self, number: int) -> None:
        """Of a broker that does not run."""
        shutil.rmtree(self.path(number))

    def close(self) -> None:
        for gate in self._gates.values():
            gate.set()
        for number in list(self.running):
            self.stop(number)

    # ── what they know ───────────────────────────────────────────────────────────────────────────────────────────

    def node(self, number: int) -> Node:
        return self.running[number].node

    def on_loop(self, number: int, work: Callable[[Node], Value]) -> Value:
        node = self.node(number)
        return loop_access.call(node.reactor, lambda: work(node))  # type: ignore[no-any-return]

    def until(self, what: str, is_so: Callable[[Node], object]) -> None:
        """All that run see it so."""
        eventually(lambda: all(self.on_loop(number, is_so) for number in self.running), what)

    def client(self, number: int) -> raw.Client:
        return raw.Client(f"127.0.0.1:{self._ports[number]}")

    def create(self, name: str, partitions: int = 1, factor: int = 3, **configs: str) -> None:
        number = next(iter(self.running))
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": factor,
            "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
        }
        with self.client(number) as client:
            (answer,) = client.call(raw.CREATE_TOPICS, 7, {"topics": [topic], "timeout": 60_000}).topics
        assert answer.error_code == 0, answer

    def leader_of(self, topic: str, index: int = 0) -> int:
        number = next(iter(self.running))
        return self.on_loop(number, lambda node: node.cluster.image.topics[topic].partitions[index].leader)

    def isr_of(self, topic: str, index: int = 0) -> set[int]:
        number = next(iter(self.running))
        return self.on_loop(number, lambda node: set(node.cluster.image.topics[topic].partitions[index].isr))

    def logs(self, topic: str, index: int = 0) -> dict[int, tuple[int, int, bytes]]:
        """Of each broker that runs: where its log ends, what is committed of it, and its bytes."""

        def of(node: Node) -> tuple[int, int, bytes] | None:
            log = node.store.find(topic, index)
            if log is None:
                return None
            data = b"".join(Path(segment.log_path).read_bytes() for segment in log.segments)
            return log.end_offset, log.high_watermark, data

        found = {number: self.on_loop(number, of) for number in self.running}
        return {number: each for number, each in found.items() if each is not None}

    def until_equal(self, topic: str, index: int = 0) -> None:
        """All replicas have the same bytes, and all of it is committed."""

        def are_equal() -> bool:
            logs = list(self.logs(topic, index).values())
            return len({(end, data) for end, _, data in logs}) == 1 and all(end == mark for end, mark, _ in logs)

        eventually(are_equal, f"the replicas of {topic}-{index} are equal")

"""Brokers without logs, on one loop: each registers, reads the tree, stands for controller and does what is planned.

What is in a broker beside that (logs, clients) is not here; the tree is real.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from waits import WAIT_S_MAX, eventually

from headrace.client.zookeeper.on_loop import LoopClient
from headrace.client.zookeeper.session import Resumed
from headrace.core.clock import SystemClock
from headrace.core.errors import OperatorError
from headrace.net.reactor import Reactor
from headrace.net.workers import Workers
from headrace.replication.cluster import Cluster
from headrace.replication.cluster_session import ClusterSession
from headrace.replication.image import BrokerImage, ClusterImage, Endpoint, PartitionImage
from headrace.replication.membership import Membership
from headrace.replication.participant import Participant
from headrace.replication.znodes import Registration
from headrace.testing import loop_access

TIMEOUT_MS = 6_000
Value = TypeVar("Value")


class Broker:
    """One start of a broker."""

    def __init__(self, rig: Rig, number: int, *, boot: str, directory: str, clean: bool, cluster_id: str) -> None:
        self.rig = rig
        self.number = number
        self.refused: list[OperatorError] = []
        self.saved: Resumed | None = None
        told = Registration(
            broker=BrokerImage(id=number, endpoints={"PLAINTEXT": Endpoint(host="127.0.0.1", port=9000 + number)})
        )
        reactor = rig.reactor
        self.part = Participant(
            number,
            Cluster(ClusterImage(cluster_id=cluster_id)),
            now_ms=rig.clock.now_ms,
            call_soon=reactor.call_soon,
            membership=lambda joined: Membership(
                told,
                cluster_id=cluster_id,
                new_cluster_id=lambda: f"of-broker-{number}",
                boot_id=boot,
                directories=frozenset({directory}),
                was_clean=clean,
                call_soon=reactor.call_soon,
                call_later=reactor.call_later,
                joined=joined,
                refused=self.refused.append,
            ),
        )
        self.session = ClusterSession(self._client, self.part, self._save)

    def _client(self, resumed: Resumed | None, heard: Callable[..., None]) -> LoopClient:
        rig = self.rig
        made = LoopClient(
            rig.reactor, rig.resolving, rig.clock, rig.hosts, timeout_ms=TIMEOUT_MS, resumed=resumed, on_state=heard
        )
        made.start()
        return made

    def _save(self, credentials: Resumed) -> None:
        self.saved = credentials

    @property
    def image(self) -> ClusterImage:
        return self.part.cluster.image

    def partition(self, topic: str, index: int = 0) -> PartitionImage | None:
        return self.image.partition(topic, index)


class Rig:
    """The loop on which all of them live."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.clock = SystemClock()
        self.reactor = Reactor()
        self.resolving = Workers("resolving", 1, self.reactor)
        self.brokers: dict[int, Broker] = {}
        self._thread = threading.Thread(target=self.reactor.run, daemon=True)
        self._thread.start()

    def start(
        self,
        number: int,
        *,
        boot: str = "boot",
        directory: str = "",
        clean: bool = False,
        cluster_id: str = "",
        former: Resumed | None = None,
    ) -> Broker:
        def begin() -> Broker:
            made = Broker(
                self, number, boot=boot, directory=directory or f"d{number}", clean=clean, cluster_id=cluster_id
            )
            made.session.start(former)
            return made

        self.brokers[number] = self.on_loop(begin)
        return self.brokers[number]

    def kill(self, number: int) -> Broker:
        """Its session lives on until it is over, or until the broker that starts again ends it."""
        broker = self.brokers.pop(number)
        self.on_loop(broker.session.abandon)
        return broker

    def stop(self, number: int) -> Broker:
        broker = self.brokers.pop(number)
        closed = threading.Event()
        self.on_loop(lambda: broker.session.close(closed.set))
        assert closed.wait(WAIT_S_MAX)
        return broker

    def on_loop(self, work: Callable[[], Value]) -> Value:
        return loop_access.call(self.reactor, work)  # type: ignore[no-any-return]

    def until(self, what: str, is_so: Callable[[Broker], object], brokers: Iterable[int] = ()) -> None:
        """All of these brokers (or all) see it so."""
        which = [self.brokers[each] for each in (list(brokers) or self.brokers)]
        eventually(lambda: self.on_loop(lambda: all(is_so(each) for each in which)), what)

    def controllers(self) -> list[int]:
        return self.on_loop(lambda: [each.number for each in self.brokers.values() if each.part.controller.is_active])

    def close(self) -> None:
        for number in list(self.brokers):
            self.kill(number)
        self.reactor.stop()
        self._thread.join(WAIT_S_MAX)
        self.resolving.close()
        self.reactor.close()

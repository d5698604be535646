"""Three real Apache Kafka 3.9 brokers in ZooKeeper mode on a keeper, while brokers and the keeper are killed.

`make keeper-kafka MINUTES=…` goes on breaking things for so long; `SEED=…` makes the same choices again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import maven
import pytest
from apache_kafka import KafkaCluster
from kafka_load import Load, Tree
from keeper_process import KeeperProcess
from waits import eventually

IDS = (1, 2, 3)
RECORDS = 300


class World:
    """A keeper, three brokers on it, and who looks on."""

    def __init__(self, keeper: KeeperProcess, cluster: KafkaCluster, tree: Tree) -> None:
        self.keeper = keeper
        self.cluster = cluster
        self.tree = tree
        self.load = Load(cluster.bootstrap)

    def restart_keeper(self) -> None:
        """Brokers go on with their sessions and their watches, and producers notice nothing."""
        before = {id: self.tree.owner(f"/brokers/ids/{id}") for id in self.tree.brokers()}
        self.keeper.kill()
        for topic in self.load.acknowledged:
            self.load.produce(topic, RECORDS)
        self.load.flush()
        self.keeper.start()
        assert {id: self.tree.owner(f"/brokers/ids/{id}") for id in self.tree.brokers()} == before

    def kill_broker(self, id: int, topic: str) -> None:
        others = set(IDS) - {id}
        self.cluster.brokers[id].kill()
        self.load.produce(topic, RECORDS)
        self.tree.await_brokers(*others)
        self.tree.await_leaders(topic, others)
        eventually(lambda: self.tree.controller() in others, "another broker is the controller")
        self.load.flush()

    def start_broker(self, id: int, topic: str) -> None:
        self.cluster.brokers[id].start()
        self.tree.await_brokers(*IDS)
        self.tree.await_in_sync(topic, IDS)

    def expire(self, id: int, topic: str) -> None:
        """The broker stands still until its session is over; then it comes back with another one."""
        before = self.tree.owner(f"/brokers/ids/{id}")
        self.cluster.brokers[id].pause()
        self.tree.await_brokers(*(set(IDS) - {id}))
        self.cluster.brokers[id].go_on()
        self.tree.await_brokers(*IDS)
        assert self.tree.owner(f"/brokers/ids/{id}") not in (None, 0, before)
        self.tree.await_in_sync(topic, IDS)

    def check(self) -> None:
        for topic in self.load.acknowledged:
            self.load.check(topic)
        for broker in self.cluster.brokers.values():
            assert broker.running, broker.said()
        self.keeper.check()


@pytest.fixture
def minutes(request: pytest.FixtureRequest) -> float:
    """Asked for before any broker is started."""
    given = request.config.getoption("--minutes")
    if given is None:
        pytest.skip("make keeper-kafka runs it")
    return float(given)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    missing = maven.missing_program()
    if missing:
        pytest.skip(f"{missing} is not installed")
    with (
        KeeperProcess(tmp_path / "keeper", {"tickTime": "500", "snapCount": "400"}) as keeper,
        KafkaCluster(tmp_path, keeper.hosts, len(IDS)) as cluster,
    ):
        tree = Tree(keeper.hosts)
        tree.client.ensure_path("/brokers/ids")
        tree.await_brokers(*IDS)
        yield World(keeper, cluster, tree)
        tree.close()


def test_apache_kafka_lives_on_a_keeper_through_kills_of_both(world: World) -> None:
    tree, load = world.tree, world.load
    load.create("orders", 3, 3)
    tree.await_in_sync("orders", IDS)
    load.produce("orders", RECORDS)
    load.flush()

    controller = tree.controller()
    assert controller is not None
    world.kill_broker(controller, "orders")
    world.restart_keeper()
    load.create("made-after-a-kill", 1, 2)  # the controller watches the topics, which it has set again
    world.start_broker(controller, "orders")

    tree.reassign("orders", {0: [2, 3], 1: [3, 1], 2: [1, 2]})
    tree.elect_preferred("orders", (0, 1, 2))
    tree.reassign("orders", {0: [1, 2, 3], 1: [1, 2, 3], 2: [1, 2, 3]})
    tree.await_in_sync("orders", IDS)
    world.expire(next(id for id in IDS if id != tree.controller()), "orders")
    world.check()
    load.delete("made-after-a-kill")
    eventually(lambda: tree.read("/brokers/topics/made-after-a-kill") is None, "the topic is deleted")


def test_apache_kafka_loses_nothing_however_long_it_is_broken(
    minutes: float, world: World, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--seed", None)
    choose = random.Random(seed)
    tree, load = world.tree, world.load
    load.create("orders", 3, 3)
    tree.await_in_sync("orders", IDS)
    ends = time.monotonic() + 60 * minutes
    while time.monotonic() < ends:
        load.produce("orders", RECORDS)
        what = choose.choice(("keeper", "keeper", "broker", "expire", "reassign"))
        if what == "keeper":
            world.restart_keeper()
        elif what == "broker":
            id = choose.choice(IDS)
            world.kill_broker(id, "orders")
            world.start_broker(id, "orders")
        elif what == "expire":
            world.expire(choose.choice(IDS), "orders")
        else:
            tree.reassign("orders", {number: choose.sample(IDS, choose.choice((2, 3))) for number in range(3)})
            tree.reassign("orders", {number: choose.sample(IDS, 3) for number in range(3)})
            tree.await_in_sync("orders", IDS)
        load.flush()
    world.check()

"""Several brokers' parts in one cluster, on a keeper and on a real ZooKeeper: who is there, who decides, who leads."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from participants import Broker, Rig
from ports import reserved_port
from test_client import Server, _keeper, _zookeeper
from zookeeper import missing_program

from headrace.client.zookeeper.blocking import BlockingClient
from headrace.replication import znodes
from headrace.replication.image import NO_LEADER
from headrace.replication.znodes import Assignment

ORDERS = uuid.UUID(int=7)


@pytest.fixture(params=["keeper", "zookeeper"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "zookeeper" and (missing := missing_program()):
        pytest.skip(f"{missing} is not installed")
    with reserved_port() as port:
        kind = _keeper if request.param == "keeper" else _zookeeper
        made = Server(port, kind(tmp_path / "data", port))
        made.start()
        try:
            yield made
        finally:
            made.kill()


@pytest.fixture
def rig(server: Server) -> Iterator[Rig]:
    made = Rig(server.hosts)
    yield made
    made.close()


@pytest.fixture
def tree(server: Server) -> Iterator[BlockingClient]:
    with BlockingClient(server.hosts, timeout_ms=60_000) as client:
        yield client


def make_topic(tree: BlockingClient, name: str, *replicas: tuple[int, ...]) -> None:
    assignment = Assignment(id=ORDERS, replicas=replicas)
    tree.create(znodes.topic_settings(name), znodes.write_settings({"retention.ms": "5"}))
    tree.create(znodes.topic(name), znodes.write_assignment(assignment))


def led_by(topic: str, leader: int, *isr: int, index: int = 0):
    def is_so(broker: Broker) -> bool:
        found = broker.partition(topic, index)
        return found is not None and found.leader == leader and (not isr or set(found.isr) == set(isr))

    return is_so


def three(rig: Rig) -> None:
    for number in (1, 2, 3):
        rig.start(number)
    rig.until("all see all three", lambda each: set(each.image.brokers) == {1, 2, 3})


def test_brokers_find_each_other_and_one_of_them_is_the_controller(rig: Rig, tree: BlockingClient) -> None:
    three(rig)
    rig.until("all know the controller", lambda each: each.image.controller_id in (1, 2, 3))
    (controller,) = rig.controllers()
    rig.until("it is the same one", lambda each: each.image.controller_id == controller)
    assert {each.image.cluster_id for each in rig.brokers.values()} == {
        znodes.read_cluster_id(tree.get(znodes.CLUSTER_ID).data or b"")
    }
    assert znodes.read_controller_epoch(tree.get(znodes.CONTROLLER_EPOCH).data or b"") == 1
    assert [each.incarnation for each in rig.brokers[1].image.brokers.values()] == [1, 1, 1]


def test_a_topic_gets_leaders_and_its_tree_is_apache_kafkas(rig: Rig, tree: BlockingClient) -> None:
    three(rig)
    make_topic(tree, "orders", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    for index, leader in enumerate((1, 2, 3)):
        rig.until("it is led", led_by("orders", leader, 1, 2, 3, index=index))
    assert rig.brokers[2].image.topics["orders"].overrides == {"retention.ms": "5"}
    found = znodes.read_state("orders", 0, tree.get(znodes.state("orders", 0)).data or b"", 0)
    assert (found.leader, found.leader_epoch, found.controller_epoch, found.isr) == (1, 0, 1, (1, 2, 3))


def test_the_death_of_a_leader_and_of_the_controller_elects_others(rig: Rig, tree: BlockingClient) -> None:
    three(rig)
    make_topic(tree, "orders", (1, 2, 3))
    rig.until("it is led", led_by("orders", 1))
    (controller,) = rig.controllers()
    first = rig.stop(controller) if controller != 1 else rig.kill(1)
    if controller != 1:
        rig.kill(1)
    left = next(iter(rig.brokers))
    rig.until("the leader that is left leads", lambda each: each.partition("orders").leader in rig.brokers)
    rig.until("it has the next epoch", lambda each: each.partition("orders").leader_epoch >= 1)
    assert len(rig.controllers()) == 1
    assert rig.on_loop(lambda: rig.brokers[left].image.controller_id) in rig.brokers
    assert first.number not in rig.brokers


def test_a_broker_that_was_killed_comes_back_at_once_and_leads_what_it_led(rig: Rig, tree: BlockingClient) -> None:
    rig.start(1)
    rig.until("it is there", lambda each: 1 in each.image.brokers)
    make_topic(tree, "orders", (1,))
    rig.until("it is led", led_by("orders", 1, 1))
    killed = rig.kill(1)
    rig.start(1, former=killed.saved, cluster_id=killed.image.cluster_id)
    rig.until(
        "the next incarnation leads",
        lambda each: each.partition("orders") and each.partition("orders").leader_incarnation == 2,
    )
    assert rig.brokers[1].image.brokers[1].intact_from == 1


def test_a_broker_that_lost_its_disk_is_elected_over_nobody_who_has_the_data(rig: Rig, tree: BlockingClient) -> None:
    three(rig)
    make_topic(tree, "orders", (1, 2))
    rig.until("it is led", led_by("orders", 1, 1, 2))
    rig.stop(2)
    rig.kill(1)
    rig.until("nobody leads", led_by("orders", NO_LEADER))
    rig.start(1, directory="another disk")
    rig.until("it is there again", lambda each: 1 in each.image.brokers and each.image.brokers[1].intact_from == 2)
    rig.until("and leads nothing", led_by("orders", NO_LEADER))
    rig.start(2, clean=True)
    rig.until("who has the data leads", led_by("orders", 2))


def test_everybody_goes_on_after_a_restart_of_the_server(rig: Rig, server: Server) -> None:
    three(rig)
    with BlockingClient(server.hosts, timeout_ms=60_000) as tree:
        make_topic(tree, "orders", (1, 2, 3))
    rig.until("it is led", led_by("orders", 1))
    (controller,) = rig.controllers()
    epochs = rig.on_loop(lambda: [each.image.brokers[1].incarnation for each in rig.brokers.values()])
    server.kill()
    rig.until("nobody decides", lambda each: not each.part.controller.is_active)
    rig.until("what is known stays", led_by("orders", 1))
    server.start()
    rig.until("all is read again", lambda each: each.part.reader.is_current)
    rig.until("somebody decides", lambda each: rig.brokers[controller].part.controller.is_active)
    assert epochs == rig.on_loop(lambda: [each.image.brokers[1].incarnation for each in rig.brokers.values()])
    with BlockingClient(server.hosts, timeout_ms=60_000) as tree:
        make_topic(tree, "users", (3, 2))
        rig.until("a new topic is led", led_by("users", 3, 2, 3))


def test_a_deleted_topic_leaves_nothing_behind(rig: Rig, tree: BlockingClient) -> None:
    three(rig)
    make_topic(tree, "orders", *[(1, 2, 3)] * 300)
    rig.until("it is led", led_by("orders", 1, index=299))
    tree.create(znodes.deleted_topic("orders"))
    rig.until("it is gone", lambda each: "orders" not in each.image.topics and not each.part.view.deleted)
    for path in (znodes.topic("orders"), znodes.topic_settings("orders"), znodes.deleted_topic("orders")):
        assert tree.exists(path) is None, path


def test_a_controller_whose_epoch_is_over_writes_nothing_before_it_was_elected_again(
    rig: Rig, tree: BlockingClient
) -> None:
    three(rig)
    rig.until("somebody decides", lambda each: each.image.controller_id in (1, 2, 3))
    version = tree.exists(znodes.CONTROLLER_EPOCH).version
    # As if another one had been elected and were gone again, of which nobody has heard.
    tree.set(znodes.CONTROLLER_EPOCH, b"9", version)
    make_topic(tree, "orders", (1, 2, 3))
    rig.until("it is led", led_by("orders", 1, 1, 2, 3))
    found = znodes.read_state("orders", 0, tree.get(znodes.state("orders", 0)).data or b"", 0)
    assert found.controller_epoch == 9


def test_a_broker_of_another_cluster_is_refused(rig: Rig, tree: BlockingClient) -> None:
    three(rig)
    there = rig.brokers[1].image.cluster_id
    rig.start(4, cluster_id="another")
    rig.until("it is refused", lambda each: each.refused, [4])
    assert str(rig.brokers[4].refused[0]) == (
        f"broker 4: its data is of cluster another, zookeeper.connect leads to cluster {there};"
        " give the address of its own ZooKeeper, or an empty directory"
    )
    assert tree.exists(znodes.broker(4)) is None

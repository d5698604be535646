"""The image that follows from the tree, whatever the order in which its znodes are read."""

import uuid
from random import Random

import pytest

from headrace.replication import znodes
from headrace.replication.image import (
    NO_CONTROLLER,
    NO_LEADER,
    NO_VERSION,
    BrokerImage,
    ClusterImage,
    Endpoint,
    PartitionImage,
)
from headrace.replication.tree_view import TreeView, is_read
from headrace.replication.znodes import Assignment, ForeignError, Registration

ORDERS = uuid.UUID(int=1)


def registration(number, **offline):
    told = BrokerImage(id=number, endpoints={"PLAINTEXT": Endpoint(host="h", port=9000 + number)}, incarnation=2)
    return znodes.write_registration(Registration(broker=told, offline=offline))


def state(leader, isr, epoch=3):
    told = PartitionImage(replicas=isr, leader=leader, leader_epoch=epoch, isr=isr, leader_incarnation=2)
    return znodes.write_state(told, 1)


def whole_tree():
    assignment = Assignment(id=ORDERS, replicas=((1, 2), (2, 3)), adding={1: (3,)})
    return {
        znodes.broker(1): registration(1),
        znodes.broker(2): registration(2, orders=(1,)),
        znodes.topic("orders"): znodes.write_assignment(assignment),
        znodes.state("orders", 0): state(1, (1, 2)),
        znodes.state("orders", 1): state(2, (2,)),
        znodes.topic_settings("orders"): znodes.write_settings({"retention.ms": "5"}),
        znodes.CONTROLLER: znodes.write_controller(2, 0),
        znodes.deleted_topic("users"): b"",
        znodes.broker_settings(None): znodes.write_settings({"a": "b"}),
    }


def image_of(view, image=None):
    image = image or ClusterImage(cluster_id="c")
    delta = view.delta()
    return image.changed(delta) if delta is not None else image


def test_the_image_says_what_the_tree_says():
    view = TreeView()
    for path, data in whole_tree().items():
        view.put(path, data, 7)
    image = image_of(view)
    orders = image.topics["orders"]
    assert (list(image.brokers), image.controller_id, orders.id) == ([1, 2], 2, ORDERS)
    assert orders.overrides == {"retention.ms": "5"}
    first, second = orders.partitions
    assert (first.leader, first.isr, first.version, first.offline) == (1, (1, 2), 7, ())
    assert (second.leader, second.adding, second.offline) == (2, (3,), (2,))
    assert (view.deleted, view.broker_settings) == ({"users"}, {"<default>": {"a": "b"}})
    assert view.delta() is None, "it was told"


def test_a_topic_whose_states_were_not_written_yet_has_partitions_without_one():
    view = TreeView()
    view.put(znodes.topic("orders"), whole_tree()[znodes.topic("orders")], 0)
    for each in image_of(view).topics["orders"].partitions:
        assert (each.leader, each.version) == (NO_LEADER, NO_VERSION)


def test_what_is_gone_from_the_tree_is_gone_from_the_image():
    view = TreeView()
    for path, data in whole_tree().items():
        view.put(path, data, 7)
    image = image_of(view)
    for path in whole_tree():
        view.remove(path)
    image = image_of(view, image)
    assert (image.brokers, image.topics, image.names, image.controller_id) == ({}, {}, {}, NO_CONTROLLER)
    assert (view.deleted, view.broker_settings) == (set(), {})


def test_a_znode_that_makes_no_sense_leaves_what_was_known():
    view = TreeView()
    for path, data in whole_tree().items():
        view.put(path, data, 7)
    image = image_of(view)
    for path in whole_tree():
        if path != znodes.deleted_topic("users"):
            with pytest.raises(ForeignError):
                view.put(path, b"?", 8)
    assert image_of(view, image) is image


@pytest.mark.parametrize("seed", range(50))
def test_the_order_in_which_znodes_are_read_does_not_matter(seed):
    random = Random(seed)
    tree = whole_tree()
    view, image = TreeView(), ClusterImage(cluster_id="c")
    paths = list(tree)
    for _ in range(60):  # on the way anything may come and go
        path = random.choice(paths)
        if random.random() < 0.3:
            view.remove(path)
        else:
            view.put(path, tree[path], random.randrange(9))
        if random.random() < 0.3:
            image = image_of(view, image)
    random.shuffle(paths)
    for path in sorted(paths, key=lambda each: each != znodes.topic("orders")) if seed % 2 else paths:
        view.put(path, tree[path], 7)
    image = image_of(view, image)
    plain = TreeView()
    for path, data in tree.items():
        plain.put(path, data, 7)
    wanted = image_of(plain)
    assert (image.brokers, image.topics, image.controller_id) == (wanted.brokers, wanted.topics, wanted.controller_id)


def test_only_znodes_that_matter_are_read():
    assert all(is_read(path) for path in whole_tree())
    assert not is_read("/brokers/topics/orders/partitions/0")
    assert not is_read("/controller_epoch")

"""The image of the cluster: a value that a delta makes another one of."""

import uuid

from headrace.replication.cluster import Cluster
from headrace.replication.image import NO_LEADER, BrokerImage, ClusterImage, ImageDelta, PartitionImage, TopicImage

ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)


def broker(number):
    return BrokerImage(id=number, endpoints={})


def topic(name, topic_id, *partitions):
    return TopicImage(name=name, id=topic_id, partitions=partitions or (PartitionImage(replicas=(1, 2), leader=1),))


def image(**topics):
    return ClusterImage(cluster_id="c").changed(
        ImageDelta(brokers={2: broker(2), 1: broker(1)}, topics=topics, controller_id=1)
    )


def test_an_image_that_was_taken_stays_as_it_was():
    before = image(orders=topic("orders", ONE))
    after = before.changed(ImageDelta(topics={"orders": None, "users": topic("users", TWO)}))
    assert (list(before.topics), list(after.topics)) == (["orders"], ["users"])
    assert (before.topic_by_id(ONE).name, after.topic_by_id(ONE), after.topic_by_id(TWO).name) == (
        "orders",
        None,
        "users",
    )
    assert after.revision == before.revision + 1


def test_a_topic_that_was_made_again_is_found_by_its_new_id_only():
    after = image(orders=topic("orders", ONE)).changed(ImageDelta(topics={"orders": topic("orders", TWO)}))
    assert (after.topic_by_id(ONE), after.topic_by_id(TWO).id) == (None, TWO)


def test_brokers_stand_in_the_order_of_their_ids_and_leave():
    before = image()
    assert (list(before.brokers), before.controller_id) == ([1, 2], 1)
    after = before.changed(ImageDelta(brokers={1: None, 0: broker(0)}))
    assert (list(after.brokers), after.controller_id) == ([0, 2], 1)


def test_a_leader_that_is_not_alive_is_none_and_its_replicas_are_offline():
    partition = PartitionImage(replicas=(1, 2, 3), leader=3, isr=(1, 3), offline=(2,))
    now = image()
    assert now.live_leader(partition) == NO_LEADER
    assert now.offline_replicas(partition) == (2, 3)
    back = now.changed(ImageDelta(brokers={3: broker(3)}))
    assert (back.live_leader(partition), back.offline_replicas(partition)) == (3, (2,))


def test_a_partition_that_is_not_there_is_none():
    now = image(orders=topic("orders", ONE))
    assert now.partition("orders", 0).leader == 1
    assert now.partition("orders", 1) is now.partition("orders", -1) is now.partition("users", 0) is None


def test_whoever_listens_is_told_what_was_and_what_changed():
    told = []
    cluster = Cluster(image())
    cluster.on_change.append(lambda before, delta: told.append((list(before.topics), list(delta.topics))))
    cluster.apply(ImageDelta(topics={"orders": topic("orders", ONE)}))
    cluster.apply(ImageDelta(topics={"orders": None}))
    assert told == [([], ["orders"]), (["orders"], ["orders"])]
    assert not cluster.image.topics

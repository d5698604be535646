"""A second broker that is not there, put into the cluster's image: what this broker does and tells clients."""

import uuid

import pytest

from headrace.broker.partition import ELSEWHERE, FOLLOWER, LEADER, OFFLINE
from headrace.broker.steps import finish
from headrace.protocol import error_codes as codes
from headrace.replication.image import BrokerImage, Endpoint, ImageDelta, PartitionImage, TopicImage

METADATA, FIND, CREATE, CLUSTER, DESCRIBE = 3, 10, 19, 60, 75
OTHER = 7
ID = uuid.UUID(int=77)


@pytest.fixture
def other():
    return BrokerImage(id=OTHER, endpoints={"PLAINTEXT": Endpoint(host="other", port=9099)}, rack="east")


@pytest.fixture
def pair(node, other):
    """Broker 1, which runs, and broker 7; of a topic, one partition is led here, one there, one is not here at all."""
    partitions = (
        PartitionImage(replicas=(1, OTHER), leader=1, leader_epoch=4, isr=(1, OTHER)),
        PartitionImage(replicas=(OTHER, 1), leader=OTHER, leader_epoch=5, isr=(OTHER,)),
        PartitionImage(replicas=(OTHER,), leader=OTHER, leader_epoch=6, isr=(OTHER,)),
    )
    topic = TopicImage(name="orders", id=ID, partitions=partitions)
    node.cluster.apply(ImageDelta(brokers={OTHER: other}, topics={"orders": topic}))
    finish(node.topics.reconcile(node.cluster.image))
    return node


def metadata(client, node, version=13):
    return client.ask(
        node,
        METADATA,
        version,
        topics=None,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
        include_cluster_authorized_operations=False,
    )


def apply_partition(node, index, **state):
    topic = node.cluster.image.topics["orders"]
    partitions = list(topic.partitions)
    partitions[index] = PartitionImage(**state)
    changed = TopicImage(name="orders", id=ID, partitions=tuple(partitions))
    node.cluster.apply(ImageDelta(topics={"orders": changed}))
    finish(node.topics.reconcile(node.cluster.image))


def test_the_broker_makes_the_logs_that_the_image_gives_it_and_no_other(pair):
    partitions = pair.topics.get("orders").partitions
    assert [each.role for each in partitions] == [LEADER, FOLLOWER, ELSEWHERE]
    assert [each.local is not None for each in partitions] == [True, True, False]
    assert (partitions[0].led.leader_epoch, partitions[0].isr) == (4, (1, OTHER))
    assert pair.store.find("orders", 2) is None


def test_metadata_tells_of_both_brokers_and_of_each_leader(pair, client):
    answer = metadata(client, pair)
    assert {(each.node_id, each.host, each.rack) for each in answer.brokers} == {
        (1, "127.0.0.1", None),
        (OTHER, "other", "east"),
    }
    told = [
        (each.leader_id, each.leader_epoch, each.replica_nodes, each.isr_nodes) for each in answer.topics[0].partitions
    ]
    assert told == [(1, 4, (1, 7), (1, 7)), (7, 5, (7, 1), (7,)), (7, 6, (7,), (7,))]
    page = client.ask(pair, DESCRIBE, topics=[{"name": "orders"}], response_partition_limit=10, cursor=None)
    assert [each.leader_id for each in page.topics[0].partitions] == [1, 7, 7]


def test_a_broker_that_leaves_takes_its_leaders_with_it(pair, client):
    metadata(client, pair)  # an answer that must not be given again
    pair.cluster.apply(ImageDelta(brokers={OTHER: None}))
    told = metadata(client, pair).topics[0].partitions
    assert [each.error_code for each in told] == [codes.NONE, codes.LEADER_NOT_AVAILABLE, codes.LEADER_NOT_AVAILABLE]
    assert [(each.leader_id, each.offline_replicas) for each in told] == [(1, (7,)), (-1, (7,)), (-1, (7,))]


@pytest.mark.parametrize(("version", "code"), [(5, codes.LEADER_NOT_AVAILABLE), (6, codes.LISTENER_NOT_FOUND)])
def test_a_leader_without_the_clients_listener_is_said_to_be_so(pair, client, other, version, code):
    hidden = BrokerImage(id=OTHER, endpoints={"INTERNAL": Endpoint(host="other", port=1)})
    pair.cluster.apply(ImageDelta(brokers={OTHER: hidden}))
    answer = client.ask(pair, METADATA, version, topics=None, allow_auto_topic_creation=False)
    assert [each.node_id for each in answer.brokers] == [1]
    assert [(each.error_code, each.leader_id) for each in answer.topics[0].partitions[:2]] == [(0, 1), (code, -1)]


def test_the_controller_and_the_brokers_are_described(pair, client):
    pair.cluster.apply(ImageDelta(controller_id=OTHER))
    answer = client.ask(
        pair, CLUSTER, include_cluster_authorized_operations=False, endpoint_type=1, include_fenced_brokers=False
    )
    assert (answer.controller_id, {each.broker_id for each in answer.brokers}) == (OTHER, {1, OTHER})


def test_a_coordinator_is_where_its_partition_is_led(pair, client):
    asked = {"key_type": 0, "coordinator_keys": ["mine"]}
    here = client.ask(pair, FIND, **asked).coordinators[0]
    assert (here.error_code, here.node_id) == (codes.NONE, 1)
    name = "__consumer_offsets"
    topic = pair.cluster.image.topics[name]
    there = TopicImage(
        name=name,
        id=topic.id,
        partitions=tuple(PartitionImage(replicas=(OTHER,), leader=OTHER, leader_epoch=1) for _ in topic.partitions),
        overrides=topic.overrides,
    )
    pair.cluster.apply(ImageDelta(topics={name: there}))
    found = client.ask(pair, FIND, **asked).coordinators[0]
    assert (found.error_code, found.node_id, found.host, found.port) == (codes.NONE, OTHER, "other", 9099)
    pair.cluster.apply(ImageDelta(brokers={OTHER: None}))
    gone = client.ask(pair, FIND, **asked).coordinators[0]
    assert (gone.error_code, gone.node_id) == (codes.COORDINATOR_NOT_AVAILABLE, -1)


def test_a_partition_changes_its_leader_and_keeps_its_log(pair):
    mine, theirs = pair.topics.get("orders").partitions[:2]
    log = mine.local
    apply_partition(pair, 0, replicas=(1, OTHER), leader=OTHER, leader_epoch=8, isr=(OTHER,))
    assert (mine.role, mine.local, mine.led, mine.leader_epoch) == (FOLLOWER, log, None, 8)
    apply_partition(pair, 1, replicas=(OTHER, 1), leader=1, leader_epoch=9, isr=(1,))
    assert (theirs.role, theirs.led.leader_epoch) == (LEADER, 9)


def test_a_replica_that_moves_away_is_deleted_and_one_that_comes_back_is_new(pair):
    mine = pair.topics.get("orders").partitions[0]
    path = mine.local.path
    apply_partition(pair, 0, replicas=(OTHER,), leader=OTHER, leader_epoch=8, isr=(OTHER,))
    assert (mine.role, mine.local, pair.store.find("orders", 0)) == (ELSEWHERE, None, None)
    apply_partition(pair, 0, replicas=(OTHER, 1), leader=OTHER, leader_epoch=9, isr=(OTHER,))
    assert (mine.role, mine.local.path, mine.local.end_offset) == (FOLLOWER, path, 0)


def test_a_replica_in_a_failed_directory_is_offline_and_other_replicas_are_not(pair):
    mine, theirs = pair.topics.get("orders").partitions[:2]
    apply_partition(pair, 0, replicas=(1, OTHER), leader=OTHER, leader_epoch=8, isr=(OTHER,), offline=(1,))
    assert (mine.role, mine.refusal().code) == (OFFLINE, codes.KAFKA_STORAGE_ERROR)
    assert theirs.role == FOLLOWER


def test_a_manual_assignment_may_name_each_broker_that_is_there(pair, client):
    def asked(*ids):
        topic = {
            "name": "new",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": ids}],
            "configs": [],
        }
        answer = client.ask(pair, CREATE, topics=[topic], timeout=1000, validate_only=True).topics[0]
        return answer.error_code, answer.error_message

    assert asked(OTHER)[0] == codes.NONE
    assert asked(3)[0] == codes.INVALID_REPLICA_ASSIGNMENT
    assert asked(1, 1) == (
        codes.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes the broker 1 more than once.",
    )

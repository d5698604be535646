"""A second broker that is not there, put into the cluster's image: what this broker does and tells clients."""

import uuid

import pytest
from coordinators import offsets_of

from headrace.broker.partition import ELSEWHERE, FOLLOWER, LEADER, OFFLINE
from headrace.broker.shard_work import RECORDS_PER_TURN
from headrace.coordinator.classic.members import JoinProtocol, JoinRequest
from headrace.coordinator.group_records import CommittedOffset
from headrace.coordinator.placing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from headrace.coordinator.transactions.markers import TransactionEnd
from headrace.core.listeners import ListenerAddress
from headrace.core.steps import finish
from headrace.protocol import error_codes as codes
from headrace.protocol.batch import STAMP
from headrace.protocol.records import build_plain_batch
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


class Told:
    """Who waits for a batch."""

    def written(self, log):
        pass

    def done(self, log, error):
        self.error = error


def test_a_follower_leads_only_when_what_it_fetched_is_written_and_keeps_both_epochs(pair):
    partition = pair.topics.get("orders").partitions[1]
    log = partition.local
    fetched = build_plain_batch([(b"k", b"v")], 1)
    STAMP.pack_into(fetched, 0, 0, len(fetched) - 12, 5)
    log.appender.stage_replica(memoryview(fetched), 0, len(fetched), 5, 1, Told())
    apply_partition(pair, 1, replicas=(OTHER, 1), leader=1, leader_epoch=6, isr=(1,))
    assert (partition.role, partition.led) == (FOLLOWER, None)
    pair.topics.lead_what_is_written()
    assert partition.led is None
    pair.writer.end_of_turn()
    pair.topics.lead_what_is_written()
    assert (partition.role, partition.led) == (LEADER, log)
    assert log.epochs.entries == [(5, 0), (6, 1)]


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


def test_a_listener_that_is_not_advertised_has_no_broker_to_tell_of(make_node, client):
    listeners = (ListenerAddress("INSIDE", "127.0.0.1", 0), ListenerAddress("PLAINTEXT", "127.0.0.1", 0))
    node = make_node(listeners=listeners, advertised_listeners=(ListenerAddress("INSIDE", "inside", 5),))
    client.create(node, "t")
    answer = metadata(client, node)  # on PLAINTEXT
    assert answer.brokers == ()
    assert [each.error_code for each in answer.topics[0].partitions] == [codes.LISTENER_NOT_FOUND]


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


def test_a_manual_assignment_may_not_name_a_broker_that_the_controller_cannot_give_it_to(pair, client):
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

    assert asked(1) == (codes.NONE, None)
    for ids in ((OTHER,), (1, OTHER)):
        code, message = asked(*ids)
        assert code == codes.INVALID_REPLICA_ASSIGNMENT
        assert f"broker {OTHER}" in message
        assert "assign each of them to broker 1 alone" in message
    assert asked(3)[0] == codes.INVALID_REPLICA_ASSIGNMENT
    assert asked(1, 1) == (
        codes.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes the broker 1 more than once.",
    )


# ── coordinators ─────────────────────────────────────────────────────────────────────────────────────────────────────

COUNT = 50  # partitions of an internal topic
MOVED, STAYS = "shop", "audit"  # groups and transactional ids in partitions of their own
MANY = 4 * RECORDS_PER_TURN  # offsets that cannot be loaded within one turn


def place(node, name, key, leader, epoch):
    """The partition of an internal topic that has this key is led by another broker from now on."""
    topic = node.cluster.image.topics[name]
    partitions = list(topic.partitions)
    index = partition_for(key, COUNT)
    partitions[index] = PartitionImage(replicas=(1, OTHER), leader=leader, leader_epoch=epoch, isr=(leader,))
    changed = TopicImage(name=name, id=topic.id, partitions=tuple(partitions), overrides=topic.overrides)
    node.cluster.apply(ImageDelta(topics={name: changed}))
    finish(node.topics.reconcile(node.cluster.image))


def end_turn(node):
    node.reactor.run_soon()
    node._end_of_turn()
    node.reactor.run_pending()


def commit(node, group_id, offset, count=1):
    told = []
    entries = [("orders", each, CommittedOffset(offset, commit_timestamp_ms=1)) for each in range(count)]
    node.groups.commit_offsets(group_id, "", -1, None, entries, told.append, version=9)
    end_turn(node)
    return set(told[0])


def committed(node, group_id):
    """The offset, or the error."""
    answer = finish(node.groups.fetch_offsets(group_id, None, -1, [("orders", [0])], False))
    if answer["error_code"]:
        return "error", answer["error_code"]
    return answer["topics"][0]["partitions"][0]["committed_offset"]


def wait_until(node, found, *, turns=100):
    for _ in range(turns):
        if found():
            return
        end_turn(node)
    raise AssertionError(f"not within {turns} turns")


def test_groups_go_with_their_partition_to_another_broker_and_come_back_with_their_offsets(pair):
    assert commit(pair, MOVED, 5, MANY) == commit(pair, STAYS, 6) == {codes.NONE}
    place(pair, OFFSETS_TOPIC, MOVED, OTHER, 1)
    assert (committed(pair, MOVED), committed(pair, STAYS)) == (("error", codes.NOT_COORDINATOR), 6)
    assert commit(pair, MOVED, 9) == {codes.NOT_COORDINATOR}
    assert pair.groups.heartbeat(MOVED, "m", 1, None) == codes.NOT_COORDINATOR
    assert pair.groups.describe([MOVED])[0]["error_code"] == codes.NOT_COORDINATOR
    end_turn(pair)
    place(pair, OFFSETS_TOPIC, MOVED, 1, 2)
    assert committed(pair, MOVED) == ("error", codes.COORDINATOR_LOAD_IN_PROGRESS)
    assert pair.groups.heartbeat(MOVED, "m", 1, None) == codes.NONE, "it will ask again"
    assert not pair.groups.is_loaded
    assert (committed(pair, STAYS), commit(pair, STAYS, 7)) == (6, {codes.NONE})
    wait_until(pair, lambda: pair.groups.is_loaded)
    assert (committed(pair, MOVED), committed(pair, STAYS)) == (5, 7)
    assert len(offsets_of(pair, MOVED).partitions(MOVED)) == MANY
    assert commit(pair, MOVED, 8) == {codes.NONE}


def test_a_load_that_is_overtaken_leaves_nothing_behind(pair):
    commit(pair, MOVED, 5, MANY)
    place(pair, OFFSETS_TOPIC, MOVED, OTHER, 1)
    place(pair, OFFSETS_TOPIC, MOVED, 1, 2)
    assert not pair.groups.is_loaded
    place(pair, OFFSETS_TOPIC, MOVED, OTHER, 3)
    for _ in range(20):
        end_turn(pair)
    assert committed(pair, MOVED) == ("error", codes.NOT_COORDINATOR)
    assert finish(pair.groups.list()) == []


def test_stale_news_of_a_leader_changes_nothing(pair):
    commit(pair, MOVED, 5)
    place(pair, OFFSETS_TOPIC, MOVED, OTHER, 4)
    pair.coordination.groups.load(partition_for(MOVED, COUNT), 3)
    assert committed(pair, MOVED) == ("error", codes.NOT_COORDINATOR)


def test_a_newer_epoch_of_its_own_interrupts_nobody(pair):
    commit(pair, MOVED, 5)
    shard = pair.groups.shard(MOVED)
    place(pair, OFFSETS_TOPIC, MOVED, 1, 4)
    assert (pair.groups.shard(MOVED), shard.epoch, committed(pair, MOVED)) == (shard, 4, 5)


def test_who_waits_in_a_group_that_goes_away_is_told_to_look_for_it(pair):
    request = JoinRequest(
        group_id=MOVED,
        member_id="",
        client_id="c",
        client_host="/127.0.0.1",
        protocols=(JoinProtocol("range", b""),),
        fresh_id="1",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        must_know_member_id=False,
    )
    told, offsets = [], []
    pair.groups.join(request, told.append)
    end_turn(pair)
    entries = [("orders", 0, CommittedOffset(5, commit_timestamp_ms=1))]
    pair.groups.commit_offsets(MOVED, "", -1, None, entries, offsets.append, version=9)
    assert told == []
    place(pair, OFFSETS_TOPIC, MOVED, OTHER, 1)
    end_turn(pair)
    assert [answer["error_code"] for answer in told] == [codes.NOT_COORDINATOR]
    assert len(offsets) == 1
    assert pair.groups.metadata_bytes() == 0
    log = pair.topics.partition(OFFSETS_TOPIC, partition_for(MOVED, COUNT)).local
    end_offset = log.end_offset
    pair.clock.advance(600_000)
    pair.reactor.advance(600)
    pair.reactor._run_timers()
    end_turn(pair)
    assert (len(told), log.end_offset) == (1, end_offset), "no timer of the group is left"


def test_offsets_whose_write_has_not_begun_stay_out_of_a_log_that_others_lead(pair):
    assert commit(pair, MOVED, 5) == {codes.NONE}
    told, entries = [], [("orders", 0, CommittedOffset(6, commit_timestamp_ms=1))]
    pair.groups.commit_offsets(MOVED, "", -1, None, entries, told.append, version=9)
    place(pair, OFFSETS_TOPIC, MOVED, OTHER, 1)
    place(pair, OFFSETS_TOPIC, MOVED, 1, 2)  # in the same turn
    end_turn(pair)
    assert told == [[codes.NOT_COORDINATOR]]
    wait_until(pair, lambda: pair.groups.is_loaded)
    assert committed(pair, MOVED) == 5


def test_an_internal_topic_that_is_deleted_takes_its_groups_along_and_may_be_made_again(pair):
    commit(pair, MOVED, 5)
    shard = pair.groups.shard(MOVED)
    pair.controller.delete(OFFSETS_TOPIC)
    assert shard.table.is_closed
    assert committed(pair, MOVED) == -1, "whoever asks makes the next one"
    assert commit(pair, MOVED, 6) == {codes.NONE}


def test_offsets_of_a_topic_that_is_deleted_while_its_groups_are_loaded_are_forgotten(pair):
    commit(pair, MOVED, 5, MANY)
    place(pair, OFFSETS_TOPIC, MOVED, OTHER, 1)
    place(pair, OFFSETS_TOPIC, MOVED, 1, 2)
    done = []
    finish(pair.coordination.topics_deleted({"orders"}, done.append))
    assert done == []
    wait_until(pair, lambda: done)
    assert done == [None]
    assert committed(pair, MOVED) == -1


def test_a_prepared_commit_is_resumed_by_whoever_takes_over_its_id(pair):
    transactions, given, told = pair.transactions, [], []
    for name in (MOVED, STAYS):
        transactions.init_producer_id(name, 60_000, None, given.append)
    end_turn(pair)
    producer = given[0]["producer_id"], given[0]["producer_epoch"]
    transactions.add_partitions(MOVED, *producer, [("orders", 1)], 0, told.append)  # which the other broker leads
    end_turn(pair)
    transactions.end(MOVED, *producer, True, 0, told.append)
    end_turn(pair)
    assert told == [codes.NONE, {"error_code": codes.NONE}]
    assert state(transactions, MOVED) == "PrepareCommit"
    place(pair, TRANSACTIONS_TOPIC, MOVED, OTHER, 6)
    assert state(transactions, MOVED) == codes.NOT_COORDINATOR
    assert transactions.verify(MOVED, *producer, "orders", 1) == codes.NOT_COORDINATOR
    assert state(transactions, STAYS) == "Empty"
    apply_partition(pair, 1, replicas=(OTHER, 1), leader=1, leader_epoch=9, isr=(1,))
    log = pair.topics.partition("orders", 1).led
    pass_seconds(pair, 1)
    assert log.end_offset == 0, "nothing comes from the one that was deposed"
    place(pair, TRANSACTIONS_TOPIC, MOVED, 1, 7)
    wait_until(pair, lambda: state(transactions, MOVED) == "CompleteCommit")
    assert (log.end_offset, log.producers.get(producer[0]).coordinator_epoch) == (1, 7)
    deposed = []
    pair.coordination.write_marker(TransactionEnd(*producer, 6, False), "orders", 1, deposed.append)
    end_turn(pair)
    assert [error.code for error in deposed] == [codes.TRANSACTION_COORDINATOR_FENCED]
    assert log.end_offset == 1


def test_who_waits_for_a_transaction_that_goes_away_is_told_to_look_for_it(pair):
    transactions, given, told = pair.transactions, [], []
    transactions.init_producer_id(MOVED, 60_000, None, given.append)
    end_turn(pair)
    producer = given[0]["producer_id"], given[0]["producer_epoch"]
    transactions.add_partitions(MOVED, *producer, [("orders", 1)], 0, told.append)
    end_turn(pair)
    transactions.end(MOVED, *producer, True, 0, told.append)
    end_turn(pair)
    transactions.add_partitions(MOVED, *producer, [("orders", 0)], 0, told.append)  # waits for the markers
    transactions.init_producer_id(STAYS, 60_000, None, given.append)
    assert len(told) == 2
    place(pair, TRANSACTIONS_TOPIC, MOVED, OTHER, 6)
    end_turn(pair)
    assert told[2:] == [codes.NOT_COORDINATOR]
    assert given[1]["error_code"] == codes.NONE
    pass_seconds(pair, 1)
    assert len(told) == 3


def state(transactions, name):
    described = transactions.describe([name])[0]
    return described["error_code"] or described["transaction_state"]


def pass_seconds(node, seconds):
    node.clock.advance(seconds * 1000)
    node.reactor.advance(seconds)
    node.reactor._run_timers()
    end_turn(node)

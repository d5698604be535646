"""One request about thousands of things holds up nobody: others are answered between its steps, whichever it is, and no
single step does more than a small part of it."""

from types import SimpleNamespace

import pytest
from calls import calls_of
from node_clients import connected, turn
from sessions import asking

from headrace.broker import steps
from headrace.broker.api import Request
from headrace.broker.handlers import (
    describe_log_dirs,
    fetch_slowly,  # noqa: F401  the first step is not to count its import
    list_transactions,
)
from headrace.broker.handlers.config_resources import CONFIGS_MAX
from headrace.coordinator.group_records import CommittedOffset, GroupMetadata, MemberMetadata
from headrace.protocol import error_codes, messages

COUNT = 1_500
CALLS_PER_STEP_MAX = 2_500  # of functions, ours and Python's: what is done at once for each of them would be above it
API_VERSIONS = 18
EVERY = 20  # turns: so often the other client asks
NAMES = [f"name-{number}" for number in range(COUNT)]
EXISTING = [0, 1, 2, 3] * 5  # partitions, again and again


def topics_of(partitions):
    return [{"name": "t", "partitions": partitions} for _ in range(COUNT // len(EXISTING))]


def offsets():
    one = {"committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    return topics_of([{"partition_index": index, **one} for index in EXISTING])


def commit():
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": offsets(),
    }


def transactional_commit(producer):
    return {
        "transactional_id": "t",
        "group_id": "g",
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": offsets(),
    }


def added(producer):
    return {
        "v3_and_below_transactional_id": "t",
        "v3_and_below_producer_id": producer[0],
        "v3_and_below_producer_epoch": producer[1],
        "v3_and_below_topics": [{"name": "t", "partitions": list(range(COUNT))}],
    }


def verified(producer, name):
    who = {"transactional_id": name, "producer_id": producer[0], "producer_epoch": producer[1]}
    return {**who, "verify_only": True, "topics": [{"name": "t", "partitions": [0]}]}


def marker(number):
    who = {"producer_id": 1_000 + number, "producer_epoch": 0, "coordinator_epoch": 0, "transaction_result": True}
    return {**who, "topics": [{"name": "t", "partition_indexes": [number % 8]}]}


def epoch(partition):
    return {"partition": partition, "current_leader_epoch": -1, "leader_epoch": 0}


def position(partition):
    return {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}


def new_topic(name):
    return {"name": name, "num_partitions": 1, "replication_factor": -1, "assignments": [], "configs": []}


def of(name):
    return {"name": name, "value": "1"}


def fetch(partitions, session=(0, -1), wait_ms=0):
    one = {"current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 1 << 20}
    topics = [{"topic": "t", "partitions": [{"partition": index, **one} for index in partitions]}] if partitions else []
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": topics,
        "forgotten_topics_data": [],
        "rack_id": "",
    }


ALL = range(COUNT)
MEMBER = {"group_id": "g", "member_id": "m", "group_instance_id": None}
SET = {"name": "retention.ms", "config_operation": 0, "value": "1000"}

# By name: key, version, and the body, for a producer whose transaction is open.
REQUESTS = {
    "OffsetCommit": (8, 9, lambda p: commit()),
    "OffsetFetch of one group": (
        9,
        7,
        lambda p: {
            "group_id": "g",
            "topics": [{"name": "t", "partition_indexes": list(ALL)}],
            "require_stable": True,
        },
    ),
    "OffsetFetch of many groups": (
        9,
        8,
        lambda p: {"groups": [{"group_id": name, "topics": None} for name in NAMES], "require_stable": False},
    ),
    "TxnOffsetCommit": (28, 5, transactional_commit),
    "AddPartitionsToTxn": (24, 3, added),
    "AddPartitionsToTxn of brokers": (24, 5, lambda p: {"transactions": [verified(p, name) for name in NAMES]}),
    "DescribeProducers": (61, 0, lambda p: {"topics": [{"name": "t", "partition_indexes": list(ALL)}]}),
    "WriteTxnMarkers": (27, 1, lambda p: {"markers": [marker(number) for number in ALL]}),
    "OffsetForLeaderEpoch": (
        23,
        4,
        lambda p: {"replica_id": -1, "topics": [{"topic": "t", "partitions": [epoch(0) for _ in ALL]}]},
    ),
    "DeleteGroups": (42, 2, lambda p: {"groups_names": NAMES}),
    "OffsetDelete": (
        47,
        0,
        lambda p: {"group_id": "g", "topics": topics_of([{"partition_index": index} for index in EXISTING])},
    ),
    "FindCoordinator": (10, 4, lambda p: {"key_type": 0, "coordinator_keys": NAMES}),
    "DescribeTransactions": (65, 0, lambda p: {"transactional_ids": NAMES}),
    "DescribeGroups": (15, 5, lambda p: {"groups": NAMES, "include_authorized_operations": False}),
    "ListOffsets": (
        2,
        7,
        lambda p: {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": "t", "partitions": [position(index) for index in ALL]}],
        },
    ),
    "DeleteTopics": (20, 5, lambda p: {"topic_names": NAMES, "timeout": 1000}),
    "CreatePartitions": (
        37,
        3,
        lambda p: {
            "topics": [{"name": name, "count": 3, "assignments": None} for name in NAMES],
            "timeout": 1000,
            "validate_only": True,
        },
    ),
    "DescribeTopicPartitions": (
        75,
        0,
        lambda p: {"topics": [{"name": name} for name in NAMES], "response_partition_limit": 10, "cursor": None},
    ),
    "Metadata": (
        3,
        4,
        lambda p: {"topics": [{"name": name} for name in NAMES], "allow_auto_topic_creation": False},
    ),
    "DescribeConfigs": (
        32,
        4,
        lambda p: {
            "resources": [{"resource_type": 2, "resource_name": "t", "configuration_keys": None} for _ in NAMES],
            "include_synonyms": True,
            "include_documentation": False,
        },
    ),
    "LeaveGroup": (
        13,
        5,
        lambda p: {
            "group_id": "g",
            "members": [{"member_id": name, "group_instance_id": None, "reason": None} for name in NAMES],
        },
    ),
    "SyncGroup": (
        14,
        5,
        lambda p: {
            **MEMBER,
            "generation_id": 1,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": name, "assignment": b"all"} for name in NAMES],
        },
    ),
    "ConsumerGroupDescribe": (69, 1, lambda p: {"group_ids": NAMES, "include_authorized_operations": False}),
    "CreateTopics": (
        19,
        7,
        lambda p: {"topics": [new_topic(name) for name in NAMES], "timeout": 1000, "validate_only": True},
    ),
    "CreateTopics of one topic with many settings": (
        19,
        7,
        lambda p: {
            "topics": [{**new_topic("n"), "configs": [{"name": name, "value": "1"} for name in NAMES]}],
            "timeout": 1000,
            "validate_only": True,
        },
    ),
    "DeleteRecords": (
        21,
        2,
        lambda p: {
            "topics": [{"name": "t", "partitions": [{"partition_index": index, "offset": 0} for index in ALL]}],
            "timeout": 1000,
        },
    ),
    "AlterConfigs": (
        33,
        2,
        lambda p: {
            "resources": [{"resource_type": 2, "resource_name": name, "configs": []} for name in NAMES],
            "validate_only": True,
        },
    ),
    "IncrementalAlterConfigs": (
        44,
        1,
        lambda p: {
            "resources": [{"resource_type": 2, "resource_name": name, "configs": [SET]} for name in NAMES],
            "validate_only": True,
        },
    ),
    "AlterConfigs of one topic": (
        33,
        2,
        lambda p: {
            "resources": [{"resource_type": 2, "resource_name": "t", "configs": [of(name) for name in NAMES]}],
            "validate_only": True,
        },
    ),
    "IncrementalAlterConfigs of one broker": (
        44,
        1,
        lambda p: {
            "resources": [{"resource_type": 4, "resource_name": "", "configs": [SET | of(name) for name in NAMES]}],
            "validate_only": True,
        },
    ),
    "DescribeLogDirs": (35, 4, lambda p: {"topics": [{"topic": "t", "partitions": list(ALL)}]}),
    "ListTransactions": (
        66,
        1,
        lambda p: {"state_filters": NAMES, "producer_id_filters": list(ALL), "duration_filter": -1},
    ),
    "Fetch": (1, 11, lambda p: fetch([index % 4 for index in ALL])),
    "Fetch of partitions that are not there": (1, 11, lambda p: fetch(ALL)),
    "Fetch in a new session": (1, 11, lambda p: fetch(ALL, (0, 0))),
    "ListGroups": (16, 5, lambda p: {"states_filter": NAMES, "types_filter": NAMES}),
}


@pytest.fixture
def clients(node, client):
    client.create(node, "t", 4)
    with connected(node) as make:
        yield make


def open_transaction(client):
    client.ask(10, 4, {"key_type": 0, "coordinator_keys": ["g"]})
    client.ask(10, 4, {"key_type": 1, "coordinator_keys": ["t"]})
    who = {"transactional_id": "t", "producer_id": -1, "producer_epoch": -1}
    made = client.ask(22, 4, {**who, "transaction_timeout": 60_000})
    assert made.error_code == 0
    client.ask(8, 9, {**commit(), "topics": offsets()[:1]})
    return made.producer_id, made.producer_epoch


HELLO = {"client_software_name": "test", "client_software_version": "1"}


def assert_others_are_served_meanwhile(node, busy, other, sent):
    """Until the busy client is answered, with one step in each turn."""
    other.ask(API_VERSIONS, 3, HELLO)
    most = calls_of(lambda: busy.dispatch(sent))
    turns = served = 0
    while not busy.is_answered():
        if turns % EVERY == 0:
            other.send(API_VERSIONS, 3, HELLO)
        most = max(most, calls_of(lambda: turn(node)))
        served += other.is_answered()
        other.received = b""
        turns += 1
        assert turns < 50 * COUNT
    assert served == -(-turns // EVERY), "the other client is answered in the turn in which it asks"
    assert most < CALLS_PER_STEP_MAX, f"{most} calls in one step of {turns}"
    assert node.server.held_bytes == node.server.in_flight_bytes == busy.connection.body_bytes == 0
    return turns


@pytest.fixture(autouse=True)
def one_step_per_turn(monkeypatch):
    monkeypatch.setattr(steps, "STEPS_S", -1.0)  # any time is too long


@pytest.mark.parametrize("name", REQUESTS)
def test_others_are_served_between_the_steps_of_a_request_about_very_many_things(node, clients, name):
    busy, other = clients(), clients()
    key, version, body = REQUESTS[name]
    sent = messages.encode_request(key, version, 1, "test", body(open_transaction(busy)))
    assert assert_others_are_served_meanwhile(node, busy, other, sent) > COUNT // 10


class Counted(tuple):
    """A list of a request that knows how far it was looked at. A set made of it at once calls no function."""

    seen = 0

    def __iter__(self):
        for each in tuple.__iter__(self):
            Counted.seen += 1
            yield each


FILTERS = {
    "DescribeLogDirs": (
        describe_log_dirs,
        lambda: SimpleNamespace(topics=[SimpleNamespace(topic="t", partitions=Counted(range(COUNT)))]),
    ),
    "ListTransactions by producer": (
        list_transactions,
        lambda: SimpleNamespace(state_filters=(), producer_id_filters=Counted(range(COUNT))),
    ),
    "ListTransactions by state": (
        list_transactions,
        lambda: SimpleNamespace(state_filters=Counted(NAMES), producer_id_filters=()),
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_what_is_asked_for_is_looked_at_in_steps(node, client, name):
    client.create(node, "t", 1)
    module, body = FILTERS[name]
    answer = module.handle(node.parts, Request(module.API.key, module.API.high, 1, asking("test"), body()))
    assert isinstance(answer, steps.Steps), "what takes long is what is asked for, however little there is"
    before = most = Counted.seen = 0
    for _ in answer.body:
        most = max(most, Counted.seen - before)
        before = Counted.seen
    assert Counted.seen == COUNT
    assert max(most, Counted.seen - before) < COUNT // 10


def test_a_resource_is_described_by_no_more_settings_than_it_may_have(node, client):
    def asked(count):
        return [{"resource_type": 2, "resource_name": "t", "configuration_keys": NAMES[:count]}]

    client.create(node, "t", 1)
    flags = {"include_synonyms": False, "include_documentation": False}
    for count, code in ((CONFIGS_MAX, error_codes.NONE), (CONFIGS_MAX + 1, error_codes.INVALID_REQUEST)):
        (result,) = client.ask(node, 32, 4, resources=asked(count), **flags).results
        assert result.error_code == code


def member(name):
    return MemberMetadata(
        member_id=name,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=60_000,
        subscription=b"",
        assignment=b"",
    )


def test_others_are_served_while_very_many_members_leave_a_group(node, clients):
    busy, other = clients(), clients()
    busy.ask(10, 4, {"key_type": 0, "coordinator_keys": ["crowd"]})
    names = NAMES[: COUNT // 2]
    members = tuple(member(name) for name in names)
    table = node.groups.shard("crowd").table
    table.call_later = lambda _, callback: node.reactor.call_soon(callback)  # no other timer is to count
    group = table.new_classic("crowd")
    group.facts.restore(GroupMetadata("consumer", 1, "range", names[0], 0, members))
    leaving = [
        {"member_id": name, "group_instance_id": None, "reason": None} for name in [*names, "stranger", names[0]]
    ]
    sent = messages.encode_request(13, 5, 1, "test", {"group_id": "crowd", "members": leaving})
    assert_others_are_served_meanwhile(node, busy, other, sent)
    answer = messages.decode_response(13, 5, busy.received[4:])[1]
    assert [each.member_id for each in answer.members] == [each["member_id"] for each in leaving]
    codes = [each.error_code for each in answer.members]
    assert codes == [0] * len(names) + [error_codes.UNKNOWN_MEMBER_ID] * 2
    assert (answer.error_code, str(group.facts.state), group.facts.generation) == (0, "Empty", 2), (
        "one rebalance for all of them"
    )


def test_members_that_leave_are_told_when_that_could_not_be_written(node, clients):
    """Who has left has left; the client asks again."""
    busy = clients()
    busy.ask(10, 4, {"key_type": 0, "coordinator_keys": ["crowd"]})
    node.groups.shard("crowd").table.new_classic("crowd").facts.restore(
        GroupMetadata("consumer", 1, "range", "a", 0, (member("a"),))
    )
    for partition in node.topics.get("__consumer_offsets").partitions:
        partition.go_offline()
    names = [*NAMES[:100], "a", *NAMES[:100]]
    leaving = [{"member_id": name, "group_instance_id": None, "reason": None} for name in names]
    answer = busy.ask(13, 5, {"group_id": "crowd", "members": leaving})
    assert (answer.error_code, list(answer.members)) == (error_codes.NOT_COORDINATOR, [])


def test_others_are_served_while_a_topic_goes_for_which_very_many_groups_have_committed(node, clients):
    busy, other = clients(), clients()
    busy.ask(10, 4, {"key_type": 0, "coordinator_keys": ["g"]})
    offsets = node.groups.shard("g").table.offsets
    for name in NAMES:
        offsets.apply(name, "t", 0, CommittedOffset(5))
        offsets.apply(name, "u", 0, CommittedOffset(5))
    sent = messages.encode_request(20, 5, 1, "test", {"topic_names": ["t"], "timeout": 1000})
    assert assert_others_are_served_meanwhile(node, busy, other, sent) > COUNT
    turn(node)
    assert all(list(offsets.all(name)) == [("u", 0)] for name in NAMES)
    assert node.catalog.deleted == {}, "nothing is left of it"

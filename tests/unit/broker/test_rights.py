"""What a session may do is asked for every request, as the table says, and what it may not do it does not learn.

The requests go through sockets to a node that has a fake authorizer.
"""

import itertools
import uuid

import pytest
from authorizers import FakeAuthorizer
from each_api import (
    CASES,
    CLUSTER_FAILED,
    GROUP_FAILED,
    SECOND,
    SET,
    TOPIC_FAILED,
    TRANSACTION_FAILED,
    add_old,
    at,
    beat,
    commit,
    config,
    create,
    delete,
    delete_records,
    describe_configs,
    epoch_end,
    fetch,
    grow,
    list_offsets,
    metadata,
    named,
    offset_delete,
    offset_fetch,
    partitions,
    produce,
    producers,
    txn_commit,
)
from node_clients import connected
from sessions import asking

from headrace.broker import rights
from headrace.broker.client_session import Principal
from headrace.broker.handlers import NAMES, RIGHTS
from headrace.broker.rights import NOT_ASKED, Rights
from headrace.protocol import acl_codes as acl
from headrace.protocol.error_codes import (
    INVALID_REQUEST,
    NONE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)

PRODUCE, FETCH, METADATA, OFFSET_FETCH, LIST_GROUPS, CREATE, DELETE, HEARTBEAT = 0, 1, 3, 9, 16, 19, 20, 68
INIT, ADD_PARTITIONS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, DESCRIBE_GROUP, PARTITIONS = 22, 24, 65, 66, 69, 75
IN_CLUSTER = {rights.CREATE_IN_CLUSTER, rights.DELETE_IN_CLUSTER, rights.DESCRIBE_CLUSTER, rights.WRITE_IDEMPOTENTLY}


@pytest.fixture
def authorizer():
    return FakeAuthorizer()


@pytest.fixture
def node(make_node, client, authorizer):
    node = make_node(authorizer=authorizer)
    client.create(node, "mine", 2)
    authorizer.asked.clear()
    return node


@pytest.fixture
def connect(node):
    with connected(node) as make:
        yield make


def codes(answer):
    """Every error code in it."""
    found = set()
    for name, value in vars(answer).items():
        if name.endswith("error_code"):
            found.add(int(value))
        elif isinstance(value, tuple):
            found |= {code for each in value if hasattr(each, "__dict__") for code in codes(each)}
    return found


def set_up_group_and_transaction(connect):
    """What ListGroups, ListTransactions and the descriptions can tell of: a group with a member and offsets, and a
    transaction that has a partition."""
    client = connect()
    assert client.ask(8, 9, commit()).topics[0].partitions[0].error_code == NONE
    made = client.ask(INIT, 5, {"transactional_id": "t", "transaction_timeout": SECOND})
    body = add_old() | {"v3_and_below_producer_id": made.producer_id}
    assert codes(client.ask(ADD_PARTITIONS, 3, body)) == {NONE}
    assert client.ask(HEARTBEAT, 1, beat()).error_code == NONE


# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_api_that_is_served_has_a_row():
    assert set(RIGHTS) == set(NAMES)
    assert {key for key, *_ in CASES} == set(NAMES), "a request of each is tried below"


@pytest.mark.parametrize("key", sorted(RIGHTS), ids=NAMES.get)
def test_an_api_asks_for_what_its_row_says_and_for_nothing_else(connect, authorizer, key):
    set_up_group_and_transaction(connect)
    authorizer.asked.clear()
    row = RIGHTS[key]
    subsets = [set(some) for size in range(len(row), -1, -1) for some in itertools.combinations(row, size)]
    client = connect()
    for authorizer.denied in subsets:
        for version, body in ((version, body) for each, version, body, _ in CASES if each == key):
            client.ask(key, version, {**body, "group_ids": ["k", "g"]} if key == DESCRIBE_GROUP else body)
    told = set()
    if key == PARTITIONS:  # each topic with what may be done to it
        told = {rights.Need(each, acl.TOPIC) for each in rights.OPERATIONS[acl.TOPIC]}
    elif key in (METADATA, 60):
        told = {rights.Need(each, acl.CLUSTER) for each in rights.OPERATIONS[acl.CLUSTER]}
    assert set(row) <= authorizer.needs() <= set(row) | told


@pytest.mark.parametrize(
    ("key", "version", "body", "denied", "expected"),
    [(*case[:3], denied, expected) for case in CASES for denied, expected in case[3].items()],
    ids=[NAMES[case[0]] for case in CASES for _ in case[3]],
)
def test_what_is_denied_is_answered_with_kafkas_code(connect, authorizer, key, version, body, denied, expected):
    client = connect()
    authorizer.denied = {denied} if isinstance(denied, rights.Need) else set(denied)
    assert codes(client.ask(key, version, body)) == expected


@pytest.mark.parametrize(
    ("key", "version", "body", "denied"),
    [(*case[:3], denied) for case in CASES for denied in case[3] if not isinstance(denied, rights.Need)],
    ids=[NAMES[case[0]] for case in CASES for denied in case[3] if not isinstance(denied, rights.Need)],
)
def test_one_of_two_rights_that_stand_for_each_other_is_enough(connect, authorizer, key, version, body, denied):
    if set(denied) == {rights.DELETE_IN_CLUSTER, rights.DELETE_TOPIC}:
        denied = (rights.DELETE_TOPIC,)
    client = connect()
    for alone in denied:
        authorizer.denied = {alone}
        found = codes(client.ask(key, version, body))
        assert found.isdisjoint({TOPIC_FAILED, GROUP_FAILED, CLUSTER_FAILED, TRANSACTION_FAILED}), alone


def test_without_an_authorizer_everybody_may_do_everything():
    everybody = Rights()
    assert everybody.is_open
    assert all(everybody.allows(asking(), need, "x") for row in RIGHTS.values() for need in row)
    assert everybody.mask(asking(), acl.TOPIC, "x") == 0b110111111000
    assert everybody.cluster_mask(asking()) == 8096


# ── what may not be described is not revealed ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (0, 12, produce),
        (1, 12, fetch),
        (2, 11, list_offsets),
        (3, 12, metadata),
        (3, 1, metadata),
        (8, 9, commit),
        (9, 9, offset_fetch),
        (20, 5, delete),
        (21, 2, delete_records),
        (23, 4, epoch_end),
        (24, 3, add_old),
        (28, 5, txn_commit),
        (32, 4, describe_configs),
        (33, 2, lambda topic: config(2, topic, **SET)),
        (37, 3, grow),
        (44, 1, lambda topic: config(2, topic, config_operation=0, **SET)),
        (61, 0, producers),
        (75, 0, partitions),
    ],
)
def test_a_topic_that_may_not_be_seen_looks_the_same_as_one_that_is_not_there(connect, authorizer, key, version, body):
    client = connect()
    on_topics = {rights.Need(each, acl.TOPIC) for each in rights.OPERATIONS[acl.TOPIC]}
    authorizer.denied = on_topics | IN_CLUSTER | {rights.ACT_AS_BROKER}
    there, gone = (repr(client.ask(key, version, body(topic))) for topic in ("mine", "gone"))
    assert there.replace("mine", "gone") == gone


def test_lists_leave_out_what_may_not_be_described(connect, node, client, authorizer):
    client.create(node, "other", 1)
    set_up_group_and_transaction(connect)
    asking = connect()
    authorizer.denied = {(rights.DESCRIBE_TOPIC, "mine"), rights.DESCRIBE_CLUSTER}
    told = asking.ask(METADATA, 12, metadata())
    assert "mine" not in {topic.name for topic in told.topics}
    assert "other" in {topic.name for topic in told.topics}
    assert "mine" not in {topic.name for topic in asking.ask(PARTITIONS, 0, partitions("")).topics}
    of_group = asking.ask(OFFSET_FETCH, 9, {"groups": [{"group_id": "g", "topics": None}]}).groups[0]
    assert (of_group.error_code, of_group.topics) == (NONE, ())
    of_transaction = asking.ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["t"]}).transaction_states[0]
    assert (of_transaction.error_code, of_transaction.topics) == (NONE, ())
    members = asking.ask(DESCRIBE_GROUP, 1, {"group_ids": ["k"], "include_authorized_operations": True}).groups[0]
    assert (members.error_code, members.members) == (TOPIC_FAILED, ())
    authorizer.denied = {rights.DESCRIBE_CLUSTER, (rights.DESCRIBE_GROUP, "g"), rights.DESCRIBE_TRANSACTION}
    assert [group.group_id for group in asking.ask(LIST_GROUPS, 5, {}).groups] == ["k"]
    assert asking.ask(LIST_TRANSACTIONS, 2, {}).transaction_states == ()
    authorizer.denied = set()
    assert {group.group_id for group in asking.ask(LIST_GROUPS, 5, {}).groups} == {"g", "k"}
    assert [each.transactional_id for each in asking.ask(LIST_TRANSACTIONS, 2, {}).transaction_states] == ["t"]
    shown = asking.ask(DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["t"]}).transaction_states[0]
    assert [topic.topic for topic in shown.topics] == ["mine"]


def test_a_page_of_partitions_never_names_a_hidden_topic_as_the_next_one(connect, node, client, authorizer):
    for name in ("a", "b", "c"):
        client.create(node, name, 1)
    authorizer.denied = {(rights.DESCRIBE_TOPIC, "b")}
    asking = connect()
    page = asking.ask(PARTITIONS, 0, partitions("", response_partition_limit=1))
    assert [topic.name for topic in page.topics] == ["a"]
    assert page.next_cursor.topic_name == "c"
    cursor = {"topic_name": "b", "partition_index": 7}
    after = asking.ask(PARTITIONS, 0, partitions("", cursor=cursor, response_partition_limit=1))
    assert [(topic.name, len(topic.partitions)) for topic in after.topics] == [("c", 1)]


def test_an_id_tells_no_name_and_a_name_no_id(connect, node, authorizer):
    authorizer.denied = {rights.DESCRIBE_TOPIC, rights.DELETE_TOPIC, rights.DELETE_IN_CLUSTER}
    known, unknown = node.topics.get("mine").id, uuid.UUID(int=7)
    asking = connect()
    wanted = [{"name": None, "topic_id": each} for each in (known, unknown)]
    by_id = asking.ask(METADATA, 12, {**metadata(), "topics": wanted}).topics
    assert [(each.error_code, each.name, each.topic_id) for each in by_id] == [
        (TOPIC_FAILED, None, known),
        (UNKNOWN_TOPIC_ID, None, unknown),
    ]
    assert asking.ask(METADATA, 12, metadata("mine")).topics[0].topic_id is None
    (deleted,) = asking.ask(DELETE, 6, {"topics": wanted[:1], "timeout": SECOND}).responses
    assert (deleted.error_code, deleted.name, deleted.topic_id) == (TOPIC_FAILED, None, known)
    authorizer.denied.remove(rights.DESCRIBE_TOPIC)
    (deleted,) = asking.ask(DELETE, 6, {"topics": wanted[:1], "timeout": SECOND}).responses
    assert (deleted.error_code, deleted.name, deleted.topic_id) == (TOPIC_FAILED, "mine", known)


def test_a_topic_that_may_not_be_seen_is_not_made_either(connect, node, authorizer):
    authorizer.denied = {rights.DESCRIBE_TOPIC}
    assert codes(connect().ask(METADATA, 12, metadata("new", create=True))) == {TOPIC_FAILED}
    assert node.topics.get("new") is None


def test_one_who_may_not_make_topics_is_told_what_is_missing_where_none_is_made_anyway(connect, authorizer):
    authorizer.denied = {rights.CREATE_IN_CLUSTER, rights.CREATE_TOPIC}
    assert codes(connect().ask(METADATA, 12, metadata("new", create=False))) == {UNKNOWN_TOPIC_OR_PARTITION}


# ── parts of a request ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_rest_of_a_request_is_done(connect, node, client, authorizer):
    client.create(node, "other", 1)
    authorizer.denied = {(need, "mine") for need in (rights.WRITE_TOPIC, rights.READ_TOPIC, rights.READ_GROUP)}
    asking = connect()
    body = produce()
    body["topic_data"] += produce("other")["topic_data"]
    written = {each.name: each.partition_responses[0] for each in asking.ask(PRODUCE, 12, body).responses}
    assert (written["mine"].error_code, written["other"].error_code) == (TOPIC_FAILED, NONE)
    assert node.topics.get("mine").partitions[0].led.end_offset == 0
    assert node.topics.get("other").partitions[0].led.end_offset == 1
    wanted = fetch()
    wanted["topics"] += fetch("other")["topics"]
    read = {each.topic: each.partitions[0] for each in asking.ask(FETCH, 12, wanted).responses}
    assert (read["mine"].error_code, read["other"].error_code) == (TOPIC_FAILED, NONE)
    assert read["mine"].records in (None, b"")
    assert read["other"].records
    both = commit()
    both["topics"] += at("other")
    told = {each.name: each.partitions[0].error_code for each in asking.ask(8, 9, both).topics}
    assert told == {"mine": TOPIC_FAILED, "other": NONE}


def test_ids_are_looked_up_before_rights_are_asked(connect, node, authorizer):
    authorizer.denied = {(need, "mine") for need in (rights.WRITE_TOPIC, rights.READ_TOPIC, rights.DESCRIBE_TOPIC)}
    known, unknown = node.topics.get("mine").id, uuid.UUID(int=7)
    asking = connect()
    data = [
        {"topic_id": each, "partition_data": produce()["topic_data"][0]["partition_data"]} for each in (known, unknown)
    ]
    written = asking.ask(PRODUCE, 13, {**produce(), "topic_data": data}).responses
    assert {each.topic_id: each.partition_responses[0].error_code for each in written} == {
        known: TOPIC_FAILED,
        unknown: UNKNOWN_TOPIC_ID,
    }
    wanted = [{"topic_id": each, "partitions": fetch()["topics"][0]["partitions"]} for each in (known, unknown)]
    read = asking.ask(FETCH, 13, {**fetch(), "topics": wanted}).responses
    assert {each.topic_id: each.partitions[0].error_code for each in read} == {
        known: TOPIC_FAILED,
        unknown: UNKNOWN_TOPIC_ID,
    }
    wanted = [{"topic_id": each, "partitions": at("")[0]["partitions"]} for each in (known, unknown)]
    told = asking.ask(8, 10, {**commit(), "topics": wanted}).topics
    assert [(each.topic_id, each.partitions[0].error_code) for each in told] == [
        (known, TOPIC_FAILED),
        (unknown, UNKNOWN_TOPIC_ID),
    ]
    wanted = [{"topic_id": each, "partition_indexes": [0]} for each in (known, unknown)]
    (group,) = asking.ask(OFFSET_FETCH, 10, {"groups": [{"group_id": "g", "topics": wanted}]}).groups
    assert {each.topic_id: each.partitions[0].error_code for each in group.topics} == {
        known: TOPIC_FAILED,
        unknown: UNKNOWN_TOPIC_ID,
    }


def test_offsets_are_deleted_of_topics_that_may_be_read(connect, node, client, authorizer):
    client.create(node, "other", 1)
    asking = connect()
    both = commit()
    both["topics"] += at("other")
    asking.ask(8, 9, both)
    authorizer.denied = {(rights.READ_TOPIC, "mine")}
    body = offset_delete()
    body["topics"] += named("other", partition_index=0)
    told = asking.ask(47, 0, body)
    assert told.error_code == NONE
    assert {each.name: each.partitions[0].error_code for each in told.topics} == {"mine": TOPIC_FAILED, "other": NONE}


def test_groups_that_may_be_deleted_are(connect, authorizer):
    set_up_group_and_transaction(connect)
    authorizer.denied = {(rights.DELETE_GROUP, "k")}
    told = connect().ask(42, 2, {"groups_names": ["k", "g"]}).results
    assert {each.group_id: each.error_code for each in told} == {"k": GROUP_FAILED, "g": NONE}


def test_one_who_may_make_a_topic_may_not_always_see_its_settings(connect, node, authorizer):
    authorizer.denied = {rights.DESCRIBE_TOPIC_CONFIGS}
    (made,) = connect().ask(CREATE, 7, create(validate_only=False)).topics
    assert (made.error_code, made.topic_config_error_code) == (NONE, TOPIC_FAILED)
    assert (made.num_partitions, made.replication_factor, made.configs) == (-1, -1, ())
    assert node.topics.get("new").id == made.topic_id


def test_a_request_with_two_faults_is_told_the_one_that_reveals_nothing(connect, authorizer):
    authorizer.denied = {rights.CREATE_IN_CLUSTER, rights.CREATE_TOPIC}
    twice = create()
    twice["topics"] *= 2
    assert codes(connect().ask(CREATE, 7, twice)) - {NONE} == {INVALID_REQUEST}
    assert codes(connect().ask(CREATE, 7, create("mine"))) - {NONE} == {TOPIC_FAILED}


# ── masks and kept answers ───────────────────────────────────────────────────────────────────────────────────────────


def bits(*operations):
    return sum(1 << each for each in operations)


def test_masks_tell_what_the_session_may_do(connect, authorizer):
    set_up_group_and_transaction(connect)
    asking = connect()
    authorizer.denied = {rights.WRITE_TOPIC, rights.ALTER_TOPIC, rights.DELETE_GROUP, rights.WRITE_IDEMPOTENTLY}
    told = asking.ask(METADATA, 10, metadata("mine", cluster=True, operations=True))
    on_topic = bits(acl.READ, acl.CREATE, acl.DELETE, acl.DESCRIBE, acl.DESCRIBE_CONFIGS, acl.ALTER_CONFIGS)
    on_cluster = bits(acl.CREATE, acl.ALTER, acl.DESCRIBE, acl.CLUSTER_ACTION, acl.DESCRIBE_CONFIGS, acl.ALTER_CONFIGS)
    assert told.topics[0].topic_authorized_operations == on_topic
    assert told.cluster_authorized_operations == on_cluster
    assert asking.ask(PARTITIONS, 0, partitions()).topics[0].topic_authorized_operations == on_topic
    wanted = {"include_cluster_authorized_operations": True, "include_fenced_brokers": False}
    assert asking.ask(60, 2, wanted).cluster_authorized_operations == on_cluster
    on_group = bits(acl.READ, acl.DESCRIBE, acl.DESCRIBE_CONFIGS, acl.ALTER_CONFIGS)
    (old,) = asking.ask(15, 6, {"groups": ["g"], "include_authorized_operations": True}).groups
    (new,) = asking.ask(DESCRIBE_GROUP, 1, {"group_ids": ["k"], "include_authorized_operations": True}).groups
    assert old.authorized_operations == new.authorized_operations == on_group
    authorizer.denied = {rights.DESCRIBE_CLUSTER}
    assert asking.ask(60, 2, wanted).cluster_authorized_operations == 0
    assert asking.ask(METADATA, 10, metadata("mine", cluster=True)).cluster_authorized_operations == 0
    assert asking.ask(METADATA, 10, metadata("mine")).cluster_authorized_operations == NOT_ASKED


def test_a_kept_answer_is_given_only_to_those_who_may_see_as_much(connect, authorizer):
    alice, bob = (connect(principal=Principal("User", name)) for name in ("alice", "bob"))
    authorizer.denied = {(rights.DESCRIBE_TOPIC, "mine", "bob")}
    for _ in range(2):
        assert [topic.name for topic in alice.ask(METADATA, 12, metadata()).topics] == ["mine"]
        assert bob.ask(METADATA, 12, metadata()).topics == ()
    authorizer.asked.clear()
    assert [topic.name for topic in alice.ask(METADATA, 12, metadata()).topics] == ["mine"]
    assert authorizer.asked == [], "the kept answer needs no further question"
    authorizer.denied = {(rights.DESCRIBE_TOPIC, "mine", "alice")}
    assert alice.ask(METADATA, 12, metadata()).topics == ()
    assert [topic.name for topic in bob.ask(METADATA, 12, metadata()).topics] == ["mine"]


def test_a_fetch_asks_once_for_each_topic_however_many_partitions_it_reads(connect, authorizer):
    wanted = fetch()
    wanted["topics"][0]["partitions"] = [{**wanted["topics"][0]["partitions"][0], "partition": at} for at in (0, 1)]
    assert codes(connect().ask(FETCH, 12, wanted)) == {NONE}
    assert authorizer.asked == [(rights.READ_TOPIC, "mine")]

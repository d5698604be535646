"""A request of each API, or several where it can ask for different things, and what an authorizer may deny of it.

Topic `mine`, group `g` and transactional id `t` need not exist: what is denied is answered before anybody looks.
"""

from datetime import timedelta

from headrace.broker import rights
from headrace.protocol.batch import PRODUCER, PRODUCER_AT
from headrace.protocol.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    GROUP_AUTHORIZATION_FAILED,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from headrace.protocol.records import Record, build_batch

SECOND = timedelta(seconds=1)


def batch(producer=(-1, -1), transactional=False):
    made = bytearray(build_batch([Record(0, 0, None, b"v")]))
    if transactional:
        made[22] |= 0x10
        PRODUCER.pack_into(made, PRODUCER_AT, *producer)
    return bytes(made)


def produce(topic="mine", transactional_id=None):
    records = batch((1, 0), transactional_id is not None)
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    return {"transactional_id": transactional_id, "acks": -1, "timeout": SECOND, "topic_data": topics}


def fetch(topic="mine", replica_id=-1):
    one = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    topics = [{"topic": topic, "partitions": [one]}]
    return {
        "replica_id": replica_id,
        "max_wait": timedelta(),
        "min_bytes": 1,
        "topics": topics,
        "forgotten_topics_data": [],
    }


def named(topic, **partition):
    return [{"name": topic, "partitions": [partition]}]


def at(topic):
    return named(topic, partition_index=0, committed_offset=1, committed_metadata="")


def create(topic="new", validate_only=True):
    one = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    return {"topics": [one], "validate_only": validate_only}


def config(kind, resource_name, **setting):
    resource = {"resource_type": kind, "resource_name": resource_name, "configs": [setting] if setting else []}
    return {"resources": [resource], "validate_only": True}


def metadata(*topics, create=False, cluster=False, operations=False):
    return {
        "topics": [{"name": each, "topic_id": None} for each in topics] if topics else None,
        "allow_auto_topic_creation": create,
        "include_cluster_authorized_operations": cluster,
        "include_topic_authorized_operations": operations,
    }


def beat(topic="mine", **said):
    known = {"group_id": "k", "member_id": "m", "member_epoch": 0, "rebalance_timeout": SECOND}
    return {**known, "subscribed_topic_names": [topic], "topic_partitions": [], **said}


JOIN = {"group_id": "g", "session_timeout": 10 * SECOND, "member_id": "", "protocol_type": "consumer", "protocols": []}
SYNC = {"group_id": "g", "generation_id": 1, "member_id": "m", "protocol_type": "consumer", "protocol_name": "range"}
PRODUCER_1 = {"producer_id": 1, "producer_epoch": 0}


def list_offsets(topic="mine"):
    topics = named(topic, partition_index=0, timestamp=-1)
    return {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout": SECOND}


def commit(topic="mine"):
    return {"group_id": "g", "member_id": "", "topics": at(topic)}


def offset_fetch(topic="mine"):
    topics = [{"name": topic, "partition_indexes": [0]}]
    return {"groups": [{"group_id": "g", "topics": topics}]}


def epoch_end(topic="mine"):
    return {"topics": [{"topic": topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]}


def delete_records(topic="mine"):
    return {"topics": named(topic, partition_index=0, offset=0), "timeout": SECOND}


def add_old(topic="mine"):
    return {
        "v3_and_below_transactional_id": "t",
        "v3_and_below_producer_id": 1,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
    }


def add_new(topic="mine"):
    one = {"transactional_id": "t", **PRODUCER_1, "topics": [{"name": topic, "partitions": [0]}]}
    return {"transactions": [one]}


def markers(topic="mine"):
    topics = [{"name": topic, "partition_indexes": [0]}]
    return {"markers": [{**PRODUCER_1, "transaction_result": False, "topics": topics, "coordinator_epoch": 0}]}


def txn_commit(topic="mine"):
    return {"transactional_id": "t", "group_id": "g", **PRODUCER_1, "topics": at(topic)}


def describe_configs(topic="mine"):
    return {"resources": [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}]}


def grow(topic="mine"):
    one = {"name": topic, "count": 3, "assignments": None}
    return {"topics": [one], "timeout": SECOND, "validate_only": True}


def delete(topic="mine"):
    return {"topic_names": [topic], "timeout": SECOND}


def offset_delete(topic="mine"):
    return {"group_id": "g", "topics": named(topic, partition_index=0)}


def producers(topic="mine"):
    return {"topics": [{"name": topic, "partition_indexes": [0]}]}


def partitions(topic="mine", **more):
    return {"topics": [{"name": topic}] if topic else [], **more}


SET = {"name": "retention.ms", "value": "1"}
TOPIC_FAILED, GROUP_FAILED = TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED
CLUSTER_FAILED, TRANSACTION_FAILED = CLUSTER_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED

# API, version, body; what is denied, and with which codes that is answered.
CASES = [
    (0, 12, produce(), {rights.WRITE_TOPIC: {TOPIC_FAILED}}),
    (0, 12, produce(transactional_id="t"), {rights.WRITE_TRANSACTION: {TRANSACTION_FAILED}}),
    (1, 12, fetch(), {rights.READ_TOPIC: {NONE, TOPIC_FAILED}}),
    (1, 12, fetch(replica_id=2), {rights.ACT_AS_BROKER: {NONE, TOPIC_FAILED}}),
    (2, 11, list_offsets(), {rights.DESCRIBE_TOPIC: {TOPIC_FAILED}}),
    (3, 12, metadata("mine"), {rights.DESCRIBE_TOPIC: {TOPIC_FAILED}}),
    (3, 12, metadata("new", create=True), {(rights.CREATE_IN_CLUSTER, rights.CREATE_TOPIC): {TOPIC_FAILED}}),
    (3, 10, metadata("mine", cluster=True), {rights.DESCRIBE_CLUSTER: {NONE}}),
    (8, 9, commit(), {rights.READ_GROUP: {GROUP_FAILED}, rights.READ_TOPIC: {TOPIC_FAILED}}),
    (9, 9, offset_fetch(), {rights.DESCRIBE_GROUP: {GROUP_FAILED}, rights.DESCRIBE_TOPIC: {NONE, TOPIC_FAILED}}),
    (9, 1, offset_fetch()["groups"][0], {rights.DESCRIBE_GROUP: {GROUP_FAILED}}),
    (10, 4, {"key_type": 0, "coordinator_keys": ["g"]}, {rights.DESCRIBE_GROUP: {GROUP_FAILED}}),
    (10, 3, {"key_type": 1, "key": "t"}, {rights.DESCRIBE_TRANSACTION: {TRANSACTION_FAILED}}),
    (11, 9, JOIN, {rights.READ_GROUP: {GROUP_FAILED}}),
    (12, 4, {"group_id": "g", "generation_id": 1, "member_id": "m"}, {rights.READ_GROUP: {GROUP_FAILED}}),
    (13, 5, {"group_id": "g", "members": [{"member_id": "m"}]}, {rights.READ_GROUP: {GROUP_FAILED}}),
    (13, 2, {"group_id": "g", "member_id": "m"}, {rights.READ_GROUP: {GROUP_FAILED}}),
    (14, 5, {**SYNC, "assignments": []}, {rights.READ_GROUP: {GROUP_FAILED}}),
    (15, 6, {"groups": ["g"], "include_authorized_operations": False}, {rights.DESCRIBE_GROUP: {GROUP_FAILED}}),
    (16, 5, {}, {(rights.DESCRIBE_CLUSTER, rights.DESCRIBE_GROUP): {NONE}}),
    (18, 4, {"client_software_name": "x", "client_software_version": "1"}, {}),
    (19, 7, create(), {(rights.CREATE_IN_CLUSTER, rights.CREATE_TOPIC): {NONE, TOPIC_FAILED}}),
    (19, 7, create(), {rights.DESCRIBE_TOPIC_CONFIGS: {NONE, TOPIC_FAILED}}),
    (20, 5, delete(), {(rights.DELETE_IN_CLUSTER, rights.DESCRIBE_TOPIC): {TOPIC_FAILED}}),
    (20, 5, delete(), {(rights.DELETE_IN_CLUSTER, rights.DELETE_TOPIC): {TOPIC_FAILED}}),
    (21, 2, delete_records(), {rights.DELETE_TOPIC: {TOPIC_FAILED}}),
    (22, 5, {"transactional_id": "t", "transaction_timeout": SECOND}, {rights.WRITE_TRANSACTION: {TRANSACTION_FAILED}}),
    (
        22,
        5,
        {"transactional_id": None, "transaction_timeout": SECOND},
        {(rights.WRITE_IDEMPOTENTLY, rights.WRITE_TOPIC): {CLUSTER_FAILED}},
    ),
    (23, 4, epoch_end(), {(rights.ACT_AS_BROKER, rights.DESCRIBE_TOPIC): {TOPIC_FAILED}}),
    (24, 3, add_old(), {rights.WRITE_TRANSACTION: {TRANSACTION_FAILED}, rights.WRITE_TOPIC: {TOPIC_FAILED}}),
    (24, 5, add_new(), {rights.ACT_AS_BROKER: {CLUSTER_FAILED}}),
    (
        25,
        4,
        {"transactional_id": "t", **PRODUCER_1, "group_id": "g"},
        {rights.WRITE_TRANSACTION: {TRANSACTION_FAILED}, rights.READ_GROUP: {GROUP_FAILED}},
    ),
    (
        26,
        5,
        {"transactional_id": "t", **PRODUCER_1, "committed": True},
        {rights.WRITE_TRANSACTION: {TRANSACTION_FAILED}},
    ),
    (27, 2, markers(), {(rights.ALTER_CLUSTER, rights.ACT_AS_BROKER): {CLUSTER_FAILED}}),
    (
        28,
        5,
        txn_commit(),
        {
            rights.WRITE_TRANSACTION: {TRANSACTION_FAILED},
            rights.READ_GROUP: {GROUP_FAILED},
            rights.READ_TOPIC: {TOPIC_FAILED},
        },
    ),
    (32, 4, describe_configs(), {rights.DESCRIBE_TOPIC_CONFIGS: {TOPIC_FAILED}}),
    (
        32,
        4,
        {"resources": [{"resource_type": kind, "resource_name": "1", "configuration_keys": None} for kind in (4, 8)]},
        {rights.DESCRIBE_BROKER_CONFIGS: {CLUSTER_FAILED}},
    ),
    (33, 2, config(2, "mine", **SET), {rights.ALTER_TOPIC_CONFIGS: {TOPIC_FAILED}}),
    (33, 2, config(4, "1"), {rights.ALTER_BROKER_CONFIGS: {CLUSTER_FAILED}}),
    (35, 5, {"topics": None}, {rights.DESCRIBE_CLUSTER: {CLUSTER_FAILED}}),
    (37, 3, grow(), {rights.ALTER_TOPIC: {TOPIC_FAILED}}),
    (42, 2, {"groups_names": ["g"]}, {rights.DELETE_GROUP: {GROUP_FAILED}}),
    (44, 1, config(2, "mine", config_operation=0, **SET), {rights.ALTER_TOPIC_CONFIGS: {TOPIC_FAILED}}),
    (44, 1, config(8, "1"), {rights.ALTER_BROKER_CONFIGS: {CLUSTER_FAILED}}),
    (47, 0, offset_delete(), {rights.DELETE_GROUP: {GROUP_FAILED}}),
    (60, 2, {"include_cluster_authorized_operations": True, "include_fenced_brokers": False}, {}),
    (61, 0, producers(), {rights.READ_TOPIC: {TOPIC_FAILED}}),
    (65, 0, {"transactional_ids": ["t"]}, {rights.DESCRIBE_TRANSACTION: {TRANSACTION_FAILED}}),
    (66, 2, {}, {rights.DESCRIBE_TRANSACTION: {NONE}}),
    (68, 1, beat(), {rights.READ_GROUP: {GROUP_FAILED}, rights.DESCRIBE_TOPIC: {TOPIC_FAILED}}),
    (69, 1, {"group_ids": ["g"], "include_authorized_operations": False}, {rights.DESCRIBE_GROUP: {GROUP_FAILED}}),
    (75, 0, partitions(), {rights.DESCRIBE_TOPIC: {TOPIC_FAILED}}),
]

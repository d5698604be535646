"""One module for each request type, imported when the first such request comes: a broker starts without them.

The table says what is served; each module says the same of itself, and a test holds the two together. Produce and
Fetch are apart: they never become Python objects of kio's.
"""

import functools
import importlib
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from headrace.broker import rights
from headrace.protocol import fetch, produce

if TYPE_CHECKING:
    from headrace.broker.api import Api


# librdkafka before 2.12 gives up on gzip, snappy and lz4 unless Produce is advertised from version 0 on, though it
# then uses a newer one; Apache Kafka 4 advertises the same.
PRODUCE_LOW_ADVERTISED: Final = 0


class Served(NamedTuple):
    key: int
    name: str
    low: int
    high: int
    module: str


TABLE: tuple[Served, ...] = (
    Served(2, "ListOffsets", 1, 11, "list_offsets"),
    Served(3, "Metadata", 0, 13, "metadata"),
    Served(8, "OffsetCommit", 2, 10, "offset_commit"),
    Served(9, "OffsetFetch", 1, 10, "offset_fetch"),
    Served(10, "FindCoordinator", 0, 6, "find_coordinator"),
    Served(11, "JoinGroup", 0, 9, "join_group"),
    Served(12, "Heartbeat", 0, 4, "heartbeat"),
    Served(13, "LeaveGroup", 0, 5, "leave_group"),
    Served(14, "SyncGroup", 0, 5, "sync_group"),
    Served(15, "DescribeGroups", 0, 6, "describe_groups"),
    Served(16, "ListGroups", 0, 5, "list_groups"),
    Served(18, "ApiVersions", 0, 4, "api_versions"),
    Served(19, "CreateTopics", 2, 7, "create_topics"),
    Served(20, "DeleteTopics", 1, 6, "delete_topics"),
    Served(21, "DeleteRecords", 0, 2, "delete_records"),
    Served(22, "InitProducerId", 0, 5, "init_producer_id"),
    Served(23, "OffsetForLeaderEpoch", 2, 4, "offset_for_leader_epoch"),
    Served(24, "AddPartitionsToTxn", 0, 5, "add_partitions_to_txn"),
    Served(25, "AddOffsetsToTxn", 0, 4, "add_offsets_to_txn"),
    Served(26, "EndTxn", 0, 5, "end_txn"),
    Served(27, "WriteTxnMarkers", 1, 2, "write_txn_markers"),
    Served(28, "TxnOffsetCommit", 0, 5, "txn_offset_commit"),
    Served(32, "DescribeConfigs", 1, 4, "describe_configs"),
    Served(33, "AlterConfigs", 0, 2, "alter_configs"),
    Served(35, "DescribeLogDirs", 1, 5, "describe_log_dirs"),
    Served(37, "CreatePartitions", 0, 3, "create_partitions"),
    Served(42, "DeleteGroups", 0, 2, "delete_groups"),
    Served(44, "IncrementalAlterConfigs", 0, 1, "incremental_alter_configs"),
    Served(47, "OffsetDelete", 0, 0, "offset_delete"),
    Served(60, "DescribeCluster", 0, 2, "describe_cluster"),
    Served(61, "DescribeProducers", 0, 0, "describe_producers"),
    Served(65, "DescribeTransactions", 0, 0, "describe_transactions"),
    Served(66, "ListTransactions", 0, 2, "list_transactions"),
    Served(68, "ConsumerGroupHeartbeat", 0, 1, "consumer_group_heartbeat"),
    Served(69, "ConsumerGroupDescribe", 0, 1, "consumer_group_describe"),
    Served(75, "DescribeTopicPartitions", 0, 0, "describe_topic_partitions"),
)

# What each of them needs, as in Kafka. Where two needs stand for each other, as for topics that are made, the wider one
# is asked first. Where names are listed, those that may not be described are left out.
RIGHTS: Final[dict[int, tuple[rights.Need, ...]]] = {
    0: (rights.WRITE_TOPIC, rights.WRITE_TRANSACTION),
    1: (rights.READ_TOPIC, rights.ACT_AS_BROKER),
    2: (rights.DESCRIBE_TOPIC,),
    3: (rights.DESCRIBE_TOPIC, rights.CREATE_IN_CLUSTER, rights.CREATE_TOPIC, rights.DESCRIBE_CLUSTER),
    8: (rights.READ_GROUP, rights.READ_TOPIC),
    9: (rights.DESCRIBE_GROUP, rights.DESCRIBE_TOPIC),
    10: (rights.DESCRIBE_GROUP, rights.DESCRIBE_TRANSACTION),
    11: (rights.READ_GROUP,),
    12: (rights.READ_GROUP,),
    13: (rights.READ_GROUP,),
    14: (rights.READ_GROUP,),
    15: (rights.DESCRIBE_GROUP,),
    16: (rights.DESCRIBE_CLUSTER, rights.DESCRIBE_GROUP),
    18: (),
    19: (rights.CREATE_IN_CLUSTER, rights.CREATE_TOPIC, rights.DESCRIBE_TOPIC_CONFIGS),
    20: (rights.DELETE_IN_CLUSTER, rights.DESCRIBE_TOPIC, rights.DELETE_TOPIC),
    21: (rights.DELETE_TOPIC,),
    22: (rights.WRITE_TRANSACTION, rights.WRITE_IDEMPOTENTLY, rights.WRITE_TOPIC),
    23: (rights.ACT_AS_BROKER, rights.DESCRIBE_TOPIC),
    24: (rights.WRITE_TRANSACTION, rights.WRITE_TOPIC, rights.ACT_AS_BROKER),
    25: (rights.WRITE_TRANSACTION, rights.READ_GROUP),
    26: (rights.WRITE_TRANSACTION,),
    27: (rights.ALTER_CLUSTER, rights.ACT_AS_BROKER),
    28: (rights.WRITE_TRANSACTION, rights.READ_GROUP, rights.READ_TOPIC),
    32: (rights.DESCRIBE_TOPIC_CONFIGS, rights.DESCRIBE_BROKER_CONFIGS),
    33: (rights.ALTER_TOPIC_CONFIGS, rights.ALTER_BROKER_CONFIGS),
    35: (rights.DESCRIBE_CLUSTER,),
    37: (rights.ALTER_TOPIC,),
    42: (rights.DELETE_GROUP,),
    44: (rights.ALTER_TOPIC_CONFIGS, rights.ALTER_BROKER_CONFIGS),
    47: (rights.DELETE_GROUP, rights.READ_TOPIC),
    60: (rights.DESCRIBE_CLUSTER,),
    61: (rights.READ_TOPIC,),
    65: (rights.DESCRIBE_TRANSACTION, rights.DESCRIBE_TOPIC),
    66: (rights.DESCRIBE_TRANSACTION,),
    68: (rights.READ_GROUP, rights.DESCRIBE_TOPIC),
    69: (rights.DESCRIBE_GROUP, rights.DESCRIBE_TOPIC),
    75: (rights.DESCRIBE_TOPIC,),
}
_BY_KEY = {served.key: served for served in TABLE}
NAMES = {produce.KEY: "Produce", fetch.KEY: "Fetch", **{served.key: served.name for served in TABLE}}
ADVERTISED: Final = tuple(
    sorted(
        [
            (produce.KEY, PRODUCE_LOW_ADVERTISED, produce.HIGH),
            (fetch.KEY, fetch.LOW, fetch.HIGH),
            *[(served.key, served.low, served.high) for served in TABLE],
        ]
    )
)  # (key, lowest, highest version) of every request that is answered


@functools.cache
def load(key: int) -> "Api | None":
    """The handler of an API, or None if it is not served."""
    served = _BY_KEY.get(key)
    if served is None:
        return None
    return cast("Api", importlib.import_module(f"{__name__}.{served.module}").API)


def load_all() -> "tuple[Api, ...]":
    return tuple(api for served in TABLE if (api := load(served.key)) is not None)

"""One module for each request type, imported when the first such request comes: a broker starts without them.

The table says what is served; each module says the same of itself, and a test holds the two together. Produce and
Fetch are apart: they never become Python objects of kio's.
"""

import functools
import importlib
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from headrace.broker.api import Api


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
_BY_KEY = {served.key: served for served in TABLE}


@functools.cache
def load(key: int) -> "Api | None":
    """The handler of an API, or None if it is not served."""
    served = _BY_KEY.get(key)
    if served is None:
        return None
    return cast("Api", importlib.import_module(f"{__name__}.{served.module}").API)


def load_all() -> "tuple[Api, ...]":
    return tuple(api for served in TABLE if (api := load(served.key)) is not None)

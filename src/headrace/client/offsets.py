"""Asks the leaders of partitions for offsets: the earliest, the latest, or those of a time."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.client.cluster import ClusterClient
from headrace.client.errors import KafkaError
from headrace.protocol.api_keys import LIST_OFFSETS
from headrace.protocol.error_codes import LEADER_NOT_AVAILABLE, UNSUPPORTED_VERSION

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# The version of ListOffsets from which on a broker knows these.
_VERSION_MIN = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
NO_OFFSET = -1

PartitionName = tuple[str, int]  # topic and partition


class FoundOffset(NamedTuple):
    offset: int
    error: KafkaError | None = None


def leaders(cluster: ClusterClient, topics: Iterable[str]) -> dict[PartitionName, int]:
    """The leader of every partition of these topics that has one; topics that do not exist have no partitions."""
    names = sorted(set(topics))
    if not names:
        return {}
    return {
        (topic.name, each.partition_index): each.leader_id
        for topic in cluster.metadata(names).topics
        for each in topic.partitions
        if each.leader_id >= 0
    }


def offsets_at(
    cluster: ClusterClient, places: Mapping[PartitionName, int], *, leader_of: Mapping[PartitionName, int] | None = None
) -> dict[PartitionName, FoundOffset]:
    """The offset for each place's timestamp (or one of the constants); -1 if there is no record that late."""
    known = leaders(cluster, (topic for topic, _ in places)) if leader_of is None else leader_of
    by_node: dict[int, dict[str, list[dict[str, int]]]] = {}
    found: dict[PartitionName, FoundOffset] = {}
    for (topic, partition), timestamp in places.items():
        node = known.get((topic, partition))
        if node is None:
            found[topic, partition] = FoundOffset(NO_OFFSET, KafkaError(LEADER_NOT_AVAILABLE))
            continue
        asked = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}
        by_node.setdefault(node, {}).setdefault(topic, []).append(asked)
    for node, topics in by_node.items():
        found |= _ask(cluster, node, topics)
    return found


def _ask(
    cluster: ClusterClient, node: int, topics: dict[str, list[dict[str, int]]]
) -> dict[PartitionName, FoundOffset]:
    connection = cluster.at(node)
    times = {each["timestamp"] for asked in topics.values() for each in asked}
    if any(not connection.serves(LIST_OFFSETS, _VERSION_MIN.get(time, 0)) for time in times):
        refusal = KafkaError(UNSUPPORTED_VERSION)
        return {
            (topic, each["partition_index"]): FoundOffset(NO_OFFSET, refusal)
            for topic, asked in topics.items()
            for each in asked
        }
    body = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": asked} for topic, asked in topics.items()],
        "timeout": 30_000,
    }
    return {
        (topic.name, each.partition_index): FoundOffset(
            each.offset, KafkaError(each.error_code) if each.error_code else None
        )
        for topic in connection.call(LIST_OFFSETS, body).topics
        for each in topic.partitions
    }

"""Offsets committed for a group from outside it, as a reset does: the group has no members then."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.client.errors import check
from headrace.client.offsets import PartitionName
from headrace.protocol.api_keys import OFFSET_COMMIT

if TYPE_CHECKING:
    from headrace.client.cluster import ClusterClient

_BY_NAME_MAX = 9  # later versions name topics by id


def commit_offsets(cluster: "ClusterClient", group: str, plan: Mapping[PartitionName, int]) -> None:
    if not plan:
        return
    topics: dict[str, list[dict[str, object]]] = {}
    for (topic, number), offset in plan.items():
        one: dict[str, object] = {"partition_index": number, "committed_offset": offset, "committed_metadata": ""}
        topics.setdefault(topic, []).append(one | {"committed_leader_epoch": -1})
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time": -1,
        "topics": [{"name": topic, "partitions": each} for topic, each in topics.items()],
    }
    _, connection = cluster.coordinator(group)

    def ask() -> None:
        for topic in connection.call(OFFSET_COMMIT, body, _BY_NAME_MAX).topics:
            for each in topic.partitions:
                check(each.error_code)

    cluster.patiently(ask)

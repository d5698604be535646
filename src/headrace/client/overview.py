"""The brokers of a cluster, what each of them leads and holds, and which partitions are in trouble."""

from typing import Any

from headrace.client.cluster import ClusterClient
from headrace.client.errors import ClientError
from headrace.protocol.api_keys import DESCRIBE_LOG_DIRS


def overview(cluster: ClusterClient) -> dict[str, Any]:
    answer = cluster.metadata(None)
    partitions = [each for topic in answer.topics for each in topic.partitions]
    brokers = []
    nodes = cluster.nodes()
    for node_id, node in sorted(nodes.items()):
        size: int | None = None
        offline: list[str] = []
        try:
            directories = cluster.at(node_id).call(DESCRIBE_LOG_DIRS, {"topics": None}).results
            size = sum(each.partition_size for one in directories for topic in one.topics for each in topic.partitions)
            offline = [f"{one.log_dir} offline" for one in directories if one.error_code]
        except ClientError:
            pass  # it may not be asked, or it does not answer; the rest is still worth showing
        brokers.append(
            {
                "id": node_id,
                "address": f"{node.host}:{node.port}",
                "rack": node.rack,
                "controller": node_id == cluster.controller_id,
                "leads": sum(each.leader_id == node_id for each in partitions),
                "replicas": sum(node_id in each.replica_nodes for each in partitions),
                "size_bytes": size,
                "offline_directories": offline,
            }
        )
    return {
        "cluster_id": getattr(answer, "cluster_id", None),
        "controller": cluster.controller_id,
        "topics": len(answer.topics),
        "partitions": len(partitions),
        "offline_partitions": sum(each.leader_id < 0 for each in partitions),
        "under_replicated_partitions": sum(len(each.isr_nodes) < len(each.replica_nodes) for each in partitions),
        "brokers": brokers,
    }

"""What Metadata and DescribeTopicPartitions tell of a partition: its leader and replicas, from the cluster's image."""

from collections.abc import Container

from headrace.protocol.error_codes import LEADER_NOT_AVAILABLE, LISTENER_NOT_FOUND, NONE
from headrace.replication.image import NO_LEADER, ClusterImage, PartitionImage


def facts(
    image: ClusterImage,
    index: int,
    partition: PartitionImage,
    reachable: Container[int],
    no_listener: int = LISTENER_NOT_FOUND,
) -> dict[str, object]:
    """`reachable` are the brokers that the client was given an address of; `no_listener` is the error of a leader that
    is not among them."""
    leader = image.live_leader(partition)
    error = NONE
    if leader == NO_LEADER:
        error = LEADER_NOT_AVAILABLE
    elif leader not in reachable:
        error = no_listener
    return {
        "error_code": error,
        "partition_index": index,
        "leader_id": leader if error == NONE else NO_LEADER,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "offline_replicas": image.offline_replicas(partition),
    }

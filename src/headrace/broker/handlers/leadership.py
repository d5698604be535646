"""May this request use this partition? The checks that ListOffsets, OffsetForLeaderEpoch and others share."""

from __future__ import annotations

from headrace.broker.partition import Partition
from headrace.log.partition_log import PartitionLog
from headrace.protocol.error_codes import (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
)

NO_EPOCH = -1  # the client does not say which leader it knows


def usable_log(partition: Partition | None, current_leader_epoch: int = NO_EPOCH) -> tuple[PartitionLog | None, int]:
    """The log, or None and the error code."""
    if partition is None:
        return None, UNKNOWN_TOPIC_OR_PARTITION
    if partition.log is None:
        return None, KAFKA_STORAGE_ERROR
    if current_leader_epoch != NO_EPOCH:
        if current_leader_epoch < partition.leader_epoch:
            return None, FENCED_LEADER_EPOCH
        if current_leader_epoch > partition.leader_epoch:
            return None, UNKNOWN_LEADER_EPOCH
    return partition.log, NONE

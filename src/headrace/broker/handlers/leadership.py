"""May this request use this partition? The checks that ListOffsets, OffsetForLeaderEpoch and others share."""

from __future__ import annotations

from headrace.broker.partition import NO_EPOCH, Partition
from headrace.core.errors import PeerError
from headrace.log.partition_log import PartitionLog
from headrace.protocol.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION


def usable_log(partition: Partition | None, current_leader_epoch: int = NO_EPOCH) -> tuple[PartitionLog | None, int]:
    """The log, or None and the error code."""
    if partition is None:
        return None, UNKNOWN_TOPIC_OR_PARTITION
    try:
        return partition.log_for(current_leader_epoch), NONE
    except PeerError as error:
        return None, error.code

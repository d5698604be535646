"""DescribeProducers: who writes to a partition, with which epoch and sequence, and where its transaction began.

One version. It is how an operator finds the transaction that holds up `read_committed` readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.leadership import usable_log
from headrace.broker.handlers.soon import Body
from headrace.broker.topic_names import check_name
from headrace.core.errors import PeerError
from headrace.log.producer_state import ProducerEntry
from headrace.protocol.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION

if TYPE_CHECKING:
    from headrace.broker.node import Node

NO_SEQUENCE = -1
MESSAGES = {UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition."}


def handle(node: Node, request: Request) -> Body:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_partition(node, topic.name, index) for index in topic.partition_indexes],
            }
            for topic in request.body.topics
        ]
    }


def _partition(node: Node, name: str, index: int) -> Body:
    try:
        check_name(name)
    except PeerError as error:
        return _refused(index, error.code, error.message)
    if node.topics.get(name) is None:
        return _refused(index, UNKNOWN_TOPIC_OR_PARTITION, MESSAGES[UNKNOWN_TOPIC_OR_PARTITION])
    log, code = usable_log(node.topics.partition(name, index))
    if log is None:
        return _refused(index, code, None)
    producers = [_producer(producer_id, entry) for producer_id, entry in log.producers.items()]
    return {"partition_index": index, "error_code": NONE, "error_message": None, "active_producers": producers}


def _producer(producer_id: int, entry: ProducerEntry) -> Body:
    return {
        "producer_id": producer_id,
        "producer_epoch": entry.epoch,
        "last_sequence": entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE,
        "last_timestamp": entry.last_timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_start_offset": entry.txn_first_offset,
    }


def _refused(index: int, code: int, message: str | None) -> Body:
    return {"partition_index": index, "error_code": code, "error_message": message, "active_producers": []}


API = Api(key=61, name="DescribeProducers", low=0, high=0, handle=handle)

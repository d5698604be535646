"""DescribeProducers: who writes to a partition, with which epoch and sequence, and where its transaction began.

One version. It is how an operator finds the transaction that holds up `read_committed` readers. A partition that is
named twice is answered once: a short request must not ask for an answer without end.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.leadership import usable_log
from headrace.broker.handlers.soon import Body
from headrace.broker.rights import READ_TOPIC
from headrace.broker.steps import ITEMS_PER_STEP, Steps
from headrace.broker.topic_names import check_name
from headrace.core.errors import PeerError
from headrace.log.producer_state import ProducerEntry
from headrace.protocol.error_codes import NONE, UNKNOWN_TOPIC_OR_PARTITION

if TYPE_CHECKING:
    from headrace.broker.parts import LogParts

NO_SEQUENCE = -1
MESSAGES = {UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition."}


def handle(parts: LogParts, request: Request) -> Steps:
    return Steps(_answer(parts, request))


def _answer(parts: LogParts, request: Request) -> Generator[None, None, Body]:
    topics = []
    seen: set[tuple[str, int]] = set()
    for topic in request.body.topics:
        partitions = []
        refused = parts.rights.refusal(request.session, READ_TOPIC, topic.name)
        for index in topic.partition_indexes:
            if (topic.name, index) not in seen:
                seen.add((topic.name, index))
                if refused:
                    partitions.append(_refused(index, refused, None))
                else:
                    partitions.append((yield from _partition(parts, topic.name, index)))
            yield
        topics.append({"name": topic.name, "partitions": partitions})
        yield
    return {"topics": topics}


def _partition(parts: LogParts, name: str, index: int) -> Generator[None, None, Body]:
    try:
        check_name(name)
    except PeerError as error:
        return _refused(index, error.code, error.message)
    if parts.topics.get(name) is None:
        return _refused(index, UNKNOWN_TOPIC_OR_PARTITION, MESSAGES[UNKNOWN_TOPIC_OR_PARTITION])
    log, code = usable_log(parts.topics.partition(name, index))
    if log is None:
        return _refused(index, code, None)
    producers = []
    for at, (producer_id, entry) in enumerate(list(log.producers.items())):
        producers.append(_producer(producer_id, entry))
        if at % ITEMS_PER_STEP == 0:
            yield
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

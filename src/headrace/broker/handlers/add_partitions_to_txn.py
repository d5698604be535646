"""AddPartitionsToTxn: these partitions become a part of a transaction, so that its end is written to them.

v0 to v3 are clients'; v1 throttles, v2 knows PRODUCER_FENCED, v3 is flexible. v4 and v5 are brokers': many
transactions at a time, which are either added to or (`verify_only`) only looked at; v5 knows TRANSACTION_ABORTABLE.
All partitions of a transaction are added or none: one that does not exist leaves the others not attempted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.handlers.transaction_errors import fenced
from headrace.broker.topic_names import INTERNAL
from headrace.coordinator.transaction import VERSION_0, VERSION_2, TopicPartition
from headrace.protocol.error_codes import (
    NONE,
    OPERATION_NOT_ATTEMPTED,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)

if TYPE_CHECKING:
    from headrace.broker.node import Node

FENCED_SINCE = 2
BATCHED_SINCE = 4

Codes = Mapping[TopicPartition, int]


def handle(node: Node, request: Request) -> Body | Later:
    body, version, soon = request.body, request.version, Soon()
    if version >= BATCHED_SINCE:
        _handle_batch(node, body.transactions, soon)
        return soon.result()
    partitions = _partitions(body.v3_and_below_topics)
    refused = _refused(node, partitions, internal_allowed=False)
    if refused:
        return {"results_by_topic_v3_and_below": _by_topic(refused)}

    def decided(code: int) -> None:
        codes = dict.fromkeys(partitions, fenced(code, version, FENCED_SINCE))
        soon({"results_by_topic_v3_and_below": _by_topic(codes)})

    node.transactions.add_partitions(
        body.v3_and_below_transactional_id,
        body.v3_and_below_producer_id,
        body.v3_and_below_producer_epoch,
        partitions,
        VERSION_0,
        decided,
    )
    return soon.result()


def _handle_batch(node: Node, transactions: tuple[Any, ...], soon: Soon) -> None:
    results: dict[str, Codes] = {}
    asked = {each.transactional_id: each for each in transactions}  # an id that comes twice counts once

    def decided(transactional_id: str, codes: Codes) -> None:
        results[transactional_id] = codes
        if len(results) == len(asked):
            soon(
                {
                    "error_code": NONE,
                    "results_by_transaction": [
                        {"transactional_id": each, "topic_results": _by_topic(results[each])} for each in asked
                    ],
                }
            )

    if not asked:
        soon({"error_code": NONE, "results_by_transaction": []})
    for transactional_id, each in asked.items():
        _handle_one(node, each, functools.partial(decided, transactional_id))


def _handle_one(node: Node, asked: Any, decided: Callable[[Codes], None]) -> None:
    partitions = _partitions(asked.topics)
    key = asked.transactional_id, asked.producer_id, asked.producer_epoch
    refused = _refused(node, partitions, internal_allowed=True)
    if refused:
        decided(refused)
    elif asked.verify_only:
        decided({(topic, index): node.transactions.verify(*key, topic, index) for topic, index in partitions})
    else:

        def added(code: int) -> None:
            decided(dict.fromkeys(partitions, code))

        node.transactions.add_partitions(*key, partitions, VERSION_2, added)


def _partitions(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(dict.fromkeys((topic.name, index) for topic in topics for index in topic.partitions))


def _refused(node: Node, partitions: Iterable[TopicPartition], *, internal_allowed: bool) -> Codes:
    """Empty if all of them may be added."""
    codes = {}
    for topic, index in partitions:
        if topic in INTERNAL and not internal_allowed:
            codes[topic, index] = TOPIC_AUTHORIZATION_FAILED
        elif node.topics.partition(topic, index) is None:
            codes[topic, index] = UNKNOWN_TOPIC_OR_PARTITION
        else:
            codes[topic, index] = OPERATION_NOT_ATTEMPTED
    return codes if any(code != OPERATION_NOT_ATTEMPTED for code in codes.values()) else {}


def _by_topic(codes: Codes) -> list[Body]:
    grouped: dict[str, list[Body]] = {}
    for (topic, index), code in codes.items():
        grouped.setdefault(topic, []).append({"partition_index": index, "partition_error_code": code})
    return [{"name": topic, "results_by_partition": results} for topic, results in grouped.items()]


API = Api(key=24, name="AddPartitionsToTxn", low=0, high=5, handle=handle)

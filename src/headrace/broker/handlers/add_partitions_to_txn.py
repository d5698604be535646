"""AddPartitionsToTxn: these partitions become a part of a transaction, so that its end is written to them.

v0 to v3 are clients'; v1 throttles, v2 knows PRODUCER_FENCED, v3 is flexible. v4 and v5 are brokers': many
transactions at a time, which are either added to or (`verify_only`) only looked at; v5 knows TRANSACTION_ABORTABLE.
All partitions of a transaction are added or none: one that does not exist leaves the others not attempted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.handlers.transaction_errors import fenced
from headrace.broker.rights import ACT_AS_BROKER, WRITE_TOPIC, WRITE_TRANSACTION
from headrace.broker.steps import ITEMS_PER_STEP, Steps, stepped, up_to_few
from headrace.broker.topic_names import INTERNAL
from headrace.coordinator.topic_view import TopicPartition
from headrace.coordinator.transactions.transaction import VERSION_0, VERSION_2
from headrace.protocol.error_codes import (
    NONE,
    OPERATION_NOT_ATTEMPTED,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)

if TYPE_CHECKING:
    from headrace.broker.parts import TransactionParts

FENCED_SINCE = 2
BATCHED_SINCE = 4

Codes = Mapping[TopicPartition, int]


def handle(parts: TransactionParts, request: Request) -> Body | Later | Steps:
    body = request.body
    rights, session = parts.rights, request.session
    if request.version >= BATCHED_SINCE:
        refused = rights.refusal(session, ACT_AS_BROKER)
        if refused:
            return {"error_code": refused, "results_by_transaction": []}
        named = (len(topic.partitions) for each in body.transactions for topic in each.topics)
        count = max(len(body.transactions), up_to_few(named))
        return stepped(_answer_many(parts, body.transactions), count, must_end=True)
    count = up_to_few(len(topic.partitions) for topic in body.v3_and_below_topics)
    return stepped(_answer_one(parts, request), count, must_end=True)


def _answer_one(parts: TransactionParts, request: Request) -> Generator[None, None, Body | Later]:
    body, version, soon = request.body, request.version, Soon()
    partitions = yield from _partitions(body.v3_and_below_topics)
    code = parts.rights.refusal(request.session, WRITE_TRANSACTION, body.v3_and_below_transactional_id)
    refused: Codes = dict.fromkeys(partitions, code) if code else (yield from _refused(parts, partitions, request))
    if refused:
        return {"results_by_topic_v3_and_below": (yield from _by_topic(refused))}

    def body_of(code: int) -> Generator[None, None, Body]:
        codes = dict.fromkeys(partitions, fenced(code, version, FENCED_SINCE))
        return {"results_by_topic_v3_and_below": (yield from _by_topic(codes))}

    parts.transactions.add_partitions(
        body.v3_and_below_transactional_id,
        body.v3_and_below_producer_id,
        body.v3_and_below_producer_epoch,
        partitions,
        VERSION_0,
        lambda code: soon(Steps(body_of(code))),
    )
    return (yield from soon.steps())


def _answer_many(parts: TransactionParts, transactions: tuple[Any, ...]) -> Generator[None, None, Body | Later]:
    results: dict[str, Codes] = {}
    asked: dict[str, Any] = {}  # an id that comes twice counts once
    for each in transactions:
        asked[each.transactional_id] = each
        yield
    soon = Soon()

    def body() -> Generator[None, None, Body]:
        told = []
        for each in asked:
            told.append({"transactional_id": each, "topic_results": (yield from _by_topic(results[each]))})
            yield
        return {"error_code": NONE, "results_by_transaction": told}

    def decided(transactional_id: str, codes: Codes) -> None:
        results[transactional_id] = codes
        if len(results) == len(asked):
            soon(Steps(body()))

    if not asked:
        return {"error_code": NONE, "results_by_transaction": []}
    for transactional_id, each in asked.items():
        yield from _handle_one(parts, each, functools.partial(decided, transactional_id))
    return (yield from soon.steps())


def _handle_one(parts: TransactionParts, asked: Any, decided: Callable[[Codes], None]) -> Generator[None, None, None]:
    partitions = yield from _partitions(asked.topics)
    key = asked.transactional_id, asked.producer_id, asked.producer_epoch
    refused = yield from _refused(parts, partitions, None)
    if refused:
        decided(refused)
    elif asked.verify_only:
        codes = {}
        for topic, index in partitions:
            codes[topic, index] = parts.transactions.verify(*key, topic, index)
            yield
        decided(codes)
    else:
        added = partitions

        def told(code: int) -> None:
            decided(dict.fromkeys(added, code))

        parts.transactions.add_partitions(*key, partitions, VERSION_2, told)
    yield


def _partitions(topics: Iterable[Any]) -> Generator[None, None, tuple[TopicPartition, ...]]:
    found: dict[TopicPartition, None] = {}
    for topic in topics:
        for at, index in enumerate(topic.partitions):
            found[topic.name, index] = None
            if at % ITEMS_PER_STEP == 0:
                yield
    return tuple(found)


def _refused(
    parts: TransactionParts, partitions: Iterable[TopicPartition], client: Request | None
) -> Generator[None, None, Codes]:
    """Empty if all of them may be added. Brokers, unlike clients, may add any topic."""
    codes = {}
    rights = parts.rights
    fits = True
    for at, (topic, index) in enumerate(partitions):
        if client is not None and (topic in INTERNAL or not rights.allows(client.session, WRITE_TOPIC, topic)):
            code = TOPIC_AUTHORIZATION_FAILED
        elif parts.topics.partition(topic, index) is None:
            code = UNKNOWN_TOPIC_OR_PARTITION
        else:
            code = OPERATION_NOT_ATTEMPTED
        codes[topic, index] = code
        fits = fits and code == OPERATION_NOT_ATTEMPTED
        if at % ITEMS_PER_STEP == 0:
            yield
    return {} if fits else codes


def _by_topic(codes: Codes) -> Generator[None, None, list[Body]]:
    grouped: dict[str, list[Body]] = {}
    for at, ((topic, index), code) in enumerate(codes.items()):
        grouped.setdefault(topic, []).append({"partition_index": index, "partition_error_code": code})
        if at % ITEMS_PER_STEP == 0:
            yield
    return [{"name": topic, "results_by_partition": results} for topic, results in grouped.items()]


API = Api(key=24, name="AddPartitionsToTxn", low=0, high=5, handle=handle)

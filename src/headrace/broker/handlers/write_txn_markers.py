"""WriteTxnMarkers: the end of a transaction in single partitions, past its coordinator.

Brokers send it to each other; here it is how an administrator ends a transaction that hangs (`kafka-transactions.sh
abort`). v1 is flexible; v2 tells the transaction version: from 2 on, a marker bears the epoch after the transaction's.
An answer has no order, and one entry per producer, however many markers it had.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.leadership import usable_log
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.rights import ACT_AS_BROKER, ALTER_CLUSTER
from headrace.broker.steps import ITEMS_PER_STEP, Steps, stepped, up_to_few
from headrace.coordinator.journal import AllOf
from headrace.coordinator.transactions.markers import TransactionEnd
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    KAFKA_STORAGE_ERROR,
    NONE,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)

if TYPE_CHECKING:
    from headrace.broker.parts import MarkerParts

EPOCH_BUMPED_SINCE = 2  # the transaction version, not the request's

Place = tuple[str, int]
Codes = dict[int, dict[str, dict[int, int]]]  # by producer, topic, partition


def handle(parts: MarkerParts, request: Request) -> Body | Later | Steps:
    rights, session = parts.rights, request.session
    if not rights.allows(session, ALTER_CLUSTER) and not rights.allows(session, ACT_AS_BROKER):
        return Steps(_refused(request.body.markers))
    named = (len(topic.partition_indexes) for asked in request.body.markers for topic in asked.topics)
    return stepped(_answer(parts, request), up_to_few(named), must_end=True)


def _answer(parts: MarkerParts, request: Request) -> Generator[None, None, Body | Later]:
    answer = _Answer()
    for asked in request.body.markers:
        places: set[Place] = set()  # a partition that is named twice in a marker still has one end of the transaction
        for topic in asked.topics:
            for index in topic.partition_indexes:
                if (topic.name, index) not in places:
                    places.add((topic.name, index))
                    answer.expect()
                    _write(parts, asked, topic.name, index, answer)
                yield
            yield
        yield
    answer.end()
    return (yield from answer.soon.steps())


def _refused(markers: tuple[Any, ...]) -> Generator[None, None, Body | Later]:
    answer = _Answer()
    for asked in markers:
        for topic in asked.topics:
            for index in topic.partition_indexes:
                answer.expect()
                answer.told(asked.producer_id, topic.name, index, CLUSTER_AUTHORIZATION_FAILED)
            yield
        yield
    answer.end()
    return (yield from answer.soon.steps())


def _write(parts: MarkerParts, asked: Any, topic: str, index: int, answer: _Answer) -> None:
    producer = asked.producer_id

    def written(error: Exception | None) -> None:
        answer.told(producer, topic, index, NONE if error is None else KAFKA_STORAGE_ERROR)

    log, _ = usable_log(parts.topics.partition(topic, index))
    if log is None:
        answer.told(producer, topic, index, UNKNOWN_TOPIC_OR_PARTITION)  # whose directory is offline, too, as in Kafka
        return
    version = getattr(asked, "transaction_version", 0)
    if producer < 0 or asked.producer_epoch < 0 or version < 0:
        answer.told(producer, topic, index, UNKNOWN_SERVER_ERROR)  # no such batch can be made
        return
    end = TransactionEnd(producer, asked.producer_epoch, asked.coordinator_epoch, asked.transaction_result)
    try:
        log.producers.check_marker(*end[:3], version >= EPOCH_BUMPED_SINCE)
    except PeerError as error:
        answer.told(producer, topic, index, error.code)
        return
    parts.coordination.write_marker(end, topic, index, written)


class _Answer:
    """Given when every partition has been told about."""

    __slots__ = ("_codes", "_waiting", "soon")

    def __init__(self) -> None:
        soon = Soon()
        codes: Codes = {}
        self.soon = soon
        self._codes = codes
        self._waiting = AllOf(lambda _: soon(Steps(_body(codes))))

    def expect(self) -> None:
        self._waiting.expect()

    def told(self, producer: int, topic: str, index: int, code: int) -> None:
        self._codes.setdefault(producer, {}).setdefault(topic, {})[index] = code
        self._waiting.told(None)

    def end(self) -> None:
        """All have been asked."""
        self._waiting.told(None)


def _body(codes: Codes) -> Generator[None, None, Body]:
    markers: list[Body] = []
    for producer, topics in codes.items():
        told: list[Body] = []
        markers.append({"producer_id": producer, "topics": told})
        for name, of_topic in topics.items():
            partitions: list[Body] = []
            told.append({"name": name, "partitions": partitions})
            for at, (index, code) in enumerate(of_topic.items()):
                partitions.append({"partition_index": index, "error_code": code})
                if at % ITEMS_PER_STEP == 0:
                    yield
        yield
    return {"markers": markers}


API = Api(key=27, name="WriteTxnMarkers", low=1, high=2, handle=handle)

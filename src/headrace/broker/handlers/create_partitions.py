"""CreatePartitions: more partitions for a topic; never fewer.

v2 is flexible, v3 adds a throttling error. A manual assignment must name this broker for each new
partition. An internal topic does not grow, unlike in Kafka: its partitions say where the state of a group is.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Request
from headrace.broker.handlers.create_topics import PARTITIONS_PER_REQUEST_MAX
from headrace.broker.rights import ALTER_TOPIC
from headrace.broker.steps import Pause, Steps, tally
from headrace.broker.topic_names import check_not_internal
from headrace.coordinator.placing import OFFSETS_TOPIC
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REQUEST,
    NONE,
    POLICY_VIOLATION,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.parts import TopicParts


def handle(parts: TopicParts, request: Request) -> Body | Steps:
    return Steps(_answer(parts, request), must_end=True)


def _answer(parts: TopicParts, request: Request) -> Generator[Pause | None, None, Body]:
    body = request.body
    counts = yield from tally(topic.name for topic in body.topics)
    results: dict[str, Mapping[str, object]] = {}
    for topic in body.topics:
        if topic.name in results:
            continue
        try:
            if counts[topic.name] > 1:
                raise PeerError(INVALID_REQUEST, "Duplicate topic name.")
            parts.rights.check(request.session, ALTER_TOPIC, topic.name)
            if body.timeout <= timedelta():
                raise PeerError(REQUEST_TIMED_OUT, "")
            _check(parts, topic)
            if not body.validate_only:
                yield from parts.controller.grow_in_steps(topic.name, topic.count)
            results[topic.name] = {"name": topic.name, "error_code": NONE, "error_message": None}
        except PeerError as error:
            message = error.message or None
            results[topic.name] = {"name": topic.name, "error_code": error.code, "error_message": message}
        yield None
    return {"results": list(results.values())}


def _check(parts: TopicParts, asked: Any) -> None:
    topic = parts.topics.get(asked.name)
    if topic is None:
        raise PeerError(UNKNOWN_TOPIC_OR_PARTITION, "")
    check_not_internal(asked.name, "grown", f"set {_count_setting(asked.name)} before a broker's first start")
    existing = len(topic.partitions)
    if asked.count == existing:
        raise PeerError(INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
    if asked.count < existing:
        why = f"currently has {existing} partition(s); {asked.count} would not be an increase."
        raise PeerError(INVALID_PARTITIONS, f"The topic {asked.name} {why}")
    more = asked.count - existing
    if more > PARTITIONS_PER_REQUEST_MAX:
        raise PeerError(POLICY_VIOLATION, "Excessively large number of partitions per request.")
    if asked.assignments is not None:
        if len(asked.assignments) != more:
            why = f"but only {len(asked.assignments)} assignment(s) were specified."
            message = f"Attempted to add {more} additional partition(s), {why}"
            raise PeerError(INVALID_REPLICA_ASSIGNMENT, message)
        parts.controller.assigned([assignment.broker_ids for assignment in asked.assignments])


def _count_setting(name: str) -> str:
    return "offsets.topic.num.partitions" if name == OFFSETS_TOPIC else "transaction.state.log.num.partitions"


API = Api(key=37, name="CreatePartitions", low=0, high=3, handle=handle)

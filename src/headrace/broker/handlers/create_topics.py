"""CreateTopics: new topics, many written down with one fsync.

v4 lets -1 stand for the broker's number of partitions and replicas, v5 answers with the settings in
force, v7 with the topic's id. Earlier versions are answered with less.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.api import Api, Request
from headrace.broker.config_view import ConfigView
from headrace.broker.handlers.assignment import check_replicas
from headrace.broker.handlers.config_resources import check_count
from headrace.broker.standalone import NewTopic
from headrace.broker.steps import Steps, stepped, tally, up_to_few
from headrace.broker.topic_names import check_collision, folded
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    NONE,
    POLICY_VIOLATION,
    REQUEST_TIMED_OUT,
)
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.node import Node

PARTITIONS_A_REQUEST_MAX = 10_000  # as Kafka; more would also hold up the event loop
TOPICS_PER_SLICE: Final = 50  # that are written down at once


def handle(node: Node, request: Request) -> Body | Steps:
    count = up_to_few(max(topic.num_partitions, len(topic.assignments)) for topic in request.body.topics)
    return stepped(_answer(node, request), count, must_end=True)


def _answer(node: Node, request: Request) -> Generator[None, None, Body]:
    body = request.body
    counts = yield from tally(topic.name for topic in body.topics)
    answers: dict[str, Mapping[str, object]] = {}
    planned: list[NewTopic] = []
    alike: dict[str, str] = {}  # the names of this request, folded
    partition_count = 0
    for topic in body.topics:
        if topic.name in answers:
            continue
        try:
            if counts[topic.name] > 1:
                raise PeerError(INVALID_REQUEST, "Duplicate topic name.")
            if body.timeout <= timedelta():
                raise PeerError(REQUEST_TIMED_OUT, "")
            new = _plan(node, topic)
            check_collision(topic.name, alike.setdefault(folded(topic.name), topic.name))
            partition_count += new.partition_count
            planned.append(new)
            answers[topic.name] = {}
        except PeerError as error:
            answers[topic.name] = _refused(topic.name, error)
        yield
    if partition_count > PARTITIONS_A_REQUEST_MAX:
        too_many = PeerError(POLICY_VIOLATION, "Excessively large number of partitions per request.")
        return {"topics": [_refused(name, too_many) for name in answers]}
    view = ConfigView.of(node.dynamic_settings) if request.version >= 5 else None
    problems = yield from _make(node, planned, body.validate_only)
    for new, problem in zip(planned, problems, strict=True):
        answers[new.name] = _made(new, view) if problem is None else _refused(new.name, problem)
        yield
    return {"topics": list(answers.values())}


def _plan(node: Node, topic: Any) -> NewTopic:
    """The checks in Kafka's order: name, settings, then numbers."""
    check_count(topic.configs)
    configs = {config.name: config.value for config in topic.configs}
    count = len(topic.assignments) or topic.num_partitions
    new = node.controller.plan(topic.name, 1 if count < 1 else count, configs)
    if topic.assignments:
        _check_assignments(topic, node.cluster.image.brokers)
        return new
    replicas = topic.replication_factor
    if replicas == 0 or replicas < -1:
        why = "Replication factor must be larger than 0, or -1 to use the default value."
        raise PeerError(INVALID_REPLICATION_FACTOR, why)
    if count == 0 or count < -1:
        why = "Number of partitions was set to an invalid non-positive value."
        raise PeerError(INVALID_PARTITIONS, why)
    node.controller.check_replication_factor(replicas)
    return new if count != -1 else replace(new, partition_count=node.settings.num_partitions)


def _check_assignments(topic: Any, brokers: Container[int]) -> None:
    manual = "A manual partition assignment was specified, but"
    if topic.replication_factor != -1:
        raise PeerError(INVALID_REQUEST, f"{manual} replication factor was not set to -1.")
    if topic.num_partitions != -1:
        raise PeerError(INVALID_REQUEST, f"{manual} numPartitions was not set to -1.")
    seen: set[int] = set()
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in seen:
            why = f"Found multiple manual partition assignments for partition {index}"
            raise PeerError(INVALID_REPLICA_ASSIGNMENT, why)
        seen.add(index)
        check_replicas(assignment.broker_ids, brokers)
    if seen != set(range(len(seen))):
        why = "partitions should be a consecutive 0-based integer sequence"
        raise PeerError(INVALID_REPLICA_ASSIGNMENT, why)


def _make(node: Node, planned: list[NewTopic], validate_only: bool) -> Generator[None, None, list[PeerError | None]]:
    problems: list[PeerError | None] = [None] * len(planned)
    if validate_only:
        return problems
    for first in range(0, len(planned), TOPICS_PER_SLICE):
        free = []  # another request may have made some since they were planned, up to the last moment
        for at, new in enumerate(planned[first : first + TOPICS_PER_SLICE], first):
            try:
                node.controller.plan(new.name, new.partition_count, new.overrides)
                free.append(at)
            except PeerError as error:
                problems[at] = error
        try:
            made = yield from node.controller.make_in_steps([planned[at] for at in free])
        except PeerError as error:
            made = [error] * len(free)
        for at, result in zip(free, made, strict=True):
            problems[at] = result if isinstance(result, PeerError) else None
        yield
    return problems


def _made(new: NewTopic, view: ConfigView | None) -> Mapping[str, object]:
    configs = [
        {
            "name": entry.name,
            "value": new.overrides.get(entry.name, entry.value),
            "read_only": False,
            "config_source": entry.source,
            "is_sensitive": False,
        }
        for entry in (view.topic(new.overrides) if view is not None else ())
    ]
    return {
        "name": new.name,
        "topic_id": new.id,
        "error_code": NONE,
        "error_message": None,
        "num_partitions": new.partition_count,
        "replication_factor": new.replication_factor,
        "configs": configs,
    }


def _refused(name: str, error: PeerError) -> Mapping[str, object]:
    message = error.message or None
    return {"name": name, "topic_id": None, "error_code": error.code, "error_message": message, "configs": []}


API = Api(key=19, name="CreateTopics", low=2, high=7, handle=handle)

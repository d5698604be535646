"""CreateTopics: new topics, many written down with one fsync.

v4 lets -1 stand for the broker's number of partitions and replicas, v5 answers with the settings in
force, v7 with the topic's id. Earlier versions are answered with less.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.api import Api, Request
from headrace.broker.config_view import ConfigView
from headrace.broker.handlers.config_resources import check_count
from headrace.broker.rights import CREATE_IN_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS
from headrace.broker.steps import ITEMS_PER_STEP, Pause, Steps, stepped, tally, up_to_few
from headrace.broker.topic_names import check_collision, folded
from headrace.broker.topic_plans import NewTopic
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    INVALID_PARTITIONS,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR,
    INVALID_REQUEST,
    NONE,
    POLICY_VIOLATION,
    REQUEST_TIMED_OUT,
    TOPIC_AUTHORIZATION_FAILED,
)
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.parts import ConfigParts

PARTITIONS_PER_REQUEST_MAX = 10_000  # as Kafka; more would also hold up the event loop
TOPICS_PER_SLICE: Final = 50  # that are written down at once


def handle(parts: ConfigParts, request: Request) -> Body | Steps:
    count = up_to_few(max(topic.num_partitions, len(topic.assignments)) for topic in request.body.topics)
    return stepped(_answer(parts, request), count, must_end=True)


def _answer(parts: ConfigParts, request: Request) -> Generator[Pause | None, None, Body]:
    body = request.body
    counts = yield from tally(topic.name for topic in body.topics)
    answers: dict[str, Mapping[str, object]] = {}
    planned: list[NewTopic] = []
    alike: dict[str, str] = {}  # the names of this request, folded
    # Before anything is made in the size of what is asked for: one number may ask for two thousand million.
    if (yield from _partitions_asked_for(body.topics, parts.settings.num_partitions)) > PARTITIONS_PER_REQUEST_MAX:
        too_many = PeerError(POLICY_VIOLATION, "Excessively large number of partitions per request.")
        return {"topics": [_refused(name, too_many) for name in counts]}
    rights, session = parts.rights, request.session
    makes_any = rights.allows(session, CREATE_IN_CLUSTER)
    for topic in body.topics:
        if topic.name in answers:
            continue
        try:
            if counts[topic.name] > 1:
                raise PeerError(INVALID_REQUEST, "Duplicate topic name.")
            if not makes_any:
                rights.check(session, CREATE_TOPIC, topic.name)
            if body.timeout <= timedelta():
                raise PeerError(REQUEST_TIMED_OUT, "")
            new = _plan(parts, topic)
            check_collision(topic.name, alike.setdefault(folded(topic.name), topic.name))
            planned.append(new)
            answers[topic.name] = {}
        except PeerError as error:
            answers[topic.name] = _refused(topic.name, error)
        yield None
    view = ConfigView.of(parts.dynamic_settings) if request.version >= 5 else None
    problems = yield from _make(parts, planned, body.validate_only)
    for new, problem in zip(planned, problems, strict=True):
        if problem is not None:
            answers[new.name] = _refused(new.name, problem)
        elif view is not None and not rights.allows(session, DESCRIBE_TOPIC_CONFIGS, new.name):
            answers[new.name] = _hidden(new)
        else:
            answers[new.name] = _made(new, view)
        yield None
    return {"topics": list(answers.values())}


def _partitions_asked_for(topics: Sequence[Any], default: int) -> Generator[None, None, int]:
    """By all topics of a request together, also by those that are refused for another reason, as Kafka counts them."""
    total = 0
    for at, topic in enumerate(topics):
        count = len(topic.assignments) or topic.num_partitions
        total += default if count == -1 else max(0, count)
        if at % ITEMS_PER_STEP == 0:
            yield
    return total


def _plan(parts: ConfigParts, topic: Any) -> NewTopic:
    """The checks in Kafka's order: name, settings, then numbers."""
    check_count(topic.configs)
    configs = {config.name: config.value for config in topic.configs}
    count = len(topic.assignments) or topic.num_partitions
    new = parts.controller.plan(topic.name, 1 if count < 1 else count, configs)
    if topic.assignments:
        return replace(new, replicas=parts.controller.assigned(_manual(topic)))
    replicas = topic.replication_factor
    if replicas == 0 or replicas < -1:
        why = "Replication factor must be larger than 0, or -1 to use the default value."
        raise PeerError(INVALID_REPLICATION_FACTOR, why)
    if count == 0 or count < -1:
        why = "Number of partitions was set to an invalid non-positive value."
        raise PeerError(INVALID_PARTITIONS, why)
    placed = parts.controller.placed(count if count != -1 else parts.settings.num_partitions, replicas)
    return replace(new, replicas=placed)


def _manual(topic: Any) -> list[Sequence[int]]:
    """The brokers that a client gives each partition to, in the order of the partitions."""
    manual = "A manual partition assignment was specified, but"
    if topic.replication_factor != -1:
        raise PeerError(INVALID_REQUEST, f"{manual} replication factor was not set to -1.")
    if topic.num_partitions != -1:
        raise PeerError(INVALID_REQUEST, f"{manual} numPartitions was not set to -1.")
    found: dict[int, Sequence[int]] = {}
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in found:
            why = f"Found multiple manual partition assignments for partition {index}"
            raise PeerError(INVALID_REPLICA_ASSIGNMENT, why)
        found[index] = assignment.broker_ids
    if set(found) != set(range(len(found))):
        why = "partitions should be a consecutive 0-based integer sequence"
        raise PeerError(INVALID_REPLICA_ASSIGNMENT, why)
    return [found[index] for index in range(len(found))]


def _make(
    parts: ConfigParts, planned: list[NewTopic], validate_only: bool
) -> Generator[Pause | None, None, list[PeerError | None]]:
    problems: list[PeerError | None] = [None] * len(planned)
    if validate_only:
        return problems
    for first in range(0, len(planned), TOPICS_PER_SLICE):
        free = []  # another request may have made some since they were planned, up to the last moment
        for at, new in enumerate(planned[first : first + TOPICS_PER_SLICE], first):
            try:
                parts.controller.plan(new.name, new.partition_count, new.overrides)
                free.append(at)
            except PeerError as error:
                problems[at] = error.with_traceback(None)  # which would keep this frame, and so what is made
        try:
            made = yield from parts.controller.make_in_steps([planned[at] for at in free])
        except PeerError as error:
            made = [error] * len(free)
        for at, result in zip(free, made, strict=True):
            problems[at] = result if isinstance(result, PeerError) else None
        yield None
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


def _hidden(new: NewTopic) -> Mapping[str, object]:
    """For those who may make it and not look at its settings."""
    hidden = {"num_partitions": -1, "replication_factor": -1, "configs": []}
    error = {"error_code": NONE, "error_message": None, "topic_config_error_code": TOPIC_AUTHORIZATION_FAILED}
    return {"name": new.name, "topic_id": new.id, **error, **hidden}


def _refused(name: str, error: PeerError) -> Mapping[str, object]:
    message = error.message or None
    return {"name": name, "topic_id": None, "error_code": error.code, "error_message": message, "configs": []}


API = Api(key=19, name="CreateTopics", low=2, high=7, handle=handle)

"""Metadata: brokers, topics, partitions and their leaders.

v0 takes an empty list for all topics, from v1 on null does; v4 can forbid making topics; v5 adds offline
replicas, v7 leader epochs, v8 authorized operations, v10 topic ids, and v12 lets topics be asked for by
id. A topic that is made by this request is there at once, so the answer tells of it; Kafka says
UNKNOWN_TOPIC_OR_PARTITION and lets the client ask again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Request
from headrace.broker.handlers import operations
from headrace.broker.handlers.address import advertised
from headrace.broker.steps import FEW, ITEMS_PER_STEP, Steps, stepped
from headrace.broker.topics import Topic, partition_count
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    INVALID_REQUEST,
    LEADER_NOT_AVAILABLE,
    NONE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from headrace.protocol.messages import Body, encode_body_in_steps

if TYPE_CHECKING:
    from headrace.broker.node import Node

KEY = 3
PARTITIONS_PER_STEP = 100

Asked = tuple[tuple[str | None, Any], ...] | None  # (name, id) each; None: all topics


def handle(node: Node, request: Request) -> Body | Steps:
    body, version = request.body, request.version
    if body.topics is None or (version == 0 and not body.topics):
        return stepped(_answer(node, request, None), partition_count(node.topics.by_name.values(), FEW))
    if len(body.topics) > FEW:
        return Steps(_answer_many(node, request))
    if _names_nothing(body.topics, version):
        return _refused(body.topics)
    asked = _asked(body.topics)
    return stepped(_answer(node, request, asked), partition_count([_named(node, *each) for each in asked], FEW))


def _answer_many(node: Node, request: Request) -> Generator[None, None, Body]:
    topics = request.body.topics
    asked: list[tuple[str | None, Any]] = []
    for first in range(0, len(topics), ITEMS_PER_STEP):
        some = topics[first : first + ITEMS_PER_STEP]
        if _names_nothing(some, request.version):
            return _refused(topics)
        asked += _asked(some)
        yield
    return (yield from _answer(node, request, tuple(asked)))


def _asked(topics: Any) -> tuple[tuple[str | None, Any], ...]:
    return tuple((topic.name, getattr(topic, "topic_id", None)) for topic in topics)


def _answer(node: Node, request: Request, asked: Asked) -> Generator[None, None, Body]:
    body, version = request.body, request.version
    errors = yield from _make_missing(node, asked, getattr(body, "allow_auto_topic_creation", True))
    topic_operations = bool(getattr(body, "include_topic_authorized_operations", False))
    cluster_operations = bool(getattr(body, "include_cluster_authorized_operations", False))
    address = advertised(node, request)
    cache = node.topics.metadata_answers
    offline_count = sum(directory.error is not None for directory in node.store.directories)
    stamp = (node.topics.revision, offline_count)
    key = (version, asked, address, topic_operations, cluster_operations)
    answer = cache.get(stamp, key) if not errors else None
    if answer is None:
        topics = yield from _topics(node, asked, errors, topic_operations)
        broker = {"node_id": node.settings.node_id, "host": address[0], "port": address[1]}
        answer = yield from encode_body_in_steps(
            KEY,
            version,
            {
                "brokers": [{**broker, "rack": node.settings.broker_rack or None}],
                "cluster_id": node.cluster_id,
                "controller_id": node.settings.node_id,
                "topics": topics,
                "cluster_authorized_operations": (
                    operations.ON_CLUSTER if cluster_operations else operations.NOT_ASKED
                ),
                "error_code": NONE,
            },
        )
        if not errors and stamp[0] == node.topics.revision:
            cache.put(stamp, key, answer)
    return answer


def _names_nothing(topics: Any, version: int) -> bool:
    """Up to v11 a topic has a name and no id; from v12 on, one of the two."""
    if version < 12:
        return any(t.name is None or getattr(t, "topic_id", None) is not None for t in topics)
    return any(t.name is None and t.topic_id is None for t in topics)


def _refused(topics: Any) -> Mapping[str, object]:
    refused = [
        {"error_code": INVALID_REQUEST, "name": t.name or "", "topic_id": t.topic_id, "partitions": []} for t in topics
    ]
    return {"brokers": [], "topics": refused, "error_code": INVALID_REQUEST}


def _make_missing(node: Node, asked: Asked, allowed: bool) -> Generator[None, None, dict[str, int]]:
    """Makes what is asked for by name and missing. Returns the error codes of what stays missing."""
    errors: dict[str, int] = {}
    for name, topic_id in asked or ():
        if name is None or topic_id is not None or node.topics.get(name) is not None:
            continue
        try:
            node.topics.ensure(name, allowed=allowed)
        except PeerError as error:
            errors[name] = error.code
        yield
    return errors


def _topics(
    node: Node, asked: Asked, errors: Mapping[str, int], operations_too: bool
) -> Generator[None, None, list[object]]:
    mask = operations.ON_TOPIC if operations_too else operations.NOT_ASKED
    answers: dict[object, object] = {}  # each topic once, however it was named
    for topic in list(node.topics.all()) if asked is None else ():
        answers[topic.id] = yield from _topic(node, topic, mask)
        yield
    for name, topic_id in asked or ():
        known = _named(node, name, topic_id)
        if known is not None:
            answers[known.id] = yield from _topic(node, known, mask)
        elif topic_id is not None:
            answers[topic_id] = _missing(UNKNOWN_TOPIC_ID, None, topic_id, operations.NOT_ASKED)
        else:
            # One that was deleted since it was looked for above has no error of its own yet.
            answers[name] = _missing(errors.get(name or "", UNKNOWN_TOPIC_OR_PARTITION), name, None, mask)
        yield
    return list(answers.values())


def _named(node: Node, name: str | None, topic_id: Any) -> Topic | None:
    return node.topics.by_id(topic_id) if topic_id is not None else node.topics.get(name or "")


def _missing(code: int, name: str | None, topic_id: Any, mask: int) -> Mapping[str, object]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "partitions": [],
        "topic_authorized_operations": mask,
    }


def _topic(node: Node, topic: Topic, mask: int) -> Generator[None, None, Mapping[str, object]]:
    node_id = node.settings.node_id
    here = [node_id]
    partitions: list[Mapping[str, object]] = []
    for first in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
        partitions += [
            {
                "error_code": NONE if partition.online else LEADER_NOT_AVAILABLE,
                "partition_index": partition.index,
                "leader_id": node_id if partition.online else -1,
                "leader_epoch": partition.leader_epoch,
                "replica_nodes": here,
                "isr_nodes": here,
                "offline_replicas": () if partition.online else here,
            }
            for partition in topic.partitions[first : first + PARTITIONS_PER_STEP]
        ]
        yield
    return {
        "error_code": NONE,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.internal,
        "partitions": partitions,
        "topic_authorized_operations": mask,
    }


API = Api(key=KEY, name="Metadata", low=0, high=13, handle=handle)

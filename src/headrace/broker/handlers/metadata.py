"""Metadata: brokers, topics, partitions and their leaders.

v0 takes an empty list for all topics, from v1 on null does; v4 can forbid making topics; v5 adds offline
replicas, v7 leader epochs, v8 authorized operations, v10 topic ids, and v12 lets topics be asked for by
id. A topic that is made by this request is there at once, so the answer tells of it; Kafka says
UNKNOWN_TOPIC_OR_PARTITION and lets the client ask again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.api import Api, Request
from headrace.broker.handlers.address import addresses
from headrace.broker.handlers.partition_facts import facts
from headrace.broker.rights import CREATE_IN_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC, NOT_ASKED, Rights, refused
from headrace.broker.steps import FEW, ITEMS_PER_STEP, Steps, stepped
from headrace.broker.topic_names import INTERNAL
from headrace.broker.topics import partition_count
from headrace.core.errors import PeerError
from headrace.protocol.acl_codes import TOPIC
from headrace.protocol.error_codes import (
    INVALID_REQUEST,
    LEADER_NOT_AVAILABLE,
    LISTENER_NOT_FOUND,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from headrace.protocol.messages import Body, encode_body_in_steps
from headrace.replication.image import ClusterImage, TopicImage

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession
    from headrace.broker.parts import MetadataParts

KEY = 3
PARTITIONS_PER_STEP = 100


class _View(NamedTuple):
    image: ClusterImage
    reachable: set[int]  # brokers that the client is given an address of
    no_listener: int  # the error of a leader that is not among them
    rights: Rights
    session: ClientSession
    tells_operations: bool

    def shows(self, name: str) -> bool:
        return self.rights.allows(self.session, DESCRIBE_TOPIC, name)

    def mask(self, name: str) -> int:
        return self.rights.mask(self.session, TOPIC, name) if self.tells_operations else NOT_ASKED


Asked = tuple[tuple[str | None, Any], ...] | None  # (name, id) each; None: all topics


def handle(parts: MetadataParts, request: Request) -> Body | Steps:
    body, version = request.body, request.version
    if body.topics is None or (version == 0 and not body.topics):
        return stepped(_answer(parts, request, None), partition_count(parts.cluster.image.topics.values(), FEW))
    if len(body.topics) > FEW:
        return Steps(_answer_many(parts, request))
    if _names_nothing(body.topics, version):
        return _refused(body.topics)
    asked = _asked(body.topics)
    image = parts.cluster.image
    return stepped(_answer(parts, request, asked), partition_count([_named(image, *each) for each in asked], FEW))


def _answer_many(parts: MetadataParts, request: Request) -> Generator[None, None, Body]:
    topics = request.body.topics
    asked: list[tuple[str | None, Any]] = []
    for first in range(0, len(topics), ITEMS_PER_STEP):
        some = topics[first : first + ITEMS_PER_STEP]
        if _names_nothing(some, request.version):
            return _refused(topics)
        asked += _asked(some)
        yield
    return (yield from _answer(parts, request, tuple(asked)))


def _asked(topics: Any) -> tuple[tuple[str | None, Any], ...]:
    return tuple((topic.name, getattr(topic, "topic_id", None)) for topic in topics)


def _answer(parts: MetadataParts, request: Request, asked: Asked) -> Generator[None, None, Body]:
    body, version = request.body, request.version
    errors = yield from _make_missing(parts, request.session, asked, getattr(body, "allow_auto_topic_creation", True))
    topic_operations = bool(getattr(body, "include_topic_authorized_operations", False))
    cluster_operations = bool(getattr(body, "include_cluster_authorized_operations", False))
    image = parts.cluster.image  # the answer tells of this one, however many steps it takes
    brokers = addresses(parts, request)
    rights, session = parts.rights, request.session
    seen = rights.view(session)
    key = (version, asked, brokers, topic_operations, cluster_operations, seen)
    is_kept = not errors and not request.throttle_ms  # or may be
    answer = parts.metadata_answers.get(image.revision, key) if is_kept else None
    if answer is None:
        no_listener = LISTENER_NOT_FOUND if version >= 6 else LEADER_NOT_AVAILABLE
        view = _View(image, {each[0] for each in brokers}, no_listener, rights, session, topic_operations)
        topics = yield from _topics(view, asked, errors)
        answer = yield from encode_body_in_steps(
            KEY,
            version,
            {
                "brokers": [
                    {"node_id": each, "host": host, "port": port, "rack": rack} for each, host, port, rack in brokers
                ],
                "cluster_id": image.cluster_id,
                "controller_id": image.controller_id,
                "topics": topics,
                "cluster_authorized_operations": rights.cluster_mask(session) if cluster_operations else NOT_ASKED,
                "error_code": NONE,
                "throttle_time": request.throttle_ms,
            },
        )
        if is_kept and image is parts.cluster.image and seen == rights.view(session):
            parts.metadata_answers.put(image.revision, key, answer)
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


def _make_missing(
    parts: MetadataParts, session: ClientSession, asked: Asked, allowed: bool
) -> Generator[None, None, dict[str, int]]:
    """Makes what is asked for by name and missing. Returns the error codes of what stays missing. Of a topic that may
    not be described nobody is told whether it is there, so it is not made."""
    rights = parts.rights
    errors: dict[str, int] = {}
    for name, topic_id in asked or ():
        if name is None or topic_id is not None or parts.topics.get(name) is not None:
            continue
        if not rights.allows(session, DESCRIBE_TOPIC, name):
            yield
            continue
        try:
            if allowed and parts.settings.auto_create_topics_enable:
                _check_creation(rights, session, name)
            parts.controller.ensure(name, allowed=allowed)
        except PeerError as error:
            errors[name] = error.code
        yield
    return errors


def _check_creation(rights: Rights, session: ClientSession, name: str) -> None:
    if not rights.allows(session, CREATE_IN_CLUSTER) and not rights.allows(session, CREATE_TOPIC, name):
        raise refused(CREATE_TOPIC)


def _topics(view: _View, asked: Asked, errors: Mapping[str, int]) -> Generator[None, None, list[object]]:
    answers: dict[object, object] = {}  # each topic once, however it was named
    for topic in view.image.topics.values() if asked is None else ():
        if view.shows(topic.name):
            answers[topic.id] = yield from _topic(view, topic)
        yield
    for name, topic_id in asked or ():
        known = _named(view.image, name, topic_id)
        if topic_id is not None and known is None:
            answers[topic_id] = _missing(UNKNOWN_TOPIC_ID, None, topic_id, NOT_ASKED)
        elif not view.shows(known.name if known is not None else name or ""):
            # Whoever knows an id learns no name from it, and who knows a name no id.
            shown = None if topic_id is not None else name
            answers[topic_id or name] = _missing(TOPIC_AUTHORIZATION_FAILED, shown, topic_id, NOT_ASKED)
        elif known is not None:
            answers[known.id] = yield from _topic(view, known)
        else:
            # One that was deleted since it was looked for above has no error of its own yet.
            code = errors.get(name or "", UNKNOWN_TOPIC_OR_PARTITION)
            answers[name] = _missing(code, name, None, view.mask(name or ""))
        yield
    return list(answers.values())


def _named(image: ClusterImage, name: str | None, topic_id: Any) -> TopicImage | None:
    return image.topic_by_id(topic_id) if topic_id is not None else image.topics.get(name or "")


def _missing(code: int, name: str | None, topic_id: Any, mask: int) -> Mapping[str, object]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "partitions": [],
        "topic_authorized_operations": mask,
    }


def _topic(view: _View, topic: TopicImage) -> Generator[None, None, Mapping[str, object]]:
    image, reachable, no_listener = view.image, view.reachable, view.no_listener
    partitions: list[Mapping[str, object]] = []
    for first in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
        some = topic.partitions[first : first + PARTITIONS_PER_STEP]
        partitions += [facts(image, index, each, reachable, no_listener) for index, each in enumerate(some, first)]
        yield
    return {
        "error_code": NONE,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.name in INTERNAL,
        "partitions": partitions,
        "topic_authorized_operations": view.mask(topic.name),
    }


API = Api(key=KEY, name="Metadata", low=0, high=13, handle=handle)

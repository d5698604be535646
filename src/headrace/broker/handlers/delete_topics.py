"""DeleteTopics: topics, by name or from v6 on by id.

v5 adds an error message. The partitions are gone at once; their files leave in the background. An internal topic is not
deleted, unlike in Kafka: the state of every group or every open transaction would go with it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from headrace.broker.api import Api, Request
from headrace.broker.rights import DELETE_IN_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC, refused
from headrace.broker.steps import Pause, Steps, tally
from headrace.broker.topic_names import check_not_internal
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import (
    INVALID_REQUEST,
    NONE,
    REQUEST_TIMED_OUT,
    TOPIC_DELETION_DISABLED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.parts import TopicParts
    from headrace.broker.topics import Topic

Asked = tuple[str | None, UUID | None]  # name, id
TOPICS_PER_SLICE: Final = 50  # that are written down at once


def handle(parts: TopicParts, request: Request) -> Body | Steps:
    return Steps(_answer_all(parts, request), must_end=True)


def _answer_all(parts: TopicParts, request: Request) -> Generator[Pause | None, None, Body]:
    body = request.body
    named: Iterable[Asked]
    if request.version >= 6:
        named = ((topic.name, topic.topic_id) for topic in body.topics)
    else:
        named = ((name, None) for name in body.topic_names)
    counts = yield from tally(named)
    by_both = yield from _by_both(parts, counts)
    answers: dict[Asked, PeerError | None] = {}
    doomed: list[Asked] = []
    rights, session = parts.rights, request.session
    deletes_any = rights.allows(session, DELETE_IN_CLUSTER)
    for name, topic_id in counts:
        yield None
        topic = parts.topics.by_id(topic_id) if topic_id is not None else parts.topics.get(name or "")
        shown: Asked = (name, topic_id)
        try:
            _check(name, topic_id, counts[name, topic_id])
            if name is not None and not deletes_any:
                rights.check(session, DESCRIBE_TOPIC, name)  # before anybody learns whether it is there
            if topic is None:
                raise _unknown(topic_id)
            if not deletes_any and not rights.allows(session, DELETE_TOPIC, topic.name):
                if rights.allows(session, DESCRIBE_TOPIC, topic.name):
                    shown = (topic.name, topic_id)
                raise refused(DELETE_TOPIC)
            if topic in by_both:
                shown = (topic.name, topic.id)
                why = "The provided topic name maps to an ID that was already supplied."
                raise PeerError(INVALID_REQUEST, why)
            check_not_internal(topic.name, "deleted", "delete single groups, or abort single transactions")
            if not parts.settings.delete_topic_enable:
                code = TOPIC_DELETION_DISABLED if request.version >= 3 else INVALID_REQUEST
                raise PeerError(code, "Topic deletion is disabled.")
            if body.timeout <= timedelta():
                raise PeerError(REQUEST_TIMED_OUT, "")
            doomed.append((topic.name, topic.id))
            answers[topic.name, topic.id] = None
        except PeerError as error:
            answers[shown] = error.with_traceback(None)  # which would keep this frame, and so what is deleted
    for first in range(0, len(doomed), TOPICS_PER_SLICE):
        there: dict[Asked, str] = {}
        for topic_id, each in ((each[1], each) for each in doomed[first : first + TOPICS_PER_SLICE]):
            topic = parts.topics.by_id(topic_id) if topic_id is not None else None
            if topic is None:  # another request was quicker
                answers[each] = _unknown(None)
            else:
                there[each] = topic.name
        try:
            yield from parts.controller.delete_in_steps(*there.values())
        except PeerError as error:
            answers |= dict.fromkeys(there, error.with_traceback(None))
        yield None
    responses = []
    for shown, refusal in answers.items():
        responses.append(_answer(shown, refusal))
        yield None
    return {"responses": responses}


def _by_both(parts: TopicParts, asked: Iterable[Asked]) -> Generator[None, None, set[Topic | None]]:
    """The topics that are named by their name and by their id."""
    by_name: set[Topic | None] = set()
    by_id: set[Topic | None] = set()
    for name, topic_id in asked:
        by_name.add(parts.topics.get(name or ""))
        if topic_id is not None:
            by_id.add(parts.topics.by_id(topic_id))
        yield
    return by_name & by_id


def _check(name: str | None, topic_id: UUID | None, count: int) -> None:
    if name is not None and topic_id is not None:
        raise PeerError(INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if name is None and topic_id is None:
        raise PeerError(INVALID_REQUEST, "Neither topic name nor id were specified.")
    if count > 1:
        raise PeerError(INVALID_REQUEST, f"Duplicate topic {'name' if topic_id is None else 'id'}.")


def _unknown(topic_id: UUID | None) -> PeerError:
    if topic_id is not None:
        return PeerError(UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return PeerError(UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def _answer(shown: Asked, error: PeerError | None) -> Mapping[str, object]:
    code, message = (NONE, None) if error is None else (error.code, error.message or None)
    return {"name": shown[0], "topic_id": shown[1], "error_code": code, "error_message": message}


API = Api(key=20, name="DeleteTopics", low=1, high=6, handle=handle)

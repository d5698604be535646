"""What the requests about committed offsets share: which partitions exist, and one answer out of two halves.

The partitions that do not exist are answered here, the rest by their group. Kafka puts its own refusals first and adds
the group's answer to them, topic by topic; a client may see that in the order of the answer, so it is the same here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.handlers.soon import Body
from headrace.broker.rights import READ_TOPIC, Rights
from headrace.broker.steps import ITEMS_PER_STEP
from headrace.core.steps import finish
from headrace.protocol.error_codes import NONE, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession
    from headrace.broker.parts import LogParts
    from headrace.broker.topics import Topic


class Sorted:
    """The topics of a request, sorted into partitions that exist and refusals."""

    def __init__(self) -> None:
        self.known: list[tuple[Topic, Any]] = []  # the topic, and the request's entry for one of its partitions
        self._refused: dict[object, dict[str, Any]] = {}

    @property
    def refuses(self) -> bool:
        return bool(self._refused)

    def refuse(self, reference: Mapping[str, object], partition: int, code: int) -> None:
        topic = self._refused.setdefault(_identity(reference), {**reference, "partitions": []})
        topic["partitions"].append({"partition_index": partition, "error_code": code})

    def merge(self, answered: Iterable[Body]) -> list[Body]:
        """With what the group answered for the known ones."""
        return finish(self.merge_in_steps(answered))

    def merge_in_steps(self, answered: Iterable[Body]) -> Generator[None, None, list[Body]]:
        if not self._refused:
            return list(answered)
        for topic in answered:
            merged = self._refused.setdefault(_identity(topic), {**topic, "partitions": []})
            merged["partitions"].extend(topic["partitions"])
            yield
        return list(self._refused.values())


def _identity(reference: Mapping[str, Any]) -> object:
    return reference["topic_id"] if "topic_id" in reference else reference["name"]


def refuse_all(topics: Iterable[tuple[Mapping[str, object], Sequence[int]]], code: int) -> Generator[None, None, Body]:
    """The answer to a request that is refused as a whole: at each of its partitions."""
    found = Sorted()
    for reference, indexes in topics:
        for index in indexes:
            found.refuse(reference, index, code)
        yield
    return {"topics": found.merge(())}


def sort_partitions(parts: LogParts, session: ClientSession, topics: Sequence[Any]) -> Generator[None, None, Sorted]:
    """By name or by id, whichever the version of the request has; in steps. Of a topic that the session may not read it
    does not learn which partitions exist."""
    found = Sorted()
    for asked in topics:
        yield
        by_id = not hasattr(asked, "name")
        topic = parts.topics.by_id(asked.topic_id) if by_id else parts.topics.get(asked.name)
        refused = reading_refused(parts.rights, session, None if by_id else asked.name, topic)
        for at, partition in enumerate(asked.partitions):
            if at % ITEMS_PER_STEP == 0:
                yield
            if topic is not None and not refused and 0 <= partition.partition_index < len(topic.partitions):
                found.known.append((topic, partition))
                continue
            reference = {"topic_id": asked.topic_id} if by_id else {"name": asked.name}
            unknown = UNKNOWN_TOPIC_ID if by_id and topic is None else UNKNOWN_TOPIC_OR_PARTITION
            found.refuse(reference, partition.partition_index, refused or unknown)
    return found


def reading_refused(rights: Rights, session: ClientSession, name: str | None, topic: Topic | None) -> int:
    """The error code if the session may not read the topic. An id that is not known is nobody's secret."""
    known = topic.name if topic is not None else name
    return NONE if rights.is_open or known is None else rights.refusal(session, READ_TOPIC, known)


def with_ids(topics: Iterable[Body], id_of: Callable[[str], uuid.UUID | None]) -> list[Body]:
    """Topics by id instead of by name; one that has none is left out."""
    answered: list[Body] = []
    for each in topics:
        topic_id = id_of(each["name"])
        if topic_id is not None:
            answered.append({"topic_id": topic_id, "partitions": each["partitions"]})
    return answered

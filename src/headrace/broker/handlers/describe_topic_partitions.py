"""DescribeTopicPartitions: partitions of topics in the order of their names, a page at a time.

v0 only. A page has at most as many partitions as the request says and `max.request.partition.size.limit`
allows; the cursor names the partition that the next page begins with.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from heapq import heapify, heappop
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.api import Api, Request
from headrace.broker.handlers.address import addresses
from headrace.broker.handlers.partition_facts import facts
from headrace.broker.rights import DESCRIBE_TOPIC, Rights
from headrace.broker.steps import Steps, tally
from headrace.broker.topic_names import INTERNAL, is_legal
from headrace.protocol.acl_codes import TOPIC
from headrace.protocol.error_codes import (
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from headrace.protocol.messages import Body
from headrace.replication.image import ClusterImage, TopicImage

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession
    from headrace.broker.parts import ClusterParts


def handle(parts: ClusterParts, request: Request) -> Steps:
    return Steps(_answer(parts, request))


def _answer(parts: ClusterParts, request: Request) -> Generator[None, None, Body]:
    body = request.body
    asked = yield from tally(topic.name for topic in body.topics)
    first_name, first_index = "", 0
    if body.cursor is not None:
        first_name, first_index = body.cursor.topic_name, body.cursor.partition_index
        if first_index < 0 or (asked and first_name not in asked):
            refused = []
            for topic in body.topics:
                refused.append(_topic(topic.name, INVALID_REQUEST))
                yield
            return {"topics": refused}
    image = parts.cluster.image  # the page tells of this one, however many steps it takes
    names = [name for name in asked or image.topics if name >= first_name]
    heapify(names)  # taken one by one: to sort a great many would take long
    room = max(1, min(body.response_partition_limit, parts.settings.max_request_partition_size_limit))
    page = _Page(image, {each[0] for each in addresses(parts, request)}, parts.rights, request.session, bool(asked))
    return (yield from page.fill(names, first_index if names and names[0] == first_name else 0, room))


class _Page(NamedTuple):
    image: ClusterImage
    reachable: set[int]
    rights: Rights
    session: ClientSession
    names_were_given: bool

    def fill(self, names: list[str], first_index: int, room: int) -> Generator[None, None, Body]:
        topics: list[Mapping[str, object]] = []
        while names:
            name = heappop(names)
            yield
            if not self.rights.allows(self.session, DESCRIBE_TOPIC, name):
                if self.names_were_given:
                    topics.append(_topic(name, TOPIC_AUTHORIZATION_FAILED))
                first_index = 0
                continue
            if room <= 0:
                return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
            mask = self.rights.mask(self.session, TOPIC, name)
            topic = self.image.topics.get(name)
            if topic is None:
                code = UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else INVALID_TOPIC_EXCEPTION
                topics.append(_topic(name, code, topic_authorized_operations=mask))
                continue
            end = first_index + room
            shown = self._partitions(topic, first_index, end)
            facts_of_it = {"topic_id": topic.id, "is_internal": name in INTERNAL, "partitions": shown}
            topics.append(_topic(name, NONE, topic_authorized_operations=mask, **facts_of_it))
            if end < len(topic.partitions):
                return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": end}}
            room -= len(shown)
            first_index = 0
        return {"topics": topics}

    def _partitions(self, topic: TopicImage, first: int, end: int) -> list[Mapping[str, object]]:
        return [
            {**facts(self.image, index, each, self.reachable), "eligible_leader_replicas": [], "last_known_elr": []}
            for index, each in enumerate(topic.partitions[first:end], first)
        ]


def _topic(name: str, code: int, **more: object) -> Mapping[str, object]:
    return {"error_code": code, "name": name, "topic_id": None, "partitions": [], **more}


API = Api(key=75, name="DescribeTopicPartitions", low=0, high=0, handle=handle)

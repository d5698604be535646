"""DescribeTopicPartitions: partitions of topics in the order of their names, a page at a time.

v0 only. A page has at most as many partitions as the request says and `max.request.partition.size.limit`
allows; the cursor names the partition that the next page begins with.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from heapq import heapify, heappop
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers import operations
from headrace.broker.handlers.address import addresses
from headrace.broker.handlers.partition_facts import facts
from headrace.broker.steps import Steps, tally
from headrace.broker.topic_names import INTERNAL, is_legal
from headrace.protocol.error_codes import (
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from headrace.protocol.messages import Body
from headrace.replication.image import ClusterImage

if TYPE_CHECKING:
    from headrace.broker.node import Node


def handle(node: Node, request: Request) -> Steps:
    return Steps(_answer(node, request))


def _answer(node: Node, request: Request) -> Generator[None, None, Body]:
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
    image = node.cluster.image  # the page tells of this one, however many steps it takes
    names = [name for name in asked or image.topics if name >= first_name]
    heapify(names)  # taken one by one: to sort a great many would take long
    room = max(1, min(body.response_partition_limit, node.settings.max_request_partition_size_limit))
    reachable = {each[0] for each in addresses(node, request)}
    return (yield from _page(image, reachable, names, first_index if names and names[0] == first_name else 0, room))


def _page(
    image: ClusterImage, reachable: set[int], names: list[str], first_index: int, room: int
) -> Generator[None, None, Body]:
    topics: list[Mapping[str, object]] = []
    while names:
        name = heappop(names)
        yield
        if room <= 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic = image.topics.get(name)
        if topic is None:
            code = UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else INVALID_TOPIC_EXCEPTION
            topics.append(_topic(name, code, topic_authorized_operations=operations.ON_TOPIC))
            continue
        end = first_index + room
        shown = topic.partitions[first_index:end]
        topics.append(
            _topic(
                name,
                NONE,
                topic_id=topic.id,
                is_internal=name in INTERNAL,
                partitions=[
                    {**facts(image, index, each, reachable), "eligible_leader_replicas": [], "last_known_elr": []}
                    for index, each in enumerate(shown, first_index)
                ],
                topic_authorized_operations=operations.ON_TOPIC,
            )
        )
        if end < len(topic.partitions):
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": end}}
        room -= len(shown)
        first_index = 0
    return {"topics": topics}


def _topic(name: str, code: int, **more: object) -> Mapping[str, object]:
    return {"error_code": code, "name": name, "topic_id": None, "partitions": [], **more}


API = Api(key=75, name="DescribeTopicPartitions", low=0, high=0, handle=handle)

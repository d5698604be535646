"""OffsetForLeaderEpoch: where the records of an epoch end, so that a consumer sees whether a log was cut.

v3 adds the replica that asks, v4 is flexible. An epoch that is not known here is answered with -1 and -1.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.leadership import usable_log
from headrace.broker.steps import Steps, stepped, up_to_few
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.node import Node


def handle(node: Node, request: Request) -> Body | Steps:
    return stepped(_answer(node, request), up_to_few(len(topic.partitions) for topic in request.body.topics))


def _answer(node: Node, request: Request) -> Generator[None, None, Body]:
    topics = []
    for topic in request.body.topics:
        answers = []
        for asked in topic.partitions:
            partition = node.topics.partition(topic.topic, asked.partition)
            log, code = usable_log(partition, asked.current_leader_epoch)
            epoch, end_offset = (-1, -1) if log is None else log.end_offset_for_epoch(asked.leader_epoch)
            answers.append(
                {
                    "error_code": code,
                    "partition": asked.partition,
                    "leader_epoch": epoch,
                    "end_offset": end_offset,
                }
            )
            yield
        topics.append({"topic": topic.topic, "partitions": answers})
        yield
    return {"topics": topics}


API = Api(key=23, name="OffsetForLeaderEpoch", low=2, high=4, handle=handle)

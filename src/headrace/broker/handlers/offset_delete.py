"""OffsetDelete: forgets committed offsets. One version.

An error of the group (unknown, not empty) stands alone, without topics; a topic that a member is subscribed to is
refused by itself. Partitions that do not exist are refused, but only if the group has nothing to say against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.offset_topics import sort_partitions
from headrace.broker.handlers.soon import Body, Soon
from headrace.protocol.error_codes import INVALID_GROUP_ID, NONE

if TYPE_CHECKING:
    from headrace.broker.node import Node


def handle(node: Node, request: Request) -> Body | Later:
    body = request.body
    if not body.group_id:
        return {"error_code": INVALID_GROUP_ID, "topics": []}
    found = sort_partitions(node, body.topics)
    soon = Soon()

    def answer(answered: Body) -> None:
        code = answered["error_code"]
        soon({"error_code": code, "topics": found.merge(answered["topics"]) if code == NONE else []})

    partitions = [(topic.name, partition.partition_index) for topic, partition in found.known]
    node.groups.delete_offsets(body.group_id, partitions, answer)
    return soon.result()


API = Api(key=47, name="OffsetDelete", low=0, high=0, handle=handle)

"""ConsumerGroupDescribe: the epochs of consumer groups, and what each member has and should have.

v1 tells which protocol a member speaks.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.describe_groups import ON_GROUP
from headrace.broker.handlers.operations import NOT_ASKED
from headrace.broker.steps import Steps, stepped
from headrace.protocol.error_codes import NONE
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.node import Node


def handle(node: Node, request: Request) -> Body | Steps:
    return stepped(_answer(node, request), len(request.body.group_ids))


def _answer(node: Node, request: Request) -> Generator[None, None, Body]:
    asked = request.body.include_authorized_operations
    groups = []
    seen: set[str] = set()  # a group that is named twice is answered once: a short request has no answer without end
    for group_id in request.body.group_ids:
        yield
        if group_id in seen:
            continue
        seen.add(group_id)
        group = node.groups.consumer_describe([group_id])[0]
        told = asked and group["error_code"] == NONE
        groups.append({**group, "authorized_operations": ON_GROUP if told else NOT_ASKED})
    return {"groups": groups}


API = Api(key=69, name="ConsumerGroupDescribe", low=0, high=1, handle=handle)

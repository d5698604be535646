"""ConsumerGroupDescribe: the epochs of consumer groups, and what each member has and should have.

v1 tells which protocol a member speaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.describe_groups import ON_GROUP
from headrace.broker.handlers.operations import NOT_ASKED
from headrace.broker.handlers.soon import Body
from headrace.protocol.error_codes import NONE

if TYPE_CHECKING:
    from headrace.broker.node import Node


def handle(node: Node, request: Request) -> Body:
    asked = request.body.include_authorized_operations
    groups = []
    for group in node.groups.consumer_describe(request.body.group_ids):
        told = asked and group["error_code"] == NONE
        groups.append({**group, "authorized_operations": ON_GROUP if told else NOT_ASKED})
    return {"groups": groups}


API = Api(key=69, name="ConsumerGroupDescribe", low=0, high=1, handle=handle)

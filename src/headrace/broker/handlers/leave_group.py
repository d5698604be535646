"""LeaveGroup: members go, and the group need not wait for their sessions to end.

v1 throttles, v3 lets several go at once, also static ones that only their instance is known of, v4 is flexible, v5
tells why. Up to v2 the one member's error is the error of the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.steps import Steps
from headrace.protocol.error_codes import NONE

if TYPE_CHECKING:
    from headrace.broker.node import Node

MANY_SINCE = 3


def handle(node: Node, request: Request) -> Body | Later | Steps:
    body = request.body
    soon = Soon()
    if request.version >= MANY_SINCE:
        leaving = [(each.member_id, each.group_instance_id) for each in body.members]
        node.groups.leave(body.group_id, leaving, soon)
    else:
        node.groups.leave(body.group_id, [(body.member_id, None)], lambda answered: soon(_of_one(answered)))
    return soon.result()


def _of_one(answered: Body) -> Body:
    code = answered["error_code"]
    return {"error_code": answered["members"][0]["error_code"] if code == NONE else code}


API = Api(key=13, name="LeaveGroup", low=0, high=5, handle=handle)

"""Heartbeat: a member is alive; the answer tells whether it must join again.

v1 throttles, v3 has the instance id of a static member, v4 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.soon import Body
from headrace.broker.rights import READ_GROUP

if TYPE_CHECKING:
    from headrace.broker.parts import GroupParts


def handle(parts: GroupParts, request: Request) -> Body:
    body = request.body
    refused = parts.rights.refusal(request.session, READ_GROUP, body.group_id)
    if refused:
        return {"error_code": refused}
    instance_id = getattr(body, "group_instance_id", None)
    return {"error_code": parts.groups.heartbeat(body.group_id, body.member_id, body.generation_id, instance_id)}


API = Api(key=12, name="Heartbeat", low=0, high=4, handle=handle)

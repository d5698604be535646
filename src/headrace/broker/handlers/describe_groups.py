"""DescribeGroups: the state of classic groups, and who is in them.

v1 throttles, v3 may ask what it may do with the group, v4 has the instance ids of static members, v5 is flexible, v6
says of a group that is not there that it is not there. Before, it is described as dead, without an error.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.rights import DESCRIBE_GROUP, NOT_ASKED
from headrace.broker.steps import Steps, stepped, tally
from headrace.coordinator.group_admin import undescribed
from headrace.protocol.acl_codes import GROUP
from headrace.protocol.error_codes import GROUP_ID_NOT_FOUND, NONE
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.parts import GroupParts

NOT_FOUND_SINCE = 6


def handle(parts: GroupParts, request: Request) -> Body | Steps:
    return stepped(_answer(parts, request), len(request.body.groups))


def _answer(parts: GroupParts, request: Request) -> Generator[None, None, Body]:
    tells_operations = getattr(request.body, "include_authorized_operations", False)
    rights, session = parts.rights, request.session
    groups = []
    # A group that is named twice is answered once: a short request has no answer without end.
    for group_id in (yield from tally(request.body.groups)):
        yield
        refused = rights.refusal(session, DESCRIBE_GROUP, group_id)
        if refused:
            groups.append(undescribed(group_id, refused, None, ""))
            continue
        group = dict(parts.groups.describe([group_id])[0])
        if request.version < NOT_FOUND_SINCE and group["error_code"] == GROUP_ID_NOT_FOUND:
            group["error_code"] = NONE
        told = tells_operations and group["error_code"] == NONE
        group["authorized_operations"] = rights.mask(session, GROUP, group_id) if told else NOT_ASKED
        groups.append(group)
    return {"groups": groups}


API = Api(key=15, name="DescribeGroups", low=0, high=6, handle=handle)

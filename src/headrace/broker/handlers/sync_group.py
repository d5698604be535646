"""SyncGroup: a member asks for its part of the work; the leader brings what it has shared out.

v1 throttles, v3 has the instance id of a static member, v4 is flexible, v5 must name the protocol's type and name, so
that a member that lives in another world than its group notices.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.rights import READ_GROUP
from headrace.broker.steps import ITEMS_PER_STEP, Steps, stepped
from headrace.coordinator.classic.effects import sync_refused
from headrace.coordinator.classic.members import SyncRequest
from headrace.protocol.error_codes import INCONSISTENT_GROUP_PROTOCOL

if TYPE_CHECKING:
    from headrace.broker.parts import GroupParts

PROTOCOL_NAMED_SINCE = 5


def handle(parts: GroupParts, request: Request) -> Body | Later | Steps:
    body = request.body
    protocol = (getattr(body, "protocol_type", None), getattr(body, "protocol_name", None))
    if request.version >= PROTOCOL_NAMED_SINCE and None in protocol:
        return sync_refused(INCONSISTENT_GROUP_PROTOCOL)
    refused = parts.rights.refusal(request.session, READ_GROUP, body.group_id)
    if refused:
        return sync_refused(refused)
    return stepped(_sync(parts, body, protocol), len(body.assignments), must_end=True)


def _sync(parts: GroupParts, body: Any, protocol: tuple[str | None, str | None]) -> Generator[None, None, Body | Later]:
    assignment: dict[str, bytes] = {}
    for at, each in enumerate(body.assignments):
        assignment[each.member_id] = bytes(each.assignment)
        if at % ITEMS_PER_STEP == 0:
            yield
    soon = Soon()
    instance_id = getattr(body, "group_instance_id", None)
    who = (body.group_id, body.member_id, body.generation_id, instance_id)
    parts.groups.sync(SyncRequest(*who, *protocol, assignment), soon)
    return (yield from soon.steps())


API = Api(key=14, name="SyncGroup", low=0, high=5, handle=handle)

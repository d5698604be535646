"""JoinGroup: a member asks to be in a group, and waits until the group has come together.

v1 has a rebalance timeout of its own (v0 takes the session timeout for it), v2 throttles, v4 gives a new member an id
first (MEMBER_ID_REQUIRED), v5 has the instance id of a static member, v6 is flexible, v7 answers with the protocol type
and may leave the protocol's name out, v8 tells why the member joins, v9 can tell a leader to skip the assignment.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.rights import READ_GROUP
from headrace.broker.steps import Steps
from headrace.coordinator.classic.effects import join_refused
from headrace.coordinator.classic.members import JoinProtocol, JoinRequest
from headrace.protocol.error_codes import MESSAGE_TOO_LARGE

if TYPE_CHECKING:
    from headrace.broker.parts import GroupParts

MEMBER_ID_REQUIRED_SINCE, NAME_MAY_BE_NULL_SINCE, SKIPS_ASSIGNMENT_SINCE = 4, 7, 9
PROTOCOLS_MAX: Final = 100  # that a member offers: a consumer has as many as it has assignors
_MS = timedelta(milliseconds=1)


def handle(parts: GroupParts, request: Request) -> Body | Later | Steps:
    body, version = request.body, request.version
    soon = Soon()

    def answer(answered: Body) -> None:
        if version < NAME_MAY_BE_NULL_SINCE and answered["protocol_name"] is None:
            answered = {**answered, "protocol_name": ""}
        soon(answered)

    refused = parts.rights.refusal(request.session, READ_GROUP, body.group_id)
    if refused:
        answer(join_refused(refused))
        return soon.result()
    if len(body.protocols) > PROTOCOLS_MAX:
        answer(join_refused(MESSAGE_TOO_LARGE, body.member_id))
        return soon.result()
    session_timeout_ms = body.session_timeout // _MS
    join = JoinRequest(
        group_id=body.group_id,
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=request.client_id or "",
        client_host=request.session.shown_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=body.rebalance_timeout // _MS if version >= 1 else session_timeout_ms,
        protocol_type=body.protocol_type,
        protocols=tuple(JoinProtocol(each.name, bytes(each.metadata)) for each in body.protocols),
        fresh_id=str(uuid.uuid4()),
        must_know_member_id=version >= MEMBER_ID_REQUIRED_SINCE,
        may_skip_assignment=version >= SKIPS_ASSIGNMENT_SINCE,
    )
    parts.groups.join(join, answer)
    return soon.result()


API = Api(key=11, name="JoinGroup", low=0, high=9, handle=handle)

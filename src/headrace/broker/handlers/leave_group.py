"""LeaveGroup: members go, and the group need not wait for their sessions to end.

v1 throttles, v3 lets several go at once, also static ones that only their instance is known of, v4 is flexible, v5
tells why. Up to v2 the one member's error is the error of the whole. Very many members go as if several requests had
named some of them each: the first begins the rebalance, the others leave in the middle of it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Slices, Soon
from headrace.broker.rights import READ_GROUP
from headrace.broker.steps import Steps
from headrace.protocol.error_codes import NONE

if TYPE_CHECKING:
    from headrace.broker.parts import GroupParts

MANY_SINCE = 3
MEMBERS_PER_SLICE: Final = 40


def handle(parts: GroupParts, request: Request) -> Body | Later | Steps:
    body = request.body
    refused = parts.rights.refusal(request.session, READ_GROUP, body.group_id)
    if refused:
        return {"error_code": refused, "members": []}
    soon = Soon()
    if request.version >= MANY_SINCE:
        if len(body.members) > MEMBERS_PER_SLICE:
            return Steps(_in_slices(parts, body.group_id, body.members), must_end=True)
        parts.groups.leave(body.group_id, _named(body.members), soon)
    else:
        parts.groups.leave(body.group_id, [(body.member_id, None)], lambda answered: soon(_of_one(answered)))
    return soon.result()


def _named(members: Sequence[Any]) -> list[tuple[str, str | None]]:
    return [(each.member_id, each.group_instance_id) for each in members]


def _in_slices(parts: GroupParts, group_id: str, members: Sequence[Any]) -> Generator[None, None, Body | Later]:
    slices = Slices(_merged)
    for first in range(0, len(members), MEMBERS_PER_SLICE):
        some = _named(members[first : first + MEMBERS_PER_SLICE])
        parts.groups.leave(group_id, some, slices.expect())
        yield
    slices.end()
    return (yield from slices.soon.steps())


def _merged(slices: list[Body]) -> Generator[None, None, Body]:
    """If one slice cannot be done that is the answer, and who has left has left."""
    members: list[Body] = []
    for told in slices:
        if told["error_code"] != NONE:
            return told
        members += told["members"]
        yield
    return {"error_code": NONE, "members": members}


def _of_one(answered: Body) -> Body:
    code = answered["error_code"]
    return {"error_code": answered["members"][0]["error_code"] if code == NONE else code}


API = Api(key=13, name="LeaveGroup", low=0, high=5, handle=handle)

"""ListGroups: which groups there are.

v1 throttles, v3 is flexible, v4 knows and filters by state, v5 by type.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.soon import Body
from headrace.broker.rights import DESCRIBE_CLUSTER, DESCRIBE_GROUP
from headrace.broker.steps import Steps
from headrace.protocol.error_codes import COORDINATOR_LOAD_IN_PROGRESS, NONE

if TYPE_CHECKING:
    from headrace.broker.parts import GroupParts


def handle(parts: GroupParts, request: Request) -> Steps:
    return Steps(_answer(parts, request))


def _answer(parts: GroupParts, request: Request) -> Generator[None, None, Body]:
    if not parts.groups.is_loaded:
        return {"error_code": COORDINATOR_LOAD_IN_PROGRESS, "groups": []}
    states, types = getattr(request.body, "states_filter", ()), getattr(request.body, "types_filter", ())
    groups: Sequence[Body] = yield from parts.groups.list(states, types)
    rights, session = parts.rights, request.session
    if rights.allows(session, DESCRIBE_CLUSTER):
        return {"error_code": NONE, "groups": groups}
    told = []
    for group in groups:
        if rights.allows(session, DESCRIBE_GROUP, group["group_id"]):
            told.append(group)
        yield
    return {"error_code": NONE, "groups": told}


API = Api(key=16, name="ListGroups", low=0, high=5, handle=handle)

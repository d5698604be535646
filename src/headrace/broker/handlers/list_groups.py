"""ListGroups: which groups there are.

v1 throttles, v3 is flexible, v4 knows and filters by state, v5 by type.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.soon import Body
from headrace.broker.steps import Steps
from headrace.protocol.error_codes import COORDINATOR_LOAD_IN_PROGRESS, NONE

if TYPE_CHECKING:
    from headrace.broker.node import Node


def handle(node: Node, request: Request) -> Steps:
    return Steps(_answer(node, request))


def _answer(node: Node, request: Request) -> Generator[None, None, Body]:
    if not node.groups.is_loaded:
        return {"error_code": COORDINATOR_LOAD_IN_PROGRESS, "groups": []}
    states, types = getattr(request.body, "states_filter", ()), getattr(request.body, "types_filter", ())
    return {"error_code": NONE, "groups": (yield from node.groups.list(states, types))}


API = Api(key=16, name="ListGroups", low=0, high=5, handle=handle)

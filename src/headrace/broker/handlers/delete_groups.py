"""DeleteGroups: groups without members go, and their offsets with them.

v1 throttles, v2 is flexible.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.rights import DELETE_GROUP
from headrace.broker.steps import Steps

if TYPE_CHECKING:
    from headrace.broker.parts import GroupParts


def handle(parts: GroupParts, request: Request) -> Steps:
    return Steps(_answer(parts, request), must_end=True)


def _answer(parts: GroupParts, request: Request) -> Generator[None, None, Body | Later]:
    rights, soon = parts.rights, Soon()
    names = request.body.groups_names
    refused: dict[str, int] = {}
    for group_id in names if not rights.is_open else ():
        code = rights.refusal(request.session, DELETE_GROUP, group_id)
        if code:
            refused[group_id] = code
        yield

    def answer(answered: Body) -> None:
        results = [{"group_id": group_id, "error_code": code} for group_id, code in refused.items()]
        soon({"results": [*answered["results"], *results]} if refused else answered)

    yield from parts.groups.delete([each for each in names if each not in refused] if refused else names, answer)
    return (yield from soon.steps())


API = Api(key=42, name="DeleteGroups", low=0, high=2, handle=handle)

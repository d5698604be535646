"""DeleteGroups: groups without members go, and their offsets with them.

v1 throttles, v2 is flexible.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.steps import Steps

if TYPE_CHECKING:
    from headrace.broker.node import Node


def handle(node: Node, request: Request) -> Steps:
    return Steps(_answer(node, request), must_end=True)


def _answer(node: Node, request: Request) -> Generator[None, None, Body | Later]:
    soon = Soon()
    yield from node.groups.delete(request.body.groups_names, soon)
    return (yield from soon.steps())


API = Api(key=42, name="DeleteGroups", low=0, high=2, handle=handle)

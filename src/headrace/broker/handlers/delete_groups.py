"""DeleteGroups: groups without members go, and their offsets with them.

v1 throttles, v2 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Soon

if TYPE_CHECKING:
    from headrace.broker.node import Node


def handle(node: Node, request: Request) -> Body | Later:
    soon = Soon()
    node.groups.delete(request.body.groups_names, soon)
    return soon.result()


API = Api(key=42, name="DeleteGroups", low=0, high=2, handle=handle)

"""ListTransactions: the transactional ids, chosen by state and producer; v1 also by duration, v2 by an expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.steps import Steps

if TYPE_CHECKING:
    from headrace.broker.node import Node

ANY_DURATION = -1


def handle(node: Node, request: Request) -> Steps:
    body = request.body
    found = node.transactions.find(
        body.state_filters,
        body.producer_id_filters,
        getattr(body, "duration_filter", ANY_DURATION),
        getattr(body, "transactional_id_pattern", None),
    )
    return Steps(found)


API = Api(key=66, name="ListTransactions", low=0, high=2, handle=handle)

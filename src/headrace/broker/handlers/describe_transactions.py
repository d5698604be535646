"""DescribeTransactions: state, producer and partitions of some transactional ids. One version."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.soon import Body
from headrace.broker.steps import Steps

if TYPE_CHECKING:
    from headrace.broker.node import Node


def handle(node: Node, request: Request) -> Steps:
    return Steps(_answer(node, request))


def _answer(node: Node, request: Request) -> Generator[None, None, Body]:
    states: dict[str, Body] = {}  # an id that is named twice is answered once
    for transactional_id in request.body.transactional_ids:
        if transactional_id not in states:
            states[transactional_id] = node.transactions.describe([transactional_id])[0]
        yield
    return {"transaction_states": list(states.values())}


API = Api(key=65, name="DescribeTransactions", low=0, high=0, handle=handle)

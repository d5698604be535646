"""DescribeTransactions: state, producer and partitions of some transactional ids. One version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.soon import Body

if TYPE_CHECKING:
    from headrace.broker.node import Node


def handle(node: Node, request: Request) -> Body:
    return {"transaction_states": node.transactions.describe(request.body.transactional_ids)}


API = Api(key=65, name="DescribeTransactions", low=0, high=0, handle=handle)

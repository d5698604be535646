"""DescribeTransactions: state, producer and partitions of some transactional ids. One version."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.soon import Body
from headrace.broker.rights import DESCRIBE_TOPIC, DESCRIBE_TRANSACTION
from headrace.broker.steps import Steps
from headrace.coordinator.transactions.views import not_described

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession
    from headrace.broker.parts import TransactionParts


def handle(parts: TransactionParts, request: Request) -> Steps:
    return Steps(_answer(parts, request))


def _answer(parts: TransactionParts, request: Request) -> Generator[None, None, Body]:
    states: dict[str, Body] = {}  # an id that is named twice is answered once
    for transactional_id in request.body.transactional_ids:
        if transactional_id not in states:
            states[transactional_id] = _described(parts, request.session, transactional_id)
        yield
    return {"transaction_states": list(states.values())}


def _described(parts: TransactionParts, session: ClientSession, transactional_id: str) -> Body:
    rights = parts.rights
    refused = rights.refusal(session, DESCRIBE_TRANSACTION, transactional_id)
    if refused:
        return not_described(transactional_id, refused)
    state: Body = parts.transactions.describe([transactional_id])[0]
    if rights.is_open:
        return state
    return {
        **state,
        "topics": [each for each in state["topics"] if rights.allows(session, DESCRIBE_TOPIC, each["topic"])],
    }


API = Api(key=65, name="DescribeTransactions", low=0, high=0, handle=handle)

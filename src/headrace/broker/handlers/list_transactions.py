"""ListTransactions: the transactional ids, chosen by state and producer; v1 also by duration, v2 by an expression."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.soon import Body
from headrace.broker.rights import DESCRIBE_TRANSACTION, Rights
from headrace.broker.steps import Steps

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession
    from headrace.broker.parts import TransactionParts

ANY_DURATION = -1


def handle(parts: TransactionParts, request: Request) -> Steps:
    body = request.body
    found = parts.transactions.find(
        body.state_filters,
        body.producer_id_filters,
        getattr(body, "duration_filter", ANY_DURATION),
        getattr(body, "transactional_id_pattern", None),
    )
    return Steps(found if parts.rights.is_open else _those_allowed(parts.rights, request.session, found))


def _those_allowed(
    rights: Rights, session: ClientSession, finding: Generator[None, None, Body]
) -> Generator[None, None, Body]:
    found = yield from finding
    told = []
    for each in found["transaction_states"]:
        if rights.allows(session, DESCRIBE_TRANSACTION, each["transactional_id"]):
            told.append(each)
        yield
    return {**found, "transaction_states": told}


API = Api(key=66, name="ListTransactions", low=0, high=2, handle=handle)

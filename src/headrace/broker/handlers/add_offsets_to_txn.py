"""AddOffsetsToTxn: a group's offsets are going to be committed in a transaction, whose end must reach them.

v1 throttles, v2 knows PRODUCER_FENCED, v3 is flexible, v4 knows TRANSACTION_ABORTABLE. Clients of transaction
version 2 do not ask: TxnOffsetCommit v5 does it for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.handlers.transaction_errors import fenced
from headrace.broker.rights import READ_GROUP, WRITE_TRANSACTION
from headrace.broker.steps import Steps

if TYPE_CHECKING:
    from headrace.broker.parts import TransactionParts

FENCED_SINCE = 2


def handle(parts: TransactionParts, request: Request) -> Body | Later | Steps:
    body, soon = request.body, Soon()
    rights, session = parts.rights, request.session
    refused = rights.refusal(session, WRITE_TRANSACTION, body.transactional_id)
    refused = refused or rights.refusal(session, READ_GROUP, body.group_id)
    if refused:
        return {"error_code": refused}

    def answer(answered: Body) -> None:
        soon({"error_code": fenced(answered["error_code"], request.version, FENCED_SINCE)})

    parts.transactions.add_offsets(body.transactional_id, body.producer_id, body.producer_epoch, body.group_id, answer)
    return soon.result()


API = Api(key=25, name="AddOffsetsToTxn", low=0, high=4, handle=handle)

"""EndTxn: a transaction is committed or aborted, in all its partitions.

v1 throttles, v2 knows PRODUCER_FENCED, v3 is flexible, v4 knows TRANSACTION_ABORTABLE. From v5 on (transaction
version 2) each end bumps the epoch, and the answer tells the producer id and epoch of the next transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.handlers.transaction_errors import fenced
from headrace.broker.rights import WRITE_TRANSACTION
from headrace.broker.steps import Steps
from headrace.coordinator.transactions.transaction import VERSION_0, VERSION_2

if TYPE_CHECKING:
    from headrace.broker.parts import TransactionParts

FENCED_SINCE = 2
BUMPS_SINCE = 5


def handle(parts: TransactionParts, request: Request) -> Body | Later | Steps:
    body, version, soon = request.body, request.version, Soon()
    refused = parts.rights.refusal(request.session, WRITE_TRANSACTION, body.transactional_id)
    if refused:
        return {"error_code": refused, "producer_id": -1, "producer_epoch": -1}

    def answer(answered: Body) -> None:
        soon({**answered, "error_code": fenced(answered["error_code"], version, FENCED_SINCE)})

    parts.transactions.end(
        body.transactional_id,
        body.producer_id,
        body.producer_epoch,
        body.committed,
        VERSION_2 if version >= BUMPS_SINCE else VERSION_0,
        answer,
    )
    return soon.result()


API = Api(key=26, name="EndTxn", low=0, high=5, handle=handle)

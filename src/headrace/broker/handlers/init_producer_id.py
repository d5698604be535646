"""InitProducerId: the id and epoch that an idempotent or transactional producer stamps its batches with.

v1 throttles, v2 is flexible, v3 lets a producer give its id and epoch, v4 knows PRODUCER_FENCED, v5
TRANSACTION_ABORTABLE. Without a transactional id each request gets an id of its own. With one it gets the same id
under the next epoch, and whoever had the last one is fenced; a transaction of his that is open is aborted first, and
the client is told to ask again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.handlers.transaction_errors import fenced
from headrace.broker.steps import Steps
from headrace.core.errors import StorageError
from headrace.protocol.error_codes import INVALID_REQUEST, KAFKA_STORAGE_ERROR, NONE

if TYPE_CHECKING:
    from headrace.broker.node import Node

FENCED_SINCE = 4


def handle(node: Node, request: Request) -> Body | Later | Steps:
    body = request.body
    producer_id, producer_epoch = getattr(body, "producer_id", -1), getattr(body, "producer_epoch", -1)
    if (producer_id == -1) != (producer_epoch == -1):
        return _refused(INVALID_REQUEST)
    if body.transactional_id is None:
        try:
            return {"error_code": NONE, "producer_id": node.producer_ids.next(), "producer_epoch": 0}
        except StorageError:
            return _refused(KAFKA_STORAGE_ERROR)
    soon = Soon()

    def answer(answered: Body) -> None:
        soon({**answered, "error_code": fenced(answered["error_code"], request.version, FENCED_SINCE)})

    node.transactions.init_producer_id(
        body.transactional_id,
        body.transaction_timeout // timedelta(milliseconds=1),
        None if producer_id == -1 else (producer_id, producer_epoch),
        answer,
    )
    return soon.result()


def _refused(code: int) -> Body:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


API = Api(key=22, name="InitProducerId", low=0, high=5, handle=handle)

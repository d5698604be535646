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
from headrace.broker.rights import WRITE_IDEMPOTENTLY, WRITE_TOPIC, WRITE_TRANSACTION, Rights
from headrace.broker.steps import Steps
from headrace.core.errors import StorageError
from headrace.protocol.error_codes import CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST, KAFKA_STORAGE_ERROR, NONE

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession
    from headrace.broker.parts import ProducerParts

FENCED_SINCE = 4


def handle(parts: ProducerParts, request: Request) -> Body | Later | Steps:
    body = request.body
    refused = _not_allowed(parts.rights, request.session, body.transactional_id)
    if refused:
        return _refused(refused)
    producer_id, producer_epoch = getattr(body, "producer_id", -1), getattr(body, "producer_epoch", -1)
    if (producer_id == -1) != (producer_epoch == -1):
        return _refused(INVALID_REQUEST)
    if body.transactional_id is None:
        try:
            return {"error_code": NONE, "producer_id": parts.producer_ids.next(), "producer_epoch": 0}
        except StorageError:
            return _refused(KAFKA_STORAGE_ERROR)
    soon = Soon()

    def answer(answered: Body) -> None:
        soon({**answered, "error_code": fenced(answered["error_code"], request.version, FENCED_SINCE)})

    parts.transactions.init_producer_id(
        body.transactional_id,
        body.transaction_timeout // timedelta(milliseconds=1),
        None if producer_id == -1 else (producer_id, producer_epoch),
        answer,
    )
    return soon.result()


def _not_allowed(rights: Rights, session: ClientSession, transactional_id: str | None) -> int:
    """Whoever may write to some topic may do so idempotently."""
    if transactional_id is not None:
        return rights.refusal(session, WRITE_TRANSACTION, transactional_id)
    if rights.allows(session, WRITE_IDEMPOTENTLY) or rights.allows_on_any(session, WRITE_TOPIC):
        return NONE
    return CLUSTER_AUTHORIZATION_FAILED


def _refused(code: int) -> Body:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}


API = Api(key=22, name="InitProducerId", low=0, high=5, handle=handle)

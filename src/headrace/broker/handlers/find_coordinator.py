"""FindCoordinator: which broker looks after a group or a transactional id. With one broker, it is this one.

Who asks will use it: the internal topic is made now, as in Kafka, if it is not there.

v0 knows groups only, v1 adds the kind of key and an error message, v4 takes many keys at once, v5 an
error code, v6 share groups, which are not served.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Request
from headrace.broker.handlers.address import advertised
from headrace.broker.handlers.malformed import MALFORMED
from headrace.broker.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.core.errors import StorageError
from headrace.protocol.error_codes import COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST, NONE

if TYPE_CHECKING:
    from headrace.broker.node import Node

GROUP, TRANSACTION = 0, 1


def handle(node: Node, request: Request) -> Mapping[str, object]:
    body = request.body
    many = request.version >= 4
    kind = getattr(body, "key_type", GROUP)
    if kind in (GROUP, TRANSACTION):
        try:
            node.coordination.make_topic(OFFSETS_TOPIC if kind == GROUP else TRANSACTIONS_TOPIC)
        except StorageError as error:
            return _found(body, many, COORDINATOR_NOT_AVAILABLE, str(error), -1, "", -1)
        host, port = advertised(node, request)
        return _found(body, many, NONE, "" if many else "NONE", node.settings.node_id, host, port)
    return _found(body, many, INVALID_REQUEST, MALFORMED, -1, "", -1)


def _found(body: Any, many: bool, code: int, message: str, node_id: int, host: str, port: int) -> Mapping[str, object]:
    found = {"error_code": code, "error_message": message, "node_id": node_id, "host": host, "port": port}
    return {"coordinators": [{"key": key, **found} for key in body.coordinator_keys]} if many else found


API = Api(key=10, name="FindCoordinator", low=0, high=6, handle=handle)

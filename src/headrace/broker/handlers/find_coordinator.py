"""FindCoordinator: which broker looks after a group or a transactional id. The one that leads its partition
of the internal topic.

Who asks will use it: the internal topic is made now, as in Kafka, if it is not there.

A group or an id whose partition of that topic is damaged has no coordinator; the message names the file.

v0 knows groups only, v1 adds the kind of key and an error message, v4 takes many keys at once, v5 an
error code, v6 share groups, which are not served.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING

from headrace.broker.api import MALFORMED, Api, Request
from headrace.broker.handlers.address import address_of
from headrace.broker.rights import DESCRIBE_GROUP, DESCRIBE_TRANSACTION
from headrace.broker.steps import Steps, stepped
from headrace.coordinator.placing import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.core.errors import PeerError, StorageError
from headrace.protocol.error_codes import COORDINATOR_NOT_AVAILABLE, INVALID_REQUEST, NONE
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.parts import CoordinatorParts

GROUP, TRANSACTION = 0, 1


def handle(parts: CoordinatorParts, request: Request) -> Body | Steps:
    if request.version < 4:
        return _find(parts, request, request.body.key, "NONE")
    return stepped(_answer(parts, request), len(request.body.coordinator_keys))


def _answer(parts: CoordinatorParts, request: Request) -> Generator[None, None, Body]:
    coordinators = []
    for key in request.body.coordinator_keys:
        coordinators.append({"key": key, **_find(parts, request, key, "")})
        yield
    return {"coordinators": coordinators}


def _find(parts: CoordinatorParts, request: Request, key: str, message: str) -> Mapping[str, object]:
    kind = getattr(request.body, "key_type", GROUP)
    if kind not in (GROUP, TRANSACTION):
        return _refused(INVALID_REQUEST, MALFORMED)
    need = DESCRIBE_GROUP if kind == GROUP else DESCRIBE_TRANSACTION
    try:
        parts.rights.check(request.session, need, key)
    except PeerError as error:
        return _refused(error.code, error.message)
    topic = OFFSETS_TOPIC if kind == GROUP else TRANSACTIONS_TOPIC
    try:
        parts.coordination.make_topic(topic)
    except StorageError as error:
        return _refused(COORDINATOR_NOT_AVAILABLE, str(error))
    why_absent = parts.coordination.why_absent(topic, key)
    if why_absent:
        return _refused(COORDINATOR_NOT_AVAILABLE, why_absent)
    image = parts.cluster.image
    leads = image.partition(topic, parts.coordination.partition_of(topic, key))
    leader = image.brokers.get(leads.leader) if leads is not None else None
    address = address_of(parts, request, leader) if leader is not None else None
    if address is None:
        return _refused(COORDINATOR_NOT_AVAILABLE, f"{topic}: no broker leads the partition of {key!r}; try again")
    return {
        "error_code": NONE,
        "error_message": message,
        "node_id": address[0],
        "host": address[1],
        "port": address[2],
    }


def _refused(code: int, message: str) -> Mapping[str, object]:
    return {"error_code": code, "error_message": message, "node_id": -1, "host": "", "port": -1}


API = Api(key=10, name="FindCoordinator", low=0, high=6, handle=handle)

"""ConsumerGroupHeartbeat: the one request of the consumer group protocol (KIP-848), to join, to live and to leave.

In v0 the broker may make up the member's id; from v1 on the member brings it, and may subscribe with a regular
expression.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.soon import Body, Soon
from headrace.broker.rights import DESCRIBE_TOPIC, READ_GROUP
from headrace.broker.steps import Steps
from headrace.coordinator.consumer.requests import Heartbeat, refused_heartbeat
from headrace.protocol.error_codes import INVALID_REQUEST

if TYPE_CHECKING:
    from headrace.broker.parts import GroupParts

# What one member may say at once, since it is looked at at once.
TOPICS_MAX: Final = 10_000  # by name, or that it has partitions of
PARTITIONS_MAX: Final = 100_000  # that it has
_MS: Final = timedelta(milliseconds=1)
_NO_ID: Final = uuid.UUID(int=0)


def handle(parts: GroupParts, request: Request) -> Body | Later | Steps:
    body = request.body
    names, owned = body.subscribed_topic_names, body.topic_partitions
    fault = _fault(names or (), owned or ())
    if fault:
        return refused_heartbeat(INVALID_REQUEST, fault)
    rights, session = parts.rights, request.session
    if not rights.is_open:
        refused = rights.refusal(session, READ_GROUP, body.group_id)
        for name in names or () if not refused else ():
            refused = refused or rights.refusal(session, DESCRIBE_TOPIC, name)
        if refused:
            return refused_heartbeat(refused)
    beat = Heartbeat(
        group_id=body.group_id,
        member_id=body.member_id,
        member_epoch=body.member_epoch,
        instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout // _MS,
        topics=None if names is None else frozenset(names),
        pattern=getattr(body, "subscribed_topic_regex", None),
        server_assignor=body.server_assignor,
        owned=None if owned is None else {each.topic_id or _NO_ID: frozenset(each.partitions) for each in owned},
        client_id=request.client_id or "",
        client_host=request.session.shown_host,
        fresh_id="" if body.member_id else str(uuid.uuid4()),
        version=request.version,
    )
    soon = Soon()
    parts.groups.consumer_heartbeat(beat, soon)
    return soon.result()


def _fault(names: Sequence[str], owned: Sequence[Any]) -> str:
    if len(names) > TOPICS_MAX:
        return f"{len(names)} topics by name; at most {TOPICS_MAX} are taken: subscribe with a regular expression."
    if len(owned) > TOPICS_MAX:
        return f"Partitions of {len(owned)} topics; at most {TOPICS_MAX} are taken."
    count = sum([len(each.partitions) for each in owned])
    return f"{count} partitions; at most {PARTITIONS_MAX} are taken." if count > PARTITIONS_MAX else ""


API: Final = Api(key=68, name="ConsumerGroupHeartbeat", low=0, high=1, handle=handle)

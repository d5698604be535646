"""ConsumerGroupDescribe: the epochs of consumer groups, and what each member has and should have.

v1 tells which protocol a member speaks.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.soon import Body
from headrace.broker.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC, NOT_ASKED, Rights
from headrace.broker.steps import Steps, stepped, tally
from headrace.coordinator.consumer.view import undescribed
from headrace.core.errors import PeerError
from headrace.protocol.acl_codes import GROUP
from headrace.protocol.error_codes import NONE, TOPIC_AUTHORIZATION_FAILED

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession
    from headrace.broker.parts import GroupParts

HIDDEN = "The group has described topic(s) that the client is not authorized to describe."


def handle(parts: GroupParts, request: Request) -> Body | Steps:
    return stepped(_answer(parts, request), len(request.body.group_ids))


def _answer(parts: GroupParts, request: Request) -> Generator[None, None, Body]:
    asked = request.body.include_authorized_operations
    rights, session = parts.rights, request.session
    groups = []
    # A group that is named twice is answered once: a short request has no answer without end.
    for group_id in (yield from tally(request.body.group_ids)):
        yield
        refused = rights.refusal(session, DESCRIBE_GROUP, group_id)
        if refused:
            groups.append(undescribed(group_id, PeerError(refused, "")))
            continue
        group = parts.groups.consumer_describe([group_id])[0]
        if not rights.is_open and not (yield from _may_see(rights, session, group)):
            groups.append({**group, "error_code": TOPIC_AUTHORIZATION_FAILED, "error_message": HIDDEN, "members": []})
            continue
        told = asked and group["error_code"] == NONE
        groups.append({**group, "authorized_operations": rights.mask(session, GROUP, group_id) if told else NOT_ASKED})
    return {"groups": groups}


def _may_see(rights: Rights, session: ClientSession, group: Body) -> Generator[None, None, bool]:
    """Its members name topics: whoever may not describe one of them sees none of the members, as in Kafka."""
    topics: set[str] = set()
    for member in group["members"]:
        for what in ("assignment", "target_assignment"):
            topics.update(each["topic_name"] for each in member[what]["topic_partitions"])
        yield
    for name in topics:
        if not rights.allows(session, DESCRIBE_TOPIC, name):
            return False
        yield
    return True


API = Api(key=69, name="ConsumerGroupDescribe", low=0, high=1, handle=handle)

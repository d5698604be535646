"""OffsetForLeaderEpoch: where the records of an epoch end, so that a consumer sees whether a log was cut.

v3 adds the replica that asks, v4 is flexible. An epoch that is not known here is answered with -1 and -1.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.leadership import usable_log
from headrace.broker.rights import ACT_AS_BROKER, DESCRIBE_TOPIC
from headrace.broker.steps import Steps, stepped, up_to_few
from headrace.protocol.error_codes import NONE
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.parts import LogParts


def handle(parts: LogParts, request: Request) -> Body | Steps:
    return stepped(_answer(parts, request), up_to_few(len(topic.partitions) for topic in request.body.topics))


def _answer(parts: LogParts, request: Request) -> Generator[None, None, Body]:
    rights, session = parts.rights, request.session
    is_broker = rights.allows(session, ACT_AS_BROKER)
    topics = []
    for topic in request.body.topics:
        answers = []
        refused = NONE if is_broker else rights.refusal(session, DESCRIBE_TOPIC, topic.topic)
        for asked in topic.partitions:
            partition = parts.topics.partition(topic.topic, asked.partition)
            log, code = (None, refused) if refused else usable_log(partition, asked.current_leader_epoch)
            epoch, end_offset = (-1, -1) if log is None else log.end_offset_for_epoch(asked.leader_epoch)
            answers.append(
                {
                    "error_code": code,
                    "partition": asked.partition,
                    "leader_epoch": epoch,
                    "end_offset": end_offset,
                }
            )
            yield
        topics.append({"topic": topic.topic, "partitions": answers})
        yield
    return {"topics": topics}


API = Api(key=23, name="OffsetForLeaderEpoch", low=2, high=4, handle=handle)

"""DeleteRecords: all below an offset is gone; -1 means all that can be seen.

v2 is flexible. The records leave at once for readers; their files follow. There is one replica, so
nothing is waited for, and the time limit never strikes.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from headrace.broker.api import Api, Request
from headrace.broker.handlers.leadership import usable_log
from headrace.broker.rights import DELETE_TOPIC
from headrace.broker.steps import Steps, stepped, up_to_few
from headrace.core.errors import PeerError, StorageError
from headrace.protocol.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    KAFKA_STORAGE_ERROR,
    NONE,
    POLICY_VIOLATION,
)
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.parts import LogParts


def handle(parts: LogParts, request: Request) -> Body | Steps:
    count = up_to_few(len(topic.partitions) for topic in request.body.topics)
    return stepped(_answer(parts, request), count, must_end=True)


def _answer(parts: LogParts, request: Request) -> Generator[None, None, Body]:
    topics = []
    for topic in request.body.topics:
        answers = {}
        refused = parts.rights.refusal(request.session, DELETE_TOPIC, topic.name)
        for asked in topic.partitions:
            code, start_offset = refused, -1
            if not refused:
                code, start_offset = _delete(parts, topic.name, asked.partition_index, asked.offset)
            answers[asked.partition_index] = {
                "partition_index": asked.partition_index,
                "low_watermark": start_offset,
                "error_code": code,
            }
            yield
        topics.append({"name": topic.name, "partitions": list(answers.values())})
        yield
    return {"topics": topics}


def _delete(parts: LogParts, name: str, index: int, offset: int) -> tuple[int, int]:
    topic = parts.topics.get(name)
    log, code = usable_log(parts.topics.partition(name, index))
    if log is None or topic is None:
        return code, -1
    if topic.internal:
        return INVALID_TOPIC_EXCEPTION, -1
    if not log.config.cleanup_delete:
        return POLICY_VIOLATION, -1
    try:
        return NONE, log.delete_records_before(offset)
    except PeerError as error:
        return error.code, -1
    except (StorageError, OSError):
        return KAFKA_STORAGE_ERROR, -1


API = Api(key=21, name="DeleteRecords", low=0, high=2, handle=handle)

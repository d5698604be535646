"""ListOffsets: the first, the last, or the first offset at or after a time.

v2 adds the isolation level, v4 the leader epoch, v7 the largest timestamp (-3), v8 the first local offset
(-4), v9 the last tiered one (-5), v10 a time limit, v11 the first not yet tiered one (-6). Without tiered
storage the last two find nothing. Nothing above what the isolation level may see is given.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Request
from headrace.broker.handlers.leadership import usable_log
from headrace.broker.partition import NO_EPOCH
from headrace.broker.rights import DESCRIBE_TOPIC
from headrace.broker.steps import Steps, stepped, tally, up_to_few
from headrace.core.errors import PeerError, StorageError
from headrace.log.partition_log import PartitionLog
from headrace.protocol.error_codes import INVALID_REQUEST, KAFKA_STORAGE_ERROR, NONE, UNSUPPORTED_VERSION
from headrace.protocol.messages import Body

if TYPE_CHECKING:
    from headrace.broker.parts import LogParts

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = (
    -1,
    -2,
    -3,
    -4,
    -5,
    -6,
)
SINCE_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_UNCOMMITTED, READ_COMMITTED = 0, 1

Found = tuple[int, int, int]  # offset, timestamp, leader epoch
NOTHING: Found = (-1, -1, -1)


def handle(parts: LogParts, request: Request) -> Body | Steps:
    return stepped(_answer(parts, request), up_to_few(len(topic.partitions) for topic in request.body.topics))


def _answer(parts: LogParts, request: Request) -> Generator[None, None, Body]:
    body = request.body
    times = yield from tally((topic.name, p.partition_index) for topic in body.topics for p in topic.partitions)
    isolation = getattr(body, "isolation_level", READ_UNCOMMITTED)
    topics = []
    for topic in body.topics:
        answers = {}
        refused = parts.rights.refusal(request.session, DESCRIBE_TOPIC, topic.name)
        for asked in topic.partitions:
            if refused:
                code, found = refused, NOTHING
            elif times[topic.name, asked.partition_index] > 1 or isolation not in (0, 1):
                code, found = INVALID_REQUEST, NOTHING
            else:
                code, found = _offset(parts, topic.name, asked, request.version, isolation)
            answers[asked.partition_index] = {
                "partition_index": asked.partition_index,
                "error_code": code,
                "offset": found[0],
                "timestamp": found[1],
                "leader_epoch": found[2],
            }
            yield
        topics.append({"name": topic.name, "partitions": list(answers.values())})
        yield
    return {"topics": topics}


def _offset(parts: LogParts, name: str, asked: Any, version: int, isolation: int) -> tuple[int, Found]:
    timestamp = asked.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or version < SINCE_VERSION.get(timestamp, 0):
        return UNSUPPORTED_VERSION, NOTHING
    partition = parts.topics.partition(name, asked.partition_index)
    log, code = usable_log(partition, getattr(asked, "current_leader_epoch", NO_EPOCH))
    if partition is None or log is None:
        return code, NOTHING
    try:
        return NONE, _find(log, timestamp, isolation, partition.leader_epoch)
    except PeerError as error:
        return error.code, NOTHING
    except (StorageError, OSError):
        return KAFKA_STORAGE_ERROR, NOTHING


def _find(log: PartitionLog, timestamp: int, isolation: int, leader_epoch: int) -> Found:
    visible_end = log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark
    if timestamp == LATEST:
        return visible_end, -1, leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.start_offset, -1, log.leader_epoch_at(log.start_offset)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NOTHING
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_time(timestamp)
    return found if found is not None and found[0] < visible_end else NOTHING


API = Api(key=2, name="ListOffsets", low=1, high=11, handle=handle)

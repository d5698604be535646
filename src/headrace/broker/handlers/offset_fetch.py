"""OffsetFetch: what groups have committed.

v2 allows null for all partitions that have an offset, and an error for the whole answer; before it, that error stands
at each partition. v5 adds the leader epoch, v7 `require_stable`: a partition with an open transaction is then answered
with UNSTABLE_OFFSET_COMMIT. v8 asks for several groups, v9 adds member id and epoch of KIP-848 members, which are
checked, v10 has topic ids. A partition that does not exist has no offset, and that is no error; an unknown id is one.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.api import Api, Request
from headrace.broker.handlers.offset_topics import with_ids
from headrace.broker.handlers.soon import Body
from headrace.broker.rights import DESCRIBE_GROUP, DESCRIBE_TOPIC
from headrace.broker.steps import FEW, ITEMS_PER_STEP, Steps, stepped, up_to_few
from headrace.coordinator.offsets.requests import refused_fetch
from headrace.protocol.error_codes import NONE, UNKNOWN_TOPIC_ID

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession
    from headrace.broker.parts import OffsetParts

ERROR_OF_ALL_SINCE, GROUPS_SINCE, TOPIC_IDS_SINCE = 2, 8, 10
NO_EPOCH = NO_OFFSET = -1
# Offsets that one request is told again: a short one that names a group with very many of them thousands of times must
# not have an answer without end.
REPEATED_MAX: Final = 10_000


def handle(parts: OffsetParts, request: Request) -> Body | Steps:
    version, body = request.version, request.body
    groups = body.groups if version >= GROUPS_SINCE else (body,)
    if len(groups) > FEW or any(asked.topics is None for asked in groups):
        return Steps(_answer(parts, request))
    count = up_to_few(len(topic.partition_indexes) for asked in groups for topic in asked.topics)
    return stepped(_answer(parts, request), count)


def _answer(parts: OffsetParts, request: Request) -> Generator[None, None, Body]:
    version, body = request.version, request.body
    require_stable = getattr(body, "require_stable", False)
    if version < GROUPS_SINCE:
        group = yield from fetch(parts, request.session, body, version, require_stable)
        return (yield from _of_one_group(body, version, group))
    groups = []
    seen: set[str] = set()  # groups whose offsets were asked for without naming them
    repeated = 0
    for asked in body.groups:
        repeats = asked.topics is None and asked.group_id in seen
        if repeats and repeated > REPEATED_MAX:
            continue
        group = yield from fetch(parts, request.session, asked, version, require_stable)
        groups.append(group)
        if asked.topics is None:
            seen.add(asked.group_id)
        if repeats:
            repeated += 1 + sum([len(topic["partitions"]) for topic in group["topics"]])
        yield
    return {"groups": groups}


def fetch(
    parts: OffsetParts, session: ClientSession, asked: Any, version: int, require_stable: bool
) -> Generator[None, None, Body]:
    """One group's part; `asked` is a group of the request, or the request itself where it has but one. Nobody sees
    offsets of topics that he may not describe."""
    rights = parts.rights
    code = rights.refusal(session, DESCRIBE_GROUP, asked.group_id)
    if code:
        return refused_fetch(asked.group_id, code)
    refused: list[Body] = []
    wanted: list[tuple[str, Sequence[int]]] | None = None if asked.topics is None else []
    for each in asked.topics or ():
        yield
        topic = parts.topics.by_id(each.topic_id) if version >= TOPIC_IDS_SINCE else None
        if version < TOPIC_IDS_SINCE:
            name = each.name
        elif topic is not None:
            name = topic.name
        else:
            refused.append((yield from _refused({"topic_id": each.topic_id}, each, UNKNOWN_TOPIC_ID)))
            continue
        code = rights.refusal(session, DESCRIBE_TOPIC, name)
        if code:
            reference = {"name": name} if version < TOPIC_IDS_SINCE else {"topic_id": each.topic_id}
            refused.append((yield from _refused(reference, each, code)))
            continue
        if wanted is not None:
            wanted.append((name, each.partition_indexes))
    member_id, member_epoch = getattr(asked, "member_id", None), getattr(asked, "member_epoch", NO_EPOCH)
    group: Body = yield from parts.groups.fetch_offsets(asked.group_id, member_id, member_epoch, wanted, require_stable)
    if group["error_code"] != NONE:
        return group
    topics = group["topics"]
    if wanted is None and not rights.is_open:
        topics = [each for each in topics if rights.allows(session, DESCRIBE_TOPIC, each["name"])]
    if version >= TOPIC_IDS_SINCE:
        topics = with_ids(topics, lambda name: _id_of(parts, name))
    return {**group, "topics": [*topics, *refused]}


def _id_of(parts: OffsetParts, name: str) -> uuid.UUID | None:
    topic = parts.topics.get(name)
    return None if topic is None else topic.id


def _refused(reference: Body, asked: Any, code: int) -> Generator[None, None, Body]:
    return {**reference, "partitions": (yield from _without_offsets(asked.partition_indexes, code))}


def _without_offsets(indexes: Sequence[int], code: int) -> Generator[None, None, list[Body]]:
    partitions = []
    for at, index in enumerate(indexes):
        partitions.append(_without_offset(index, code))
        if at % ITEMS_PER_STEP == 0:
            yield
    return partitions


def _without_offset(partition: int, code: int) -> Body:
    return {
        "partition_index": partition,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_EPOCH,
        "metadata": "",
        "error_code": code,
    }


def _of_one_group(asked: Any, version: int, group: Body) -> Generator[None, None, Body]:
    code = group["error_code"]
    if code == NONE or version >= ERROR_OF_ALL_SINCE:
        return {"error_code": code, "topics": group["topics"]}
    refused = []
    for each in asked.topics:
        refused.append({"name": each.name, "partitions": (yield from _without_offsets(each.partition_indexes, code))})
        yield
    return {"topics": refused}


API = Api(key=9, name="OffsetFetch", low=1, high=10, handle=handle)

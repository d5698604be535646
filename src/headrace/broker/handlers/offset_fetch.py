"""OffsetFetch: what groups have committed.

v2 allows null for all partitions that have an offset, and an error for the whole answer; before it, that error stands
at each partition. v5 adds the leader epoch, v7 `require_stable`: a partition with an open transaction is then answered
with UNSTABLE_OFFSET_COMMIT. v8 asks for several groups, v9 adds member id and epoch of KIP-848 members, which are
checked, v10 has topic ids. A partition that does not exist has no offset, and that is no error; an unknown id is one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.offset_topics import with_ids
from headrace.broker.handlers.soon import Body, Soon
from headrace.protocol.error_codes import NONE, UNKNOWN_TOPIC_ID

if TYPE_CHECKING:
    from headrace.broker.node import Node

ERROR_OF_ALL_SINCE, GROUPS_SINCE, TOPIC_IDS_SINCE = 2, 8, 10
NO_EPOCH = NO_OFFSET = -1


def handle(node: Node, request: Request) -> Body | Later:
    version, body = request.version, request.body
    require_stable = getattr(body, "require_stable", False)
    soon = Soon()
    if version < GROUPS_SINCE:
        fetch(node, body, version, require_stable, lambda group: soon(_of_one_group(body, version, group)))
        return soon.result()
    if not body.groups:
        return {"groups": []}
    answers: dict[int, Body] = {}

    def answered(place: int) -> Callable[[Body], None]:
        def keep(group: Body) -> None:
            answers[place] = group
            if len(answers) == len(body.groups):
                soon({"groups": [answers[each] for each in range(len(body.groups))]})

        return keep

    for place, asked in enumerate(body.groups):
        fetch(node, asked, version, require_stable, answered(place))
    return soon.result()


def fetch(node: Node, asked: Any, version: int, require_stable: bool, answer: Callable[[Body], None]) -> None:
    """One group's part; `asked` is a group of the request, or the request itself where it has but one."""
    unknown: list[Body] = []
    wanted: list[tuple[str, Sequence[int]]] | None = None
    if asked.topics is not None and version >= TOPIC_IDS_SINCE:
        wanted = []
        for each in asked.topics:
            topic = node.topics.by_id(each.topic_id)
            if topic is None:
                unknown.append(_unknown(each))
            else:
                wanted.append((topic.name, each.partition_indexes))
    elif asked.topics is not None:
        wanted = [(each.name, each.partition_indexes) for each in asked.topics]

    def id_of(name: str) -> uuid.UUID | None:
        topic = node.topics.get(name)
        return None if topic is None else topic.id

    def finish(group: Body) -> None:
        if version >= TOPIC_IDS_SINCE and group["error_code"] == NONE:
            group = {**group, "topics": with_ids(group["topics"], id_of) + unknown}
        answer(group)

    member_id, member_epoch = getattr(asked, "member_id", None), getattr(asked, "member_epoch", NO_EPOCH)
    node.groups.fetch_offsets(asked.group_id, member_id, member_epoch, wanted, require_stable, finish)


def _unknown(asked: Any) -> Body:
    return {
        "topic_id": asked.topic_id,
        "partitions": [_without_offset(index, UNKNOWN_TOPIC_ID) for index in asked.partition_indexes],
    }


def _without_offset(partition: int, code: int) -> Body:
    return {
        "partition_index": partition,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_EPOCH,
        "metadata": "",
        "error_code": code,
    }


def _of_one_group(asked: Any, version: int, group: Body) -> Body:
    code = group["error_code"]
    if code == NONE or version >= ERROR_OF_ALL_SINCE:
        return {"error_code": code, "topics": group["topics"]}
    refused = [
        {"name": each.name, "partitions": [_without_offset(index, code) for index in each.partition_indexes]}
        for each in asked.topics
    ]
    return {"topics": refused}


API = Api(key=9, name="OffsetFetch", low=1, high=10, handle=handle)

"""OffsetDelete: forgets committed offsets. One version.

An error of the group (unknown, not empty) stands alone, without topics; a topic that a member is subscribed to is
refused by itself. Partitions that do not exist are refused, but only if the group has nothing to say against it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.commit_slices import OFFSETS_PER_SLICE
from headrace.broker.handlers.offset_topics import Sorted, sort_partitions
from headrace.broker.handlers.soon import Body, Slices
from headrace.broker.rights import DELETE_GROUP
from headrace.broker.steps import Steps, stepped, up_to_few
from headrace.protocol.error_codes import INVALID_GROUP_ID, NONE

if TYPE_CHECKING:
    from headrace.broker.parts import OffsetParts


def handle(parts: OffsetParts, request: Request) -> Body | Later | Steps:
    count = up_to_few(len(topic.partitions) for topic in request.body.topics)
    return stepped(_answer(parts, request), count, must_end=True)


def _answer(parts: OffsetParts, request: Request) -> Generator[None, None, Body | Later]:
    body = request.body
    if not body.group_id:
        return {"error_code": INVALID_GROUP_ID, "topics": []}
    refused = parts.rights.refusal(request.session, DELETE_GROUP, body.group_id)
    if refused:
        return {"error_code": refused, "topics": []}
    found = yield from sort_partitions(parts, request.session, body.topics)
    errors: list[int] = []
    slices = Slices(partial(_merged, found, errors))
    for first in range(0, max(1, len(found.known)), OFFSETS_PER_SLICE):
        some = found.known[first : first + OFFSETS_PER_SLICE]
        partitions = [(topic.name, partition.partition_index) for topic, partition in some]
        parts.groups.delete_offsets(body.group_id, partitions, _noting(slices.expect(), errors))
        if errors:
            break
        yield
    slices.end()
    return (yield from slices.soon.steps())


def _noting(told: Callable[[Any], None], errors: list[int]) -> Callable[[Body], None]:
    def note(answered: Body) -> None:
        if answered["error_code"] != NONE:
            errors.append(answered["error_code"])
        told(answered["topics"])

    return note


def _merged(found: Sorted, errors: list[int], slices: list[Sequence[Body]]) -> Generator[None, None, Body]:
    """What the group said of each slice; only the first error, if there is one."""
    if errors:
        return {"error_code": errors[0], "topics": []}
    topics: list[dict[str, Any]] = []
    for answered in slices:
        for topic in answered:
            if topics and topics[-1]["name"] == topic["name"]:
                topics[-1]["partitions"] += topic["partitions"]
            else:
                topics.append({**topic, "partitions": list(topic["partitions"])})
        yield
    return {"error_code": NONE, "topics": (yield from found.merge_in_steps(topics))}


API = Api(key=47, name="OffsetDelete", low=0, high=0, handle=handle)

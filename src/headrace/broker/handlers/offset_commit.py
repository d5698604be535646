"""OffsetCommit: where a group is in its partitions.

v2 to v4 have a lifetime of their own for the offsets (-1: as long as the broker keeps them), v5 drops it, v6 adds the
leader epoch, v7 the instance id of a static member, v9 lets members of KIP-848 groups commit with their epoch, v10 has
topic ids instead of names. A generation of -1 is a consumer that assigns its partitions itself. Versions 0 and 1 are
gone from Kafka.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.offset_topics import sort_partitions, with_ids
from headrace.broker.handlers.soon import Body, Soon
from headrace.coordinator.offset_store import CommittedOffset

if TYPE_CHECKING:
    from headrace.broker.node import Node

TOPIC_IDS_SINCE: Final = 10
NO_LIFETIME_MS = NO_TIME_MS = NO_EPOCH = -1
TIME_MS_MAX: Final = 2**63 - 1


def handle(node: Node, request: Request) -> Body | Later:
    body = request.body
    found = sort_partitions(node, body.topics)
    if not found.known:
        return {"topics": found.merge(())}
    now_ms = node.clock.now_ms()
    expire_ms = _expire_timestamp_ms(getattr(body, "retention_time", None), now_ms)
    entries = [
        (
            topic.name,
            partition.partition_index,
            CommittedOffset(
                partition.committed_offset,
                getattr(partition, "committed_leader_epoch", NO_EPOCH),
                partition.committed_metadata or "",
                now_ms,
                expire_ms,
                topic.id,
            ),
        )
        for topic, partition in found.known
    ]
    soon = Soon()

    def answer(answered: Body) -> None:
        topics = answered["topics"]
        if request.version >= TOPIC_IDS_SINCE:
            topics = with_ids(topics, {topic.name: topic.id for topic, _ in found.known}.get)
        soon({"topics": found.merge(topics)})

    node.groups.commit_offsets(
        body.group_id,
        body.member_id,
        body.generation_id_or_member_epoch,
        getattr(body, "group_instance_id", None),
        entries,
        answer,
        version=request.version,
    )
    return soon.result()


def _expire_timestamp_ms(lifetime: timedelta | None, now_ms: int) -> int:
    lifetime_ms = NO_LIFETIME_MS if lifetime is None else lifetime // timedelta(milliseconds=1)
    return NO_TIME_MS if lifetime_ms == NO_LIFETIME_MS else min(now_ms + lifetime_ms, TIME_MS_MAX)


API: Final = Api(key=8, name="OffsetCommit", low=2, high=10, handle=handle)

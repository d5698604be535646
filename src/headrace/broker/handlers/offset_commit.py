"""OffsetCommit: where a group is in its partitions.

v2 to v4 have a lifetime of their own for the offsets (-1: as long as the broker keeps them), v5 drops it, v6 adds the
leader epoch, v7 the instance id of a static member, v9 lets members of KIP-848 groups commit with their epoch, v10 has
topic ids instead of names. A generation of -1 is a consumer that assigns its partitions itself. Versions 0 and 1 are
gone from Kafka.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.offset_topics import Sorted, with_ids
from headrace.broker.handlers.soon import Soon
from headrace.coordinator.offset_requests import by_topic
from headrace.coordinator.offset_store import CommittedOffset, Entry
from headrace.protocol.error_codes import UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from headrace.protocol.messages import Body, encode_body
from headrace.protocol.offset_commit import (
    HIGH,
    KEY,
    LOW,
    NO_LIFETIME_MS,
    TOPIC_IDS_FROM,
    OffsetCommitDecoder,
    OffsetCommitRequest,
    TopicKey,
)

if TYPE_CHECKING:
    from headrace.broker.node import Node

NO_TIME_MS: Final = -1
TIME_MS_MAX: Final = 2**63 - 1
ANSWERS_MAX: Final = 4096  # that are kept encoded: the same partition is committed again and again


def handle(node: Node, request: Request) -> Body | Later:
    asked: OffsetCommitRequest = request.body
    group_id, generation, member_id, instance_id, lifetime_ms, topics = asked
    now_ms = node.clock.now_ms()
    expire_ms = NO_TIME_MS if lifetime_ms == NO_LIFETIME_MS else min(now_ms + lifetime_ms, TIME_MS_MAX)
    found = Sorted()
    entries: list[Entry] = []
    for key, offsets in topics:
        topic = node.topics.by_wire_id(key) if isinstance(key, bytes) else node.topics.get(key)
        for index, offset, epoch, metadata in offsets:
            if topic is not None and 0 <= index < len(topic.partitions):
                committed = CommittedOffset(offset, epoch, metadata, now_ms, expire_ms, topic.id)
                entries.append((topic.name, index, committed))
            elif isinstance(key, bytes):
                unknown = UNKNOWN_TOPIC_ID if topic is None else UNKNOWN_TOPIC_OR_PARTITION
                found.refuse({"topic_id": uuid.UUID(bytes=key)}, index, unknown)
            else:
                found.refuse({"name": key}, index, UNKNOWN_TOPIC_OR_PARTITION)
    if not entries:
        return {"topics": found.merge(())}
    answer = _Answer(request.version, topics[0][0], entries, found)
    node.groups.commit_offsets(group_id, member_id, generation, instance_id, entries, answer, version=request.version)
    return answer.soon.result()


class _Answer:
    """What the group's codes become. Not a function inside `handle`: compiled, that would be a cycle of references for
    each request, and the garbage collector would take a fifth of the broker's time."""

    __slots__ = ("_entries", "_found", "_key", "_version", "soon")

    def __init__(self, version: int, key: TopicKey, entries: list[Entry], found: Sorted) -> None:
        self._version = version
        self._key = key  # of the first topic
        self._entries = entries
        self._found = found
        self.soon = Soon()

    def __call__(self, codes: list[int]) -> None:
        entries = self._entries
        if len(entries) == 1 and not self._found.refuses:
            self.soon(_answer_for_one(self._version, self._key, entries[0][1], codes[0]))
        else:
            self.soon({"topics": self._found.merge(_answered(self._version, entries, codes))})


def _answered(version: int, entries: list[Entry], codes: list[int]) -> list[Mapping[str, Any]]:
    told = [(name, index, code) for (name, index, _), code in zip(entries, codes, strict=True)]
    topics: list[Mapping[str, Any]] = by_topic(told)["topics"]
    if version < TOPIC_IDS_FROM:
        return topics
    ids = {name: committed.topic_id for name, _, committed in entries}
    return with_ids(topics, ids.get)


@functools.lru_cache(maxsize=ANSWERS_MAX)
def _answer_for_one(version: int, key: TopicKey, partition: int, code: int) -> bytes:
    reference = {"topic_id": uuid.UUID(bytes=key)} if isinstance(key, bytes) else {"name": key}
    one = {**reference, "partitions": [{"partition_index": partition, "error_code": code}]}
    return encode_body(KEY, version, {"topics": [one]})


_decoder = OffsetCommitDecoder()

API: Final = Api(key=KEY, name="OffsetCommit", low=LOW, high=HIGH, handle=handle, decode=_decoder.decode)

"""OffsetCommit: where a group is in its partitions.

v2 to v4 have a lifetime of their own for the offsets (-1: as long as the broker keeps them), v5 drops it, v6 adds the
leader epoch, v7 the instance id of a static member, v9 lets members of KIP-848 groups commit with their epoch, v10 has
topic ids instead of names. A generation of -1 is a consumer that assigns its partitions itself. Versions 0 and 1 are
gone from Kafka.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.api import Api, Later, Request
from headrace.broker.handlers.commit_slices import OFFSETS_PER_SLICE, CommitSlices
from headrace.broker.handlers.offset_topics import Sorted, reading_refused, refuse_all, with_ids
from headrace.broker.handlers.soon import Soon
from headrace.broker.rights import READ_GROUP
from headrace.broker.steps import ITEMS_PER_STEP, Steps
from headrace.coordinator.offsets.requests import by_topic
from headrace.coordinator.offsets.store import CommittedOffset, Entry
from headrace.protocol.error_codes import UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from headrace.protocol.messages import Body, encode_body
from headrace.protocol.offset_commit import (
    HIGH,
    KEY,
    LIFETIME_UP_TO,
    LOW,
    NO_EPOCH,
    NO_LIFETIME_MS,
    TOPIC_IDS_FROM,
    Offset,
    OffsetCommitDecoder,
    OffsetCommitRequest,
    TopicKey,
    Wanted,
)

if TYPE_CHECKING:
    from headrace.broker.client_session import ClientSession
    from headrace.broker.parts import OffsetParts

NO_TIME_MS: Final = -1
NO_ID: Final = uuid.UUID(int=0)
TIME_MS_MAX: Final = 2**63 - 1
ANSWERS_MAX: Final = 4096  # that are kept encoded: the same partition is committed again and again


def handle(parts: OffsetParts, request: Request) -> Body | Later | Steps:
    asked: OffsetCommitRequest = request.body
    group_id, generation, member_id, instance_id, lifetime_ms, topics = asked
    refused = parts.rights.refusal(request.session, READ_GROUP, group_id)
    if refused:
        return Steps(refuse_all(((_reference(key), [each[0] for each in offsets]) for key, offsets in topics), refused))
    if len(topics) > OFFSETS_PER_SLICE or sum([len(offsets) for _, offsets in topics]) > OFFSETS_PER_SLICE:
        return Steps(_in_slices(parts, request), must_end=True)
    found = Sorted()
    entries: list[Entry] = []
    _sort(parts, request.session, topics, lifetime_ms, found, entries)
    if not entries:
        return {"topics": found.merge(())}
    answer = _Answer(request.version, topics[0][0], entries, found, is_throttled=request.throttle_ms > 0)
    parts.groups.commit_offsets(group_id, member_id, generation, instance_id, entries, answer, version=request.version)
    return answer.soon.result()


def _reference(key: TopicKey) -> Mapping[str, object]:
    return {"topic_id": uuid.UUID(bytes=key)} if isinstance(key, bytes) else {"name": key}


def _sort(
    parts: OffsetParts,
    session: ClientSession,
    topics: Iterable[Wanted],
    lifetime_ms: int,
    found: Sorted,
    entries: list[Entry],
) -> None:
    """Into entries of partitions that exist, and refusals."""
    rights = parts.rights
    now_ms = parts.clock.now_ms()
    expire_ms = NO_TIME_MS if lifetime_ms == NO_LIFETIME_MS else min(now_ms + lifetime_ms, TIME_MS_MAX)
    for key, offsets in topics:
        topic = parts.topics.by_key(key)
        refused = reading_refused(rights, session, None if isinstance(key, bytes) else key, topic)
        for index, offset, epoch, metadata in offsets:
            if topic is not None and not refused and 0 <= index < len(topic.partitions):
                committed = CommittedOffset(offset, epoch, metadata, now_ms, expire_ms, topic.id)
                entries.append((topic.name, index, committed))
            elif isinstance(key, bytes):
                unknown = UNKNOWN_TOPIC_ID if topic is None else UNKNOWN_TOPIC_OR_PARTITION
                found.refuse(_reference(key), index, refused or unknown)
            else:
                found.refuse(_reference(key), index, refused or UNKNOWN_TOPIC_OR_PARTITION)


def _in_slices(parts: OffsetParts, request: Request) -> Generator[None, None, Body | Later]:
    group_id, generation, member_id, instance_id, lifetime_ms, topics = request.body
    version = request.version
    ids: dict[str, uuid.UUID | None] = {}
    found = Sorted()
    slices = CommitSlices(found, (lambda told: with_ids(told, ids.get)) if version >= TOPIC_IDS_FROM else None)
    for wanted in _sliced(topics):
        entries: list[Entry] = []
        _sort(parts, request.session, wanted, lifetime_ms, found, entries)
        if entries:
            ids.update({name: committed.topic_id for name, _, committed in entries})
            told = slices.expect(entries)
            parts.groups.commit_offsets(group_id, member_id, generation, instance_id, entries, told, version=version)
        yield
    slices.end()
    return (yield from slices.soon.steps())


def _sliced(topics: Iterable[Wanted]) -> Iterator[list[Wanted]]:
    """Lists of topics with so many offsets that one step can take them."""
    some: list[Wanted] = []
    room = OFFSETS_PER_SLICE
    for key, offsets in topics:
        for first in range(0, len(offsets), OFFSETS_PER_SLICE):
            part = offsets[first : first + OFFSETS_PER_SLICE]
            some.append((key, part))
            room -= len(part)
            if room <= 0:
                yield some
                some, room = [], OFFSETS_PER_SLICE
    if some:
        yield some


class _Answer:
    """What the group's codes become. Not a function inside `handle`: compiled, that would be a cycle of references for
    each request, and the garbage collector would take a fifth of the broker's time."""

    __slots__ = ("_entries", "_found", "_is_throttled", "_key", "_version", "soon")

    def __init__(self, version: int, key: TopicKey, entries: list[Entry], found: Sorted, *, is_throttled: bool) -> None:
        self._version = version
        self._key = key  # of the first topic
        self._entries = entries
        self._found = found
        self._is_throttled = is_throttled
        self.soon = Soon()

    def __call__(self, codes: list[int]) -> None:
        entries = self._entries
        if len(entries) == 1 and not self._found.refuses and not self._is_throttled:
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
    one = {**_reference(key), "partitions": [{"partition_index": partition, "error_code": code}]}
    return encode_body(KEY, version, {"topics": [one]})


def _from_body(body: Any, version: int) -> Generator[None, None, OffsetCommitRequest]:
    """A long request, which was read in the general way, as the decoder would have read it."""
    topics: list[Wanted] = []
    for topic in body.topics:
        key = (topic.topic_id or NO_ID).bytes if version >= TOPIC_IDS_FROM else topic.name
        offsets: list[Offset] = []
        for at, each in enumerate(topic.partitions):
            epoch = getattr(each, "committed_leader_epoch", NO_EPOCH)
            offsets.append((each.partition_index, each.committed_offset, epoch, each.committed_metadata or ""))
            if at % ITEMS_PER_STEP == 0:
                yield
        topics.append((key, offsets))
    instance_id = getattr(body, "group_instance_id", None)
    return body.group_id, body.generation_id_or_member_epoch, body.member_id, instance_id, NO_LIFETIME_MS, topics


_decoder = OffsetCommitDecoder()

API: Final = Api(
    key=KEY,
    name="OffsetCommit",
    low=LOW,
    high=HIGH,
    handle=handle,
    decode=_decoder.decode,
    from_body=_from_body,
    from_body_since=LIFETIME_UP_TO + 1,  # the general way refuses lifetimes beyond the calendar, which are good here
)

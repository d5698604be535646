"""OffsetCommit requests, versions 2 to 10, read by hand: a busy group sends more of them than of anything else.

v2 to v4 have a lifetime for the offsets · v6 the leader epoch · v7 the instance id of a static member · v8 flexible
v9 the epoch of a KIP-848 member where the generation was, same bytes · v10 topic ids in place of names
It reads what kio reads, and the tests hold it to that; whatever is wrong with the bytes is a `ValueError`.
"""

from struct import Struct
from typing import Final

from headrace.protocol.wire import read_uvarint_of_bytes, too_many

KEY: Final = 8
LOW: Final = 2
HIGH: Final = 10
LIFETIME_UP_TO: Final = 4
LEADER_EPOCH_FROM: Final = 6
INSTANCE_FROM: Final = 7
FLEXIBLE_FROM: Final = 8
TOPIC_IDS_FROM: Final = 10
NO_LIFETIME_MS: Final = -1
# Topics, and partitions in all of them, in one request that is read here, and so at once. Long ones without a lifetime
# are read in steps, elsewhere.
NAMED_MAX: Final = 10_000
NO_EPOCH: Final = -1

_I16, _I32, _I64 = Struct(">h"), Struct(">i"), Struct(">q")
_INDEX_OFFSET: Final = Struct(">iq")
_INDEX_OFFSET_EPOCH: Final = Struct(">iqi")
_ENDS: Final = (b"\x01\0\0\0", b"\0\0\0\0")  # metadata that is empty or absent, then no tagged fields, three times over
_LAST_BYTES: Final = _INDEX_OFFSET_EPOCH.size + 4
_PARTITION_BYTES_MIN: Final = 14  # in the shortest of its forms

KNOWN_MAX: Final = 4096  # beginnings that are remembered
_KNOWN_BYTES_MAX: Final = 512  # the longest of them

TopicKey = str | bytes  # a name, or from v10 on the sixteen bytes of an id
Offset = tuple[int, int, int, str]  # partition, offset, leader epoch, metadata
Wanted = tuple[TopicKey, list[Offset]]
# Group, generation or member epoch, member, instance, lifetime in ms, topics.
OffsetCommitRequest = tuple[str, int, str, str | None, int, list[Wanted]]
_Known = tuple[int, str, int, str, str | None, TopicKey]  # version, group, generation, member, instance, topic


class OffsetCommitDecoder:
    """A member commits one partition again and again, and only the offset is another one: what stands before the
    partition is remembered as it was sent, and found again in one look-up."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, _Known] = {}

    def decode(self, data: bytes, at: int, version: int) -> OffsetCommitRequest:
        if version < FLEXIBLE_FROM:
            return _plain(data, at, version)
        cut = len(data) - _LAST_BYTES
        is_short = cut > at and data[-4:] in _ENDS
        if is_short:
            known = self._known.get(data[at:cut])
            if known is not None and known[0] == version:
                _, group_id, generation, member_id, instance_id, key = known
                index, offset, epoch = _INDEX_OFFSET_EPOCH.unpack_from(data, cut)
                return (
                    group_id,
                    generation,
                    member_id,
                    instance_id,
                    NO_LIFETIME_MS,
                    [(key, [(index, offset, epoch, "")])],
                )
        request, end = _flexible(data, at, version)
        if is_short and end == len(data) and cut - at <= _KNOWN_BYTES_MAX:
            self._remember(data[at:cut], version, request)
        return request

    def _remember(self, begin: bytes, version: int, request: OffsetCommitRequest) -> None:
        group_id, generation, member_id, instance_id, _, topics = request
        if len(topics) != 1 or len(topics[0][1]) != 1:
            return
        key, ((_, _, _, metadata),) = topics[0]
        if not metadata:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[begin] = (version, group_id, generation, member_id, instance_id, key)


def _flexible(data: bytes, at: int, version: int) -> tuple[OffsetCommitRequest, int]:
    group_id, at = _compact_text(data, at, "group_id")
    generation, at = _int32(data, at)
    member_id, at = _compact_text(data, at, "member_id")
    instance_id, at = _compact_nullable(data, at, "group_instance_id")
    topic_count, at = _compact_count(data, at, 3, "topics")
    topics: list[Wanted] = []
    named = _added(0, topic_count) - topic_count
    for _ in range(topic_count):
        key: TopicKey
        if version >= TOPIC_IDS_FROM:
            key, at = _part(data, at, 16, "topic_id")
        else:
            key, at = _compact_text(data, at, "name")
        count, at = _compact_count(data, at, _PARTITION_BYTES_MIN, "partitions")
        named = _added(named, count)
        offsets: list[Offset] = []
        for _ in range(count):
            index, offset, epoch = _INDEX_OFFSET_EPOCH.unpack(_part(data, at, 16, "a partition")[0])
            metadata, at = _compact_nullable(data, at + 16, "committed_metadata")
            at = _skip_tags(data, at)
            offsets.append((index, offset, epoch, metadata or ""))
        at = _skip_tags(data, at)
        topics.append((key, offsets))
    return (group_id, generation, member_id, instance_id, NO_LIFETIME_MS, topics), _skip_tags(data, at)


def _plain(data: bytes, at: int, version: int) -> OffsetCommitRequest:
    group_id, at = _text(data, at, "group_id")
    generation, at = _int32(data, at)
    member_id, at = _text(data, at, "member_id")
    instance_id, lifetime_ms = None, NO_LIFETIME_MS
    if version >= INSTANCE_FROM:
        instance_id, at = _nullable(data, at, "group_instance_id")
    if version <= LIFETIME_UP_TO:
        part, at = _part(data, at, 8, "retention_time_ms")
        lifetime_ms = _I64.unpack(part)[0]
    topic_count, at = _count(data, at, 6, "topics")
    topics: list[Wanted] = []
    named = _added(0, topic_count) - topic_count
    for _ in range(topic_count):
        name, at = _text(data, at, "name")
        count, at = _count(data, at, _PARTITION_BYTES_MIN, "partitions")
        named = _added(named, count)
        offsets: list[Offset] = []
        for _ in range(count):
            part, at = _part(data, at, 12, "a partition")
            index, offset = _INDEX_OFFSET.unpack(part)
            epoch = NO_EPOCH
            if version >= LEADER_EPOCH_FROM:
                epoch, at = _int32(data, at)
            metadata, at = _nullable(data, at, "committed_metadata")
            offsets.append((index, offset, epoch, metadata or ""))
        topics.append((name, offsets))
    return group_id, generation, member_id, instance_id, lifetime_ms, topics


# ── the pieces, each with the position behind it ─────────────────────────────────────────────────────────────────────


def _part(data: bytes, at: int, size: int, name: str) -> tuple[bytes, int]:
    end = at + size
    if end > len(data):
        raise ValueError(f"{name} takes {size} bytes at byte {at}, only {len(data) - at} are left")
    return data[at:end], end


def _int32(data: bytes, at: int) -> tuple[int, int]:
    part, at = _part(data, at, 4, "a number")
    return _I32.unpack(part)[0], at


def _nullable(data: bytes, at: int, name: str) -> tuple[str | None, int]:
    part, at = _part(data, at, 2, name)
    size: int = _I16.unpack(part)[0]
    if size < 0:
        return None, at
    part, at = _part(data, at, size, name)
    return part.decode(), at


def _text(data: bytes, at: int, name: str) -> tuple[str, int]:
    text, at = _nullable(data, at, name)
    return _given(text, name), at


def _compact_nullable(data: bytes, at: int, name: str) -> tuple[str | None, int]:
    size, at = read_uvarint_of_bytes(data, at)
    if size == 0:
        return None, at
    part, at = _part(data, at, size - 1, name)
    return part.decode(), at


def _compact_text(data: bytes, at: int, name: str) -> tuple[str, int]:
    text, at = _compact_nullable(data, at, name)
    return _given(text, name), at


def _given(text: str | None, name: str) -> str:
    if text is None:
        raise ValueError(f"{name} is null, where a value must stand")
    return text


def _count(data: bytes, at: int, item_bytes_min: int, name: str) -> tuple[int, int]:
    count, at = _int32(data, at)
    return _bounded(count, len(data) - at, item_bytes_min, name), at


def _compact_count(data: bytes, at: int, item_bytes_min: int, name: str) -> tuple[int, int]:
    count, at = read_uvarint_of_bytes(data, at)
    return _bounded(count - 1, len(data) - at, item_bytes_min, name), at


def _bounded(count: int, left: int, item_bytes_min: int, name: str) -> int:
    if count < 0:
        raise ValueError(f"{name} is null, where a list must stand")
    if count * item_bytes_min > left:
        raise ValueError(f"{name} claims {count} items, only {left} bytes are left")
    return count


def _added(named: int, count: int) -> int:
    if named + count > NAMED_MAX:
        raise ValueError(too_many(named + count, NAMED_MAX))
    return named + count


def _skip_tags(data: bytes, at: int) -> int:
    count, at = read_uvarint_of_bytes(data, at)
    for _ in range(count):
        _, at = read_uvarint_of_bytes(data, at)
        size, at = read_uvarint_of_bytes(data, at)
        _, at = _part(data, at, size, "a tagged field")
    return at

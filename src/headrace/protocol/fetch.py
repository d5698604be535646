"""Fetch, versions 4 to 18, by hand, since the records of its answer never pass through Python.

v4  isolation level · v5 log start offset · v7 sessions · v9 leader epoch · v11 rack and preferred replica
v12 flexible, last fetched epoch and diverging epoch · v13 topic ids · v15 replica state as a tagged field
v16 node endpoints (never sent: there is one node) · v17 replica directory · v18 the follower's high watermark
Byte for byte what kio reads and writes; the tests hold it to that.
"""

import functools
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from headrace.protocol.wire import (
    I16,
    I32,
    NAME_CHARACTERS_MAX,
    MalformedError,
    compact_string,
    read_compact_string,
    read_string,
    read_uvarint,
    skip_tags,
    string,
    too_many,
    uvarint,
)

KEY: Final = 1
LOW: Final = 4
HIGH: Final = 18
FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
REPLICA_STATE_FROM: Final = 15
NAMED_MAX: Final = 20_000  # topics, and partitions in all of them, in one request

_WAIT_MIN_MAX_ISOLATION: Final = Struct(">iiib")
_HEAD_V4: Final = Struct(">iiiibi")  # replica, wait, least and most bytes, isolation, number of topics
_HEAD_V7: Final = Struct(">iiiibiii")  # the same, with session id and epoch before the topics
_SESSION: Final = Struct(">ii")
_V4: Final = Struct(">iqi")  # partition, offset, bytes
_V5: Final = Struct(">iqqi")  # partition, offset, log start, bytes
_V9: Final = Struct(">iiqqi")  # partition, leader epoch, offset, log start, bytes
_V12: Final = Struct(">iiqiqi")  # partition, leader epoch, offset, last fetched epoch, log start, bytes
_OUT_V4: Final = Struct(">ihqq")
_OUT_V5: Final = Struct(">ihqqq")
_EPOCH_END: Final = Struct(">iq")
_ABORTED: Final = Struct(">qq")
_ID: Final = Struct(">i")
_REPLICA_STATE: Final = Struct(">iq")

TopicKey = str | bytes


class FetchPartition(NamedTuple):
    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    bytes_max: int


class FetchRequest(NamedTuple):
    replica_id: int
    replica_epoch: int  # the incarnation of the follower; -1 of one that does not say it
    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    read_committed: bool
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicKey, list[FetchPartition]]]
    forgotten: list[tuple[TopicKey, list[int]]]


class Fetched(NamedTuple):
    """One partition's part of an answer. `size` bytes of records follow it on the wire; -1 means null."""

    partition: int
    error: int
    high_watermark: int
    stable_offset: int
    start_offset: int
    size: int
    aborted: tuple[tuple[int, int], ...] | None = None
    diverging: tuple[int, int] | None = None  # epoch and its end offset
    leader: tuple[int, int] | None = None  # leader id and epoch, told to a client with a stale epoch


def decode(data: memoryview, at: int, end: int, version: int) -> FetchRequest:
    try:
        request, at = (_flexible if version >= FLEXIBLE_FROM else _plain)(data, at, version)
    except (struct_error, IndexError) as error:
        raise MalformedError(f"a Fetch request cut short: {error}") from None
    if at > end:
        raise MalformedError(f"a Fetch request reaches {at - end} bytes beyond its frame")
    return request


def _plain(data: memoryview, at: int, version: int) -> tuple[FetchRequest, int]:
    if version >= 7:
        head = _HEAD_V7.unpack_from(data, at)
        at += 29
    else:
        *first, count = _HEAD_V4.unpack_from(data, at)
        head = (*first, 0, -1, count)
        at += 21
    replica_id, wait_ms, bytes_min, bytes_max, isolation, session_id, session_epoch, count = head
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    named = 0
    for _ in range(_bounded(count, 0)):
        name, at = read_string(data, at)
        partition_count = I32.unpack_from(data, at)[0]
        named = _bounded(partition_count, named)
        at += 4
        partitions = []
        for _ in range(partition_count):
            if version >= 9:
                index, epoch, offset, _, size = _V9.unpack_from(data, at)
                at += 28
            else:
                epoch = -1
                if version >= 5:
                    index, offset, _, size = _V5.unpack_from(data, at)
                    at += 24
                else:
                    index, offset, size = _V4.unpack_from(data, at)
                    at += 16
            partitions.append(FetchPartition(index, epoch, offset, -1, size))
        topics.append((name, partitions))
    forgotten: list[tuple[TopicKey, list[int]]] = []
    if version >= 7:
        count = I32.unpack_from(data, at)[0]
        at += 4
        for _ in range(_bounded(count, 0)):
            name, at = read_string(data, at)
            size = max(I32.unpack_from(data, at)[0], 0)
            named = _bounded(size, named)
            forgotten.append((name, list(Struct(f">{size}i").unpack_from(data, at + 4))))
            at += 4 + 4 * size
    if version >= 11:
        size = I16.unpack_from(data, at)[0]
        at += 2 + max(size, 0)
    committed = isolation == 1
    return (
        FetchRequest(
            replica_id, -1, wait_ms, bytes_min, bytes_max, committed, session_id, session_epoch, topics, forgotten
        ),
        at,
    )


def _flexible(data: memoryview, at: int, version: int) -> tuple[FetchRequest, int]:
    replica_id = replica_epoch = -1
    if version < REPLICA_STATE_FROM:
        replica_id = I32.unpack_from(data, at)[0]
        at += 4
    wait_ms, bytes_min, bytes_max, isolation = _WAIT_MIN_MAX_ISOLATION.unpack_from(data, at)
    session_id, session_epoch = _SESSION.unpack_from(data, at + 13)
    count, at = read_uvarint(data, at + 21)
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    named = 0
    for _ in range(_bounded(count - 1, 0)):
        key, at = _topic(data, at, version)
        partition_count, at = read_uvarint(data, at)
        named = _bounded(partition_count - 1, named)
        partitions = []
        for _ in range(partition_count - 1):
            index, epoch, offset, last_epoch, _, size = _V12.unpack_from(data, at)
            at += 32
            at = at + 1 if data[at] == 0 else skip_tags(data, at)
            partitions.append(FetchPartition(index, epoch, offset, last_epoch, size))
        at = at + 1 if data[at] == 0 else skip_tags(data, at)
        topics.append((key, partitions))
    count, at = read_uvarint(data, at)
    forgotten: list[tuple[TopicKey, list[int]]] = []
    for _ in range(_bounded(count - 1, 0)):
        key, at = _topic(data, at, version)
        size, at = read_uvarint(data, at)
        size = size - 1 if size else 0
        named = _bounded(size, named)
        forgotten.append((key, list(Struct(f">{size}i").unpack_from(data, at))))
        at = skip_tags(data, at + 4 * size)
    size, at = read_uvarint(data, at)
    at += size - 1 if size else 0
    if version >= REPLICA_STATE_FROM:
        replica_id, replica_epoch, at = _replica_state(data, at)
    else:
        at = skip_tags(data, at)
    committed = isolation == 1
    return (
        FetchRequest(
            replica_id,
            replica_epoch,
            wait_ms,
            bytes_min,
            bytes_max,
            committed,
            session_id,
            session_epoch,
            topics,
            forgotten,
        ),
        at,
    )


def _topic(data: memoryview, at: int, version: int) -> tuple[TopicKey, int]:
    if version >= TOPIC_IDS_FROM:
        return bytes(data[at : at + 16]), at + 16
    return read_compact_string(data, at)


def _replica_state(data: memoryview, at: int) -> tuple[int, int, int]:
    """From v15 on a follower names itself and its incarnation in tagged field 1; consumers leave it out."""
    replica_id = replica_epoch = -1
    count, at = read_uvarint(data, at)
    for _ in range(count):
        tag, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        if tag == 1:
            replica_id, replica_epoch = _REPLICA_STATE.unpack_from(data, at)
        at += size
    return replica_id, replica_epoch, at


def _bounded(count: int, before: int) -> int:
    """So many more, with those before."""
    named = before + count if count > 0 else before
    if named > NAMED_MAX:
        raise MalformedError(too_many(named, NAMED_MAX))
    return named


def encode_head(
    version: int, correlation_id: int, error: int, session_id: int, topic_count: int, throttle_ms: int = 0
) -> bytes:
    """Everything before the first topic. The 4-byte length goes in front when the whole size is known."""
    out = I32.pack(correlation_id)
    if version >= FLEXIBLE_FROM:
        out += b"\0"
    out += I32.pack(throttle_ms)
    if version >= 7:
        out += I16.pack(error) + I32.pack(session_id)
    return out + (uvarint(topic_count + 1) if version >= FLEXIBLE_FROM else I32.pack(topic_count))


def encode_one(
    version: int, correlation_id: int, session_id: int, key: TopicKey, part: Fetched, throttle_ms: int = 0
) -> tuple[bytes, bytes]:
    """What stands before and behind the records of an answer that has one partition, its length in front."""
    begin = (
        encode_head(version, 0, 0, session_id, 1, throttle_ms)[4:] + encode_topic(version, key, 1)
        if throttle_ms or len(key) > NAME_CHARACTERS_MAX
        else _head_of_one(version, session_id, key)
    )
    head = _ID.pack(correlation_id) + begin + encode_partition(version, part)
    tail = encode_partition_end(version, part) + (b"\0\0" if version >= FLEXIBLE_FROM else b"")
    return _ID.pack(len(head) + max(part.size, 0) + len(tail)) + head, tail


@functools.lru_cache(maxsize=1024)  # of topics that there may be: a client may name one of megabytes
def _head_of_one(version: int, session_id: int, key: TopicKey) -> bytes:
    return encode_head(version, 0, 0, session_id, 1)[4:] + encode_topic(version, key, 1)


def encode_topic(version: int, key: TopicKey, partition_count: int) -> bytes:
    if version >= FLEXIBLE_FROM:
        name = key if isinstance(key, bytes) else compact_string(key)
        return name + uvarint(partition_count + 1)
    return string(str(key)) + I32.pack(partition_count)


def encode_partition(version: int, part: Fetched) -> bytes:
    """Everything of a partition before its records."""
    index, error, high_watermark, stable, start, size, aborted, _, _ = part
    if version < 5:
        out = _OUT_V4.pack(index, error, high_watermark, stable)
    else:
        out = _OUT_V5.pack(index, error, high_watermark, stable, start)
    if version < FLEXIBLE_FROM:
        if aborted is None:
            out += b"\xff\xff\xff\xff"
        else:
            out += I32.pack(len(aborted)) + b"".join(_ABORTED.pack(*each) for each in aborted)
        if version >= 11:
            out += b"\xff\xff\xff\xff"  # no preferred read replica
        return out + I32.pack(size)
    if aborted is None:
        out += b"\0"
    else:
        out += uvarint(len(aborted) + 1) + b"".join(_ABORTED.pack(*each) + b"\0" for each in aborted)
    return out + b"\xff\xff\xff\xff" + uvarint(size + 1)


def encode_partition_end(version: int, part: Fetched) -> bytes:
    """What follows a partition's records: its tagged fields."""
    if version < FLEXIBLE_FROM:
        return b""
    tags = b""
    count = 0
    if part.diverging is not None:
        tags += b"\x00\x0d" + _EPOCH_END.pack(*part.diverging) + b"\0"
        count += 1
    if part.leader is not None:
        tags += b"\x01\x09" + _SESSION.pack(*part.leader) + b"\0"
        count += 1
    return uvarint(count) + tags


def encode_topic_end(version: int) -> bytes:
    return b"\0" if version >= FLEXIBLE_FROM else b""


def encode_tail(version: int) -> bytes:
    return b"\0" if version >= FLEXIBLE_FROM else b""

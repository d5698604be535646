"""What classic consumers put into JoinGroup and SyncGroup, as far as the broker must understand it.

A classic group leaves this to its members; only when classic members live in a consumer group, and when a group goes
from one protocol to the other, does the broker read subscriptions and read and write assignments. A version newer than
the newest known one is read as that: what came later came at the end.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace.protocol.record_bytes import Cursor, RecordError, string
from headrace.protocol.wire import I16, I32

CONSUMER: Final = "consumer"  # the protocol type of consumers: the only one whose metadata the broker looks into
VERSION_MAX = 3


class EmbeddedSubscription(NamedTuple):
    version: int
    topics: tuple[str, ...]
    owned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    rack_id: str | None = None


def topics_of(metadata: bytes) -> list[str]:
    """Which topics a consumer asks for: the first part of its metadata, which is the same in every version. ValueError
    if it is none of a consumer's: other programs may put there what they like."""
    try:
        (count,) = I32.unpack_from(metadata, 2)
        at = 6
        if not 0 <= count <= len(metadata):
            raise ValueError(f"a subscription of {len(metadata)} bytes cannot hold {count} topics")
        topics = []
        for _ in range(count):
            (size,) = I16.unpack_from(metadata, at)
            at += 2
            if size < 0 or at + size > len(metadata):
                raise ValueError(f"a topic's name at byte {at} reaches beyond the subscription")
            topics.append(str(metadata[at : at + size], "utf-8"))
            at += size
    except struct.error as error:
        raise ValueError(f"a subscription of {len(metadata)} bytes is cut short") from error
    return topics


def read_subscription(metadata: bytes) -> EmbeddedSubscription:
    """ValueError if it is none."""
    try:
        cursor = Cursor(metadata)
        version = _version(cursor)
        topics = cursor.array(cursor.string, flexible=False)
        _user_data(cursor)
        owned = _partitions(cursor) if version >= 1 else ()
        if version >= 2:
            cursor.int32()  # the generation in which it owned them
        rack_id = cursor.nullable_string() if version >= 3 else None
    except (RecordError, UnicodeDecodeError) as error:
        raise ValueError(f"a subscription of {len(metadata)} bytes cannot be read: {error}") from None
    return EmbeddedSubscription(version, topics, owned, rack_id or None)


def read_assignment(assignment: bytes) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], bytes]:
    """Partitions by the topic's name, and what the assignor added for its members. ValueError if it is none."""
    if not assignment:
        return (), b""
    try:
        cursor = Cursor(assignment)
        _version(cursor)
        return _partitions(cursor), _user_data(cursor)
    except (RecordError, UnicodeDecodeError) as error:
        raise ValueError(f"an assignment of {len(assignment)} bytes cannot be read: {error}") from None


def write_assignment(partitions: Iterable[tuple[str, Iterable[int]]], version: int) -> bytes:
    parts = []
    for name, numbers in partitions:
        each = sorted(numbers)
        parts.append(string(name) + I32.pack(len(each)) + b"".join(map(I32.pack, each)))
    return I16.pack(min(version, VERSION_MAX)) + I32.pack(len(parts)) + b"".join(parts) + I32.pack(-1)


def _version(cursor: Cursor) -> int:
    version = cursor.int16()
    if version < 0:
        raise RecordError(f"version {version}")
    return min(version, VERSION_MAX)


def _partitions(cursor: Cursor) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return cursor.array(lambda: (cursor.string(), cursor.int32s()), flexible=False)


def _user_data(cursor: Cursor) -> bytes:
    """In one piece: members may put as much there as a request holds."""
    return cursor.nullable_bytes() or b""

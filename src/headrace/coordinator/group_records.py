"""The records of `__consumer_offsets`, byte for byte as Apache Kafka 4.3 writes and reads them.

A key begins with the number of its record type, a value with its version. Here are the two types that classic groups
need: a committed offset (keys 0 and 1) and a group's metadata (key 2); those of KIP-848 are in
`consumer/records`. `decode` and `encode` know them all. A value of None is a tombstone.

What Kafka 4.3 writes: offsets in version 4, with the topic's id in a tagged field unless the commit is part of a
transaction; in version 1 when the client gave the offset a lifetime of its own, which loses the leader epoch; group
metadata in version 3. Versions that older Kafkas wrote are read.
"""

import functools
import uuid
from struct import Struct
from typing import Final, NamedTuple

from headrace.coordinator.consumer import records as modern
from headrace.coordinator.consumer.reading import READERS
from headrace.coordinator.journal import Pair
from headrace.coordinator.placing import KEPT_CHARACTERS_MAX
from headrace.core.errors import InvariantError
from headrace.protocol.record_bytes import (
    NO_ID,
    NO_TAGS,
    NO_TEXT,
    Cursor,
    RecordError,
    byte_string,
    compact_string,
    nullable_string,
    string,
)
from headrace.protocol.wire import I16, I32, I64

OFFSET_COMMIT_LEGACY: Final = 0
OFFSET_COMMIT: Final = 1
GROUP_METADATA: Final = 2
OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_VERSION_WITH_LIFETIME: Final = 1
OFFSET_VALUE_VERSION_MAX: Final = 4
GROUP_VALUE_VERSION: Final = 3
GROUP_VALUE_VERSION_MAX: Final = 4
OFFSET_KEYS_MAX: Final = (
    10_000  # keys that are kept encoded: the same group commits the same partitions again and again
)
_OFFSET_KEY: Final = I16.pack(OFFSET_COMMIT)
_OFFSET_AND_EPOCH: Final = Struct(">hqi")  # with the version in front
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"  # one tagged field, number 0, 16 bytes


class CommittedOffset(NamedTuple):
    """Where a group is in a partition. The times are -1 where there is none; `expire_timestamp_ms` is old clients'."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: uuid.UUID | None = None


class MemberMetadata(NamedTuple):
    """A member of a classic group, as its coordinator writes it down."""

    member_id: str
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes
    group_instance_id: str | None = None


class GroupMetadata(NamedTuple):
    """A classic group after a rebalance, or when it became empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


class OffsetCommitRecord(NamedTuple):
    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


class GroupMetadataRecord(NamedTuple):
    group_id: str
    value: GroupMetadata | None


class UnknownRecord(NamedTuple):
    """Of a type that we do not have: share groups, streams groups, or a newer Kafka. Kafka passes over them too."""

    record_type: int


GroupRecord = OffsetCommitRecord | GroupMetadataRecord | modern.ConsumerGroupRecord | UnknownRecord


def decode(key: bytes, value: bytes | None) -> GroupRecord:
    """Raises `RecordError` if the bytes are not what they say they are."""
    cursor = Cursor(key)
    record_type = cursor.int16()
    if record_type in (OFFSET_COMMIT, OFFSET_COMMIT_LEGACY):
        group_id, topic, partition = cursor.string(), cursor.string(), cursor.int32()
        committed = None if value is None else decode_committed_offset(value)
        return OffsetCommitRecord(group_id, topic, partition, committed)
    if record_type == GROUP_METADATA:
        return GroupMetadataRecord(cursor.string(), None if value is None else decode_group_metadata(value))
    reader = READERS.get(record_type)
    if reader is None:
        return UnknownRecord(record_type)
    return reader(cursor, None if value is None else Cursor(value))


def encode(record: GroupRecord) -> Pair:
    """The key and the value, as Kafka 4.3 would write them, whichever version they were read from."""
    match record:
        case OffsetCommitRecord():
            return encode_offset_commit(*record)
        case GroupMetadataRecord():
            return encode_group_metadata(*record)
        case modern.ConsumerGroupMetadataRecord():
            return modern.encode_group_epoch(*record)
        case modern.ConsumerGroupPartitionMetadataRecord():
            return modern.encode_partition_metadata(*record)
        case modern.ConsumerGroupMemberMetadataRecord():
            return modern.encode_member(*record)
        case modern.TargetAssignmentMetadataRecord():
            return modern.encode_target_epoch(*record)
        case modern.TargetAssignmentMemberRecord():
            return modern.encode_target_member(*record)
        case modern.CurrentMemberAssignmentRecord():
            return modern.encode_current_assignment(*record)
        case modern.RegularExpressionRecord():
            return modern.encode_regular_expression(*record)
        case UnknownRecord():
            raise InvariantError(f"a record of type {record.record_type} was read only to be passed over")


# ── a committed offset ───────────────────────────────────────────────────────────────────────────────────────────────


def encode_offset_commit(group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> Pair:
    if len(group_id) <= KEPT_CHARACTERS_MAX:
        key = _offset_key(group_id, topic, partition)
    else:
        key = _make_offset_key(group_id, topic, partition)
    return key, None if committed is None else encode_committed_offset(committed)


def _make_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _OFFSET_KEY + string(group_id) + string(topic) + I32.pack(partition)


_offset_key = functools.lru_cache(maxsize=OFFSET_KEYS_MAX)(_make_offset_key)


def encode_committed_offset(committed: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id = committed
    if expire_timestamp_ms != -1:
        version = I16.pack(OFFSET_VALUE_VERSION_WITH_LIFETIME)
        return version + I64.pack(offset) + string(metadata) + _two_times(commit_timestamp_ms, expire_timestamp_ms)
    tags = NO_TAGS if topic_id is None or topic_id == NO_ID else _TOPIC_ID_TAG + topic_id.bytes
    where = _OFFSET_AND_EPOCH.pack(OFFSET_VALUE_VERSION, offset, leader_epoch)
    return where + (compact_string(metadata) if metadata else NO_TEXT) + I64.pack(commit_timestamp_ms) + tags


def _two_times(first_ms: int, second_ms: int) -> bytes:
    return I64.pack(first_ms) + I64.pack(second_ms)


def decode_committed_offset(value: bytes) -> CommittedOffset:
    cursor = Cursor(value)
    version = cursor.int16()
    if not 0 <= version <= OFFSET_VALUE_VERSION_MAX:
        raise RecordError(
            f"offset commit value of version {version}; versions up to {OFFSET_VALUE_VERSION_MAX} are read"
        )
    offset = cursor.int64()
    leader_epoch = cursor.int32() if version >= 3 else -1
    metadata = cursor.string(flexible=version >= 4)
    commit_timestamp_ms = cursor.int64()
    expire_timestamp_ms = cursor.int64() if version == 1 else -1
    topic_id = None
    if version >= 4 and (tagged := cursor.tags().get(0)) is not None:
        topic_id = tagged.uuid()
    return CommittedOffset(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, topic_id)


# ── a classic group ──────────────────────────────────────────────────────────────────────────────────────────────────


def encode_group_metadata(group_id: str, group: GroupMetadata | None, members: list[bytes] | None = None) -> Pair:
    """`members`: the group's, if they are encoded already."""
    key = I16.pack(GROUP_METADATA) + string(group_id)
    if group is None:
        return key, None
    parts = [
        I16.pack(GROUP_VALUE_VERSION),
        string(group.protocol_type),
        I32.pack(group.generation),
        nullable_string(group.protocol),
        nullable_string(group.leader),
        I64.pack(group.current_state_timestamp_ms),
        I32.pack(len(group.members)),
    ]
    parts.extend(map(encode_member, group.members) if members is None else members)
    return key, b"".join(parts)


def encode_member(member: MemberMetadata) -> bytes:
    who = string(member.member_id) + nullable_string(member.group_instance_id)
    where = string(member.client_id) + string(member.client_host)
    times = I32.pack(member.rebalance_timeout_ms) + I32.pack(member.session_timeout_ms)
    return who + where + times + byte_string(member.subscription) + byte_string(member.assignment)


def decode_group_metadata(value: bytes) -> GroupMetadata:
    cursor = Cursor(value)
    version = cursor.int16()
    if not 0 <= version <= GROUP_VALUE_VERSION_MAX:
        raise RecordError(
            f"group metadata value of version {version}; versions up to {GROUP_VALUE_VERSION_MAX} are read"
        )
    flexible = version >= 4

    def member() -> MemberMetadata:
        member_id = cursor.string(flexible=flexible)
        instance_id = cursor.nullable_string(flexible=flexible) if version >= 3 else None
        client_id, client_host = cursor.string(flexible=flexible), cursor.string(flexible=flexible)
        rebalance_timeout_ms = cursor.int32() if version >= 1 else -1
        session_timeout_ms = cursor.int32()
        subscription, assignment = cursor.bytes(flexible=flexible), cursor.bytes(flexible=flexible)
        if flexible:
            cursor.tags()
        times = (rebalance_timeout_ms, session_timeout_ms)
        return MemberMetadata(member_id, client_id, client_host, *times, subscription, assignment, instance_id)

    protocol_type, generation = cursor.string(flexible=flexible), cursor.int32()
    protocol, leader = cursor.nullable_string(flexible=flexible), cursor.nullable_string(flexible=flexible)
    current_state_timestamp_ms = cursor.int64() if version >= 2 else -1
    members = cursor.array(member, flexible=flexible)
    if flexible:
        cursor.tags()
    return GroupMetadata(protocol_type, generation, protocol, leader, current_state_timestamp_ms, members)

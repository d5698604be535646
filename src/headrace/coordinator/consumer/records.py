"""The records of KIP-848 groups in `__consumer_offsets`, byte for byte as Apache Kafka 4.3 writes and reads them.

A group's epoch (key 3), what it knew of its topics (4, which Kafka wrote before 4.1 and now only deletes), a member
(5), the epoch of the target assignment (6), a member's part of it (7), what a member has now (8), and what a regular
expression stands for (16). Every value is of version 0; what came later came in tagged fields. They are read
by `reading`.
"""

import uuid
from typing import Final, NamedTuple

from headrace.coordinator.journal import Pair
from headrace.protocol.record_bytes import (
    NO_TAGS,
    compact_array,
    compact_bytes,
    compact_ints,
    compact_string,
    string,
    tags,
)
from headrace.protocol.wire import I16, I32, I64

CONSUMER_GROUP_METADATA: Final = 3
CONSUMER_GROUP_PARTITION_METADATA: Final = 4
CONSUMER_GROUP_MEMBER_METADATA: Final = 5
CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: Final = 6
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: Final = 7
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: Final = 8
CONSUMER_GROUP_REGULAR_EXPRESSION: Final = 16
_VALUE_VERSION: Final = b"\x00\x00"


# ── the values ───────────────────────────────────────────────────────────────────────────────────────────────────────


class ConsumerGroupMetadata(NamedTuple):
    epoch: int
    metadata_hash: int = 0  # over the subscribed topics; another hash is a reason to assign again


class TopicMetadata(NamedTuple):
    topic_id: uuid.UUID
    name: str
    partition_count: int
    partition_racks: tuple[tuple[int, tuple[str, ...]], ...] = ()


class ConsumerGroupPartitionMetadata(NamedTuple):
    topics: tuple[TopicMetadata, ...]


class ClassicProtocol(NamedTuple):
    name: str
    metadata: bytes


class ClassicMemberMetadata(NamedTuple):
    """What a consumer brought along that speaks the classic protocol to a group of the new kind."""

    session_timeout_ms: int = 0
    supported_protocols: tuple[ClassicProtocol, ...] = ()


class ConsumerGroupMemberMetadata(NamedTuple):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = None


class TargetAssignmentMetadata(NamedTuple):
    assignment_epoch: int
    assignment_timestamp_ms: int = 0  # when it had been worked out (KIP-1263)


class TopicPartitions(NamedTuple):
    topic_id: uuid.UUID
    partitions: tuple[int, ...]


class TargetAssignmentMember(NamedTuple):
    topic_partitions: tuple[TopicPartitions, ...]


class HeldPartitions(NamedTuple):
    """Partitions that a member has, and the epoch in which it got each: a commit of an older epoch is a zombie's."""

    topic_id: uuid.UUID
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] | None = ()


class CurrentMemberAssignment(NamedTuple):
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[HeldPartitions, ...]
    partitions_pending_revocation: tuple[HeldPartitions, ...] = ()


class RegularExpression(NamedTuple):
    topics: tuple[str, ...]
    version: int  # of the metadata in which it was resolved
    timestamp_ms: int


# ── the records ──────────────────────────────────────────────────────────────────────────────────────────────────────


class ConsumerGroupMetadataRecord(NamedTuple):
    group_id: str
    value: ConsumerGroupMetadata | None


class ConsumerGroupPartitionMetadataRecord(NamedTuple):
    group_id: str
    value: ConsumerGroupPartitionMetadata | None


class ConsumerGroupMemberMetadataRecord(NamedTuple):
    group_id: str
    member_id: str
    value: ConsumerGroupMemberMetadata | None


class TargetAssignmentMetadataRecord(NamedTuple):
    group_id: str
    value: TargetAssignmentMetadata | None


class TargetAssignmentMemberRecord(NamedTuple):
    group_id: str
    member_id: str
    value: TargetAssignmentMember | None


class CurrentMemberAssignmentRecord(NamedTuple):
    group_id: str
    member_id: str
    value: CurrentMemberAssignment | None


class RegularExpressionRecord(NamedTuple):
    group_id: str
    regular_expression: str
    value: RegularExpression | None


ConsumerGroupRecord = (
    ConsumerGroupMetadataRecord
    | ConsumerGroupPartitionMetadataRecord
    | ConsumerGroupMemberMetadataRecord
    | TargetAssignmentMetadataRecord
    | TargetAssignmentMemberRecord
    | CurrentMemberAssignmentRecord
    | RegularExpressionRecord
)


# ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode_group_epoch(group_id: str, group: ConsumerGroupMetadata | None) -> Pair:
    key = _key(CONSUMER_GROUP_METADATA, group_id)
    if group is None:
        return key, None
    hashed = [(0, I64.pack(group.metadata_hash))] if group.metadata_hash else []
    return key, _VALUE_VERSION + I32.pack(group.epoch) + tags(hashed)


def encode_partition_metadata(group_id: str, known: ConsumerGroupPartitionMetadata | None) -> Pair:
    key = _key(CONSUMER_GROUP_PARTITION_METADATA, group_id)
    if known is None:
        return key, None
    topics = [
        topic.topic_id.bytes
        + compact_string(topic.name)
        + I32.pack(topic.partition_count)
        + compact_array([I32.pack(index) + _strings(racks) + NO_TAGS for index, racks in topic.partition_racks])
        + NO_TAGS
        for topic in known.topics
    ]
    return key, _VALUE_VERSION + compact_array(topics) + NO_TAGS


def encode_member(group_id: str, member_id: str, member: ConsumerGroupMemberMetadata | None) -> Pair:
    key = _key(CONSUMER_GROUP_MEMBER_METADATA, group_id, member_id)
    if member is None:
        return key, None
    who = compact_string(member.instance_id) + compact_string(member.rack_id)
    where = compact_string(member.client_id) + compact_string(member.client_host)
    wants = _strings(member.subscribed_topic_names) + compact_string(member.subscribed_topic_regex)
    terms = I32.pack(member.rebalance_timeout_ms) + compact_string(member.server_assignor)
    return key, _VALUE_VERSION + who + where + wants + terms + _classic_tag(member.classic_member_metadata)


def _classic_tag(classic: ClassicMemberMetadata | None) -> bytes:
    """By a slip in Kafka's schema the default is an empty one, not null, so null is what must be written out."""
    if classic is None:
        return tags([(0, b"\x00")])
    if classic == ClassicMemberMetadata():
        return NO_TAGS
    protocols = [
        compact_string(each.name) + compact_bytes(each.metadata) + NO_TAGS for each in classic.supported_protocols
    ]
    return tags([(0, b"\x01" + I32.pack(classic.session_timeout_ms) + compact_array(protocols) + NO_TAGS)])


def encode_target_epoch(group_id: str, target: TargetAssignmentMetadata | None) -> Pair:
    key = _key(CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, group_id)
    if target is None:
        return key, None
    timed = [(0, I64.pack(target.assignment_timestamp_ms))] if target.assignment_timestamp_ms else []
    return key, _VALUE_VERSION + I32.pack(target.assignment_epoch) + tags(timed)


def encode_target_member(group_id: str, member_id: str, target: TargetAssignmentMember | None) -> Pair:
    key = _key(CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, group_id, member_id)
    if target is None:
        return key, None
    topics = [each.topic_id.bytes + compact_ints(each.partitions) + NO_TAGS for each in target.topic_partitions]
    return key, _VALUE_VERSION + compact_array(topics) + NO_TAGS


def encode_current_assignment(group_id: str, member_id: str, current: CurrentMemberAssignment | None) -> Pair:
    key = _key(CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, group_id, member_id)
    if current is None:
        return key, None
    epochs = I32.pack(current.member_epoch) + I32.pack(current.previous_member_epoch) + bytes((current.state,))
    held = compact_array([_held(each) for each in current.assigned_partitions])
    going = compact_array([_held(each) for each in current.partitions_pending_revocation])
    return key, _VALUE_VERSION + epochs + held + going + NO_TAGS


def _held(held: HeldPartitions) -> bytes:
    epochs = held.assignment_epochs
    if epochs is None:
        tagged = tags([(0, b"\x00")])  # as with `_classic_tag`: null is written out, an empty list is not
    else:
        tagged = tags([(0, compact_ints(epochs))]) if epochs else NO_TAGS
    return held.topic_id.bytes + compact_ints(held.partitions) + tagged


def encode_regular_expression(group_id: str, expression: str, resolved: RegularExpression | None) -> Pair:
    key = _key(CONSUMER_GROUP_REGULAR_EXPRESSION, group_id, expression)
    if resolved is None:
        return key, None
    times = I64.pack(resolved.version) + I64.pack(resolved.timestamp_ms)
    return key, _VALUE_VERSION + _strings(resolved.topics) + times + NO_TAGS


def _key(record_type: int, *names: str) -> bytes:
    return I16.pack(record_type) + b"".join(map(string, names))


def _strings(texts: tuple[str, ...]) -> bytes:
    return compact_array([compact_string(text) for text in texts])

"""Reading what `records` writes: `READERS` has, for each record type, how its key and value are read.

Tagged fields that we do not know are passed over. One that is absent has its default, which for two
of them is not what one would think: see there.
"""

from collections.abc import Callable

from headrace.coordinator.consumer import records
from headrace.protocol.record_bytes import Cursor, RecordError

Reader = Callable[[Cursor, Cursor | None], records.ConsumerGroupRecord]


def _value(cursor: Cursor | None, what: str) -> Cursor | None:
    """The cursor behind the version of the value; None for a tombstone."""
    if cursor is not None and (version := cursor.int16()) != 0:
        raise RecordError(f"{what} value of version {version}; only version 0 is read")
    return cursor


def _flexible_string(cursor: Cursor) -> str:
    return cursor.string(flexible=True)


def _strings(cursor: Cursor) -> tuple[str, ...]:
    return cursor.array(lambda: _flexible_string(cursor))


def _group_epoch(key: Cursor, value: Cursor | None) -> records.ConsumerGroupMetadataRecord:
    group_id = key.string()
    if (cursor := _value(value, "consumer group metadata")) is None:
        return records.ConsumerGroupMetadataRecord(group_id, None)
    epoch = cursor.int32()
    hashed = cursor.tags().get(0)
    group = records.ConsumerGroupMetadata(epoch, 0 if hashed is None else hashed.int64())
    return records.ConsumerGroupMetadataRecord(group_id, group)


def _partition_metadata(key: Cursor, value: Cursor | None) -> records.ConsumerGroupPartitionMetadataRecord:
    group_id = key.string()
    cursor = _value(value, "consumer group partition metadata")
    if cursor is None:
        return records.ConsumerGroupPartitionMetadataRecord(group_id, None)

    def racks() -> tuple[int, tuple[str, ...]]:
        found = cursor.int32(), _strings(cursor)
        cursor.tags()
        return found

    def topic() -> records.TopicMetadata:
        found = records.TopicMetadata(cursor.uuid(), _flexible_string(cursor), cursor.int32(), cursor.array(racks))
        cursor.tags()
        return found

    known = records.ConsumerGroupPartitionMetadata(cursor.array(topic))
    cursor.tags()
    return records.ConsumerGroupPartitionMetadataRecord(group_id, known)


def _member(key: Cursor, value: Cursor | None) -> records.ConsumerGroupMemberMetadataRecord:
    group_id, member_id = key.string(), key.string()
    if (cursor := _value(value, "consumer group member metadata")) is None:
        return records.ConsumerGroupMemberMetadataRecord(group_id, member_id, None)
    member = records.ConsumerGroupMemberMetadata(
        instance_id=cursor.nullable_string(flexible=True),
        rack_id=cursor.nullable_string(flexible=True),
        client_id=_flexible_string(cursor),
        client_host=_flexible_string(cursor),
        subscribed_topic_names=_strings(cursor),
        subscribed_topic_regex=cursor.nullable_string(flexible=True),
        rebalance_timeout_ms=cursor.int32(),
        server_assignor=cursor.nullable_string(flexible=True),
        classic_member_metadata=_classic(cursor.tags().get(0)),
    )
    return records.ConsumerGroupMemberMetadataRecord(group_id, member_id, member)


def _classic(cursor: Cursor | None) -> records.ClassicMemberMetadata | None:
    if cursor is None:
        return records.ClassicMemberMetadata()
    if cursor.int8() <= 0:
        return None

    def protocol() -> records.ClassicProtocol:
        found = records.ClassicProtocol(_flexible_string(cursor), cursor.bytes(flexible=True))
        cursor.tags()
        return found

    classic = records.ClassicMemberMetadata(cursor.int32(), cursor.array(protocol))
    cursor.tags()
    return classic


def _target_epoch(key: Cursor, value: Cursor | None) -> records.TargetAssignmentMetadataRecord:
    group_id = key.string()
    if (cursor := _value(value, "target assignment metadata")) is None:
        return records.TargetAssignmentMetadataRecord(group_id, None)
    epoch = cursor.int32()
    timed = cursor.tags().get(0)
    target = records.TargetAssignmentMetadata(epoch, 0 if timed is None else timed.int64())
    return records.TargetAssignmentMetadataRecord(group_id, target)


def _target_member(key: Cursor, value: Cursor | None) -> records.TargetAssignmentMemberRecord:
    group_id, member_id = key.string(), key.string()
    cursor = _value(value, "target assignment member")
    if cursor is None:
        return records.TargetAssignmentMemberRecord(group_id, member_id, None)

    def topic() -> records.TopicPartitions:
        found = records.TopicPartitions(cursor.uuid(), cursor.array(cursor.int32))
        cursor.tags()
        return found

    target = records.TargetAssignmentMember(cursor.array(topic))
    cursor.tags()
    return records.TargetAssignmentMemberRecord(group_id, member_id, target)


def _current_assignment(key: Cursor, value: Cursor | None) -> records.CurrentMemberAssignmentRecord:
    group_id, member_id = key.string(), key.string()
    cursor = _value(value, "current member assignment")
    if cursor is None:
        return records.CurrentMemberAssignmentRecord(group_id, member_id, None)

    def held() -> records.HeldPartitions:
        topic_id, partitions = cursor.uuid(), cursor.array(cursor.int32)
        epochs = cursor.tags().get(0)
        return records.HeldPartitions(
            topic_id, partitions, () if epochs is None else epochs.nullable_array(epochs.int32)
        )

    member_epoch, previous_member_epoch, state = cursor.int32(), cursor.int32(), cursor.int8()
    current = records.CurrentMemberAssignment(
        member_epoch, previous_member_epoch, state, cursor.array(held), cursor.array(held)
    )
    cursor.tags()
    return records.CurrentMemberAssignmentRecord(group_id, member_id, current)


def _regular_expression(key: Cursor, value: Cursor | None) -> records.RegularExpressionRecord:
    group_id, expression = key.string(), key.string()
    if (cursor := _value(value, "regular expression")) is None:
        return records.RegularExpressionRecord(group_id, expression, None)
    resolved = records.RegularExpression(_strings(cursor), cursor.int64(), cursor.int64())
    cursor.tags()
    return records.RegularExpressionRecord(group_id, expression, resolved)


READERS: dict[int, Reader] = {
    records.CONSUMER_GROUP_METADATA: _group_epoch,
    records.CONSUMER_GROUP_PARTITION_METADATA: _partition_metadata,
    records.CONSUMER_GROUP_MEMBER_METADATA: _member,
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: _target_epoch,
    records.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: _target_member,
    records.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: _current_assignment,
    records.CONSUMER_GROUP_REGULAR_EXPRESSION: _regular_expression,
}

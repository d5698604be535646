"""Between the changes of a consumer group and the records of `__consumer_offsets` that say the same."""

from headrace.coordinator.consumer import records
from headrace.coordinator.consumer.changes import (
    Change,
    CurrentChange,
    EpochChange,
    PatternChange,
    SubscriptionChange,
    TargetChange,
    TargetEpochChange,
    TopicsForgotten,
)
from headrace.coordinator.consumer.member import (
    ClassicMember,
    CurrentAssignment,
    MemberState,
    Owned,
    Partitions,
    Subscription,
)
from headrace.coordinator.journal import Pair


def encode_change(group_id: str, change: Change) -> Pair:
    if isinstance(change, EpochChange):
        epoch = None if change.epoch is None else records.ConsumerGroupMetadata(change.epoch, change.metadata_hash)
        return records.encode_group_epoch(group_id, epoch)
    if isinstance(change, SubscriptionChange):
        member = None if change.subscription is None else _member(change.subscription)
        return records.encode_member(group_id, change.member_id, member)
    if isinstance(change, TargetEpochChange):
        metadata = None if change.epoch is None else records.TargetAssignmentMetadata(change.epoch, change.timestamp_ms)
        return records.encode_target_epoch(group_id, metadata)
    if isinstance(change, TargetChange):
        target = None if change.partitions is None else _target(change.partitions)
        return records.encode_target_member(group_id, change.member_id, target)
    if isinstance(change, CurrentChange):
        current = None if change.current is None else _current(change.current)
        return records.encode_current_assignment(group_id, change.member_id, current)
    if isinstance(change, PatternChange):
        topics = None if change.topics is None else tuple(sorted(change.topics))
        resolved = None if topics is None else records.RegularExpression(topics, change.version, change.timestamp_ms)
        return records.encode_regular_expression(group_id, change.pattern, resolved)
    return records.encode_partition_metadata(group_id, None)


def _member(subscription: Subscription) -> records.ConsumerGroupMemberMetadata:
    classic = subscription.classic
    return records.ConsumerGroupMemberMetadata(
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=tuple(sorted(subscription.topics)),
        subscribed_topic_regex=subscription.pattern,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        server_assignor=subscription.server_assignor,
        classic_member_metadata=None
        if classic is None
        else records.ClassicMemberMetadata(
            classic.session_timeout_ms, tuple(records.ClassicProtocol(*each) for each in classic.protocols)
        ),
    )


def _target(partitions: Partitions) -> records.TargetAssignmentMember:
    return records.TargetAssignmentMember(
        tuple(records.TopicPartitions(topic_id, tuple(sorted(each))) for topic_id, each in partitions.items())
    )


def _current(current: CurrentAssignment) -> records.CurrentMemberAssignment:
    return records.CurrentMemberAssignment(
        current.epoch, current.previous_epoch, int(current.state), _held(current.assigned), _held(current.revoking)
    )


def _held(owned: Owned) -> tuple[records.HeldPartitions, ...]:
    found = []
    for topic_id, held in owned.items():
        partitions = tuple(sorted(held))
        found.append(records.HeldPartitions(topic_id, partitions, tuple([held[each] for each in partitions])))
    return tuple(found)


def change_of(record: records.ConsumerGroupRecord) -> Change:
    """The change that a record tells of."""
    if isinstance(record, records.ConsumerGroupMetadataRecord):
        group = record.value
        return EpochChange(None) if group is None else EpochChange(group.epoch, group.metadata_hash)
    if isinstance(record, records.ConsumerGroupMemberMetadataRecord):
        member = record.value
        return SubscriptionChange(record.member_id, None if member is None else _subscription(member))
    if isinstance(record, records.TargetAssignmentMetadataRecord):
        metadata = record.value
        if metadata is None:
            return TargetEpochChange(None)
        return TargetEpochChange(metadata.assignment_epoch, metadata.assignment_timestamp_ms)
    if isinstance(record, records.TargetAssignmentMemberRecord):
        target = record.value
        if target is None:
            return TargetChange(record.member_id, None)
        return TargetChange(record.member_id, {each.topic_id: frozenset(each.partitions) for each in target[0]})
    if isinstance(record, records.CurrentMemberAssignmentRecord):
        current = record.value
        return CurrentChange(record.member_id, None if current is None else _assignment(current))
    if isinstance(record, records.RegularExpressionRecord):
        resolved = record.value
        if resolved is None:
            return PatternChange(record.regular_expression, None)
        topics = frozenset(resolved.topics)
        return PatternChange(record.regular_expression, topics, resolved.version, resolved.timestamp_ms)
    return TopicsForgotten()  # what brokers before 4.1 knew of their topics is computed again


def _subscription(member: records.ConsumerGroupMemberMetadata) -> Subscription:
    classic = member.classic_member_metadata
    return Subscription(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(member.subscribed_topic_names),
        pattern=member.subscribed_topic_regex or "",
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic=None
        if classic is None
        else ClassicMember(
            classic.session_timeout_ms, tuple((each.name, each.metadata) for each in classic.supported_protocols)
        ),
    )


def _assignment(current: records.CurrentMemberAssignment) -> CurrentAssignment:
    known = current.state in MemberState.__members__.values()
    return CurrentAssignment(
        epoch=current.member_epoch,
        previous_epoch=current.previous_member_epoch,
        state=MemberState(current.state) if known else MemberState.UNKNOWN,
        assigned=_owned(current.assigned_partitions, current.member_epoch),
        revoking=_owned(current.partitions_pending_revocation, current.member_epoch),
    )


def _owned(held: tuple[records.HeldPartitions, ...], epoch: int) -> Owned:
    """Brokers before 4.3 did not write since when a member has a partition: since now, then."""
    found = {}
    for topic_id, partitions, epochs in held:
        if epochs is None or len(epochs) != len(partitions):
            epochs = (max(epoch, 0),) * len(partitions)
        found[topic_id] = dict(zip(partitions, epochs, strict=True))
    return found

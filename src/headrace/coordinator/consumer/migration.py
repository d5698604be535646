"""A group goes from the classic protocol to the consumer protocol, and back, while it is in use.

Up: when the first member of the new kind joins a classic group whose members are consumers. Everyone keeps what it had;
the classic members go on with JoinGroup, SyncGroup and Heartbeat. Down: when the last member of the new kind has gone.
`group.consumer.migration.policy` says which of the two may happen.
"""

import uuid
from collections.abc import Collection, Iterable, Set

from headrace.coordinator.consumer.changes import (
    Change,
    CurrentChange,
    EpochChange,
    SubscriptionChange,
    TargetChange,
    TargetEpochChange,
)
from headrace.coordinator.consumer.member import (
    ClassicMember,
    ConsumerGroupMember,
    CurrentAssignment,
    Partitions,
    Subscription,
    with_epoch,
)
from headrace.coordinator.consumer.requests import ClassicSeed, ClassicSeedMember
from headrace.coordinator.consumer.subscription_counts import topics_digest
from headrace.coordinator.consumer.table import ConsumerGroupTable
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.topic_view import TopicView, by_name, by_topic_id
from headrace.core.errors import PeerError
from headrace.protocol.consumer_protocol import (
    CONSUMER,
    read_assignment,
    read_subscription,
    write_assignment,
)
from headrace.protocol.error_codes import GROUP_ID_NOT_FOUND


def may_become_classic(
    table: ConsumerGroupTable, leaving: Collection[ConsumerGroupMember], settings: GroupSettings
) -> bool:
    staying = len(table.members) - len(leaving)
    classic_staying = table.counts.classic - sum(member.is_classic for member in leaving)
    return classic_staying == staying and 0 < staying <= settings.max_size and may_downgrade(settings)


def may_downgrade(settings: GroupSettings) -> bool:
    return settings.consumer_migration_policy in ("bidirectional", "downgrade")


def seed(
    table: ConsumerGroupTable,
    leaving: Set[str],
    topics: TopicView,
    *,
    must_rebalance: bool = True,
) -> ClassicSeed:
    """The classic group that the members who stay make up, each with what it was to have."""
    members = []
    for member in table.members.values():
        subscription, classic = member.subscription, member.subscription.classic
        if member.member_id in leaving or classic is None:
            continue
        version = read_subscription(classic.protocols[0][1]).version
        members.append(
            ClassicSeedMember(
                member.member_id,
                subscription.instance_id,
                subscription.client_id,
                subscription.client_host,
                subscription.rebalance_timeout_ms,
                classic.session_timeout_ms,
                classic.protocols,
                write_assignment(by_name(table.targets.get(member.member_id, {}), topics), version),
            )
        )
    return ClassicSeed(table.epochs.group, tuple(members), must_rebalance)


def check_upgrade(group_id: str, protocol_type: str | None, member_count: int, settings: GroupSettings) -> None:
    """Whether a classic group with members may become a consumer group."""
    if settings.consumer_migration_policy not in ("bidirectional", "upgrade"):
        raise _no_upgrade(group_id, "online upgrade is disabled")
    if protocol_type != CONSUMER:
        raise _no_upgrade(group_id, "the group does not use the consumer embedded protocol")
    if member_count > settings.consumer_max_size:
        raise _no_upgrade(group_id, "the group size exceeds the consumer group maximum size")


def upgrade_changes(
    group_id: str, generation: int, protocol_name: str | None, members: Iterable[ClassicSeedMember], topics: TopicView
) -> list[Change]:
    """What makes a consumer group of a classic one, in Kafka's order. A partition that the leader gave to two stays
    with the first."""
    subscriptions: list[Change] = []
    targets: list[Change] = []
    currents: list[Change] = []
    names: set[str] = set()
    taken: set[tuple[uuid.UUID, int]] = set()
    for member in members:
        subscription, partitions = _read(group_id, member, protocol_name, topics)
        names |= subscription.topics
        mine = {
            topic_id: frozenset(each for each in numbers if (topic_id, each) not in taken)
            for topic_id, numbers in partitions.items()
        }
        taken |= {(topic_id, each) for topic_id, numbers in mine.items() for each in numbers}
        subscriptions.append(SubscriptionChange(member.member_id, subscription))
        targets.append(TargetChange(member.member_id, mine))
        current = CurrentAssignment(epoch=generation, previous_epoch=generation, assigned=with_epoch(mine, generation))
        currents.append(CurrentChange(member.member_id, current))
    epoch = EpochChange(generation, topics_digest(names, topics))
    return [*subscriptions, epoch, *targets, TargetEpochChange(generation), *currents]


def _read(
    group_id: str, member: ClassicSeedMember, protocol_name: str | None, topics: TopicView
) -> tuple[Subscription, Partitions]:
    metadata = next((data for name, data in member.protocols if name == protocol_name), member.protocols[0][1])
    try:
        embedded = read_subscription(metadata)
        partitions, user_data = read_assignment(member.assignment)
    except ValueError:
        raise _no_upgrade(group_id, "the embedded consumer protocol is malformed") from None
    if user_data:
        raise _no_upgrade(
            group_id,
            "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default"
            " assignor before re-attempting the upgrade",
        )
    subscription = Subscription(
        instance_id=member.instance_id,
        rack_id=embedded.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=frozenset(embedded.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMember(member.session_timeout_ms, tuple(member.protocols)),
    )
    return subscription, by_topic_id(partitions, topics)


def _no_upgrade(group_id: str, why: str) -> PeerError:
    return PeerError(GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {why}.")

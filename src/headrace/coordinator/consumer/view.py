"""What is said of a consumer group to those who ask: ConsumerGroupDescribe and ListGroups."""

import uuid
from collections.abc import Mapping

from headrace.coordinator.consumer.member import ConsumerGroupMember, Partitions
from headrace.coordinator.consumer.state import ConsumerGroup
from headrace.coordinator.consumer.target_assignment import preferred_assignor
from headrace.coordinator.topic_view import TopicView
from headrace.core.errors import PeerError
from headrace.protocol.consumer_protocol import CONSUMER
from headrace.protocol.error_codes import NONE

Body = Mapping[str, object]
GROUP_TYPE = "consumer"
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def described(group: ConsumerGroup) -> Body:
    table = group.table
    return {
        "error_code": NONE,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": table.state(),
        "group_epoch": table.epochs.group,
        "assignment_epoch": table.epochs.target,
        "assignor_name": preferred_assignor(table, group.settings.consumer_assignors),
        "members": [
            _member(member, table.targets.get(member.member_id, {}), group.topic_view)
            for member in table.members.values()
        ],
    }


def undescribed(group_id: str, error: PeerError) -> Body:
    return {
        "error_code": error.code,
        "error_message": error.message or None,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


def listed(group: ConsumerGroup) -> Body:
    return {
        "group_id": group.group_id,
        "protocol_type": CONSUMER,
        "group_state": group.table.state(),
        "group_type": GROUP_TYPE,
    }


def _member(member: ConsumerGroupMember, target: Partitions, topics: TopicView) -> Body:
    """What it is giving up it still has."""
    held: dict[uuid.UUID, frozenset[int]] = {}
    for owned in (member.current.assigned, member.current.revoking):
        for topic_id, partitions in owned.items():
            held[topic_id] = held.get(topic_id, frozenset()) | partitions.keys()
    wanted = member.subscription
    return {
        "member_id": member.member_id,
        "instance_id": wanted.instance_id,
        "rack_id": wanted.rack_id,
        "member_epoch": member.epoch,
        "client_id": wanted.client_id,
        "client_host": wanted.client_host,
        "subscribed_topic_names": sorted(wanted.topics),
        "subscribed_topic_regex": wanted.pattern,
        "assignment": _named(held, topics),
        "target_assignment": _named(target, topics),
        "member_type": CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    }


def _named(partitions: Partitions, topics: TopicView) -> Body:
    named = [(topic_id, topics.name_of(topic_id), numbers) for topic_id, numbers in partitions.items()]
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": name, "partitions": sorted(numbers)}
            for topic_id, name, numbers in named
            if name is not None
        ]
    }

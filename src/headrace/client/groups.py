"""What a cluster knows about its consumer groups, of the classic protocol and of the newer one."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.client.cluster import BrokerAddress, ClusterClient
from headrace.client.errors import KafkaError, check
from headrace.client.offsets import PartitionName
from headrace.protocol.api_keys import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS, LIST_GROUPS, OFFSET_FETCH
from headrace.protocol.consumer_protocol import CONSUMER
from headrace.protocol.error_codes import GROUP_ID_NOT_FOUND, UNSUPPORTED_VERSION

_BY_NAME_MAX = 9  # later versions of OffsetFetch and OffsetCommit name topics by id
_UPGRADED = {0: False, 1: True}


class ListedGroup(NamedTuple):
    group: str
    type: str
    state: str


class MemberFacts(NamedTuple):
    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[PartitionName, ...]
    target: tuple[PartitionName, ...] = ()
    epoch: int | None = None
    upgraded: bool | None = None


class GroupDetails(NamedTuple):
    group: str
    state: str
    assignor: str
    coordinator: BrokerAddress
    members: tuple[MemberFacts, ...]
    epoch: int | None = None
    target_epoch: int | None = None


class Committed(NamedTuple):
    offset: int
    leader_epoch: int | None
    metadata: str


def list_groups(cluster: ClusterClient, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
    """Every broker's consumer groups, by name."""
    states, types = list(states), list(types) or ["classic", "consumer"]
    found: dict[str, ListedGroup] = {}
    for node_id in cluster.nodes():
        connection = cluster.at(node_id)

        def ask(connection: Any = connection) -> Any:
            answer = connection.call(LIST_GROUPS, {"states_filter": states, "types_filter": types})
            check(answer.error_code)
            return answer

        for each in cluster.patiently(ask).groups:
            if each.protocol_type in ("", CONSUMER):
                kind = getattr(each, "group_type", "") or "Unknown"
                state = getattr(each, "group_state", "") or "Unknown"
                found[each.group_id] = ListedGroup(each.group_id, kind.capitalize(), state)
    return [found[name] for name in sorted(found)]


def describe_group(cluster: ClusterClient, group: str) -> GroupDetails:
    """KafkaError GROUP_ID_NOT_FOUND if there is none."""
    node, connection = cluster.coordinator(group)

    def ask() -> GroupDetails:
        if connection.serves(CONSUMER_GROUP_DESCRIBE):
            body = {"group_ids": [group], "include_authorized_operations": False}
            (found,) = connection.call(CONSUMER_GROUP_DESCRIBE, body).groups
            if found.error_code not in (GROUP_ID_NOT_FOUND, UNSUPPORTED_VERSION):
                check(found.error_code, found.error_message)
                return _newer(found, node)
        body = {"groups": [group], "include_authorized_operations": False}
        (classic,) = connection.call(DESCRIBE_GROUPS, body).groups
        check(classic.error_code, getattr(classic, "error_message", None))
        if classic.group_state == "Dead":
            raise KafkaError(GROUP_ID_NOT_FOUND, f"Group {group} not found.")
        return _classic(classic, node)

    return cluster.patiently(ask)


def _newer(found: Any, node: BrokerAddress) -> GroupDetails:
    members = tuple(
        MemberFacts(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            _places((part.topic_name, part.partitions) for part in each.assignment.topic_partitions),
            _places((part.topic_name, part.partitions) for part in each.target_assignment.topic_partitions),
            each.member_epoch,
            _UPGRADED.get(getattr(each, "member_type", -1)),
        )
        for each in found.members
    )
    return GroupDetails(
        found.group_id, found.group_state, found.assignor_name, node, members, found.group_epoch, found.assignment_epoch
    )


def _classic(found: Any, node: BrokerAddress) -> GroupDetails:
    from headrace.protocol.consumer_protocol import read_assignment

    readable = found.protocol_type in ("", CONSUMER)
    members = []
    for each in found.members:
        partitions = read_assignment(each.member_assignment)[0] if readable else ()
        instance = getattr(each, "group_instance_id", None)
        members.append(MemberFacts(each.member_id, instance, each.client_id, each.client_host, _places(partitions)))
    return GroupDetails(found.group_id, found.group_state, found.protocol_data, node, tuple(members))


def _places(parts: Iterable[tuple[str, Iterable[int]]]) -> tuple[PartitionName, ...]:
    return tuple(sorted((topic, number) for topic, numbers in parts for number in numbers))


def committed_offsets(cluster: ClusterClient, group: str) -> dict[PartitionName, Committed]:
    """Everything that the group has committed; nothing for a group that does not exist."""
    _, connection = cluster.coordinator(group)
    one = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
    body = {"groups": [one], "group_id": group, "topics": None, "require_stable": False}

    def ask() -> dict[PartitionName, Committed]:
        answer = connection.call(OFFSET_FETCH, body, _BY_NAME_MAX)
        found = answer.groups[0] if hasattr(answer, "groups") else answer
        check(getattr(found, "error_code", 0))
        offsets = {}
        for topic in found.topics:
            for each in topic.partitions:
                check(each.error_code)
                if each.committed_offset >= 0:
                    epoch = getattr(each, "committed_leader_epoch", -1)
                    place = (topic.name, each.partition_index)
                    offsets[place] = Committed(each.committed_offset, None if epoch < 0 else epoch, each.metadata or "")
        return offsets

    return cluster.patiently(ask)

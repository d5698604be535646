"""What is asked about groups, and what changes them, beyond `groups`: a function each."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.errors import check
from headrace.client.groups import GroupDetails, committed_offsets, describe_group
from headrace.client.offsets import EARLIEST, LATEST, NO_OFFSET, PartitionName, leaders, offsets_at
from headrace.core.errors import OperatorError
from headrace.protocol.api_keys import DELETE_GROUPS

if TYPE_CHECKING:
    from headrace.client.cluster import ClusterClient
    from headrace.client.moments import Moment


class Position(NamedTuple):
    """A group in a partition: what it committed, where the log ends, and who reads it."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None
    host: str | None


def positions(cluster: "ClusterClient", facts: GroupDetails) -> list[Position]:
    """Every partition that the group has committed an offset of, or that a member reads."""
    committed = committed_offsets(cluster, facts.group)
    owners = {place: member for member in facts.members for place in member.assignment}
    places = sorted({*committed, *owners})
    known = leaders(cluster, (topic for topic, _ in places))
    asked = {place: LATEST for place in places if place in known}
    ends = offsets_at(cluster, asked, leader_of=known)
    found = []
    for place in places:
        at = committed[place].offset if place in committed else None
        end = ends[place].offset if place in ends and ends[place].error is None else None
        lag = None if end is None or at is None else max(0, end - at)
        owner = owners.get(place)
        found.append(Position(*place, at, end, lag, owner.client_id if owner else None, owner.host if owner else None))
    return found


def group_lag(cluster: "ClusterClient", group: str) -> tuple[GroupDetails, list[Position]]:
    facts = describe_group(cluster, group)
    return facts, positions(cluster, facts)


def delete_group(cluster: "ClusterClient", group: str) -> None:
    _, connection = cluster.coordinator(group)

    def ask() -> None:
        (result,) = connection.call(DELETE_GROUPS, {"groups_names": [group]}).results
        check(result.error_code)

    cluster.patiently(ask)


def resolved(cluster: "ClusterClient", places: Iterable[PartitionName], moment: "Moment") -> dict[PartitionName, int]:
    """The offset of a moment in each partition, always within what the partition holds."""
    places = list(places)
    first = _looked_up(cluster, dict.fromkeys(places, EARLIEST))
    last = _looked_up(cluster, dict.fromkeys(places, LATEST))
    if moment.kind == "beginning":
        return first
    if moment.kind == "end":
        return last
    if moment.kind == "time":
        found = _looked_up(cluster, dict.fromkeys(places, moment.number))
        return {place: last[place] if found[place] == NO_OFFSET else found[place] for place in places}
    wanted = {place: moment.number if moment.kind == "offset" else last[place] - moment.number for place in places}
    return {place: max(first[place], min(last[place], wanted[place])) for place in places}


def clamped(cluster: "ClusterClient", wanted: Mapping[PartitionName, int]) -> dict[PartitionName, int]:
    first = _looked_up(cluster, dict.fromkeys(wanted, EARLIEST))
    last = _looked_up(cluster, dict.fromkeys(wanted, LATEST))
    return {place: max(first[place], min(last[place], offset)) for place, offset in wanted.items()}


def _looked_up(cluster: "ClusterClient", places: Mapping[PartitionName, int]) -> dict[PartitionName, int]:
    found = {}
    for (topic, number), answer in offsets_at(cluster, places).items():
        if answer.error is not None:
            raise OperatorError(f"{topic}-{number}: {str(answer.error).rstrip('.')}")
        found[topic, number] = answer.offset
    return found

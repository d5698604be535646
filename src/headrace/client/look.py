"""What `headrace top` shows: one look at a cluster, and what has changed since the last one.

Looking blocks, so it is done on a thread of its own; comparing two looks is pure.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from headrace.client.cluster import ClusterClient
    from headrace.client.group_admin import Position
    from headrace.client.groups import GroupDetails
    from headrace.client.topic_admin import TopicSummary


class BrokerRow(NamedTuple):
    id: int
    address: str
    controller: bool
    leads: int
    replicas: int
    size_bytes: int | None
    trouble: str


class GroupRow(NamedTuple):
    name: str
    state: str
    members: int
    lag: int | None
    topics: tuple[str, ...]
    committed: int  # summed over partitions, for the rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A cluster at one moment."""

    at: float  # on a clock that never goes back
    cluster_id: str
    brokers: tuple[BrokerRow, ...] = ()
    topics: "tuple[TopicSummary, ...]" = ()
    ends: dict[str, int] = field(default_factory=dict)  # of a topic, summed over its partitions
    groups: tuple[GroupRow, ...] = ()


class Rates(NamedTuple):
    """Records a second since the look before; None while there was none."""

    written: dict[str, float | None]
    read: dict[str, float | None]

    @property
    def total(self) -> float | None:
        known = [rate for rate in self.written.values() if rate is not None]
        return sum(known) if known else None


def rates(before: Look | None, now: Look) -> Rates:
    passed = 0.0 if before is None else now.at - before.at
    if before is None or passed <= 0:
        return Rates(dict.fromkeys(now.ends), {each.name: None for each in now.groups})
    written = {
        name: max(0.0, (end - before.ends[name]) / passed) if name in before.ends else None
        for name, end in now.ends.items()
    }
    held = {each.name: each.committed for each in before.groups}
    read = {
        each.name: max(0.0, (each.committed - held[each.name]) / passed) if each.name in held else None
        for each in now.groups
    }
    return Rates(written, read)


def look(cluster: "ClusterClient", at: float) -> Look:
    """Asks the cluster; raises what a tool raises."""
    from headrace.client.errors import KafkaError
    from headrace.client.group_admin import group_lag
    from headrace.client.groups import list_groups
    from headrace.client.overview import overview
    from headrace.client.topic_admin import offset_spans, summaries_of

    answer = cluster.metadata(None)
    leader_of = {
        (topic.name, each.partition_index): each.leader_id
        for topic in answer.topics
        for each in topic.partitions
        if each.leader_id >= 0
    }
    spans = offset_spans(cluster, leader_of)
    ends: dict[str, int] = {}
    for (topic, _), span in spans.items():
        ends[topic] = ends.get(topic, 0) + span.end
    groups = []
    for listed in list_groups(cluster):
        try:
            groups.append(_group_row(*group_lag(cluster, listed.group)))
        except KafkaError:  # it went away meanwhile
            continue
    found = overview(cluster)
    return Look(
        at=at,
        cluster_id=found["cluster_id"] or "",
        brokers=tuple(_broker_row(each) for each in found["brokers"]),
        topics=tuple(summaries_of(cluster, answer.topics, spans)),
        ends=ends,
        groups=tuple(groups),
    )


def _broker_row(content: dict[str, Any]) -> BrokerRow:
    return BrokerRow(
        content["id"],
        content["address"],
        content["controller"],
        content["leads"],
        content["replicas"],
        content["size_bytes"],
        ", ".join(content["offline_directories"]),
    )


def _group_row(facts: "GroupDetails", places: "list[Position]") -> GroupRow:
    known = [place.lag for place in places if place.lag is not None]
    return GroupRow(
        facts.group,
        facts.state,
        len(facts.members),
        sum(known) if known else None,
        tuple(sorted({place.topic for place in places})),
        sum(place.committed or 0 for place in places),
    )

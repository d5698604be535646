"""What changes topics, and what is asked about them beyond `topics`: a function each."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.client.errors import KafkaError, check
from headrace.client.offsets import EARLIEST, LATEST, PartitionName, offsets_at
from headrace.protocol.api_keys import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_LOG_DIRS,
    INCREMENTAL_ALTER_CONFIGS,
)
from headrace.protocol.error_codes import LEADER_NOT_AVAILABLE

if TYPE_CHECKING:
    from headrace.client.cluster import ClusterClient

TOPIC, BROKER, GROUP = 2, 4, 32  # kinds of resource that have settings
SET, UNSET = 0, 1
TIMEOUT_MS = 30_000


class Span(NamedTuple):
    """The offsets that a partition holds: from `start` on, below `end`."""

    start: int
    end: int

    @property
    def records(self) -> int:
        return max(0, self.end - self.start)


class TopicSummary(NamedTuple):
    name: str
    internal: bool
    partitions: int
    replicas: int
    offline: int  # partitions without a leader
    under_replicated: int
    records: int
    size_bytes: int | None  # None: the brokers do not say


def summaries(cluster: "ClusterClient", names: Iterable[str] | None = None) -> list[TopicSummary]:
    """All topics (or these), with three kinds of requests however many there are."""
    wanted = None if names is None else set(names)
    topics = [
        topic
        for topic in cluster.metadata(None).topics
        if topic.name is not None and (wanted is None or topic.name in wanted)
    ]
    leader_of = {
        (topic.name, each.partition_index): each.leader_id
        for topic in topics
        for each in topic.partitions
        if each.leader_id >= 0
    }
    return summaries_of(cluster, topics, offset_spans(cluster, leader_of))


def summaries_of(
    cluster: "ClusterClient", topics: Iterable[Any], spans: Mapping[PartitionName, Span]
) -> list[TopicSummary]:
    """Of topics as Metadata answers them, and what their partitions hold."""
    sizes = partition_sizes(cluster)
    found = []
    for topic in topics:
        places = [(topic.name, each.partition_index) for each in topic.partitions]
        found.append(
            TopicSummary(
                topic.name,
                bool(topic.is_internal),
                len(topic.partitions),
                max((len(each.replica_nodes) for each in topic.partitions), default=0),
                sum(each.leader_id < 0 for each in topic.partitions),
                sum(len(each.isr_nodes) < len(each.replica_nodes) for each in topic.partitions),
                sum(spans[place].records for place in places if place in spans),
                None if sizes is None else sum(sizes.get(place, 0) for place in places),
            )
        )
    return sorted(found)


def offset_spans(cluster: "ClusterClient", leader_of: Mapping[PartitionName, int]) -> dict[PartitionName, Span]:
    """Of those partitions whose leader answers."""
    first = offsets_at(cluster, dict.fromkeys(leader_of, EARLIEST), leader_of=leader_of)
    last = offsets_at(cluster, dict.fromkeys(leader_of, LATEST), leader_of=leader_of)
    return {
        place: Span(first[place].offset, last[place].offset)
        for place in leader_of
        if first[place].error is None and last[place].error is None
    }


def partition_sizes(cluster: "ClusterClient") -> dict[PartitionName, int] | None:
    """Bytes on disk of one replica of each partition; None where that may not be asked."""
    found: dict[PartitionName, int] = {}
    try:
        for node_id in cluster.nodes():
            for directory in cluster.at(node_id).call(DESCRIBE_LOG_DIRS, {"topics": None}).results:
                for topic in directory.topics:
                    for each in topic.partitions:
                        place = (topic.name, each.partition_index)
                        found[place] = max(found.get(place, 0), each.partition_size)
    except KafkaError:
        return None
    return found


def create_topic(
    cluster: "ClusterClient",
    name: str,
    *,
    partitions: int | None = None,
    replicas: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> None:
    topic = {
        "name": name,
        "num_partitions": -1 if partitions is None else partitions,
        "replication_factor": -1 if replicas is None else replicas,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in (settings or {}).items()],
    }
    body = {"topics": [topic], "timeout": TIMEOUT_MS, "validate_only": False}

    def ask() -> None:
        (answer,) = cluster.controller().call(CREATE_TOPICS, body).topics
        check(answer.error_code, answer.error_message)

    cluster.patiently(ask)
    cluster.patiently(lambda: _seen(cluster, name))


def _seen(cluster: "ClusterClient", name: str) -> None:
    """A controller answers before every broker knows the topic; whoever uses it next must find it."""
    (topic,) = cluster.metadata([name]).topics
    if topic.error_code or any(each.leader_id < 0 for each in topic.partitions):
        raise KafkaError(LEADER_NOT_AVAILABLE)


def delete_topics(cluster: "ClusterClient", names: Sequence[str]) -> dict[str, KafkaError | None]:
    """What became of each."""
    topics = [{"name": name, "topic_id": None} for name in names]
    body = {"topics": topics, "topic_names": list(names), "timeout": TIMEOUT_MS}
    return {
        result.name: KafkaError(result.error_code, getattr(result, "error_message", None))
        if result.error_code
        else None
        for result in cluster.controller().call(DELETE_TOPICS, body).responses
    }


def add_partitions(cluster: "ClusterClient", name: str, count: int) -> None:
    body = {
        "topics": [{"name": name, "count": count, "assignments": None}],
        "timeout": TIMEOUT_MS,
        "validate_only": False,
    }

    def ask() -> None:
        (result,) = cluster.controller().call(CREATE_PARTITIONS, body).results
        check(result.error_code, result.error_message)

    cluster.patiently(ask)


def change_settings(
    cluster: "ClusterClient", kind: int, name: str, changes: Mapping[str, str], unset: Sequence[str] = ()
) -> None:
    configs: list[dict[str, object]] = [
        {"name": key, "config_operation": SET, "value": value} for key, value in changes.items()
    ]
    configs += [{"name": key, "config_operation": UNSET, "value": None} for key in unset]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    asked = cluster.at(int(name)) if kind == BROKER and name else cluster.controller()
    answer = asked.call(INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": False})
    (result,) = answer.responses
    check(result.error_code, result.error_message)

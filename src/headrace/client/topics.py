"""What a cluster knows about its topics, asked with the newest request that it serves."""

import base64
import re
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.client.cluster import ClusterClient
from headrace.client.errors import ClientError, KafkaError, check
from headrace.protocol.api_keys import DESCRIBE_CONFIGS, DESCRIBE_TOPIC_PARTITIONS, LIST_PARTITION_REASSIGNMENTS
from headrace.protocol.error_codes import CLUSTER_AUTHORIZATION_FAILED

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
PARTITIONS_PER_ANSWER = 2000
_TOPIC = 2  # the type of resource in DescribeConfigs
_NO_LEADER = -1


class PartitionFacts(NamedTuple):
    number: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] | None = None  # None: the broker does not say
    last_known_elr: tuple[int, ...] | None = None


class TopicFacts(NamedTuple):
    name: str
    id: UUID | None
    partitions: tuple[PartitionFacts, ...]


class Reassignment(NamedTuple):
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class DescribedSetting(NamedTuple):
    name: str
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    synonyms: tuple[tuple[str, str | None, int], ...]

    @property
    def is_default(self) -> bool:
        return self.source == DEFAULT_SOURCE


DEFAULT_SOURCE = 5


def kafka_uuid(value: UUID) -> str:
    """As Kafka prints an id: base64 for addresses, without its padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def topic_filter(pattern: str, flag: str = "--topic") -> re.Pattern[str]:
    """Kafka's lists of topics: a regular expression in which a comma means `or`."""
    text = pattern.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(text)
    except re.error as error:
        raise ClientError(f"{flag} {pattern}: {error}; it must be a regular expression") from error


def matching(names: Sequence[str], pattern: str | None, *, exclude_internal: bool = False) -> list[str]:
    kept = [name for name in names if not (exclude_internal and name in INTERNAL_TOPICS)]
    if pattern is None:
        return kept
    wanted = topic_filter(pattern)
    return [name for name in kept if wanted.fullmatch(name)]


def topic_names(cluster: ClusterClient) -> list[str]:
    return sorted(each.name for each in cluster.metadata(None).topics if each.name is not None)


def describe(cluster: ClusterClient, names: Sequence[str], per_answer: int = PARTITIONS_PER_ANSWER) -> list[TopicFacts]:
    """The topics in the order of their names. KafkaError if one does not exist."""
    if not names:
        return []
    if not cluster.any.serves(DESCRIBE_TOPIC_PARTITIONS):
        return described_by_metadata(cluster, names)
    pieces: dict[str, list[PartitionFacts]] = {}
    ids: dict[str, UUID | None] = {}
    cursor: dict[str, object] | None = None
    while True:
        body = {
            "topics": [{"name": name} for name in sorted(names)],
            "response_partition_limit": per_answer,
            "cursor": cursor,
        }
        answer = cluster.any.call(DESCRIBE_TOPIC_PARTITIONS, body)
        for topic in answer.topics:
            check(topic.error_code)
            ids[topic.name] = topic.topic_id
            pieces.setdefault(topic.name, []).extend(
                PartitionFacts(
                    each.partition_index,
                    _leader(each.leader_id),
                    each.replica_nodes,
                    each.isr_nodes,
                    each.eligible_leader_replicas,
                    each.last_known_elr,
                )
                for each in topic.partitions
            )
        if answer.next_cursor is None:
            return [TopicFacts(name, ids[name], tuple(sorted(pieces[name]))) for name in sorted(ids)]
        at = answer.next_cursor
        cursor = {"topic_name": at.topic_name, "partition_index": at.partition_index}


def _leader(node_id: int) -> int | None:
    return None if node_id == _NO_LEADER else node_id


def described_by_metadata(cluster: ClusterClient, names: Sequence[str]) -> list[TopicFacts]:
    """By the older request, which says nothing of replicas that may lead once none is in sync."""
    if not names:
        return []
    found = []
    for topic in cluster.metadata(names).topics:
        check(topic.error_code)
        partitions = sorted(
            PartitionFacts(
                each.partition_index,
                _leader(each.leader_id),
                each.replica_nodes,
                each.isr_nodes,
            )
            for each in topic.partitions
        )
        found.append(TopicFacts(topic.name, getattr(topic, "topic_id", None), tuple(partitions)))
    return sorted(found)


def topic_settings(cluster: ClusterClient, names: Sequence[str]) -> dict[str, list[DescribedSetting]]:
    return {name: describe_configs(cluster, _TOPIC, name) for name in names}


def describe_configs(
    cluster: ClusterClient, kind: int, name: str, node_id: int | None = None
) -> list[DescribedSetting]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    body = {"resources": [resource], "include_synonyms": True, "include_documentation": False}
    asked = cluster.any if node_id is None else cluster.at(node_id)
    (result,) = asked.call(DESCRIBE_CONFIGS, body).results
    check(result.error_code, result.error_message)
    return [
        DescribedSetting(
            each.name,
            each.value,
            each.config_source,
            each.read_only,
            each.is_sensitive,
            tuple((synonym.name, synonym.value, synonym.source) for synonym in each.synonyms),
        )
        for each in result.configs
    ]


def reassignments(cluster: ClusterClient, topics: Sequence[TopicFacts]) -> dict[tuple[str, int], Reassignment]:
    """Those that go on; none where the broker does not serve the question."""
    if not cluster.any.serves(LIST_PARTITION_REASSIGNMENTS):
        return {}
    asked = [{"name": topic.name, "partition_indexes": [p.number for p in topic.partitions]} for topic in topics]
    answer = cluster.controller().call(LIST_PARTITION_REASSIGNMENTS, {"timeout": 30_000, "topics": asked})
    try:
        check(answer.error_code, answer.error_message)
    except KafkaError as error:
        if error.code == CLUSTER_AUTHORIZATION_FAILED:  # not allowed to know
            return {}
        raise
    return {
        (topic.name, each.partition_index): Reassignment(each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in answer.topics
        for each in topic.partitions
    }

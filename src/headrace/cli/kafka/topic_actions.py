"""What `kafka-topics.sh` does: one function for each of its actions, in Kafka's words."""

from headrace.cli.kafka.options import GivenOptions
from headrace.cli.kafka.tool import ToolError
from headrace.client import topics as topic_facts
from headrace.client.cluster import ClusterClient
from headrace.client.errors import KafkaError, check
from headrace.client.topics import DescribedSetting, PartitionFacts, Reassignment, TopicFacts
from headrace.protocol.api_keys import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from headrace.protocol.error_codes import TOPIC_ALREADY_EXISTS

_TIMEOUT_MS = 30_000
_INT16_MAX = 32767


def create(cluster: ClusterClient, given: GivenOptions) -> None:
    name = given.one("topic")
    assignment = _assignment(given)
    partitions, factor = given.one("partitions"), given.one("replication-factor")
    settings = _settings(given)
    if "." in name or "_" in name:
        print(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both."
        )
    if factor is not None and not 1 <= factor <= _INT16_MAX:
        raise ToolError(f"The replication factor must be between 1 and {_INT16_MAX} inclusive")
    if partitions is not None and partitions < 1:
        raise ToolError("The partitions must be greater than 0")
    topic = {
        "name": name,
        "num_partitions": -1 if partitions is None else partitions,
        "replication_factor": -1 if factor is None else factor,
        "assignments": [{"partition_index": at, "broker_ids": ids} for at, ids in enumerate(assignment)],
        "configs": [{"name": key, "value": value} for key, value in settings.items()],
    }
    body = {"topics": [topic], "timeout": _TIMEOUT_MS, "validate_only": False}

    def ask() -> None:
        (answer,) = cluster.controller().call(CREATE_TOPICS, body).topics
        check(answer.error_code, answer.error_message)

    try:
        cluster.patiently(ask)
    except KafkaError as error:
        if error.code != TOPIC_ALREADY_EXISTS or not given.has("if-not-exists"):
            raise
        return
    print(f"Created topic {name}.")


def list_topics(cluster: ClusterClient, given: GivenOptions) -> None:
    print("\n".join(_chosen(cluster, given)))


def alter(cluster: ClusterClient, given: GivenOptions) -> None:
    names = _existing(cluster, given)
    if not names:
        return
    assignment = _assignment(given)
    topics = []
    for topic in topic_facts.describe(cluster, names):
        new = [{"broker_ids": ids} for ids in assignment[len(topic.partitions) :]]
        count = given.one("partitions")
        topics.append({"name": topic.name, "count": count, "assignments": new if assignment else None})
    body = {"topics": topics, "timeout": _TIMEOUT_MS, "validate_only": False}

    def ask() -> None:
        for result in cluster.controller().call(CREATE_PARTITIONS, body).results:
            check(result.error_code, result.error_message)

    cluster.patiently(ask)


def delete(cluster: ClusterClient, given: GivenOptions) -> None:
    names = _existing(cluster, given)
    if not names:
        return
    topics = [{"name": name, "topic_id": None} for name in names]
    body = {"topics": topics, "topic_names": names, "timeout": _TIMEOUT_MS}

    def ask() -> None:
        for result in cluster.controller().call(DELETE_TOPICS, body).responses:
            check(result.error_code, getattr(result, "error_message", None))

    cluster.patiently(ask)


def describe(cluster: ClusterClient, given: GivenOptions) -> None:
    per_answer = given.one("partition-size-limit-per-response") or topic_facts.PARTITIONS_PER_ANSWER
    if given.has("topic-id"):
        names = _by_id(cluster, given)
        topics = topic_facts.described_by_metadata(cluster, names)  # as Kafka's tool does, for an id
    else:
        names = _existing(cluster, given)
        topics = topic_facts.describe(cluster, names, per_answer)
    settings = topic_facts.topic_settings(cluster, names)
    live = set(cluster.nodes())
    moving = topic_facts.reassignments(cluster, topics)
    for topic in topics:
        _describe_one(given, topic, settings[topic.name], live, moving)


def _describe_one(
    given: GivenOptions,
    topic: TopicFacts,
    settings: list[DescribedSetting],
    live: set[int],
    moving: dict[tuple[str, int], Reassignment],
) -> None:
    from headrace.cli.kafka.topics import REPORTS

    reports = [report for report in REPORTS if given.has(report)]
    own = [each for each in settings if not each.is_default]
    if not reports and (own or not given.has("topics-with-overrides")):
        print(_topic_line(topic, own, moving.get((topic.name, 0))))
    if given.has("topics-with-overrides"):
        return
    minimum = next((int(each.value or 1) for each in settings if each.name == "min.insync.replicas"), 1)
    for partition in topic.partitions:
        change = moving.get((topic.name, partition.number))
        if not reports or any(_reported(report, partition, change, live, minimum) for report in reports):
            print(_partition_line(topic.name, partition, change))


def _reported(
    report: str, partition: PartitionFacts, change: Reassignment | None, live: set[int], isr_min: int
) -> bool:
    if report == "under-replicated-partitions":
        return len(partition.isr) < _replication_factor(partition, change)
    if report == "unavailable-partitions":
        return partition.leader is None or partition.leader not in live
    if report == "under-min-isr-partitions":
        return partition.leader is None or len(partition.isr) < isr_min
    return len(partition.isr) == isr_min


def _replication_factor(partition: PartitionFacts, change: Reassignment | None) -> int:
    """How many replicas there are to be; those that are being added do not count yet."""
    if change is None or not {*change.adding, *change.removing} & {*partition.replicas}:
        return len(partition.replicas)
    return len(change.replicas) - len(change.adding)


def _topic_line(topic: TopicFacts, own: list[DescribedSetting], change: Reassignment | None) -> str:
    parts = [f"Topic: {topic.name}"]
    if topic.id is not None:
        parts.append(f"TopicId: {topic_facts.kafka_uuid(topic.id)}")
    parts.append(f"PartitionCount: {len(topic.partitions)}")
    factor = _replication_factor(topic.partitions[0], change) if topic.partitions else 0
    parts.append(f"ReplicationFactor: {factor}")
    parts.append("Configs: " + ",".join(f"{each.name}={_shown(each.value)}" for each in own))
    return "\t".join(parts)


def _partition_line(topic: str, partition: PartitionFacts, change: Reassignment | None) -> str:
    parts = [
        f"\tTopic: {topic}",
        f"Partition: {partition.number}",
        f"Leader: {'none' if partition.leader is None else partition.leader}",
        f"Replicas: {_numbers(partition.replicas)}",
        f"Isr: {_numbers(partition.isr)}",
    ]
    if change is not None:
        parts += [f"Adding Replicas: {_numbers(change.adding)}", f"Removing Replicas: {_numbers(change.removing)}"]
    for title, ids in (("Elr", partition.elr), ("LastKnownElr", partition.last_known_elr)):
        parts.append(f"{title}: {'N/A' if ids is None else _numbers(ids)}")
    return "\t".join(parts)


def _numbers(ids: tuple[int, ...]) -> str:
    return ",".join(map(str, ids))


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _chosen(cluster: ClusterClient, given: GivenOptions) -> list[str]:
    names = topic_facts.topic_names(cluster)
    return topic_facts.matching(names, given.one("topic"), exclude_internal=given.has("exclude-internal"))


def _existing(cluster: ClusterClient, given: GivenOptions) -> list[str]:
    names = _chosen(cluster, given)
    if not names and given.one("topic") and not given.has("if-exists"):
        raise ToolError(f"Topic '{given.one('topic')}' does not exist as expected")
    return names


def _by_id(cluster: ClusterClient, given: GivenOptions) -> list[str]:
    wanted = given.one("topic-id")
    for topic in cluster.metadata(None).topics:
        if topic.topic_id is not None and topic_facts.kafka_uuid(topic.topic_id) == wanted:
            return [topic.name]
    if given.has("if-exists"):
        return []
    raise ToolError(f"TopicId '{wanted}' does not exist as expected")


def _settings(given: GivenOptions) -> dict[str, str]:
    found = {}
    for text in given.all("config"):
        key, equals, value = text.partition("=")
        if not equals or not value.strip() or "=" in value:
            raise ToolError(
                "requirement failed: Invalid topic config: all configs to be added must be in the format "
                f'"key=val": {text!r} is not'
            )
        found[key.strip()] = value.strip()
    return found


def _assignment(given: GivenOptions) -> list[list[int]]:
    """The brokers of each partition: `1:2,2:1` is partition 0 on 1 and 2, partition 1 on 2 and 1."""
    text = given.one("replica-assignment")
    if not text:
        return []
    found: list[list[int]] = []
    for part in text.split(","):
        try:
            ids = [int(number) for number in part.split(":")]
        except ValueError:
            raise ToolError(f"--replica-assignment {text}: {part!r} is not a list of broker ids like 1:2") from None
        twice = sorted({number for number in ids if ids.count(number) > 1})
        if twice:
            raise ToolError(f"Partition replica lists may not contain duplicate entries: {','.join(map(str, twice))}")
        found.append(ids)
        if len(ids) != len(found[0]):
            raise ToolError(f"Partition {len(found) - 1} has different replication factor: {ids}")
    return found

"""Making and removing topics so that every client sees it: an admin call's answer can precede metadata."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec, TopicDescription
from waits import WAIT_S_MAX, eventually


def fresh_name(label: str) -> str:
    """A topic name that does not exist yet and tells which test made it."""
    readable = re.sub(r"[^a-zA-Z0-9]+", "-", label.removeprefix("test_"))[:80].strip("-")
    return f"{readable}-{uuid.uuid4().hex[:8]}"


def describe(admin: AdminClient, name: str) -> TopicDescription | None:
    """The topic, or None when there is none. Unlike a Metadata call by name it never creates one."""
    try:
        return admin.describe_topics(TopicCollection([name]))[name].result(WAIT_S_MAX)
    except KafkaException as refusal:
        if refusal.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def partition_count(admin: AdminClient, name: str) -> int:
    """How many partitions have a leader; 0 when there is no such topic."""
    found = describe(admin, name)
    return sum(partition.leader is not None for partition in found.partitions) if found else 0


def create_topic(
    admin: AdminClient, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
) -> None:
    """Returns when every partition has a leader that serves it."""
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([new])[name].result(WAIT_S_MAX)
    eventually(lambda: partition_count(admin, name) == partitions, f"{name} has {partitions} partitions")
    eventually(lambda: _is_served(admin, name, partitions), f"every partition of {name} is served")


def _is_served(admin: AdminClient, name: str, partitions: int) -> bool:
    # Apache Kafka names a leader before that leader has made the partition. A producer that is not idempotent
    # would be sent away at first, try again, and so change the order of its records.
    asked = {TopicPartition(name, partition): OffsetSpec.latest() for partition in range(partitions)}
    return all(answer.exception(WAIT_S_MAX) is None for answer in admin.list_offsets(asked).values())


def delete_topic(admin: AdminClient, name: str) -> None:
    """Returns when the topic is gone, also when there was none."""
    try:
        admin.delete_topics([name])[name].result(WAIT_S_MAX)
    except KafkaException as refusal:
        if refusal.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
    eventually(lambda: describe(admin, name) is None, f"{name} is gone")

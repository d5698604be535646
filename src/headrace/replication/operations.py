"""What a controller may write, one value per write, and what the image is once it is written.

Each is made real by one multi that also checks the epoch of the controller, so that one that was deposed changes
nothing. A state names the version that it replaces: a leader may have changed the ISR meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headrace.replication.election import Way
from headrace.replication.image import ClusterImage, ImageDelta, PartitionImage, TopicImage


@dataclass(frozen=True, slots=True, kw_only=True)
class SetState:
    """Leader, epoch and ISR of one partition. Of a partition that has no state yet, the first."""

    topic: str
    index: int
    state: PartitionImage
    expected_version: int
    way: Way | None = None  # of an election, for those who read the log


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReassignment:
    """The replicas are those that were asked for, and nobody joins or leaves any more."""

    topic: str
    index: int
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic:
    """Everything that the tree holds of it."""

    topic: str


Operation = SetState | EndReassignment | DeleteTopic


def change(image: ClusterImage, operation: Operation) -> ImageDelta:
    """What the operation does to the image."""
    topic = image.topics[operation.topic]
    if isinstance(operation, DeleteTopic):
        return ImageDelta(topics={topic.name: None})
    if isinstance(operation, EndReassignment):
        now = topic.partitions[operation.index]
        partition = replace(now, replicas=operation.replicas, adding=(), removing=())
    else:
        partition = replace(operation.state, version=operation.expected_version + 1)
    return ImageDelta(topics={topic.name: with_partition(topic, operation.index, partition)})


def with_partition(topic: TopicImage, index: int, partition: PartitionImage) -> TopicImage:
    partitions = (*topic.partitions[:index], partition, *topic.partitions[index + 1 :])
    return replace(topic, partitions=partitions)

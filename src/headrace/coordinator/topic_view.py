"""What a coordinator may know about topics: which exist, how they are called, how many partitions they have.

The broker implements it over its own topics; the coordinator must never reach further into them. `TopicTable` is a
plain one for tests.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

TopicPartition = tuple[str, int]


class TopicView(Protocol):
    @property
    def revision(self) -> int:
        """Another number whenever a topic was made, deleted or given more partitions."""

    def partition_count(self, topic: str) -> int | None: ...

    def topic_id(self, topic: str) -> uuid.UUID | None: ...

    def name_of(self, topic_id: uuid.UUID) -> str | None: ...

    def all_topics(self) -> Iterable[str]: ...


def by_topic_id(partitions: Iterable[tuple[str, Iterable[int]]], topics: TopicView) -> dict[uuid.UUID, frozenset[int]]:
    """Those of topics that exist."""
    found = {}
    for name, numbers in partitions:
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found[topic_id] = frozenset(numbers)
    return found


def by_name(partitions: Mapping[uuid.UUID, Iterable[int]], topics: TopicView) -> Iterator[tuple[str, Iterable[int]]]:
    """Those of topics that exist."""
    for topic_id, numbers in partitions.items():
        name = topics.name_of(topic_id)
        if name is not None:
            yield name, numbers


class TopicTable:
    def __init__(self, partition_counts: dict[str, int] | None = None) -> None:
        self.revision = 0
        self._counts: dict[str, int] = {}
        self._ids: dict[str, uuid.UUID] = {}
        for name, count in (partition_counts or {}).items():
            self.set(name, count)

    def set(self, name: str, partition_count: int) -> None:
        self._counts[name] = partition_count
        self._ids.setdefault(name, uuid.uuid5(uuid.NAMESPACE_DNS, name))  # the same in every run
        self.revision += 1

    def delete(self, name: str) -> None:
        del self._counts[name], self._ids[name]
        self.revision += 1

    def partition_count(self, topic: str) -> int | None:
        return self._counts.get(topic)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        return self._ids.get(topic)

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name, known in self._ids.items() if known == topic_id), None)

    def all_topics(self) -> Iterable[str]:
        return list(self._counts)

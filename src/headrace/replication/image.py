"""The cluster as one broker knows it: brokers, topics, partitions with their leaders, settings. Values, never changed.

A feed makes deltas: the journal of a broker that stands alone, or ZooKeeper's tree in a cluster. Whoever answers a
client reads the image and does not know which feed it has. An image that was taken once stays as it was, so an answer
that is made in several steps tells of one moment.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

NO_LEADER: Final = -1
NO_CONTROLLER: Final = -1
NO_VERSION: Final = -1  # of a partition that no tree holds, or none yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where clients of one listener reach a broker."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A broker that is alive."""

    id: int
    endpoints: Mapping[str, Endpoint]  # by the name of the listener
    rack: str = ""
    incarnation: int = 0  # grows with each start of the broker
    intact_from: int = 0  # what this and later incarnations wrote is all still on its disks
    shutting_down: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    replicas: tuple[int, ...]  # the first is preferred as leader
    leader: int = NO_LEADER
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()  # replicas whose directory has failed, on brokers that may be alive
    leader_incarnation: int = 0  # of the broker, when leadership was given to it
    isr_incarnations: tuple[int, ...] = ()  # of each member of the ISR, when it joined
    adding: tuple[int, ...] = ()  # of the replicas: those that a reassignment brings
    removing: tuple[int, ...] = ()  # and those that it takes away once the others are in sync
    version: int = NO_VERSION  # of its state in the tree, which a write compares

    def isr_incarnation(self, broker: int) -> int:
        return self.isr_incarnations[self.isr.index(broker)] if self.isr_incarnations else 0

    def with_isr(self, isr: Mapping[int, int]) -> PartitionImage:
        """The ISR with the incarnation of each member."""
        return replace(self, isr=tuple(isr), isr_incarnations=tuple(isr.values()))

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas that there are to be when a reassignment has ended."""
        return tuple([each for each in self.replicas if each not in self.removing])


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    name: str
    id: uuid.UUID
    partitions: tuple[PartitionImage, ...]
    overrides: Mapping[str, str] = field(default_factory=dict)

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDelta:
    """What is different: whole brokers and topics by their names; None for one that is gone."""

    brokers: Mapping[int, BrokerImage | None] = field(default_factory=dict)
    topics: Mapping[str, TopicImage | None] = field(default_factory=dict)
    controller_id: int | None = None
    cluster_id: str | None = None  # a broker without data learns it when it joins


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    cluster_id: str
    controller_id: int = NO_CONTROLLER
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    names: Mapping[uuid.UUID, str] = field(default_factory=dict)  # of topics
    revision: int = 0  # another one after each change

    def changed(self, delta: ImageDelta) -> ClusterImage:
        topics, names = self.topics, self.names
        if delta.topics:
            topics, names = dict(topics), dict(names)
            for name, topic in delta.topics.items():
                before = topics.pop(name, None) if topic is None else topics.get(name)
                if before is not None and (topic is None or topic.id != before.id):
                    del names[before.id]
                if topic is not None:
                    topics[name] = topic
                    names[topic.id] = name
        brokers = self.brokers
        if delta.brokers:
            changed = {**brokers, **delta.brokers}
            brokers = {each.id: each for _, each in sorted(changed.items()) if each is not None}
        return replace(
            self,
            cluster_id=self.cluster_id if delta.cluster_id is None else delta.cluster_id,
            controller_id=self.controller_id if delta.controller_id is None else delta.controller_id,
            brokers=brokers,
            topics=topics,
            names=names,
            revision=self.revision + 1,
        )

    def topic_by_id(self, topic_id: uuid.UUID) -> TopicImage | None:
        name = self.names.get(topic_id)
        return self.topics[name] if name is not None else None

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None

    def live_leader(self, partition: PartitionImage) -> int:
        """A leader that is not alive cannot be asked: until another one is elected there is none."""
        return partition.leader if partition.leader in self.brokers else NO_LEADER

    def offline_replicas(self, partition: PartitionImage) -> tuple[int, ...]:
        """Replicas that cannot be read now: their broker is away, or their directory has failed."""
        brokers, offline = self.brokers, partition.offline
        return tuple([each for each in partition.replicas if each in offline or each not in brokers])

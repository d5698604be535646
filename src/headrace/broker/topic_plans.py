"""New topics that were checked and not yet made, and the names that are taken meanwhile: for whoever decides on topics.

A name is taken as long as the topic is there, and while one of that name is made, changed or deleted in steps. Two
names that look the same in the name of a metric are one name here, as in Kafka.
"""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from headrace.broker import topic_config
from headrace.broker.topic_names import check_collision, check_name, folded
from headrace.core.errors import PeerError
from headrace.core.settings.broker import BrokerSettings
from headrace.protocol import error_codes
from headrace.replication.image import ClusterImage, TopicImage

Replicas = tuple[int, ...]  # the preferred leader first


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic that was checked and may be made."""

    name: str
    id: uuid.UUID
    replicas: Sequence[Replicas]  # of each partition
    overrides: dict[str, str]

    @property
    def partition_count(self) -> int:
        return len(self.replicas)

    @property
    def replication_factor(self) -> int:
        return len(self.replicas[0])


class TopicPlans:
    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self._by_folded: dict[str, str] = {}
        self._changing: set[str] = set()
        self._changing_folded: dict[str, str] = {}

    def follow(self, topics: Mapping[str, TopicImage | None]) -> None:
        """These are there now; None: not any more."""
        for name, topic in topics.items():
            if topic is not None:
                self._by_folded[folded(name)] = name
            elif self._by_folded.get(folded(name)) == name:
                del self._by_folded[folded(name)]

    def check(self, name: str, overrides: Mapping[str, str | None], settings: BrokerSettings) -> dict[str, str]:
        """That there may be a new topic of that name; its settings. Raises `PeerError` with Kafka's code and words."""
        check_name(name)
        if name in self._image().topics or name in self._changing:
            raise PeerError(error_codes.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        alike = folded(name)
        check_collision(name, self._by_folded.get(alike) or self._changing_folded.get(alike))
        return topic_config.check(overrides, settings)

    def existing(self, name: str) -> TopicImage:
        topic = self._image().topics.get(name)
        if topic is None:
            why = f"The topic '{name}' does not exist."
            raise PeerError(error_codes.UNKNOWN_TOPIC_OR_PARTITION, why)
        if name in self._changing:
            why = f"The topic '{name}' is being changed by another request; try again when that is answered."
            raise PeerError(error_codes.REQUEST_TIMED_OUT, why)
        return topic

    def is_changing(self, name: str) -> bool:
        return name in self._changing

    def begin(self, names: Collection[str]) -> None:
        for name in names:
            self._changing.add(name)
            self._changing_folded[folded(name)] = name

    def end(self, names: Collection[str]) -> None:
        for name in names:
            self._changing.discard(name)
            self._changing_folded.pop(folded(name), None)


def check_count(partition_count: int) -> None:
    if partition_count <= 0:
        why = "Number of partitions was set to an invalid non-positive value."
        raise PeerError(error_codes.INVALID_PARTITIONS, why)


def too_few_brokers(factor: int, brokers: int) -> PeerError:
    """A topic asks for more replicas than there are brokers."""
    why = (
        f"Unable to replicate the partition {factor} time(s): The target replication factor of"
        f" {factor} cannot be reached because only {brokers} broker(s) are registered"
        " or some brokers have all their log directories cordoned."
    )
    return PeerError(error_codes.INVALID_REPLICATION_FACTOR, why)


def new_topic_id() -> uuid.UUID:
    """Kafka keeps ids that begin with a dash in their text form out of use, and so do we."""
    while True:
        topic_id = uuid.uuid4()
        if topic_id.bytes[0] >> 2 != 62:  # the sixth-bit value that base64 writes as a dash
            return topic_id

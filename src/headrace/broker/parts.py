"""What handlers are given of a broker: the parts that they ask and change, and nothing that runs or ends it.

The composition root makes `Parts` once. The type of a handler's first argument says which of them it needs, so a test
gives it no others. Produce and Fetch are not called this way: they are made with theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.broker.answer_cache import AnswerCache
from headrace.broker.client_software import ClientSoftware
from headrace.broker.dynamic_settings import DynamicSettings
from headrace.broker.producer_ids import ProducerIds
from headrace.broker.rights import Rights
from headrace.broker.topic_controller import TopicController
from headrace.broker.topics import Topics
from headrace.core.clock import Clock
from headrace.core.settings.broker import BrokerSettings
from headrace.log.store import LogStore
from headrace.replication.cluster import Cluster

if TYPE_CHECKING:
    from headrace.broker.coordination import Coordination
    from headrace.coordinator.groups import Groups
    from headrace.coordinator.transactions.coordinator import Transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    rights: Rights
    clock: Clock
    topics: Topics
    cluster: Cluster
    controller: TopicController
    store: LogStore
    dynamic_settings: DynamicSettings
    producer_ids: ProducerIds
    metadata_answers: AnswerCache
    software: ClientSoftware
    coordinators: Callable[[], Coordination]  # made when they are first asked for

    @property
    def settings(self) -> BrokerSettings:
        """Those in force."""
        return self.dynamic_settings.effective

    @property
    def coordination(self) -> Coordination:
        return self.coordinators()

    @property
    def groups(self) -> Groups:
        return self.coordinators().groups

    @property
    def transactions(self) -> Transactions:
        return self.coordinators().transactions


class RightsPart(Protocol):
    @property
    def rights(self) -> Rights: ...


class GroupParts(RightsPart, Protocol):
    @property
    def groups(self) -> Groups: ...


class LogParts(RightsPart, Protocol):
    @property
    def topics(self) -> Topics: ...


class OffsetParts(GroupParts, LogParts, Protocol):
    @property
    def clock(self) -> Clock: ...


class TransactionParts(LogParts, Protocol):
    @property
    def transactions(self) -> Transactions: ...


class TransactionOffsetParts(OffsetParts, TransactionParts, Protocol):
    @property
    def coordination(self) -> Coordination: ...


class ProducerParts(TransactionParts, Protocol):
    @property
    def producer_ids(self) -> ProducerIds: ...


class MarkerParts(LogParts, Protocol):
    @property
    def coordination(self) -> Coordination: ...


class DirectoryParts(LogParts, Protocol):
    @property
    def store(self) -> LogStore: ...


class ProduceParts(DirectoryParts, Protocol):
    @property
    def coordinators(self) -> Callable[[], Coordination]: ...


class ClusterParts(RightsPart, Protocol):
    @property
    def cluster(self) -> Cluster: ...

    @property
    def settings(self) -> BrokerSettings: ...


class CoordinatorParts(ClusterParts, Protocol):
    @property
    def coordination(self) -> Coordination: ...


class TopicParts(ClusterParts, LogParts, Protocol):
    @property
    def controller(self) -> TopicController: ...


class MetadataParts(TopicParts, Protocol):
    @property
    def metadata_answers(self) -> AnswerCache: ...


class ConfigParts(TopicParts, Protocol):
    @property
    def dynamic_settings(self) -> DynamicSettings: ...


class SoftwareParts(Protocol):
    @property
    def software(self) -> ClientSoftware: ...

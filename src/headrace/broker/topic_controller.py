"""What handlers and coordinators ask of whoever decides on topics: this broker itself, or the tree of its cluster.

Steps that wait for others yield a `Pause`. PeerError says what is refused, in Kafka's words.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Protocol

from headrace.broker.steps import Pause
from headrace.broker.topic_plans import NewTopic, Replicas
from headrace.broker.topics import Topic
from headrace.core.errors import PeerError
from headrace.core.settings.broker import BrokerSettings
from headrace.log.directory import LogDirectory
from headrace.replication.image import TopicImage

Waiting = Generator[Pause | None, None, None]


class TopicController(Protocol):
    on_deleted: Callable[[Sequence[TopicImage]], Iterable[None]]  # in steps

    def placed(self, count: int, factor: int = ...) -> Sequence[Replicas]: ...

    def assigned(self, manual: Sequence[Sequence[int]]) -> Sequence[Replicas]: ...

    def plan(self, name: str, partition_count: int, overrides: Mapping[str, str | None]) -> NewTopic: ...

    def make_in_steps(self, planned: Sequence[NewTopic]) -> Generator[Pause | None, None, list[Topic | PeerError]]: ...

    def create(self, name: str, partition_count: int, overrides: Mapping[str, str | None]) -> Topic: ...

    def ensure(self, name: str, *, allowed: bool = ...) -> Topic: ...

    def delete_in_steps(self, *names: str) -> Waiting: ...

    def grow_in_steps(self, name: str, total: int) -> Waiting: ...

    def alter_in_steps(
        self, name: str, overrides: Mapping[str, str | None], *, validate_only: bool = ...
    ) -> Waiting: ...

    def settings_changed(self, settings: BrokerSettings) -> None: ...

    def directory_failed(self, directory: LogDirectory) -> None: ...

"""Where `headrace top` gets what it shows. Every call blocks, so it is made from a thread and never from the UI."""

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from headrace.cli.records.view import ShownRecord
from headrace.client.look import Look, look

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach
    from headrace.cli.records.reading import RecordReading
    from headrace.client.group_admin import Position
    from headrace.client.groups import GroupDetails

MESSAGES_BEFORE = 50  # of each partition, that are shown when a topic is opened


class Messages(Protocol):
    """A topic's records as they come, until `stop`."""

    def batches(self) -> Iterator[list[ShownRecord]]: ...
    def stop(self) -> None: ...


class Source(Protocol):
    where: str

    def look(self) -> Look: ...
    def group(self, name: str) -> "tuple[GroupDetails, list[Position]]": ...
    def messages(self, topic: str) -> Messages: ...


class ClusterSource:
    """A cluster over the wire, with a new connection for each look: what broke last time does not matter."""

    def __init__(self, reach: "Reach") -> None:
        self.where = reach.bootstrap
        self._reach = reach

    def look(self) -> Look:
        with self._reach.cluster() as cluster:
            return look(cluster, time.monotonic())

    def group(self, name: str) -> "tuple[GroupDetails, list[Position]]":
        from headrace.client.group_admin import group_lag

        with self._reach.cluster() as cluster:
            return group_lag(cluster, name)

    def messages(self, topic: str) -> Messages:
        return TopicMessages(self._reach, topic)


class TopicMessages:
    def __init__(self, reach: "Reach", topic: str) -> None:
        self._reach = reach
        self._topic = topic
        self._stopped = threading.Event()
        self._reading: RecordReading | None = None

    def batches(self) -> Iterator[list[ShownRecord]]:
        from headrace.cli.records.reading import ReadPlan, RecordReading
        from headrace.client.group_admin import resolved
        from headrace.client.moments import Moment
        from headrace.client.offsets import leaders

        with self._reach.cluster() as cluster:
            places = sorted(leaders(cluster, [self._topic]))
            starts = resolved(cluster, places, Moment("last", MESSAGES_BEFORE))
        with RecordReading(self._reach, ReadPlan(topics=(self._topic,), starts=starts, follow=True)) as reading:
            self._reading = reading
            if self._stopped.is_set():
                return
            yield from reading.batches()

    def stop(self) -> None:
        self._stopped.set()
        if self._reading is not None:
            self._reading.stop()

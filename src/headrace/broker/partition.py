"""A partition as clients see it: its log if that is online, and the fetches that wait for it to grow."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from headrace.log.partition_log import PartitionLog

if TYPE_CHECKING:
    from headrace.broker.purgatory import FetchWait


class Partition:
    __slots__ = ("_waits", "index", "leader_epoch", "log", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: uuid.UUID, index: int, log: PartitionLog | None) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log  # None while its directory is offline
        self.leader_epoch = log.leader_epoch if log is not None else 0
        self._waits: dict[FetchWait, None] | None = None

    @property
    def online(self) -> bool:
        return self.log is not None

    def go_offline(self) -> None:
        """Its directory has failed. Those who wait for it are told."""
        self.log = None
        self.wake()

    def await_growth(self, wait: FetchWait) -> None:
        if self._waits is None:
            self._waits = {}
        self._waits[wait] = None
        if self.log is not None:
            self.log.on_visible = self.wake

    def forget(self, wait: FetchWait) -> None:
        if self._waits is not None:
            self._waits.pop(wait, None)
            if not self._waits and self.log is not None:
                self.log.on_visible = None

    def wake(self) -> None:
        """The log has grown, or is gone: those who wait look again at the end of this turn."""
        for wait in self._waits or ():
            wait.wake()

"""A topic whose partitions lie on two log directories, one of which is going to fail."""

from __future__ import annotations

from typing import Any

import raw
from node_thread import NodeThread
from raw import ErrorCode

PARTITIONS = 6


class TwoDisks:
    """`good` and `bad` are the partitions in the directories of these names; each holds one record, `one`."""

    def __init__(self, node: NodeThread, **configs: object) -> None:
        self.node = node
        self.client = raw.Client(node.bootstrap)
        self.topic = raw.make_topic(self.client, PARTITIONS, **configs)
        self.good, self.bad = (self._held_by(name) for name in ("good", "bad"))
        assert self.good
        assert self.bad
        for index in range(PARTITIONS):
            assert self.produce(index) == 0

    def produce(self, index: int, value: bytes = b"one") -> int:
        batch = raw.batch(raw.values(value))
        return int(raw.produce(self.client, self.topic, batch, partition=index).error_code)

    def fetch(self, index: int) -> Any:
        return raw.fetch(self.client, self.topic, partition=index)

    def check_good(self) -> None:
        for index in self.good:
            assert self.produce(index) == 0
            assert raw.values_of(self.fetch(index).records)[0] == b"one"

    def check_offline(self) -> None:
        for index in self.bad:
            assert self.produce(index) == ErrorCode.kafka_storage_error
            assert self.fetch(index).error_code == ErrorCode.kafka_storage_error

    def metadata(self) -> dict[int, Any]:
        asked = {"topics": [self.topic.ref], "allow_auto_topic_creation": False}
        (found,) = self.client.call(raw.METADATA, 13, asked).topics
        assert found.error_code == 0
        return {each.partition_index: each for each in found.partitions}

    def _held_by(self, name: str) -> list[int]:
        results = self.client.call(raw.DESCRIBE_LOG_DIRS, 4, {"topics": None}).results
        (directory,) = (each for each in results if each.log_dir.endswith(name))
        return [p.partition_index for t in directory.topics if t.name == self.topic.name for p in t.partitions]

"""Readers: with and without the records of transactions that are open or aborted, as real consumers tell them apart."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from sim_client import FETCH, Client, Life, Partition
from sim_history import check

from headrace.protocol.batch import CONTROL, TRANSACTIONAL, read_header
from headrace.protocol.error_codes import KAFKA_STORAGE_ERROR, NONE, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION
from headrace.protocol.records import iter_records

PASSING = (KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION)
ABORT = b"\0\0\0\0"
IDS_SINCE = 13


class Reader(Client):
    """Reads from the beginning on. With `to_the_end` it ends when it has read all that there is."""

    def __init__(
        self, world, name: str, partitions: list[Partition], *, committed_only: bool, to_the_end=False
    ) -> None:
        super().__init__(world, name)
        self.committed_only = committed_only
        self.to_the_end = to_the_end
        self.positions = dict.fromkeys(partitions, 0)
        self.found: dict[Partition, dict[int, str]] = defaultdict(dict)

    def life(self) -> Life:
        version = self.rng.choice((4, 8, 11, 12, 13, 17))
        while not self.ending or self.to_the_end:
            ended = yield from self.fetch(version)
            if ended and self.to_the_end:
                return
            if not self.to_the_end and self.rng.random() < 0.7:
                yield from self.pause(self.rng.randint(1, 800))

    def fetch(self, version: int) -> Life:
        """True if nothing is left to be read."""
        answer = yield from self.call(FETCH, version, self._body(version))
        if answer is None:
            return False
        check(getattr(answer, "error_code", NONE) == NONE, f"{self.name}: fetch failed: {answer}")
        names = {topic_id: name for name, topic_id in self.world.topic_ids.items()}
        ended = True
        for topic in answer.responses:
            name = names[topic.topic_id] if version >= IDS_SINCE else topic.topic
            for result in topic.partitions:
                partition = (name, result.partition_index)
                if result.error_code != NONE:
                    check(result.error_code in PASSING, f"{self.name}: {partition}: error {result.error_code}")
                    ended = False
                    continue
                self._take(partition, result)
                end = result.last_stable_offset if self.committed_only else result.high_watermark
                ended = ended and self.positions[partition] >= end
        return ended

    def _body(self, version: int) -> dict[str, object]:
        topics: dict[str, list[dict[str, int]]] = {}
        small = self.rng.choice((1, 200, 1 << 20))
        for (topic, index), offset in self.positions.items():
            asked = {"partition": index, "fetch_offset": offset, "partition_max_bytes": small}
            topics.setdefault(topic, []).append(asked)
        ids = self.world.topic_ids
        return {
            "replica_id": -1,
            "max_wait": 0 if self.to_the_end else self.rng.choice((0, 100, 500)),
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "isolation_level": int(self.committed_only),
            "topics": [
                {**({"topic_id": ids[name]} if version >= IDS_SINCE else {"topic": name}), "partitions": partitions}
                for name, partitions in topics.items()
            ],
            "forgotten_topics_data": [],
        }

    def _take(self, partition: Partition, result: Any) -> None:
        data = bytes(result.records or b"")
        aborted = sorted((each.first_offset, each.producer_id) for each in result.aborted_transactions or ())
        skipped: set[int] = set()
        at = 0
        while at + 61 <= len(data):
            header = read_header(data, at)
            if at + header.size > len(data):
                break
            batch = data[at : at + header.size]
            at += header.size
            if header.last_offset < self.positions[partition]:
                continue
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            if header.attributes & CONTROL:
                if self.committed_only and next(iter_records(batch)).key == ABORT:
                    skipped.discard(header.producer_id)
            elif not (self.committed_only and header.attributes & TRANSACTIONAL and header.producer_id in skipped):
                for record in iter_records(batch):
                    if record.offset >= self.positions[partition]:
                        self._read(partition, record.offset, bytes(record.value or b"").decode())
            self.positions[partition] = header.last_offset + 1

    def _read(self, partition: Partition, offset: int, value: str) -> None:
        self.found[partition][offset] = value
        self.world.records.saw(self.name, partition, offset, value, committed_only=self.committed_only)

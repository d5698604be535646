"""Producers that are idempotent: they send again until they know, and nothing may come twice or out of order."""

from __future__ import annotations

from sim_client import INIT_PRODUCER_ID, PRODUCE, Client, Life, Partition
from sim_history import check

from headrace.protocol.error_codes import (
    KAFKA_STORAGE_ERROR,
    NONE,
    NOT_ENOUGH_REPLICAS,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
)
from headrace.protocol.records import Record, build_batch

ATTEMPTS_MAX = 12
AGAIN = (KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS)


class Batch:
    def __init__(self, partition: Partition, values: list[str], sequence: int) -> None:
        self.partition = partition
        self.values = values
        self.sequence = sequence
        self.attempts = 0

    def encoded(self, producer: tuple[int, int], now_ms: int, *, transactional: bool = False) -> bytes:
        return bytes(
            build_batch(
                [Record(at, now_ms, None, value.encode()) for at, value in enumerate(self.values)],
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=self.sequence,
                transactional=transactional,
            )
        )


def produce_body(world, version: int, batch: Batch, data: bytes, transactional_id: str | None = None, acks: int = -1):
    topic, index = batch.partition
    named = {"topic_id": world.topic_ids[topic]} if version >= 13 else {"name": topic}
    return {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [{**named, "partition_data": [{"index": index, "records": data}]}],
    }


class IdempotentProducer(Client):
    stragglers = True

    def life(self) -> Life:
        session = 0
        while not self.ending:
            answer = yield from self.call(
                INIT_PRODUCER_ID, self.rng.choice((0, 2, 4)), {"transactional_id": None, "transaction_timeout": 1000}
            )
            if answer is None or answer.error_code != NONE:
                yield from self.pause(50)
                continue
            session += 1
            yield from self._produce((answer.producer_id, answer.producer_epoch), f"{self.name}.{session}")

    def _produce(self, producer: tuple[int, int], session: str) -> Life:
        """Until a batch cannot be sent: then it goes on as another producer."""
        counts: dict[Partition, int] = {}
        version = self.rng.choice((3, 8, 9, 11, 13))
        while not self.ending:
            waiting: list[Batch] = []
            for _ in range(self.rng.choice((1, 1, 2, 3, 4))):
                partition = self.rng.choice(self.world.partitions)
                first = counts.get(partition, 0)
                counts[partition] = first + self.rng.randint(1, 3)
                values = [f"{session}/{partition[1]}/{number}" for number in range(first, counts[partition])]
                if partition[0] != "a":
                    values = [f"{value}/{partition[0]}" for value in values]
                for number, value in enumerate(values, first):
                    self.world.records.will_send(value, session, number)
                waiting.append(Batch(partition, values, first))
            if not (yield from self._send(producer, version, waiting)):
                return
            if self.rng.random() < 0.6:
                yield from self.pause(self.rng.randint(1, 800))

    def _send(self, producer: tuple[int, int], version: int, waiting: list[Batch]) -> Life:
        """True when all of it is acknowledged."""
        now_ms = self.now_ms
        for _ in range(ATTEMPTS_MAX):
            bodies = [
                (PRODUCE, version, produce_body(self.world, version, each, each.encoded(producer, now_ms)))
                for each in waiting
            ]
            answers = yield from self.calls(bodies)
            left: list[Batch] = []
            for batch, answer in zip(waiting, answers, strict=True):
                if answer is None:
                    left.append(batch)
                    continue
                result = answer.responses[0].partition_responses[0]
                if result.error_code == NONE:
                    self.world.records.acknowledged(batch.partition, result.base_offset, batch.values)
                    continue
                is_next = all(each.partition != batch.partition for each in left)
                left.append(batch)
                if result.error_code == OUT_OF_ORDER_SEQUENCE_NUMBER:
                    what = f"{batch.values} is out of order to the broker, though all before it was acknowledged"
                    check(not is_next or batch.attempts > 0, what)
                    if is_next:
                        # It was written, and those behind it too. A broker that was stopped since knows only the last
                        # one of a producer (Kafka's snapshots keep no more), and cannot tell that this is a duplicate.
                        return False
                else:
                    check(result.error_code in AGAIN, f"{batch.values}: error {result.error_code}")
            if not left:
                return True
            waiting = left
            for batch in waiting:
                batch.attempts += 1
            yield from self.pause(self.rng.randint(5, 300))
        return False

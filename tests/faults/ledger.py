"""What producers were told, and whether the log keeps to it.

Each record says who sent it and the how-manieth it is for its partition. The ledger holds what was
acknowledged; `check` reads the whole log with another client and compares. It trusts no answer of a broker
but the acknowledgements.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from waits import WAIT_S_MAX


class Place(NamedTuple):
    topic: str
    partition: int


class Mark(NamedTuple):
    """Which record it is; the rest of the value is padding."""

    producer: str
    number: int

    def value(self, padding: bytes) -> bytes:
        return b"%s %d " % (self.producer.encode(), self.number) + padding

    @staticmethod
    def read(value: bytes) -> Mark:
        producer, number, _ = value.split(b" ", 2)
        return Mark(producer.decode(), int(number))


class Ledger:
    def __init__(self) -> None:
        self._acknowledged: dict[Place, dict[int, Mark]] = defaultdict(dict)
        self._grown = threading.Condition()
        self._count = 0
        self.problems: list[str] = []

    def acknowledge(self, place: Place, offset: int, mark: Mark) -> None:
        with self._grown:
            known = self._acknowledged[place].setdefault(offset, mark)
            if known != mark:
                self.problems.append(f"{place} offset {offset} was acknowledged to {known} and then to {mark}")
            self._count += 1
            self._grown.notify_all()

    def fail(self, problem: str) -> None:
        with self._grown:
            self.problems.append(problem)
            self._grown.notify_all()

    @property
    def count(self) -> int:
        return self._count

    def await_more(self, count: int, wait_s_max: float = WAIT_S_MAX) -> None:
        """Until `count` more are acknowledged; a problem ends the wait, and the test."""
        with self._grown:
            wanted = self._count + count
            came = self._grown.wait_for(lambda: self.problems or self._count >= wanted, wait_s_max)
            assert not self.problems, self.problems[:5]
            assert came, f"{wanted - self._count} acknowledgements are missing after {wait_s_max:g} s"

    def ends(self) -> dict[Place, int]:
        """By partition, the least end that a log can have which holds all that was acknowledged."""
        with self._grown:
            return {place: max(offsets) + 1 for place, offsets in self._acknowledged.items()}

    def check(self, bootstrap: str, exactly_once: Iterable[str], at_most_once: Iterable[str] = ()) -> int:
        """Every acknowledged record is at its offset, in order; of these producers none is there twice. What was sent
        at most once may be missing. Returns how many records there are."""
        assert not self.problems, self.problems[:5]
        once, lossy = set(exactly_once), set(at_most_once)
        logs = read_all(bootstrap, list(self._acknowledged))
        for place, acknowledged in self._acknowledged.items():
            log = logs[place]
            assert [offset for offset, _ in log] == list(range(len(log))), f"{place} has gaps"
            marks = {offset: Mark.read(value) for offset, value in log}
            wrong = {o: (mark, marks.get(o)) for o, mark in acknowledged.items() if marks.get(o) != mark}
            assert not wrong, f"{place}: acknowledged, and not so in the log: {dict(list(wrong.items())[:5])}"
            by_producer: dict[str, list[int]] = defaultdict(list)
            for mark in marks.values():
                by_producer[mark.producer].append(mark.number)
            for producer, numbers in by_producer.items():
                if producer not in once:
                    numbers = list(dict.fromkeys(numbers))  # a record sent again may be there again
                problem = f"{place}: the order of {producer}: {numbers[:50]}…"
                expected = sorted(set(numbers)) if producer in lossy else list(range(len(numbers)))
                assert numbers == expected, problem
        return sum(map(len, logs.values()))


def read_all(bootstrap: str, places: Sequence[Place]) -> dict[Place, list[tuple[int, bytes]]]:
    """(offset, value) of all records of these partitions, by librdkafka, CRCs checked."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ledger",
            "enable.auto.commit": False,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
        }
    )
    found: dict[Place, list[tuple[int, bytes]]] = {place: [] for place in places}
    try:
        partitions = [TopicPartition(place.topic, place.partition, 0) for place in places]
        ends = [consumer.get_watermark_offsets(each, timeout=WAIT_S_MAX)[1] for each in partitions]
        consumer.assign(partitions)
        deadline = time.monotonic() + WAIT_S_MAX
        count, total = 0, sum(ends)
        while count < total:
            assert time.monotonic() < deadline, f"{count} of {total} records read in {WAIT_S_MAX:g} s"
            for message in consumer.consume(2000, timeout=0.2):
                assert message.error() is None, message.error()
                place = Place(message.topic() or "", message.partition() or 0)
                found[place].append((message.offset() or 0, message.value() or b""))
                count += 1
        return found
    finally:
        consumer.close()

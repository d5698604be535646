"""Transactions that are under way while their broker is killed, and whether readers see all of one or nothing.

Each transaction writes its records to several partitions and is then committed, aborted, or left open by a client that
dies; its successor with the same id fences it. The history says how each ended as far as its client was told: a commit
that was never answered may have happened or not, but not by half.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from ledger import Ledger, Place
from waits import WAIT_S_MAX, eventually

RECORDS_MAX = 12
STEP_S = 5.0  # that a client waits for one answer; then it asks again, or dies


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Transaction(NamedTuple):
    client: str
    number: int

    def value(self, record: int, of: int) -> bytes:
        return f"{self.client} {self.number} {record} {of}".encode()


class TransactionHistory:
    def __init__(self) -> None:
        self.outcomes: dict[Transaction, Outcome] = {}
        self.sizes: dict[Transaction, int] = {}

    def check(self, bootstrap: str, places: Sequence[Place]) -> None:
        """read_committed: of a committed transaction everything, once; of an aborted one nothing; never a part."""
        seen: dict[Transaction, Counter[int]] = defaultdict(Counter)
        for value in read_committed(bootstrap, places):
            client, number, record, _ = value.decode().split()
            seen[Transaction(client, int(number))][int(record)] += 1
        for transaction, outcome in self.outcomes.items():
            found = seen.get(transaction, Counter())
            whole = Counter(range(self.sizes[transaction]))
            allowed = {
                Outcome.COMMITTED: (whole,),
                Outcome.ABORTED: (Counter[int](),),
                Outcome.UNKNOWN: (whole, Counter()),
            }
            assert found in allowed[outcome], f"{transaction} was {outcome.value}, and of it is there {dict(found)}"
        assert not seen.keys() - self.outcomes.keys(), "a transaction that nobody began"

    def counts(self) -> dict[str, int]:
        return {outcome.value: list(self.outcomes.values()).count(outcome) for outcome in Outcome}


class TransactionalLoad:
    """A thread that runs one transaction after the other, until `finish`."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        places: Sequence[Place],
        ledger: Ledger,
        history: TransactionHistory,
        rng: random.Random,
    ) -> None:
        self.name = name
        self._bootstrap = bootstrap
        self._places = places
        self._ledger = ledger
        self._history = history
        self._rng = random.Random(rng.random())
        self._number = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._stopping.set()
        self._thread.join(3 * WAIT_S_MAX)
        assert not self._thread.is_alive(), f"{self.name} still waits for answers"

    def _run(self) -> None:
        try:
            producer = self._successor()
            while not self._stopping.is_set():
                if not self._transact(producer):
                    producer = self._successor()
            self._successor()  # ends what was left open
        except BaseException as error:
            self._ledger.fail(f"{self.name}: {error!r}")

    def _successor(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self.name,
                "transaction.timeout.ms": 60_000,
                "linger.ms": 0,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "metadata.recovery.strategy": "none",  # tests/wire/transformer.py says why
                "log_level": 0,
            }
        )
        eventually(lambda: _tried(lambda: producer.init_transactions(STEP_S)), f"{self.name} begins", 2 * WAIT_S_MAX)
        return producer

    def _transact(self, producer: Producer) -> bool:
        """False: this client is dead, and its transaction with it."""
        transaction = Transaction(self.name, self._number)
        self._number += 1
        size = self._rng.randrange(1, RECORDS_MAX)
        choice = self._rng.random()
        self._history.sizes[transaction] = size
        self._history.outcomes[transaction] = Outcome.ABORTED  # as long as no commit was asked for
        try:
            producer.begin_transaction()
            for record in range(size):
                place = self._rng.choice(self._places)
                producer.produce(place.topic, transaction.value(record, size), partition=place.partition)
            self._stopping.wait(self._rng.random() * 0.02)
            if choice < 0.1:
                producer.flush(STEP_S)
                return False  # left open
            if choice < 0.3:
                return _tried(lambda: producer.abort_transaction(STEP_S), 5)
            self._history.outcomes[transaction] = Outcome.UNKNOWN
            if not _tried(lambda: producer.commit_transaction(STEP_S), 5):
                return False
            self._history.outcomes[transaction] = Outcome.COMMITTED
            return True
        except KafkaException:
            return False


def _tried(step: Callable[[], object], times: int = 1) -> bool:
    """Whether it was done. What can be asked again is asked again, so often."""
    for _ in range(times):
        try:
            step()
            return True
        except KafkaException as error:
            if not error.args[0].retriable():
                return False
    return False


def read_committed(bootstrap: str, places: Sequence[Place]) -> list[bytes]:
    """All values that a reader of committed transactions sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "committed",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    values: list[bytes] = []
    try:
        consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in places])
        ended: set[Place] = set()

        def read() -> bool:
            for message in consumer.consume(2000, timeout=0.2):
                place = Place(message.topic() or "", message.partition() or 0)
                if message.error() is None:
                    values.append(message.value() or b"")
                else:
                    ended.add(place)  # the end of what is committed
            return len(ended) == len(places)

        eventually(read, "all partitions are read to their end")
        return values
    finally:
        consumer.close()

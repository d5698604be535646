"""Producers that go on while their broker is killed and comes back, and tell a ledger what they were told."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import kafka
from confluent_kafka import KafkaError, Message, Producer
from ledger import Ledger, Mark, Place
from waits import NEVER_MS, WAIT_S_MAX

FLUSH_S_MAX = WAIT_S_MAX
UNANSWERED_MAX = 400
PAUSE_S = 0.002  # after each handful: enough load, and a log that is soon read again
HANDFUL = 12


class Load(ABC):
    """A thread that sends; `finish()` waits until all of it is acknowledged."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        places: Sequence[Place],
        ledger: Ledger,
        rng: random.Random,
        pause_s: float = PAUSE_S,
    ):
        self.name = name
        self._pause_s = pause_s
        self.bootstrap = bootstrap
        self._places = places
        self._ledger = ledger
        self._rng = random.Random(rng.random())
        self._sent: Counter[Place] = Counter()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def finish(self) -> int:
        """Returns how many records were sent. All of them are acknowledged, or the ledger has a problem."""
        self._stopping.set()
        self._thread.join(2 * FLUSH_S_MAX)
        assert not self._thread.is_alive(), f"{self.name} still waits for answers"
        return self._sent.total()

    def _run(self) -> None:
        try:
            self._connect()
            while not self._stopping.is_set():
                for _ in range(HANDFUL):
                    self._send_one()
                self._stopping.wait(self._pause_s)
            self._flush()
        except BaseException as error:
            self._ledger.fail(f"{self.name}: {error!r}")

    def _send_one(self) -> None:
        place = self._rng.choice(self._places)
        mark = Mark(self.name, self._sent[place])
        self._sent[place] += 1
        size = self._rng.choice((10, 100, 1000, 4000))
        self._send(place, mark, mark.value(self._rng.randbytes(size)))

    @abstractmethod
    def _connect(self) -> None: ...
    @abstractmethod
    def _send(self, place: Place, mark: Mark, value: bytes) -> None: ...
    @abstractmethod
    def _flush(self) -> None: ...


class ConfluentLoad(Load):
    idempotent = True
    acks = "all"

    def _connect(self) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "acks": self.acks,
                "enable.idempotence": self.idempotent,
                # Without idempotence only one request at a time keeps the order when it is sent again.
                "max.in.flight.requests.per.connection": 5 if self.idempotent else 1,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "queue.buffering.max.messages": UNANSWERED_MAX,
                "message.timeout.ms": NEVER_MS,
                "log_level": 0,
            }
        )

    def _send(self, place: Place, mark: Mark, value: bytes) -> None:
        told = partial(self._told, place, mark)
        deadline = time.monotonic() + FLUSH_S_MAX
        while True:
            try:
                self._producer.produce(place.topic, value, partition=place.partition, on_delivery=told)
                self._producer.poll(0)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise
                self._producer.poll(0.05)

    def _told(self, place: Place, mark: Mark, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._ledger.fail(f"{place} {mark}: {error}")
        else:
            offset = message.offset()
            assert offset is not None
            self._ledger.acknowledge(place, offset, mark)

    def _flush(self) -> None:
        left = self._producer.flush(FLUSH_S_MAX)
        if left:
            self._ledger.fail(f"{self.name}: {left} records were not acknowledged in {FLUSH_S_MAX:g} s")


class PlainConfluentLoad(ConfluentLoad):
    idempotent = False


class LeaderConfluentLoad(PlainConfluentLoad):
    acks = "1"


class UnacknowledgedConfluentLoad(PlainConfluentLoad):
    """Sent at most once: librdkafka says that it was sent, and no broker where it is."""

    acks = "0"

    def _told(self, place: Place, mark: Mark, error: KafkaError | None, message: Message) -> None:
        pass


class KafkaPythonLoad(Load):
    """Idempotent, by kafka-python."""

    def _connect(self) -> None:
        self._room = threading.Semaphore(UNANSWERED_MAX)
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=self.bootstrap,
            acks="all",
            enable_idempotence=True,
            linger_ms=1,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
            delivery_timeout_ms=NEVER_MS,
            request_timeout_ms=10_000,  # then it sends again, which is what it is for
        )

    def _send(self, place: Place, mark: Mark, value: bytes) -> None:
        assert self._room.acquire(timeout=FLUSH_S_MAX), "no acknowledgement makes room"
        future = self._producer.send(place.topic, value, partition=place.partition)
        future.add_callback(self._told, place, mark)
        future.add_errback(self._refused, place, mark)

    def _told(self, place: Place, mark: Mark, metadata: Any) -> None:
        self._room.release()
        self._ledger.acknowledge(place, metadata.offset, mark)

    def _refused(self, place: Place, mark: Mark, error: BaseException) -> None:
        self._room.release()
        self._ledger.fail(f"{place} {mark}: {error!r}")

    def _flush(self) -> None:
        self._producer.flush(FLUSH_S_MAX)
        self._producer.close(timeout=FLUSH_S_MAX)

"""Transformers that are killed and started again, a broker that may be killed too, and what came out of it.

What a reader sees is kept by its place in the output, so that a record which is read twice counts once, and one that
is there twice counts twice.
"""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from headrace_process import HeadraceProcess
from ports import reserved_port
from waits import WAIT_S_MAX

PARTITIONS = 4
RECORDS_PER_ROUND = 400  # more than two transformers get done in a round
RESTARTS_MAX = 100  # that nobody asked for, in a row: a transformer that a slow machine holds up may end, too
FINISH_S_MAX = 3 * WAIT_S_MAX


class KillableBroker:
    """A broker of the test's own, which comes back at the same address with what it had."""

    def __init__(self, data: str, settings: dict[str, str]) -> None:
        self._data, self._settings = data, settings
        self._stack = ExitStack()
        self._port = self._stack.enter_context(reserved_port())
        self._process = HeadraceProcess(data, settings, port=self._port)
        self.bootstrap = self._process.bootstrap
        self.kills = 0

    def kill(self) -> None:
        self._process.kill()
        self.kills += 1
        self._process = HeadraceProcess(self._data, self._settings, port=self._port)

    def check(self) -> None:
        self._process.check()

    def stop(self) -> None:
        with self._stack:
            self._process.stop()


class Slot:
    """The place of one transformer: who runs there is replaced when it is killed, or ends by itself."""

    def __init__(self, log: Path, command: Sequence[str]) -> None:
        self._command = list(command)
        self._log = log
        self.kills = 0
        self.ends = 0  # by itself, since the last kill of anything
        self._start()

    def _start(self) -> None:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        self.stop()
        self.kills += 1
        self._start()

    def tend(self) -> None:
        """Starts it again if it has ended by itself, which a transformer does at every failure."""
        if self._process.poll() is not None:
            self.ends += 1
            assert self.ends <= RESTARTS_MAX, self._log.read_text()[-4000:]
            self._start()


class Chaos:
    def __init__(self, bootstrap: str, source: str, target: str, slots: list[Slot], chance: random.Random) -> None:
        self._source, self._slots, self._chance = source, slots, chance
        quiet = {"bootstrap.servers": bootstrap, "log_level": 0}  # a broker that is gone is no news here
        self._producer = Producer({**quiet, "linger.ms": 5, "enable.idempotence": True})
        self._reader = Consumer(
            {
                **quiet,
                "group.id": f"{source}-reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
            }
        )
        self._reader.assign([TopicPartition(target, partition, 0) for partition in range(PARTITIONS)])
        self._sent: list[bytes] = []
        self._found: dict[tuple[int, int], bytes] = {}  # by partition and offset
        self._values: set[bytes] = set()

    def round(self, seconds: float, broker: KillableBroker | None) -> None:
        """Gives the transformers more than they can do, lets them do it for a while, and kills one, or the broker."""
        for _ in range(RECORDS_PER_ROUND if len(self._sent) - len(self._values) < 2 * RECORDS_PER_ROUND else 0):
            self._send(b"%d" % len(self._sent))
        assert self._producer.flush(WAIT_S_MAX) == 0
        self._read_until(time.monotonic() + seconds)
        victims: list[Slot | KillableBroker] = [*self._slots, *self._slots, *([broker] if broker else [])]
        self._chance.choice(victims).kill()
        for slot in self._slots:
            slot.ends = 0

    def finish(self) -> None:
        """Everything comes out; then one more record in each partition: what is before it is all there is."""
        self._read_until(time.monotonic() + FINISH_S_MAX, lambda: len(self._values) == len(self._sent))
        for partition in range(PARTITIONS):
            self._send(b"last %d" % partition)
        assert self._producer.flush(WAIT_S_MAX) == 0
        self._read_until(time.monotonic() + FINISH_S_MAX, lambda: len(self._values) == len(self._sent))

    def check(self) -> None:
        counts = Counter(self._found.values())
        missing = [value for value in self._sent if value not in counts]
        assert missing == [], f"{len(missing)} of {len(self._sent)} inputs are not in the output, as {missing[:5]}"
        twice = [value for value, count in counts.items() if count != 1]
        assert twice == [], f"{len(twice)} inputs are in the output more than once, as {twice[:5]}"
        assert set(counts) == set(self._sent)

    def close(self) -> None:
        for slot in self._slots:
            slot.stop()
        self._reader.close()

    @property
    def inputs(self) -> int:
        return len(self._sent)

    def _send(self, value: bytes) -> None:
        self._sent.append(value)
        self._producer.produce(self._source, value, partition=len(self._sent) % PARTITIONS)

    def _read_until(self, deadline: float, enough: Callable[[], bool] = lambda: False) -> None:
        while time.monotonic() < deadline and not enough():
            for message in self._reader.consume(500, timeout=0.05):
                error = message.error()
                assert error is None or error.retriable() or not error.fatal(), error
                if error is None:
                    self._found[message.partition(), message.offset()] = message.value()
                    self._values.add(message.value())
            for slot in self._slots:
                slot.tend()

"""Consume, transform, produce, killed at random moments: the output holds each input exactly once.

The moments come from a seed that a failure shows; `--seed N` chooses the same again, `--rounds N` kills more often.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from eventually import WAIT_S_MAX
from memberships import consumer_of

MakeTopic = Callable[..., str]
SLOTS, PARTITIONS = 2, 4
ROUNDS = 8
RECORDS_A_ROUND = 400  # more than two transformers get done in a round
RESTARTS_MAX = 20
FINISH_S_MAX = 30.0
_SCRIPT = str(Path(__file__).parent / "transformer.py")


class Slot:
    """The place of one transformer: who runs there is replaced when it is killed, or ends by itself."""

    def __init__(self, log: Path, *args: str) -> None:
        self._command = [sys.executable, _SCRIPT, *args]
        self._log = log
        self.restarts = -1
        self.start()

    def start(self) -> None:
        self.restarts += 1
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(self._command, stdout=out, stderr=out)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def tend(self) -> None:
        """Starts it again if it has ended by itself, which a transformer does at every failure."""
        if self._process.poll() is not None:
            assert self.restarts < RESTARTS_MAX, self._log.read_text()[-4000:]
            self.start()


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    given = request.config.getoption("--seed", None)
    seed = int.from_bytes(os.urandom(4), "big") if given is None else given
    print(f"replay its choices with --seed {seed}")
    return random.Random(seed)


def test_each_input_is_transformed_exactly_once_whoever_is_killed(
    bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    chance: random.Random,
    request: pytest.FixtureRequest,
) -> None:
    source, target = make_topic(partitions=PARTITIONS), make_topic(partitions=PARTITIONS)
    rounds = request.config.getoption("--rounds", None) or ROUNDS
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    sent: list[bytes] = []
    found: Counter[bytes] = Counter()
    slots = [Slot(tmp_path / f"{n}.log", bootstrap, source, target, f"{source}-group", str(n)) for n in range(SLOTS)]
    reader = consumer_of(bootstrap, f"{source}-reader", isolation_level="read_committed")
    try:
        with reader as consumer:
            consumer.subscribe([target])

            def read_until(deadline: float, enough: Callable[[], bool] = lambda: False) -> None:
                while time.monotonic() < deadline and not enough():
                    for message in consumer.consume(500, timeout=0.05):
                        assert message.error() is None, message.error()
                        found[message.value()] += 1
                    for slot in slots:
                        slot.tend()

            for number in range(rounds):
                for _ in range(RECORDS_A_ROUND):
                    sent.append(b"%d" % len(sent))
                    producer.produce(source, sent[-1], partition=len(sent) % PARTITIONS)
                assert producer.flush(WAIT_S_MAX) == 0
                # The first needs a moment longer: the group forms.
                read_until(time.monotonic() + chance.uniform(0.2, 1.2) + (number == 0))
                victim = chance.choice(slots)
                victim.kill()
                victim.start()
            read_until(time.monotonic() + FINISH_S_MAX, lambda: len(found) == len(sent))
            # One more record in each partition: what comes before it in the output is all there is.
            last = [b"last %d" % partition for partition in range(PARTITIONS)]
            for partition, value in enumerate(last):
                producer.produce(source, value, partition=partition)
            assert producer.flush(WAIT_S_MAX) == 0
            read_until(time.monotonic() + FINISH_S_MAX, lambda: found.keys() >= set(last))
    finally:
        for slot in slots:
            slot.kill()
    assert found.keys() == set(sent) | set(last), "each input is in the output"
    assert [value for value, count in found.items() if count != 1] == [], "none is there twice"

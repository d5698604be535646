"""Consume, transform, produce, killed at random moments: the output holds each input exactly once.

Transformers are killed, and so is the broker, if it is our own. The moments come from a seed that a failure shows;
`--seed N` chooses the same again, `--rounds N` kills more often, and `make chaos MINUTES=…` goes on for so long.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos import PARTITIONS, Chaos, KillableBroker, Slot
from confluent_kafka.admin import AdminClient
from java import JavaTools
from topic_setup import create_topic, fresh_name

SLOTS = 2
ROUNDS = {"confluent": 5, "java-classic": 2, "java-consumer": 2}
# A JVM needs a while before it does anything: seconds of work before a kill, at least and at most.
WORK_S = {"confluent": (0.2, 1.2), "java-classic": (1.5, 5.0), "java-consumer": (1.5, 5.0)}
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    # A killed member of the newer protocol holds its partitions until its session ends.
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "500",
}
_SCRIPT = str(Path(__file__).parent / "transformer.py")


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    given = request.config.getoption("--seed", None)
    seed = int.from_bytes(os.urandom(4), "big") if given is None else given
    print(f"replay its choices with --seed {seed}")
    return random.Random(seed)


@pytest.fixture
def broker(is_headrace: bool, tmp_path: Path) -> Iterator[KillableBroker | None]:
    """One that may be killed; None where another broker was given."""
    if not is_headrace:
        yield None
        return
    own = KillableBroker(str(tmp_path / "data"), SETTINGS)
    try:
        yield own
    except BaseException:
        own.kill()
        raise
    finally:
        own.stop()


def _commands(kind: str, request: pytest.FixtureRequest) -> list[str]:
    if kind == "confluent":
        return [sys.executable, _SCRIPT]
    java: JavaTools = request.getfixturevalue("java")
    return java.command("JavaTransformer")


@pytest.mark.parametrize("kind", ["confluent", *(pytest.param(f"java-{each}") for each in ("classic", "consumer"))])
def test_each_input_is_transformed_exactly_once_whoever_is_killed(
    kind: str,
    broker: KillableBroker | None,
    tmp_path: Path,
    chance: random.Random,
    request: pytest.FixtureRequest,
) -> None:
    bootstrap = broker.bootstrap if broker is not None else request.config.getoption("--bootstrap")
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    source, target = fresh_name(f"{kind}-in"), fresh_name(f"{kind}-out")
    for topic in (source, target):
        create_topic(admin, topic, partitions=PARTITIONS)
    command = _commands(kind, request)
    protocol = [kind.removeprefix("java-")] if kind.startswith("java") else []
    slots = [
        Slot(
            tmp_path / f"{number}.log", [*command, bootstrap, source, target, f"{source}-group", str(number), *protocol]
        )
        for number in range(SLOTS)
    ]
    chaos = Chaos(bootstrap, source, target, slots, chance)
    minutes = request.config.getoption("--minutes")
    rounds = request.config.getoption("--rounds", None) or ROUNDS[kind]
    until, number = time.monotonic() + 60 * (minutes or 0), 0
    try:
        while time.monotonic() < until if minutes else number < rounds:
            # The first needs a moment longer: the group forms.
            chaos.round(chance.uniform(*WORK_S[kind]) + (number == 0), broker)
            number += 1
        chaos.finish()
        chaos.check()
    finally:
        chaos.close()
    kills = sum(slot.kills for slot in slots)
    print(f"{kind}: {chaos.inputs} inputs, {kills} transformers and {broker.kills if broker else 0} brokers killed")

"""What a seed stands for: who lives in its world, and what is looked at in the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest
from sim_client import Client, Life
from sim_groups import ClassicMember, ConsumerMember, ManualCommitter, fetch_offsets
from sim_history import ViolationError, check
from sim_producers import IdempotentProducer
from sim_readers import Reader
from sim_transactions import ExactlyOnce, TransactionalProducer
from sim_world import TOPICS, World

ALL_PARTITIONS = [(name, index) for name, count in TOPICS.items() for index in range(count)]
TRANSACTIONS_MS_MAX = 33_000  # the longest timeout of a transaction here, and a little


KINDS = ("transactions", "zombies", "exactly-once", "classic", "consumer", "manual")


def populate(world: World, kinds: Sequence[str] = ()) -> list[Client]:
    """By chance, unless the kinds of clients are named."""
    rng = world.rng
    clients: list[Client] = [
        Reader(world, "reader", ALL_PARTITIONS, committed_only=False),
        Reader(world, "committed-reader", ALL_PARTITIONS, committed_only=True),
    ]
    clients += [IdempotentProducer(world, f"p{at}") for at in range(rng.choice((1, 1, 2)))]
    kinds = kinds or rng.sample(KINDS, rng.choice((1, 2, 2, 3)))
    version = rng.choice((1, 2))
    if "transactions" in kinds:
        clients += [TransactionalProducer(world, f"t{at}", f"t{at}", version) for at in (1, 2)]
    if "zombies" in kinds:
        clients += [TransactionalProducer(world, f"z{at}", "z", rng.choice((version, 3 - version))) for at in (1, 2)]
    if "exactly-once" in kinds:
        clients += [ExactlyOnce(world, f"e{at}", "e", version) for at in range(rng.choice((1, 2)))]
    if "classic" in kinds:
        clients += [ClassicMember(world, f"c{at}", "classic") for at in range(rng.choice((2, 3)))]
    if "consumer" in kinds:
        clients += [ConsumerMember(world, f"m{at}", "consumer") for at in range(rng.choice((2, 3)))]
    if "manual" in kinds:
        clients.append(ManualCommitter(world, "manual"))
    return clients


def simulate(seed: int, kinds: Sequence[str] = ()) -> World:
    world = World(seed, lambda world: populate(world, kinds), look)
    world.run()
    return world


def run_seeds(seeds: Iterable[int]) -> None:
    for seed in seeds:
        try:
            simulate(seed)
        except Exception as error:
            known = isinstance(error, ViolationError)
            what = str(error) if known else repr(error)
            pytest.fail(f"{what}\nreplay it with: pytest tests/simulation --seed {seed}", pytrace=not known)


class OffsetsAtTheEnd(Client):
    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.found: dict[str, dict[tuple[str, int], int]] = {}

    def life(self) -> Life:
        for group in ("manual", "classic", "consumer", ExactlyOnce.GROUP):
            found = yield from fetch_offsets(self, group, world_partitions(), stable=True)
            check(found is not None, f"the offsets of {group} are never stable")
            self.found[group] = {partition: offset for partition, (offset, _) in found.items()}


def world_partitions() -> list[tuple[str, int]]:
    return [each for each in ALL_PARTITIONS if each[0] != "out"]


def look(world: World, lived: list[Client]) -> None:
    """The last look, in peace: what is there must be what was promised."""
    world.let_time_pass(TRANSACTIONS_MS_MAX)
    everything = Reader(world, "last", ALL_PARTITIONS, committed_only=False, to_the_end=True)
    committed = Reader(world, "last-committed", ALL_PARTITIONS, committed_only=True, to_the_end=True)
    offsets = OffsetsAtTheEnd(world, "last-offsets")
    world.finish([everything, committed, offsets])
    check(everything.positions == committed.positions, "a transaction is open for ever")
    world.records.check_whole(everything.found, committed.found)
    for reader in lived:
        if type(reader) is Reader:
            truth = committed if reader.committed_only else everything
            for partition, position in reader.positions.items():
                expected = {at: value for at, value in truth.found[partition].items() if at < position}
                missed = {at: value for at, value in expected.items() if at not in reader.found[partition]}
                check(not missed, f"{reader.name} missed {missed} of {partition}")
    check_exactly_once(offsets.found[ExactlyOnce.GROUP], committed)


def check_exactly_once(offsets: dict[tuple[str, int], int], committed: Reader) -> None:
    """Each input below the committed offset has come out once, in order, and no other."""
    for partition, offset in offsets.items():
        if partition[0] == "a":
            inputs = [value for at, value in sorted(committed.found[partition].items()) if at < offset]
            outputs = [value.partition(">")[2] for _, value in sorted(committed.found["out", partition[1]].items())]
            check(outputs == inputs, f"{partition} up to {offset}: {inputs} came out as {outputs}")

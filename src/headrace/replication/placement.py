"""Which brokers get the replicas of new partitions: spread as Apache Kafka spreads them, over racks too. No IO.

The first replicas go round robin from a start that is drawn by chance; each round of partitions shifts the others by
one, so that the partitions of a lost broker are taken over by all others and not by its neighbour. With racks, brokers
are ordered so that neighbours are in different racks, and a second replica in a rack is taken only when every rack has
one. Racks count only where all brokers have one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from random import Random

from headrace.replication.image import BrokerImage


def place(
    brokers: Iterable[BrokerImage], partition_count: int, factor: int, *, first_index: int = 0, random: Random
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the preferred leader first. `factor` is at most the number of brokers;
    `first_index` counts the partitions that the topic has already."""
    usable = sorted((each for each in brokers if not each.shutting_down), key=lambda each: each.id)
    racks = {each.id: each.rack for each in usable}
    with_racks = all(racks.values()) and len(set(racks.values())) > 1
    order = _alternating(racks) if with_racks else [each.id for each in usable]
    start, shift = random.randrange(len(order)), random.randrange(len(order))
    placed = []
    for index in range(first_index, first_index + partition_count):
        if index > 0 and index % len(order) == 0:
            shift += 1
        placed.append(_replicas(order, racks if with_racks else {}, start + index, shift, factor))
    return placed


def _replicas(order: Sequence[int], racks: dict[int, str], first_at: int, shift: int, factor: int) -> tuple[int, ...]:
    count = len(order)
    leader = order[first_at % count]
    others = [order[(first_at + 1 + (shift + step) % (count - 1)) % count] for step in range(count - 1)]
    chosen, used_racks = [leader], {racks.get(leader, "")}
    rack_count = len(set(racks.values()))
    while len(chosen) < factor:
        for broker in others:
            if broker in chosen or (racks and racks[broker] in used_racks and len(used_racks) < rack_count):
                continue
            chosen.append(broker)
            used_racks.add(racks.get(broker, ""))
            break
    return tuple(chosen)


def _alternating(racks: dict[int, str]) -> list[int]:
    """One broker of each rack in turn, until all have been taken."""
    by_rack = [deque(each for each in racks if racks[each] == rack) for rack in sorted(set(racks.values()))]
    order: list[int] = []
    while len(order) < len(racks):
        order += [left.popleft() for left in by_rack if left]
    return order

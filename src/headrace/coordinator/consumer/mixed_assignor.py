"""The uniform assignor for members that subscribe to different topics.

First everyone keeps what it had and still wants; then what is free goes to the least loaded subscriber, the topics
with the most partitions for each subscriber first; then partitions move from the most to the least loaded subscriber
of a topic while that evens them out. The last step is repeated over the topics, a bounded number of times: with
overlapping subscriptions perfect balance may take very long, and nearly balanced is enough.
"""

import heapq
import uuid
from collections.abc import Mapping

from headrace.coordinator.consumer.member import Partitions

ROUNDS_MAX = 16


def assign_mixed(
    subscriptions: Mapping[str, frozenset[uuid.UUID]],
    targets: Mapping[str, Partitions],
    counts: Mapping[uuid.UUID, int],
) -> dict[str, Partitions]:
    subscribers: dict[uuid.UUID, list[str]] = {}
    for member_id, topics in subscriptions.items():
        for topic_id in topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    order = sorted(subscribers, key=lambda each: (-counts[each] / len(subscribers[each]), len(subscribers[each]), each))
    owners: dict[uuid.UUID, list[str | None]] = {topic_id: [None] * counts[topic_id] for topic_id in order}
    load = dict.fromkeys(subscriptions, 0)

    for member_id, topics in subscriptions.items():
        for topic_id, partitions in targets.get(member_id, {}).items():
            if topic_id in topics:
                for partition in partitions:
                    if partition < counts[topic_id] and owners[topic_id][partition] is None:
                        owners[topic_id][partition] = member_id
                        load[member_id] += 1

    for topic_id in order:
        _hand_out(owners[topic_id], subscribers[topic_id], load)
    shared = [topic_id for topic_id in order if len(subscribers[topic_id]) > 1]
    for _ in range(ROUNDS_MAX):
        moves = [_even_out(owners[topic_id], subscribers[topic_id], load) for topic_id in shared]
        if not any(moves):
            break
    return _collected(subscriptions, owners)


def _hand_out(owners: list[str | None], subscribers: list[str], load: dict[str, int]) -> None:
    least = [(load[member_id], place, member_id) for place, member_id in enumerate(subscribers)]
    heapq.heapify(least)
    for partition, owner in enumerate(owners):
        if owner is None:
            count, place, member_id = least[0]
            owners[partition] = member_id
            load[member_id] = count + 1
            heapq.heapreplace(least, (count + 1, place, member_id))


def _even_out(owners: list[str | None], subscribers: list[str], load: dict[str, int]) -> int:
    """How many partitions moved. Each move lessens the imbalance, so it ends."""
    held: dict[str, list[int]] = {}
    for partition, owner in enumerate(owners):
        if owner is not None:
            held.setdefault(owner, []).append(partition)
    least = [(load[member_id], place, member_id) for place, member_id in enumerate(subscribers)]
    most = [(-load[member_id], -place, member_id) for place, member_id in enumerate(subscribers) if member_id in held]
    heapq.heapify(least)
    heapq.heapify(most)
    moves = 0
    while most:
        count, place, giver = most[0]
        if not held[giver]:
            heapq.heappop(most)
            continue
        low, low_place, taker = least[0]
        if low != load[taker]:  # it gave something away since
            heapq.heapreplace(least, (load[taker], low_place, taker))
            continue
        if -count - low <= 1:
            break
        owners[held[giver].pop()] = taker
        load[giver] -= 1
        load[taker] += 1
        heapq.heapreplace(most, (count + 1, place, giver))
        heapq.heapreplace(least, (low + 1, low_place, taker))
        moves += 1
    return moves


def _collected(
    subscriptions: Mapping[str, frozenset[uuid.UUID]], owners: Mapping[uuid.UUID, list[str | None]]
) -> dict[str, Partitions]:
    found: dict[str, dict[uuid.UUID, set[int]]] = {member_id: {} for member_id in subscriptions}
    for topic_id, by_partition in owners.items():
        for partition, owner in enumerate(by_partition):
            if owner is not None:
                found[owner].setdefault(topic_id, set()).add(partition)
    return {
        member_id: {topic_id: frozenset(numbers) for topic_id, numbers in topics.items()}
        for member_id, topics in found.items()
    }

"""Who should have which partition: the server-side assignors `uniform` and `range`.

Pure: members with their subscriptions and their present targets in, new targets out. Every partition of a topic that
anyone subscribes to goes to exactly one of its subscribers. Deterministic: members are taken in the order of their ids.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from headrace.coordinator.consumer.member import Partitions
from headrace.coordinator.consumer.mixed_assignor import assign_mixed


class MemberWish(NamedTuple):
    """`topics` are ids of topics that exist; `target` is what the member was to have until now."""

    topics: frozenset[uuid.UUID]
    target: Partitions
    instance_id: str | None = None


Wishes = Mapping[str, MemberWish]
Targets = dict[str, Partitions]
Counts = Mapping[uuid.UUID, int]
NOTHING: Final[Partitions] = {}
Placed = tuple[int, int]  # a topic by its place in the order of ids, and one of its partitions


def uniform(wishes: Wishes, counts: Counts) -> Targets:
    """Balanced first, sticky second. With equal subscriptions no two members differ by more than one partition."""
    if not wishes:
        return {}
    subscriptions = {wish.topics for wish in wishes.values()}
    if len(subscriptions) > 1:
        return assign_mixed(
            {member_id: wishes[member_id].topics for member_id in sorted(wishes)},
            {member_id: wish.target for member_id, wish in wishes.items()},
            counts,
        )
    return _uniform_alike(wishes, counts, subscriptions.pop())


def _uniform_alike(wishes: Wishes, counts: Counts, topics: frozenset[uuid.UUID]) -> Targets:
    ids = sorted(topics)
    # Topics go by their place in that order: an id is a slow thing to look up, two hundred times over.
    places = {topic_id: place for place, topic_id in enumerate(ids)}
    free: dict[Placed, None] = {
        (place, partition): None for place, topic_id in enumerate(ids) for partition in range(counts[topic_id])
    }
    smallest, extras = divmod(len(free), len(wishes))
    kept: dict[str, list[Placed]] = {}
    for member_id in sorted(wishes):
        target = wishes[member_id].target
        kept[member_id] = held = []
        if not target:
            continue  # as most have in a group with more members than partitions
        for place, topic_id in sorted((places[each], each) for each in target if each in places):
            for partition in sorted(target[topic_id]):
                if (place, partition) in free:
                    del free[place, partition]
                    held.append((place, partition))
    # Those who have one more than the smallest share keep it, as long as there are such shares.
    quotas: dict[str, int] = {}
    for member_id, held in kept.items():
        if len(held) > smallest and extras:
            quotas[member_id] = smallest + 1
            extras -= 1
    for member_id, held in kept.items():
        if member_id not in quotas:
            quotas[member_id] = smallest + (1 if extras else 0)
            extras -= 1 if extras else 0
        for each in held[quotas[member_id] :]:
            free[each] = None
        del held[quotas[member_id] :]
    waiting = iter(sorted(free))
    for member_id, held in kept.items():
        for _ in range(quotas[member_id] - len(held)):
            held.append(next(waiting))
    return {member_id: _by_topic(held, ids) if held else NOTHING for member_id, held in kept.items()}


def range_(wishes: Wishes, counts: Counts) -> Targets:
    """Each topic is cut into runs of neighbouring partitions, in the same order of members for every topic.

    So topics with equal partition counts are co-partitioned: the member with partition 3 of one has partition 3 of the
    other. Static members come first, by their instance ids, and so keep their places when they return.
    """
    order = sorted(wishes, key=lambda each: _range_rank(each, wishes[each].instance_id))
    targets: dict[str, dict[uuid.UUID, frozenset[int]]] = {member_id: {} for member_id in order}
    for topic_id in frozenset[uuid.UUID]().union(*(wish.topics for wish in wishes.values())):
        subscribers = [member_id for member_id in order if topic_id in wishes[member_id].topics]
        smallest, extras = divmod(counts[topic_id], len(subscribers))
        start = 0
        for at, member_id in enumerate(subscribers):
            end = start + smallest + (1 if at < extras else 0)
            if end > start:
                targets[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(targets)


def _range_rank(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (True, member_id) if instance_id is None else (False, instance_id)


def _by_topic(partitions: Sequence[Placed], ids: Sequence[uuid.UUID]) -> Partitions:
    grouped: dict[int, list[int]] = {}
    for place, partition in partitions:
        grouped.setdefault(place, []).append(partition)
    return {ids[place]: frozenset(numbers) for place, numbers in grouped.items()}


ASSIGNORS: Final[Mapping[str, Callable[[Wishes, Counts], Targets]]] = {"uniform": uniform, "range": range_}

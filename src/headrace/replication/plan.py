"""What the controller does next, decided from the image and from what users asked for. No IO.

`plan` compares what is with what should be and names the writes that lead there; when they are made, it is asked
again, until it has nothing to say. It remembers nothing, so a controller that was elected a moment ago, one that has
crashed in the midst of its work and one whose write was refused all do the same: read, plan, write.

In the order in which a partition is looked at:
1. A partition without a state gets its first one, as soon as a replica is alive.
2. One whose leader is gone, was started again or lost its directory gets another leader.
3. One whose leader is shutting down is led by another replica, if one is electable.
4. When a reassignment's new replicas are all in sync, a leader that is to go hands over, the ISR shrinks to the target,
   and then the list of replicas does.
5. A wished election is made: of the preferred leader, or an unclean one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headrace.replication.election import Brokers, Way, elect, has_all, is_alive, is_electable, leads
from headrace.replication.image import NO_LEADER, NO_VERSION, ClusterImage, PartitionImage, TopicImage
from headrace.replication.operations import DeleteTopic, EndReassignment, Operation, SetState

Place = tuple[str, int]  # a topic and the number of a partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What users asked the controller for, and it has not done yet."""

    deleted: frozenset[str] = frozenset()
    preferred: frozenset[Place] = frozenset()
    unclean: frozenset[Place] = frozenset()


def plan(
    image: ClusterImage, wishes: Wishes, *, is_unclean: Callable[[TopicImage], bool] = lambda topic: False
) -> Iterator[Operation]:
    """The writes that can be made now, at most one per partition. `is_unclean` is the topic's setting."""
    for name in sorted(wishes.deleted):
        if name in image.topics:
            yield DeleteTopic(topic=name)
    for topic in image.topics.values():
        if topic.name in wishes.deleted:
            continue
        for index, partition in enumerate(topic.partitions):
            place = (topic.name, index)
            unclean = is_unclean(topic) or place in wishes.unclean
            state, way = _next_state(partition, image.brokers, unclean=unclean, preferred=place in wishes.preferred)
            if state != partition:
                yield SetState(topic=topic.name, index=index, state=state, expected_version=partition.version, way=way)
            elif (partition.adding or partition.removing) and _is_moved(partition, image.brokers):
                yield EndReassignment(topic=topic.name, index=index, replicas=partition.target)


def _next_state(
    partition: PartitionImage, brokers: Brokers, *, unclean: bool, preferred: bool
) -> tuple[PartitionImage, Way | None]:
    if partition.version == NO_VERSION:
        return _first_state(partition, brokers), None
    if not leads(partition, brokers):
        election = elect(partition, brokers, unclean=unclean)
        return election.partition, election.way
    if brokers[partition.leader].shutting_down:
        return _handed_over(partition, brokers, partition.replicas)
    if partition.adding or partition.removing:
        if _are_in_sync(partition, brokers):
            return _moved(partition, brokers)
    elif preferred and partition.leader != partition.replicas[0]:
        return _handed_over(partition, brokers, partition.replicas[:1])
    return partition, None


def _first_state(partition: PartitionImage, brokers: Brokers) -> PartitionImage:
    """There are no records yet, so every replica that is alive is in sync."""
    alive = [each for each in partition.replicas if is_alive(partition, each, brokers)]
    staying = [each for each in alive if not brokers[each].shutting_down]
    if not staying:
        return partition
    leader = staying[0]
    isr = {each: brokers[each].incarnation for each in staying}
    return replace(
        partition.with_isr(isr), leader=leader, leader_incarnation=brokers[leader].incarnation, leader_epoch=0
    )


def _handed_over(
    partition: PartitionImage, brokers: Brokers, order: tuple[int, ...]
) -> tuple[PartitionImage, Way | None]:
    """Led by the first of these that is electable; as it is if none is."""
    if not any(is_electable(partition, each, brokers) for each in order):
        return partition, None
    election = elect(partition, brokers, prefer=order)
    return election.partition, election.way


def _are_in_sync(partition: PartitionImage, brokers: Brokers) -> bool:
    return all(has_all(partition, each, brokers) for each in partition.target)


def _moved(partition: PartitionImage, brokers: Brokers) -> tuple[PartitionImage, Way | None]:
    """The leader is of the target, and nobody else is in the ISR."""
    target = partition.target
    way = None
    if partition.leader not in target:
        partition, way = _handed_over(partition, brokers, target)
        if way is None:
            return partition, None
    isr = {each: partition.isr_incarnation(each) for each in partition.isr if each in target}
    if len(isr) == len(partition.isr):
        return partition, way
    epoch = partition.leader_epoch if way is not None else partition.leader_epoch + 1
    return replace(partition.with_isr(isr), leader_epoch=epoch), way


def _is_moved(partition: PartitionImage, brokers: Brokers) -> bool:
    return (
        partition.leader != NO_LEADER
        and partition.leader in partition.target
        and set(partition.isr) <= set(partition.target)
        and _are_in_sync(partition, brokers)
    )

"""Who leads a partition: decided from the image alone, without IO.

Only a replica that has every committed record may lead. The ISR names such replicas, each with the incarnation of its
broker at the time when it joined. A broker says from which incarnation on all that it wrote is still on its disks
(`intact_from`), so a member that lost its disk since, or lost power before its pages were written, is not taken for
one that has the data. A replica is electable when it is in the ISR, alive, not shutting down, with its directory
online, and intact since it joined.

Where nobody is electable, a partition waits without a leader. There are two ways out, and both may lose records: the
setting `unclean.leader.election.enable`, and the case that every member of the ISR is back and none of them is intact,
since then nothing better can come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from headrace.replication.image import NO_LEADER, BrokerImage, PartitionImage

Brokers = Mapping[int, BrokerImage]


class Way(Enum):
    CLEAN = "from the ISR"
    LAST_RESORT = "the whole ISR is back and no member is intact; records may be lost"
    UNCLEAN = "outside the ISR; records may be lost"
    NONE = "no replica is electable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Election:
    way: Way
    partition: PartitionImage  # the state to be written


def is_alive(partition: PartitionImage, broker: int, brokers: Brokers) -> bool:
    """Whether this replica can be reached and read."""
    return broker in brokers and broker not in partition.offline


def has_all(partition: PartitionImage, broker: int, brokers: Brokers) -> bool:
    """Whether it is alive and has every committed record."""
    return (
        broker in partition.isr
        and is_alive(partition, broker, brokers)
        and brokers[broker].intact_from <= partition.isr_incarnation(broker)
    )


def is_electable(partition: PartitionImage, broker: int, brokers: Brokers) -> bool:
    return has_all(partition, broker, brokers) and not brokers[broker].shutting_down


def leads(partition: PartitionImage, brokers: Brokers) -> bool:
    """Whether the partition has a leader that may go on: alive, and the incarnation that leadership was given to."""
    leader = partition.leader
    return (
        leader in partition.replicas
        and is_alive(partition, leader, brokers)
        and brokers[leader].incarnation == partition.leader_incarnation
    )


def elect(
    partition: PartitionImage, brokers: Brokers, *, unclean: bool = False, prefer: tuple[int, ...] | None = None
) -> Election:
    """The next leader: the first electable replica in the order of assignment (or of `prefer`)."""
    order = partition.replicas if prefer is None else prefer
    for broker in order:
        if is_electable(partition, broker, brokers):
            isr = {each: partition.isr_incarnation(each) for each in _kept(partition, brokers)}
            return Election(way=Way.CLEAN, partition=_led(partition, broker, isr, brokers))
    back = [each for each in order if each in partition.isr and is_alive(partition, each, brokers)]
    if back and len(back) == len(partition.isr) and not any(has_all(partition, each, brokers) for each in back):
        return Election(way=Way.LAST_RESORT, partition=_alone(partition, back[0], brokers))
    if unclean:
        for broker in order:
            if is_alive(partition, broker, brokers) and not brokers[broker].shutting_down:
                return Election(way=Way.UNCLEAN, partition=_alone(partition, broker, brokers))
    return Election(way=Way.NONE, partition=_without_leader(partition))


def _kept(partition: PartitionImage, brokers: Brokers) -> tuple[int, ...]:
    """The members of the ISR that stay: those that are going, are gone, or lost data leave it."""
    return tuple([each for each in partition.isr if is_electable(partition, each, brokers)])


def _led(partition: PartitionImage, leader: int, isr: Mapping[int, int], brokers: Brokers) -> PartitionImage:
    return replace(
        partition.with_isr(isr),
        leader=leader,
        leader_incarnation=brokers[leader].incarnation,
        leader_epoch=partition.leader_epoch + 1,
    )


def _alone(partition: PartitionImage, leader: int, brokers: Brokers) -> PartitionImage:
    return _led(partition, leader, {leader: brokers[leader].incarnation}, brokers)


def _without_leader(partition: PartitionImage) -> PartitionImage:
    """The ISR is kept as it is: its members are those who may lead when they come back."""
    if partition.leader == NO_LEADER:
        return partition
    return replace(partition, leader=NO_LEADER, leader_incarnation=0, leader_epoch=partition.leader_epoch + 1)

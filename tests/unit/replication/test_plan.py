"""The controller's plan: what it writes in each situation, and that it comes to an end."""

import uuid
from random import Random

import pytest

from headrace.replication.election import Way, is_electable, leads
from headrace.replication.image import NO_LEADER, BrokerImage, ClusterImage, ImageDelta, PartitionImage, TopicImage
from headrace.replication.operations import DeleteTopic, EndReassignment, SetState, change
from headrace.replication.plan import Wishes, plan

NO_WISHES = Wishes()


def cluster(partition, *alive, **changed):
    brokers = {each: BrokerImage(id=each, endpoints={}, incarnation=1) for each in alive}
    for name, fields in changed.items():
        number = int(name.removeprefix("b"))
        brokers[number] = BrokerImage(id=number, endpoints={}, **{"incarnation": 1, **fields})
    topic = TopicImage(name="orders", id=uuid.UUID(int=1), partitions=(partition,))
    return ClusterImage(cluster_id="c").changed(ImageDelta(brokers=brokers, topics={"orders": topic}))


def led(leader=1, isr=(1, 2, 3), replicas=(1, 2, 3), **fields):
    given = {"leader_incarnation": 1, "leader_epoch": 4, "isr_incarnations": (1,) * len(isr), "version": 9}
    return PartitionImage(replicas=replicas, leader=leader, isr=isr, **{**given, **fields})


def carried_out(image, wishes=NO_WISHES, rounds_max=10, **settings):
    """All that is planned, round after round, until nothing is."""
    done = []
    for _ in range(rounds_max):
        operations = list(plan(image, wishes, **settings))
        if not operations:
            return image, done
        for each in operations:
            image = image.changed(change(image, each))
        done += operations
    raise AssertionError(f"no end after {rounds_max} rounds: {done}")


def partition_of(image):
    return image.topics["orders"].partitions[0]


def test_a_new_partition_is_led_by_its_first_live_replica_with_all_live_ones_in_sync():
    image, done = carried_out(cluster(PartitionImage(replicas=(1, 2, 3)), 2, 3))
    state = partition_of(image)
    assert (state.leader, state.isr, state.leader_epoch, state.version) == (2, (2, 3), 0, 0)
    assert [type(each) for each in done] == [SetState]


def test_a_new_partition_waits_for_a_live_replica():
    assert carried_out(cluster(PartitionImage(replicas=(1, 2, 3)), 4))[1] == []


def test_a_leader_that_was_started_again_is_elected_again_with_another_epoch():
    image, done = carried_out(cluster(led(), 2, 3, b1={"incarnation": 2}))
    state = partition_of(image)
    assert (state.leader, state.leader_incarnation, state.leader_epoch) == (1, 2, 5)
    assert [(each.expected_version, each.way) for each in done] == [(9, Way.CLEAN)]


def test_a_broker_that_shuts_down_hands_its_leadership_over_and_leaves_the_isr():
    state = partition_of(carried_out(cluster(led(), 2, 3, b1={"shutting_down": True}))[0])
    assert (state.leader, state.isr) == (2, (2, 3))


def test_a_broker_that_shuts_down_leads_on_where_nobody_else_can():
    alone = led(isr=(1,), isr_incarnations=(1,))
    assert carried_out(cluster(alone, 2, 3, b1={"shutting_down": True}))[1] == []


def test_a_preferred_leader_takes_over_when_it_is_wished_for_and_in_sync():
    wishes = Wishes(preferred=frozenset({("orders", 0)}))
    assert partition_of(carried_out(cluster(led(leader=2), 1, 2, 3), wishes)[0]).leader == 1
    behind = led(leader=2, isr=(2, 3), isr_incarnations=(1, 1))
    assert carried_out(cluster(behind, 1, 2, 3), wishes)[1] == []


def test_an_unclean_election_is_made_by_the_setting_or_by_a_wish_and_by_nothing_else():
    lost = cluster(led(isr=(1,)), 2, 3)
    assert partition_of(carried_out(lost)[0]).leader == NO_LEADER
    assert partition_of(carried_out(lost, is_unclean=lambda topic: True)[0]).leader == 2
    assert partition_of(carried_out(lost, Wishes(unclean=frozenset({("orders", 0)})))[0]).leader == 2


def test_a_deleted_topic_is_removed_and_nothing_else_is_done_to_it():
    image, done = carried_out(cluster(led(), 2), Wishes(deleted=frozenset({"orders", "gone"})))
    assert (done, image.topics) == ([DeleteTopic(topic="orders")], {})


def test_a_reassignment_ends_when_all_of_the_target_is_in_sync():
    moving = led(replicas=(4, 5, 1, 2, 3), adding=(4, 5), removing=(1, 2, 3))
    early = cluster(moving, 1, 2, 3, 4, 5)
    assert carried_out(early)[1] == [], "the new ones have nothing yet"
    in_sync = led(replicas=(4, 5, 1, 2, 3), isr=(4, 5, 1, 2, 3), adding=(4, 5), removing=(1, 2, 3))
    image, done = carried_out(cluster(in_sync, 1, 2, 3, 4, 5))
    state = partition_of(image)
    assert (state.replicas, state.leader, state.isr, state.leader_epoch) == ((4, 5), 4, (4, 5), 5)
    assert (state.adding, state.removing) == ((), ())
    assert [type(each) for each in done] == [SetState, EndReassignment], "the replicas last"


def test_a_reassignment_that_only_adds_replicas_changes_no_leader():
    adding = led(isr=(1, 2, 3), replicas=(1, 2, 3), adding=(3,))
    image, done = carried_out(cluster(adding, 1, 2, 3))
    assert (partition_of(image).leader_epoch, [type(each) for each in done]) == (4, [EndReassignment])


@pytest.mark.parametrize("seed", range(300))
def test_a_plan_comes_to_an_end_and_leaves_no_partition_without_a_leader_that_could_have_one(seed):
    random = Random(seed)
    brokers = {
        each: BrokerImage(
            id=each,
            endpoints={},
            incarnation=random.randrange(1, 4),
            intact_from=random.randrange(0, 4),
            shutting_down=random.random() < 0.2,
        )
        for each in range(1, 6)
        if random.random() < 0.7
    }
    image = ClusterImage(cluster_id="c").changed(ImageDelta(brokers=brokers))
    partitions = []
    for _ in range(6):
        replicas = tuple(random.sample(range(1, 6), random.randrange(1, 5)))
        isr = tuple(each for each in replicas if random.random() < 0.7) or replicas[:1]
        split = random.randrange(len(replicas) + 1)
        state = PartitionImage(
            replicas=replicas,
            leader=random.choice((*isr, NO_LEADER)),
            leader_epoch=3,
            isr=isr,
            isr_incarnations=tuple(random.randrange(1, 4) for _ in isr),
            leader_incarnation=random.randrange(1, 4),
            offline=tuple(each for each in replicas if random.random() < 0.1),
            removing=replicas[split:] if split > 0 and random.random() < 0.4 else (),
            version=random.choice((-1, 6)),
        )
        partitions.append(state)
    topic = TopicImage(name="orders", id=uuid.UUID(int=1), partitions=tuple(partitions))
    image = image.changed(ImageDelta(topics={"orders": topic}))
    wishes = Wishes(preferred=frozenset(("orders", each) for each in range(6) if random.random() < 0.3))
    after, _ = carried_out(image, wishes)
    for was, now in zip(partitions, after.topics["orders"].partitions, strict=True):
        assert now.leader_epoch >= (was.leader_epoch if was.version >= 0 else 0)
        assert now.leader in (*now.replicas, NO_LEADER)
        if now.version >= 0 and not leads(now, after.brokers):
            assert now.leader == NO_LEADER
            assert not any(is_electable(now, each, after.brokers) for each in now.replicas)

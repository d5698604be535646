"""Where replicas are placed: evenly, on different brokers, in different racks."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headrace.replication.image import BrokerImage
from headrace.replication.placement import place


def brokers(count, racks=0):
    return [BrokerImage(id=7 + each, endpoints={}, rack=f"r{each % racks}" if racks else "") for each in range(count)]


@given(st.data(), st.integers(1, 9), st.integers(0, 4), st.integers(1, 60), st.integers(0, 20), st.integers())
def test_replicas_are_on_different_brokers_and_spread_evenly(data, count, racks, partitions, first, seed):
    factor = data.draw(st.integers(1, count))
    placed = place(brokers(count, racks), partitions, factor, first_index=first, random=Random(seed))
    assert len(placed) == partitions
    assert all(len(set(each)) == len(each) == factor for each in placed)
    leaders = Counter(each[0] for each in placed)
    assert max(leaders.values()) - min(leaders[7 + each] for each in range(count)) <= 1


@given(st.integers(2, 9), st.integers(2, 4), st.integers(1, 40), st.integers())
def test_every_rack_has_a_replica_before_one_has_two(count, racks, partitions, seed):
    racks = min(racks, count)
    of = {each.id: each.rack for each in brokers(count, racks)}
    for factor in range(1, count + 1):
        for each in place(brokers(count, racks), partitions, factor, random=Random(seed)):
            assert len({of[broker] for broker in each}) == min(factor, racks)


def test_the_partitions_of_a_lost_broker_are_taken_over_by_all_others():
    placed = place(brokers(5), 200, 2, random=Random(1))
    heirs = Counter(second for first, second in placed if first == 7)
    assert set(heirs) == {8, 9, 10, 11}


def test_a_broker_that_shuts_down_gets_none_and_racks_count_only_where_all_have_one():
    leaving = [*brokers(2), BrokerImage(id=1, endpoints={}, rack="r0", shutting_down=True)]
    assert all(1 not in each for each in place(leaving, 20, 2, random=Random(3)))
    mixed = [*brokers(2, 2), BrokerImage(id=1, endpoints={})]
    assert all(len(each) == 3 for each in place(mixed, 5, 3, random=Random(3)))


def test_the_same_seed_gives_the_same_places():
    assert place(brokers(4), 9, 2, random=Random(5)) == place(brokers(4), 9, 2, random=Random(5))

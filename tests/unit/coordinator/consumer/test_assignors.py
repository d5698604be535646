"""The server-side assignors: each partition to exactly one subscriber, evenly, and with as few moves as that allows."""

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinator.consumer.assignors import MemberWish, range_, uniform

TOPICS = [uuid.uuid5(uuid.NAMESPACE_DNS, f"topic-{index}") for index in range(6)]
A, B = TOPICS[:2]
MEMBERS = [f"member-{index}" for index in range(9)]

counts = st.fixed_dictionaries({topic: st.integers(0, 12) for topic in TOPICS})
some_topics = st.frozensets(st.sampled_from(TOPICS))
different = st.dictionaries(st.sampled_from(MEMBERS), some_topics, min_size=1)
alike = st.builds(
    lambda names, topics: dict.fromkeys(names, topics), st.sets(st.sampled_from(MEMBERS), min_size=1), some_topics
)
either = st.one_of(different, alike)


def wishes(subscriptions, targets=None):
    return {each: MemberWish(topics, (targets or {}).get(each, {})) for each, topics in subscriptions.items()}


def owners(targets):
    found = {}
    for member, topics in targets.items():
        for topic, partitions in topics.items():
            for partition in partitions:
                assert (topic, partition) not in found, "two members have it"
                found[topic, partition] = member
    return found


def sizes(targets):
    return {member: sum(map(len, topics.values())) for member, topics in targets.items()}


@pytest.mark.parametrize("assignor", [uniform, range_])
@given(subscriptions=either, counts=counts)
@settings(max_examples=60, deadline=None)
def test_each_partition_goes_to_exactly_one_subscriber(assignor, subscriptions, counts):
    targets = assignor(wishes(subscriptions), counts)
    assert set(targets) == set(subscriptions)
    found = owners(targets)
    wanted = frozenset().union(*subscriptions.values())
    assert set(found) == {(topic, partition) for topic in wanted for partition in range(counts[topic])}
    assert all(topic in subscriptions[member] for (topic, _), member in found.items())


@given(subscriptions=alike, counts=counts, before=alike, counts_before=counts)
@settings(max_examples=80, deadline=None)
def test_uniform_is_balanced_within_one_whatever_was_before(subscriptions, counts, before, counts_before):
    grown = {topic: max(count, counts_before[topic]) for topic, count in counts.items()}
    old = uniform(wishes(before), counts_before)
    new = uniform(wishes(subscriptions, old), grown)
    assert max(sizes(new).values()) - min(sizes(new).values()) <= 1


@given(subscriptions=either, counts=counts)
@settings(max_examples=60, deadline=None)
def test_uniform_moves_nothing_when_nothing_changed(subscriptions, counts):
    once = uniform(wishes(subscriptions), counts)
    assert uniform(wishes(subscriptions, once), counts) == once


@given(names=st.sets(st.sampled_from(MEMBERS), min_size=2), topics=some_topics, counts=counts, data=st.data())
@settings(max_examples=60, deadline=None)
def test_uniform_moves_only_what_balance_demands_when_a_member_comes_or_goes(names, topics, counts, data):
    one = data.draw(st.sampled_from(sorted(names)))
    smaller = dict.fromkeys(names - {one}, topics)
    larger = dict.fromkeys(names, topics)
    without = uniform(wishes(smaller), counts)
    joined = uniform(wishes(larger, without), counts)
    moved = {key for key, owner in owners(joined).items() if owners(without)[key] != owner}
    assert all(owners(joined)[key] == one for key in moved), "only the newcomer gets something"
    left = uniform(wishes(smaller, joined), counts)
    kept = {key: owner for key, owner in owners(joined).items() if owner != one}
    assert kept.items() <= owners(left).items(), "who stays keeps all it had"


@given(subscriptions=different, counts=counts, before=different)
@settings(max_examples=60, deadline=None)
def test_uniform_leaves_no_move_that_would_even_out_different_subscriptions(subscriptions, counts, before):
    targets = uniform(wishes(subscriptions, uniform(wishes(before), counts)), counts)
    load = sizes(targets)
    for (topic, _), owner in owners(targets).items():
        least = min(load[each] for each in subscriptions if topic in subscriptions[each])
        assert load[owner] - least <= 1


@given(names=st.sets(st.sampled_from(MEMBERS), min_size=1), count=st.integers(0, 20))
def test_range_gives_the_same_partitions_of_topics_that_are_alike(names, count):
    targets = range_(wishes(dict.fromkeys(names, frozenset((A, B)))), {A: count, B: count})
    assert all(topics.get(A) == topics.get(B) for topics in targets.values())


def test_range_gives_runs_and_the_larger_ones_to_the_first():
    targets = range_(wishes(dict.fromkeys(("c", "a", "b"), frozenset((A,)))), {A: 8})
    assert targets == {"a": {A: {0, 1, 2}}, "b": {A: {3, 4, 5}}, "c": {A: {6, 7}}}


def test_range_puts_static_members_first_by_their_instance_ids():
    members = {
        "1": MemberWish(frozenset((A,)), {}),
        "2": MemberWish(frozenset((A,)), {}, "zebra"),
        "3": MemberWish(frozenset((A,)), {}, "ant"),
    }
    assert range_(members, {A: 3}) == {"3": {A: {0}}, "2": {A: {1}}, "1": {A: {2}}}


def test_pictures_of_one_two_four_and_five_consumers_of_four_partitions():
    targets = {}
    for count, expected in ((1, [4]), (2, [2, 2]), (4, [1, 1, 1, 1]), (5, [0, 1, 1, 1, 1])):
        targets = uniform(wishes(dict.fromkeys(MEMBERS[:count], frozenset((A,))), targets), {A: 4})
        assert sorted(sizes(targets).values()) == expected


def test_nobody_gets_nothing():
    assert uniform({}, {}) == {}
    assert range_({}, {}) == {}

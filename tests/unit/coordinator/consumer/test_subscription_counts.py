"""What members want is counted as they come and go, so that a join looks at no other member."""

import random

import pytest
from test_consumer_group_state import Bench, facts

from headrace.coordinator.consumer import patterns as consumer_group_patterns
from headrace.coordinator.consumer.changes import PatternChange, SubscriptionChange
from headrace.coordinator.consumer.member import ClassicMember, Subscription
from headrace.coordinator.consumer.subscription_counts import topics_digest
from headrace.coordinator.consumer.table import ConsumerGroupTable
from headrace.coordinator.topic_view import TopicTable
from headrace.core.errors import PeerError
from headrace.protocol import error_codes as codes

TOPICS = ("a", "b", "c", "d")
PATTERNS = ("", "", "x.*", "y.*")


class WatchedMembers(dict):
    """Counts how often all of it is walked through."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()

    def values(self):
        self.walks += 1
        return super().values()

    def items(self):
        self.walks += 1
        return super().items()


def any_change(chance):
    member_id = str(chance.randrange(8))
    if chance.random() < 0.25:
        topics = chance.choice([None, frozenset(chance.sample(TOPICS, 2))])
        return PatternChange(chance.choice(PATTERNS[2:]), topics)
    if chance.random() < 0.3:
        return SubscriptionChange(member_id, None)
    protocols = tuple((name, b"") for name in chance.sample(["range", "sticky", "range"], 2))
    return SubscriptionChange(
        member_id,
        Subscription(
            topics=frozenset(chance.sample(TOPICS, chance.randrange(3))),
            pattern=chance.choice(PATTERNS),
            classic=chance.choice([None, ClassicMember(6000, protocols)]),
        ),
    )


def check(table, view):
    """The counts are those of a walk through all members."""
    members = list(table.members.values())
    used = {member.subscription.pattern for member in members} - {""}
    classics = [member.subscription.classic for member in members if member.is_classic]
    assert set(table.topics()) == set().union(*(table.topics_of(member) for member in members))
    assert set(table.counts.patterns) == used
    assert table.counts.unresolved == used - table.patterns.keys()
    assert table.counts.classic == len(classics)
    for name in ("range", "sticky", "other"):
        all_speak = all(name in dict(classic.protocols) for classic in classics)
        assert table.counts.speak_any([name]) == all_speak
    assert table.counts.topics_digest(view) == topics_digest(table.topics(), view)


@pytest.mark.parametrize("seed", range(5))
def test_counts_are_those_of_a_walk_and_can_be_taken_back(seed):
    chance = random.Random(seed)
    table, view = ConsumerGroupTable("g"), TopicTable({"a": 1, "b": 2, "c": 3})
    for _ in range(200):
        before, undo = facts(table), []
        for _ in range(chance.randrange(1, 4)):
            table.apply(any_change(chance), undo)
        check(table, view)
        if chance.random() < 0.4:
            for step in reversed(undo):
                step()
            assert facts(table) == before
            check(table, view)
        if chance.random() < 0.1:
            view.set(chance.choice(TOPICS), chance.randrange(1, 9))


def test_digest_changes_with_what_exists_and_not_with_what_does_not():
    view = TopicTable({"a": 1})
    first = topics_digest(["a"], view)
    assert topics_digest(["a", "missing"], view) == first
    view.set("a", 2)
    assert topics_digest(["a"], view) != first
    assert topics_digest(["missing"], view) == 0


@pytest.mark.parametrize("said", [{}, {"topics": None, "pattern": "o.*"}], ids=["topics", "pattern"])
def test_joining_and_leaving_a_large_group_looks_at_no_other_member(said):
    bench = Bench(consumer_assignment_interval_ms=3_600_000)
    bench.now_ms = 10_000_000
    bench.join("first")  # the target is computed once, and then not for an hour
    members = bench.group.table.members = WatchedMembers(bench.group.table.members)
    for number in range(50):
        bench.join(f"m{number}", **said)
    for number in range(50):
        bench.go_on(f"m{number}")
        bench.beat(f"m{number}", -1)
    assert members.walks == 0


def test_group_has_a_bounded_number_of_regular_expressions(monkeypatch):
    monkeypatch.setattr(consumer_group_patterns, "PATTERNS_PER_GROUP_MAX", 2)
    bench = Bench()
    bench.join("a", topics=None, pattern="a.*")
    bench.join("b", topics=None, pattern="b.*")
    with pytest.raises(PeerError) as error:
        bench.join("c", topics=None, pattern="c.*")
    assert error.value.code == codes.INVALID_REGULAR_EXPRESSION
    bench.join("c", topics=None, pattern="b.*")
    bench.beat("a", -1)
    bench.join("d", topics=None, pattern="c.*")
    assert set(bench.group.table.patterns) == {"b.*", "c.*"}

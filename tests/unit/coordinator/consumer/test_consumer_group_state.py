"""The machine of the consumer group protocol (KIP-848): epochs, reconciliation, fencing, static members, deadlines."""

import random

import pytest

from headrace.coordinator.consumer.changes import CurrentChange, EpochChange, PatternChange, TopicsForgotten
from headrace.coordinator.consumer.faults import check_commit, check_fetch
from headrace.coordinator.consumer.member import MemberState
from headrace.coordinator.consumer.requests import Heartbeat, check_heartbeat
from headrace.coordinator.consumer.state import ConsumerGroup
from headrace.coordinator.consumer.table import ConsumerGroupTable
from headrace.coordinator.consumer.target_assignment import preferred_assignor
from headrace.coordinator.deadlines import Now
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.topic_view import TopicTable
from headrace.core.errors import InvariantError, PeerError
from headrace.protocol import error_codes as codes


class Bench:
    """A group, its topics, its clock, and members that do as they are told."""

    def __init__(self, partitions=None, **settings):
        settings.setdefault("consumer_assignment_interval_ms", 0)
        self.topics = TopicTable(partitions or {"orders": 4})
        self.settings = GroupSettings(**settings)
        self.group = ConsumerGroup("g", self.settings, self.topics)
        self.now_ms = 1_000_000
        self.written = []
        self.epochs = {}
        self.owned = {}

    @property
    def now(self):
        return Now(self.now_ms, self.now_ms)

    def beat(self, member_id, epoch, **said):
        beat = Heartbeat(group_id="g", member_id=member_id, member_epoch=epoch, **said)
        check_heartbeat(beat, self.settings.consumer_assignors)
        decision = self.group.heartbeat(beat, self.now)
        self.written += decision.changes
        self.decision = decision
        return decision.answer

    def join(self, member_id, topics=("orders",), **said):
        said.setdefault("topics", None if topics is None else frozenset(topics))
        answer = self.beat(member_id, 0, rebalance_timeout_ms=60_000, owned={}, **said)
        self._learn(member_id, answer)
        return answer

    def go_on(self, member_id, **said):
        """A heartbeat of a member that gives up at once what it must."""
        said.setdefault("owned", self.owned[member_id])
        answer = self.beat(member_id, self.epochs[member_id], **said)
        self._learn(member_id, answer)
        return answer

    def settle(self, *members, rounds=6):
        for _ in range(rounds):
            for member_id in members:
                self.go_on(member_id)
        assert self.group.table.state() == "Stable"

    def _learn(self, member_id, answer):
        self.epochs[member_id] = answer["member_epoch"]
        if answer["assignment"] is not None:
            self.owned[member_id] = {
                each["topic_id"]: frozenset(each["partitions"]) for each in answer["assignment"]["topic_partitions"]
            }

    def numbers(self, member_id):
        return sorted((self.topics.name_of(topic), sorted(each)) for topic, each in self.owned[member_id].items())

    def refused(self, member_id, epoch, **said):
        before = (dict(self.group.table.members), self.group.table.epochs)
        with pytest.raises(PeerError) as error:
            self.beat(member_id, epoch, **said)
        assert (dict(self.group.table.members), self.group.table.epochs) == before, "a refusal changes nothing"
        return error.value.code


@pytest.fixture
def bench():
    return Bench()


def test_first_member_gets_everything_at_once_and_its_heartbeat_interval(bench):
    answer = bench.join("a")
    assert (answer["error_code"], answer["member_id"], answer["member_epoch"]) == (0, "a", 2)
    assert answer["heartbeat_interval"] == 5000
    assert bench.numbers("a") == [("orders", [0, 1, 2, 3])]
    assert bench.group.table.state() == "Stable"


def test_assignment_is_sent_only_when_it_changed_or_when_everything_is_asked_for(bench):
    bench.join("a")
    assert bench.beat("a", 2)["assignment"] is None
    full = {"topics": frozenset({"orders"}), "rebalance_timeout_ms": 60_000, "owned": bench.owned["a"]}
    assert bench.beat("a", 2, **full)["assignment"] is not None
    assert bench.beat("a", 2, owned=bench.owned["a"])["assignment"] is None


def test_heartbeat_that_brings_nothing_new_writes_nothing(bench):
    bench.join("a")
    bench.go_on("a")
    assert bench.decision.changes == []


def test_second_member_waits_until_the_first_has_given_up(bench):
    bench.join("a")
    bench.join("b")
    assert bench.epochs["b"] == 3
    assert bench.numbers("b") == []
    assert bench.group.table.members["b"].state == MemberState.UNRELEASED_PARTITIONS
    before = bench.owned["a"]
    bench.go_on("a")
    assert bench.epochs["a"] == 2, "it stays in its epoch until it has given up"
    assert bench.group.table.members["a"].state == MemberState.UNREVOKED_PARTITIONS
    assert bench.numbers("a") == [("orders", [0, 1])]
    bench.go_on("b")
    assert bench.numbers("b") == [], "the first has not confirmed yet"
    assert bench.beat("a", 2, owned=before)["member_epoch"] == 2, "it still says that it has them"
    assert bench.beat("a", 2)["member_epoch"] == 2, "nor is silence a confirmation"
    bench.go_on("a")
    assert bench.epochs["a"] == 3
    bench.go_on("b")
    assert bench.numbers("b") == [("orders", [2, 3])]
    assert bench.group.table.state() == "Stable"


@pytest.mark.parametrize(("count", "shares"), [(1, [4]), (2, [2, 2]), (4, [1, 1, 1, 1]), (5, [0, 1, 1, 1, 1])])
def test_pictures_hold(bench, count, shares):
    members = [f"m{index}" for index in range(count)]
    for member_id in members:
        bench.join(member_id)
    bench.settle(*members)
    assert sorted(sum(map(len, bench.owned[each].values())) for each in members) == shares


def test_partitions_of_a_member_that_leaves_go_to_those_who_stay(bench):
    bench.join("a")
    bench.join("b")
    bench.settle("a", "b")
    answer = bench.beat("b", -1)
    assert (answer["member_id"], answer["member_epoch"]) == ("b", -1)
    bench.go_on("a")
    assert bench.numbers("a") == [("orders", [0, 1, 2, 3])]


def test_silent_member_is_removed_when_its_session_ends(bench):
    bench.join("a")
    bench.join("b")
    bench.settle("a", "b")
    bench.now_ms += 44_999
    assert bench.group.expire(bench.now) is None
    bench.go_on("a")
    bench.now_ms += 1
    decision = bench.group.expire(bench.now)
    assert CurrentChange("b", None) in decision.changes
    assert set(bench.group.table.members) == {"a"}
    assert bench.group.expire(bench.now) is None


def test_member_that_does_not_give_up_in_its_rebalance_timeout_is_removed(bench):
    bench.join("a")
    bench.join("b")
    bench.beat("a", 2)
    for _ in range(60):
        bench.now_ms += 1000
        assert set(bench.group.table.members) == {"a", "b"}
        bench.group.expire(bench.now)
        if "a" in bench.group.table.members:
            bench.beat("a", 2)
        bench.beat("b", 3)
    assert set(bench.group.table.members) == {"b"}


def test_fences_by_epoch(bench):
    bench.join("a")
    assert bench.refused("a", 9) == codes.FENCED_MEMBER_EPOCH
    assert bench.refused("a", 1) == codes.FENCED_MEMBER_EPOCH
    assert bench.refused("nobody", 2) == codes.UNKNOWN_MEMBER_ID
    assert bench.refused("nobody", -1) == codes.UNKNOWN_MEMBER_ID


def test_member_one_epoch_behind_is_believed_if_it_owns_nothing_new(bench):
    bench.join("a")
    bench.join("b")
    bench.settle("a", "b")
    lost = bench.group.table.members["a"]
    assert (lost.current.previous_epoch, lost.epoch) == (2, 3)
    assert bench.beat("a", 2, owned=bench.owned["a"])["member_epoch"] == 3
    assert bench.refused("a", 2) == codes.FENCED_MEMBER_EPOCH
    everything = {bench.topics.topic_id("orders"): frozenset(range(4))}
    assert bench.refused("a", 2, owned=everything) == codes.FENCED_MEMBER_EPOCH


def test_member_that_joins_again_without_partitions_is_given_its_own_back(bench):
    bench.join("a")
    assert bench.join("a")["member_epoch"] == 2
    assert bench.numbers("a") == [("orders", [0, 1, 2, 3])]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"member_id": ""}, codes.INVALID_REQUEST),
        ({"group_id": " "}, codes.INVALID_REQUEST),
        ({"instance_id": ""}, codes.INVALID_REQUEST),
        ({"rack_id": ""}, codes.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, codes.INVALID_REQUEST),
        ({"owned": None}, codes.INVALID_REQUEST),
        ({"owned": {1: frozenset({0})}}, codes.INVALID_REQUEST),
        ({"topics": None}, codes.INVALID_REQUEST),
        ({"member_epoch": -3}, codes.INVALID_REQUEST),
        ({"member_epoch": -2}, codes.INVALID_REQUEST),
        ({"server_assignor": "mine"}, codes.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_refuses_requests_that_say_too_little_or_nonsense(said, code):
    good = {
        "group_id": "g",
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1,
        "owned": {},
        "topics": frozenset(),
    }
    check_heartbeat(Heartbeat(**good), ("uniform",))
    with pytest.raises(PeerError) as error:
        check_heartbeat(Heartbeat(**good | said), ("uniform",))
    assert error.value.code == code


def test_version_0_may_leave_its_id_to_the_broker(bench):
    answer = bench.beat("", 0, version=0, fresh_id="made-up", rebalance_timeout_ms=1, owned={}, topics=frozenset())
    assert answer["member_id"] == "made-up"


def test_full_group_takes_nobody_else():
    bench = Bench(consumer_max_size=1)
    bench.join("a")
    assert bench.refused("b", 0, topics=frozenset(), rebalance_timeout_ms=1, owned={}) == codes.GROUP_MAX_SIZE_REACHED
    bench.join("a")


def test_targets_are_reckoned_at_most_once_in_the_interval():
    bench = Bench(consumer_assignment_interval_ms=1000)
    bench.join("a")
    bench.now_ms += 400
    assert bench.join("b")["member_epoch"] == 2
    assert bench.numbers("b") == []
    assert bench.group.table.state() == "Assigning"
    bench.now_ms += 600
    assert bench.go_on("b")["member_epoch"] == 3


# ── static members ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_static_member_that_leaves_for_a_while_gets_its_partitions_back_under_a_new_id(bench):
    bench.join("a", instance_id="one")
    bench.join("b")
    bench.settle("a", "b")
    mine, epoch = bench.owned["a"], bench.group.table.epochs.group
    assert bench.beat("a", -2, instance_id="one")["member_epoch"] == -2
    bench.go_on("b")
    assert bench.numbers("b") == [("orders", [2, 3])], "its place is kept"
    bench.join("a2", instance_id="one")
    assert bench.owned["a2"] == mine
    assert bench.group.table.epochs.group == epoch, "nobody else notices"
    assert set(bench.group.table.members) == {"a2", "b"}
    assert bench.group.table.static_members == {"one": "a2"}


def test_static_member_may_not_be_joined_over_while_it_is_there(bench):
    bench.join("a", instance_id="one")
    said = {"instance_id": "one", "topics": frozenset({"orders"}), "rebalance_timeout_ms": 1, "owned": {}}
    assert bench.refused("x", 0, **said) == codes.UNRELEASED_INSTANCE_ID
    assert bench.refused("x", 2, instance_id="one") == codes.FENCED_INSTANCE_ID
    assert bench.refused("x", -2, instance_id="one") == codes.FENCED_INSTANCE_ID
    assert bench.refused("x", -1, instance_id="two") == codes.UNKNOWN_MEMBER_ID


def test_static_member_that_stays_away_is_removed_when_its_session_ends(bench):
    bench.join("a", instance_id="one")
    bench.beat("a", -2, instance_id="one")
    bench.now_ms += 45_000
    bench.group.expire(bench.now)
    assert not bench.group.table.members
    assert not bench.group.table.static_members
    assert bench.group.table.state() == "Empty"


# ── topics and patterns ──────────────────────────────────────────────────────────────────────────────────────────────


def test_topics_that_are_made_grown_and_deleted_are_noticed_at_the_next_heartbeat(bench):
    bench.join("a", topics=("orders", "later"))
    bench.topics.set("later", 2)
    bench.go_on("a")
    assert bench.numbers("a") == [("later", [0, 1]), ("orders", [0, 1, 2, 3])]
    bench.topics.set("later", 3)
    bench.go_on("a")
    assert bench.numbers("a") == [("later", [0, 1, 2]), ("orders", [0, 1, 2, 3])]
    bench.topics.delete("later")
    bench.go_on("a")
    bench.go_on("a")
    assert bench.numbers("a") == [("orders", [0, 1, 2, 3])]
    epoch = bench.group.table.epochs.group
    bench.topics.set("unrelated", 1)
    bench.go_on("a")
    assert bench.group.table.epochs.group == epoch


def test_other_subscription_takes_the_topics_away_that_are_not_in_it(bench):
    bench.topics.set("other", 2)
    bench.join("a")
    bench.go_on("a", topics=frozenset({"other"}))
    bench.go_on("a")
    bench.settle("a")
    assert bench.numbers("a") == [("other", [0, 1])]


def test_pattern_is_resolved_by_the_broker_and_again_when_topics_change(bench):
    bench.join("a", topics=None, pattern="ord.*")
    assert bench.numbers("a") == [("orders", [0, 1, 2, 3])]
    bench.topics.set("ordinal", 1)
    bench.topics.set("none", 1)
    bench.go_on("a")
    assert bench.numbers("a") == [("orders", [0, 1, 2, 3]), ("ordinal", [0])]
    bench.topics.delete("orders")
    bench.go_on("a")
    bench.settle("a")
    assert bench.numbers("a") == [("ordinal", [0])]
    bench.beat("a", -1)
    assert PatternChange("ord.*", None) in bench.decision.changes
    assert bench.group.table.patterns == {}


def test_malformed_pattern_is_refused(bench):
    said = {"pattern": "(", "rebalance_timeout_ms": 1, "owned": {}}
    assert bench.refused("a", 0, **said) == codes.INVALID_REGULAR_EXPRESSION
    bench.join("a")
    assert bench.refused("a", 2, pattern="(") == codes.INVALID_REGULAR_EXPRESSION


def test_patterns_of_members_that_are_refused_take_no_memory():
    bench = Bench(member_metadata_bytes_max=1_000)
    bench.join("a", topics=None, pattern="ord.*")
    for number in range(20):
        said = {"pattern": f"{number}.*", "rebalance_timeout_ms": 1, "owned": {}, "client_id": "c" * 2_000}
        assert bench.refused("b", 0, **said) == codes.MESSAGE_TOO_LARGE
    assert bench.group.patterns._compiled.keys() == {"ord.*"}


def test_names_and_patterns_add_up(bench):
    bench.topics.set("other", 1)
    bench.join("a", topics=("other",), pattern="ord.*")
    assert bench.numbers("a") == [("orders", [0, 1, 2, 3]), ("other", [0])]
    bench.go_on("a", pattern="")
    bench.settle("a")
    assert bench.numbers("a") == [("other", [0])]


def test_most_wanted_assignor_is_taken():
    bench = Bench({"x": 3, "y": 3})
    for member_id in ("a", "b", "c"):
        bench.join(member_id, topics=("x", "y"), server_assignor="range")
    bench.settle("a", "b", "c")
    assert preferred_assignor(bench.group.table, ("uniform", "range")) == "range"
    assert [bench.numbers(each) for each in "abc"] == [[("x", [at]), ("y", [at])] for at in range(3)]


# ── commits ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_commits_are_checked_by_member_epoch(bench):
    table, orders = bench.group.table, bench.topics.topic_id("orders")

    def code(member_id, epoch, partition=0, **said):
        said = {"in_transaction": False, "version": 9, **said}
        try:
            return check_commit(table, member_id, None, epoch, **said)(orders, partition)
        except PeerError as error:
            return error.code

    assert code("", -1) == 0, "an empty group takes them from anyone"
    bench.join("a")
    bench.join("b")
    bench.settle("a", "b")
    assert code("", -1) == codes.UNKNOWN_MEMBER_ID
    assert code("", -1, in_transaction=True) == 0
    assert code("a", 3) == 0
    assert code("a", 4) == codes.STALE_MEMBER_EPOCH
    assert code("a", 3, version=8) == codes.UNSUPPORTED_VERSION
    assert code("a", 2) == 0, "it has had this one since epoch 2"
    assert code("a", 2, partition=3) == codes.STALE_MEMBER_EPOCH, "and this one no more"
    check_fetch(table, None, -1)
    check_fetch(table, "a", 3)
    with pytest.raises(PeerError) as error:
        check_fetch(table, "a", 2)
    assert error.value.code == codes.STALE_MEMBER_EPOCH


# ── what is written down ─────────────────────────────────────────────────────────────────────────────────────────────


def facts(table):
    """All that a table knows, as it is at the moment."""
    counts = table.counts
    known = {name: value.copy() if isinstance(value, dict) else value for name, value in vars(table).items()}
    known["counts"] = (
        dict(counts.topics),
        dict(counts.patterns),
        dict(counts.protocols),
        counts.classic,
        set(counts.unresolved),
    )
    return known


def test_state_is_the_fold_of_what_was_written(bench):
    bench.topics.set("other", 3)
    bench.join("a", instance_id="one")
    bench.join("b", topics=("orders", "other"))
    bench.join("c", topics=None, pattern="o.*")
    for member_id in ("a", "b", "c", "a", "b"):
        bench.go_on(member_id)
    bench.beat("b", -1)
    again = ConsumerGroupTable("g")
    for change in bench.written:
        again.apply(change, replaying=True)
    assert facts(again) == facts(bench.group.table)


def test_decision_that_cannot_be_written_is_undone(bench):
    bench.join("a", instance_id="one")
    bench.join("b", topics=None, pattern="o.*")
    bench.beat("a", -2, instance_id="one")
    table = bench.group.table
    before = facts(table)
    bench.join("a2", instance_id="one", topics=("other",))
    assert facts(table) != before
    bench.group.undo(bench.decision)
    assert facts(table) == before
    bench.join("a2", instance_id="one")


def test_end_of_a_group_deletes_each_of_its_records(bench):
    bench.join("a", topics=None, pattern="o.*")
    ends = bench.group.table.tombstones()
    assert len(ends) == 7
    assert ends[-2:] == [TopicsForgotten(), EpochChange(None)]


def test_table_refuses_a_second_owner(bench):
    bench.join("a")
    with pytest.raises(InvariantError):
        bench.group.table.apply(CurrentChange("b", bench.group.table.members["a"].current))


@pytest.mark.parametrize("seed", range(40))
def test_no_partition_ever_has_two_owners_and_all_settle_in_the_end(seed):
    """Members that come, go, stall, lose answers and are slow to give up; topics that change."""
    rng = random.Random(seed)
    bench = Bench({"orders": 5, "other": 3}, consumer_assignment_interval_ms=rng.choice((0, 1000)))
    believed = {}  # what each member itself thinks it may use
    for step in range(200):
        bench.now_ms += rng.choice((10, 500, 3000))
        bench.group.expire(bench.now)
        member_id = rng.choice("abcde")
        action = rng.random()
        known = bench.group.table.members.get(member_id)
        try:
            if action < 0.05:
                bench.topics.set(rng.choice(("orders", "other")), rng.randint(5, 9))
            elif known is None or action < 0.1:
                believed.pop(member_id, None)
                topics = frozenset(rng.sample(("orders", "other"), rng.randint(1, 2)))
                bench.owned[member_id] = {}
                bench.join(member_id, topics)
                believed[member_id] = bench.owned[member_id]
            elif action < 0.15:
                believed.pop(member_id, None)
                bench.beat(member_id, -1)
            elif action < 0.3:
                bench.beat(member_id, bench.epochs[member_id], owned=believed[member_id])  # the answer got lost
            else:
                bench.go_on(member_id, owned=believed[member_id])
                believed[member_id] = bench.owned[member_id]
        except PeerError:
            believed.pop(member_id, None)
            bench.owned[member_id] = {}
            bench.join(member_id)
            believed[member_id] = bench.owned[member_id]
        alive = bench.group.table.members
        uses = [
            (topic, each) for who, owned in believed.items() if who in alive for topic in owned for each in owned[topic]
        ]
        assert len(uses) == len(set(uses)), f"seed {seed}, step {step}"
    for member_id in list(bench.group.table.members):
        bench.owned[member_id] = {}
        bench.join(member_id, ("orders", "other"))
    members = list(bench.group.table.members)
    for _ in range(8):
        bench.now_ms += 1000
        for member_id in members:
            bench.go_on(member_id)
    if members:
        assert bench.group.table.state() == "Stable"
        total = sum(sum(map(len, bench.owned[each].values())) for each in members)
        assert total == bench.topics.partition_count("orders") + bench.topics.partition_count("other")

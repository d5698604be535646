"""The loop around consumer groups: what is written before it is answered, restarts, deadlines, and both protocols."""

import struct

import pytest
from group_harness import Box, World, finish

from headrace.coordinator import group_records
from headrace.coordinator.consumer import journal as consumer_group_journal
from headrace.coordinator.consumer.changes import SubscriptionChange
from headrace.coordinator.consumer.member import ClassicMember, Subscription
from headrace.coordinator.consumer.requests import Heartbeat
from headrace.coordinator.group_records import CommittedOffset
from headrace.coordinator.topic_view import by_name
from headrace.protocol import error_codes as codes
from headrace.protocol.consumer_protocol import read_assignment, read_subscription, write_assignment


def embedded(owned=(), topics=("orders",)):
    """What a classic consumer says of itself, in version 1."""

    def text(name):
        return struct.pack(">h", len(name)) + name.encode()

    parts = [text("orders") + struct.pack(f">i{len(owned)}i", len(owned), *owned)] if owned else []
    names = struct.pack(">hi", 1, len(topics)) + b"".join(map(text, topics))
    return names + struct.pack(">i", -1) + struct.pack(">i", len(parts)) + b"".join(parts)


class Groups(World):
    def __init__(self, *args, **settings):
        settings.setdefault("consumer_assignment_interval_ms", 0)
        super().__init__(*args, **settings)

    def restarted(self, **settings):
        return Groups(self.journal, self.clock, self.topics, **{**self.settings, **settings})

    def beat(self, member_id, epoch, group_id="g", **said):
        box = Box()
        self.groups.consumer_heartbeat(
            Heartbeat(group_id=group_id, member_id=member_id, member_epoch=epoch, **said), box
        )
        return box

    def enter(self, member_id, **said):
        said = {"topics": frozenset({"orders"}), "rebalance_timeout_ms": 30_000, "owned": {}} | said
        return self.beat(member_id, 0, **said)

    def described(self, group_id="g"):
        return self.groups.consumer_describe([group_id])[0]

    def members(self):
        return {each["member_id"]: each for each in self.described()["members"]}

    def has(self, member_id):
        topics = self.members()[member_id]["assignment"]["topic_partitions"]
        return [partition for topic in topics for partition in topic["partitions"]]

    def classic_member(self, **fields):
        """Joined and synced, whatever kind of group it is; its id and generation."""
        fields.setdefault("metadata", embedded())
        member_id = self.join(**fields).body["member_id"]
        return member_id, self.again(member_id, **fields)

    def again(self, member_id, owned=(), *, given=None, **fields):
        joined = self.join(member_id, **fields | {"metadata": embedded(owned)}).body
        assert joined["error_code"] == 0
        given = {member_id: write_assignment(by_name(given, self.topics), 1)} if given else {}
        assert self.sync(member_id, joined["generation_id"], given).code == 0
        return joined["generation_id"]

    @property
    def orders(self):
        return self.topics.topic_id("orders")


@pytest.fixture
def world():
    return Groups()


def test_nothing_is_answered_before_it_is_written(world):
    world.journal.holds = True
    joined = world.enter("a")
    told = world.beat("a", 2)
    assert not joined.is_answered
    assert not told.is_answered, "what depends on a decision waits with it"
    world.journal.release()
    assert (joined.code, told.code) == (0, 0)
    world.journal.holds = True
    assert world.beat("a", 2).is_answered, "what changes nothing waits for nobody"


def test_what_cannot_be_written_did_not_happen(world):
    world.enter("a")
    before = world.described()
    world.journal.holds = True
    boxes = [world.enter("b"), world.enter("c"), world.beat("a", 2)]
    world.journal.fails = True
    world.journal.release()
    assert [box.code for box in boxes] == [codes.NOT_COORDINATOR] * 3
    assert world.described() == before
    world.journal.fails = world.journal.holds = False
    assert world.enter("b").code == 0
    assert world.restarted().described() == world.described()


def test_group_that_could_not_be_made_is_not_there(world):
    world.journal.fails = True
    assert world.enter("a").code == codes.NOT_COORDINATOR
    assert world.described()["error_code"] == codes.GROUP_ID_NOT_FOUND
    world.journal.fails = False
    assert world.enter("a").body["member_epoch"] == 2


LONG = "x" * 40_000  # no record key has room for it


@pytest.mark.parametrize("said", [{"group_id": LONG}, {"member_id": LONG}, {"instance_id": LONG}, {"client_id": LONG}])
def test_member_that_cannot_be_written_down_changes_nothing(world, said):
    world.join(group_id="g")  # a classic group: it gives way only to one that is written
    classic = dict(world.table().classic)
    said = {"group_id": "g", "member_id": "m", **said}
    box = world.enter(said.pop("member_id"), **said)
    assert box.code == codes.UNKNOWN_SERVER_ERROR
    assert world.table().classic == classic
    assert not any(shard.consumers.groups for shard in world.groups.shards.all())


def test_id_that_is_given_again_while_a_deletion_is_written_is_another_group(world):
    world.enter("a")
    world.beat("a", -1)
    world.journal.holds = True
    deleted, joined = world.delete("g"), world.enter("b")
    world.journal.release()
    assert (deleted.body["results"][0]["error_code"], joined.code) == (0, 0)
    assert set(world.members()) == {"b"}
    assert world.restarted().described() == world.described()


def test_restart_finds_everything_again(world):
    world.enter("a", instance_id="one", rack_id="r", server_assignor="range")
    world.enter("b", topics=None, pattern="ord.*")
    world.beat("a", 2, instance_id="one", owned={world.orders: frozenset(range(4))})
    again = world.restarted()
    assert again.described() == world.described()
    assert again.beat("a", 2, instance_id="one", owned={world.orders: frozenset({0, 1})}).body["member_epoch"] == 3
    assert again.beat("b", 3).body["assignment"]["topic_partitions"][0]["partitions"] == [2, 3]


def test_member_is_removed_when_its_session_ends_also_after_a_restart(world):
    world.enter("a", rebalance_timeout_ms=300_000)
    world.enter("b")
    world.pass_ms(44_000)
    world.beat("a", 2)
    world.pass_ms(1_000)
    assert set(world.members()) == {"a"}
    again = world.restarted()
    again.pass_ms(44_999)
    assert set(again.members()) == {"a"}
    again.pass_ms(1)
    assert again.described()["group_state"] == "Empty"


def test_listed_described_and_deleted_as_what_it_is(world):
    world.enter("a")
    assert finish(world.groups.list()) == [
        {"group_id": "g", "protocol_type": "consumer", "group_state": "Stable", "group_type": "consumer"}
    ]
    assert finish(world.groups.list(types=["classic"])) == []
    assert len(finish(world.groups.list(types=["Consumer"]))) == 1
    classic = world.groups.describe(["g"])[0]
    assert (classic["error_code"], classic["error_message"]) == (69, "Group g is not a classic group.")
    assert world.delete("g").body["results"][0]["error_code"] == codes.NON_EMPTY_GROUP
    world.beat("a", -1)
    assert world.delete("g").body["results"][0]["error_code"] == 0
    assert world.described()["error_message"] == "Group g not found."
    assert world.groups.consumer_describe([""])[0]["error_code"] == codes.INVALID_GROUP_ID
    assert finish(world.restarted().groups.list()) == []


def test_absent_groups_are_named_as_kafka_names_them(world):
    assert world.beat("a", 3).body["error_message"] == "Consumer group g not found."
    assert world.beat("a", -1).body["error_message"] == "Group g not found."
    world.classic_member()
    assert world.beat("a", 3).body["error_message"] == "Group g is not a consumer group."


def commit(world, member_id, epoch, *partitions, version=9):
    box = Box()
    entries = [("orders", partition, CommittedOffset(7)) for partition in partitions]
    world.groups.commit_offsets("g", member_id, epoch, None, entries, box, version=version)
    return box.body


def test_commits_and_fetches_are_checked_by_member_epoch(world):
    world.enter("a")
    world.enter("b")
    world.beat("a", 2, owned={world.orders: frozenset(range(4))})
    world.beat("a", 2, owned={world.orders: frozenset({0, 1})})
    assert commit(world, "a", 3, 0, 1) == [0, 0]
    assert commit(world, "a", 2, 0, 2, 1) == [0, codes.STALE_MEMBER_EPOCH, 0], "partition 2 is no longer its own"
    assert commit(world, "x", 3, 0) == [codes.UNKNOWN_MEMBER_ID]
    assert commit(world, "a", 3, 0, version=8) == [codes.UNSUPPORTED_VERSION]
    for who, code in ((("a", 3), 0), (("a", 2), codes.STALE_MEMBER_EPOCH), ((None, -1), 0)):
        box = Box()
        box(finish(world.groups.fetch_offsets("g", *who, None, False)))
        assert box.code == code
    box = Box()
    world.groups.delete_offsets("g", [("orders", 0), ("other", 0)], box)
    found = {topic["name"]: topic["partitions"][0]["error_code"] for topic in box.body["topics"]}
    assert found == {"orders": codes.GROUP_SUBSCRIBED_TO_TOPIC, "other": 0}


def test_empty_group_without_offsets_is_swept_away(world):
    world.enter("a")
    commit(world, "a", 2, 0)
    world.beat("a", -1)
    world.pass_ms(world.table().settings.offsets_retention_ms)
    assert finish(world.groups.list()) == []
    assert finish(world.restarted().groups.list()) == []


# ── from one protocol to the other ───────────────────────────────────────────────────────────────────────────────────


def test_classic_group_is_taken_over_with_its_members_and_their_partitions(world):
    member_id, generation = world.classic_member()
    world.again(member_id, given={world.orders: range(4)})
    entered = world.enter("new").body
    assert (entered["error_code"], entered["assignment"]) == (0, {"topic_partitions": []})
    assert world.has(member_id) == [0, 1, 2, 3]
    assert [world.members()[each]["member_type"] for each in (member_id, "new")] == [0, 1]
    generation = world.members()[member_id]["member_epoch"]
    assert world.heartbeat(member_id, generation) == codes.REBALANCE_IN_PROGRESS
    world.again(member_id, owned=(0, 1, 2, 3))
    assert world.heartbeat(member_id, generation) == codes.REBALANCE_IN_PROGRESS, "there is something to give up"
    joined = world.again(member_id, owned=(0, 1))
    assert world.heartbeat(member_id, joined) == 0
    assert world.beat("new", entered["member_epoch"]).body["assignment"]["topic_partitions"][0]["partitions"] == [2, 3]
    assert world.restarted().described() == world.described()


def test_requests_that_wait_in_the_classic_group_are_sent_to_join_again(world):
    _member_id, _ = world.classic_member()
    other = world.join().body["member_id"]
    waiting = world.join(other, metadata=embedded())
    assert not waiting.is_answered
    world.enter("new")
    assert waiting.code == codes.REBALANCE_IN_PROGRESS


def test_group_goes_back_when_its_last_member_of_the_new_kind_leaves(world):
    member_id, _ = world.classic_member()
    world.again(member_id, given={world.orders: range(4)})
    world.enter("new")
    joined = world.again(member_id, owned=(0, 1))
    world.beat("new", -1)
    assert world.state() == "PreparingRebalance"
    assert finish(world.groups.list())[0]["group_type"] == "classic"
    assert world.heartbeat(member_id, joined) in (codes.REBALANCE_IN_PROGRESS, codes.ILLEGAL_GENERATION)
    world.again(member_id, owned=(0, 1), given={world.orders: range(4)})
    assert world.state() == "Stable"
    again = world.restarted()
    assert again.state() == "Stable"
    assert again.described()["error_code"] == codes.GROUP_ID_NOT_FOUND


def test_group_goes_back_also_when_that_member_dies(world):
    _member_id, _ = world.classic_member(session_timeout_ms=100_000)
    world.enter("new")
    world.pass_ms(45_000)
    assert world.state() == "PreparingRebalance"


def test_group_that_could_not_go_back_stays_what_it_was(world):
    world.classic_member()
    world.enter("new")
    before = world.members()
    world.journal.fails = True
    assert world.beat("new", -1).code == codes.NOT_COORDINATOR
    assert world.members() == before
    world.journal.fails = False
    world.beat("new", -1)
    assert finish(world.groups.list())[0]["group_type"] == "classic"


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade"])
def test_policy_says_which_way_a_group_may_go(policy):
    world = Groups(consumer_migration_policy=policy)
    world.classic_member()
    upgraded = world.enter("new")
    assert (upgraded.code == 0) == (policy == "upgrade")
    if policy == "upgrade":
        world.beat("new", -1)
        assert finish(world.groups.list())[0]["group_type"] == "consumer"
    else:
        assert upgraded.body["error_message"].endswith("because online upgrade is disabled.")
        world.beat("x", 0, "h", topics=frozenset({"orders"}), rebalance_timeout_ms=1, owned={})
        joined = world.join(group_id="h", metadata=embedded())
        expected = codes.INCONSISTENT_GROUP_PROTOCOL if policy == "disabled" else codes.MEMBER_ID_REQUIRED
        assert joined.code == expected


def test_groups_that_are_not_of_consumers_are_not_taken_over(world):
    member_id = world.join(protocol_type="connect").body["member_id"]
    world.join(member_id, protocol_type="connect")
    assert world.enter("new").code == codes.GROUP_ID_NOT_FOUND


def test_malformed_or_custom_assignments_are_not_taken_over(world):
    member_id = world.join(metadata=embedded()).body["member_id"]
    joined = world.join(member_id, metadata=embedded()).body
    world.sync(member_id, joined["generation_id"], {member_id: b"\x00"})
    assert "malformed" in world.enter("new").body["error_message"]
    joined = world.join(member_id, metadata=embedded()).body
    custom = struct.pack(">hii", 1, 0, 3) + b"abc"
    world.sync(member_id, joined["generation_id"], {member_id: custom})
    assert "custom assignor" in world.enter("new").body["error_message"]
    assert world.state() == "Stable", "the classic group goes on"


def test_empty_groups_change_sides_without_ceremony(world):
    member_id, _ = world.classic_member()
    world.leave(member_id)
    assert world.enter("new").body["member_epoch"] == 2
    world.beat("new", -1)
    world.classic_member()
    assert [each["group_type"] for each in finish(world.groups.list())] == ["classic"]
    assert [each["group_type"] for each in finish(world.restarted().groups.list())] == ["classic"]


def test_classic_member_that_does_not_join_again_in_time_is_removed(world):
    member_id, generation = world.classic_member(rebalance_timeout_ms=5_000, session_timeout_ms=100_000)
    world.enter("new")
    assert world.heartbeat(member_id, generation) == codes.REBALANCE_IN_PROGRESS
    world.pass_ms(4_999)
    assert member_id in world.members()
    world.pass_ms(1)
    assert set(world.members()) == {"new"}


def test_classic_member_that_does_not_sync_in_time_is_removed(world):
    world.enter("new")
    member_id = world.join(metadata=embedded()).body["member_id"]
    fields = {"rebalance_timeout_ms": 5_000, "session_timeout_ms": 100_000}
    assert world.join(member_id, metadata=embedded(), **fields).code == 0
    world.pass_ms(5_000)
    assert set(world.members()) == {"new"}


def test_classic_members_must_share_a_protocol_and_be_consumers(world):
    world.enter("new")
    member_id, generation = world.classic_member()
    for fields in ({"protocols": ("other",)}, {"protocol_type": "connect"}, {"metadata": b"junk"}):
        assert world.join(**{"metadata": embedded(), **fields}).code == codes.INCONSISTENT_GROUP_PROTOCOL
    assert world.heartbeat(member_id, generation + 1) == codes.ILLEGAL_GENERATION
    assert world.heartbeat("new", 2) == codes.UNKNOWN_MEMBER_ID
    assert world.sync(member_id, generation + 1).code == codes.ILLEGAL_GENERATION


def test_static_member_changes_its_protocol_and_takes_the_group_with_it(world):
    world.enter("s", instance_id="one")
    joined = world.join(instance_id="one", metadata=embedded()).body
    assert (joined["error_code"], joined["generation_id"]) == (0, 2)
    assert world.state() == "Stable"
    entered = world.enter("s3", instance_id="one").body
    assert entered["assignment"]["topic_partitions"][0]["partitions"] == [0, 1, 2, 3]
    assert set(world.members()) == {"s3"}


def test_leave_group_removes_members_of_both_kinds(world):
    world.enter("new", instance_id="one")
    member_id, _ = world.classic_member()
    left = world.leave("nobody", ("", "one"), ("x", "one"), member_id).body["members"]
    assert [each["error_code"] for each in left] == [codes.UNKNOWN_MEMBER_ID, 0, codes.FENCED_INSTANCE_ID, 0]
    assert world.described()["group_state"] == "Empty"


# ── bytes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_change_survives_its_record(world):
    world.enter("a", instance_id="one", rack_id="r", server_assignor="range")
    world.enter("b", topics=None, pattern="ord.*")
    world.beat("a", 2, instance_id="one", owned={world.orders: frozenset(range(4))})
    group = world.shard().consumers.groups["g"]
    classic = Subscription(classic=ClassicMember(9, (("range", embedded()),)))
    for change in [*group.table.tombstones(), SubscriptionChange("c", classic)]:
        record = group_records.decode(*consumer_group_journal.encode_change("g", change))
        assert consumer_group_journal.change_of(record) == change
    seen = {
        type(consumer_group_journal.change_of(group_records.decode(each.key, each.value))) for each in world.records()
    }
    assert len(seen) == 6


def test_embedded_subscriptions_and_assignments_are_read():
    assert read_subscription(embedded((1, 2))).owned == (("orders", (1, 2)),)
    newest = struct.pack(">hiiiih", 9, 0, -1, 0, 5, 2) + b"r1"
    assert read_subscription(newest)[2:] == ((), "r1")
    for junk in (b"", b"\x00", b"\xff\xff" + bytes(8), embedded()[:-3], struct.pack(">hi", 0, 1 << 30)):
        with pytest.raises(ValueError, match="cannot be read"):
            read_subscription(junk)
    written = write_assignment([("orders", {2, 0})], 1)
    assert read_assignment(written) == ((("orders", (0, 2)),), b"")
    assert read_assignment(b"") == ((), b"")

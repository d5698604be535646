"""The loop around the groups: journal before answer, deadlines, restarts, administration, offsets."""

import pytest
from calls import calls_of
from group_harness import ORDERS, Box, Scheduler, World, finish, join_request

from headrace.coordinator import group_records
from headrace.coordinator.deadlines import NEVER, Alarm, Deadlines
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.groups import Groups
from headrace.coordinator.journal import COMMIT, MemoryJournal
from headrace.coordinator.offsets.store import CommittedOffset
from headrace.coordinator.placing import partition_for
from headrace.coordinator.topic_view import TopicTable
from headrace.core.clock import ManualClock
from headrace.core.errors import OperatorError
from headrace.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_ID_NOT_FOUND,
    GROUP_SUBSCRIBED_TO_TOPIC,
    ILLEGAL_GENERATION,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    NON_EMPTY_GROUP,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_SERVER_ERROR,
)

DAY_MS = 86_400_000


def test_a_commit_to_a_group_that_cannot_be_written_down_makes_none():
    world = World()
    assert commit(world, group_id=LONG) == UNKNOWN_SERVER_ERROR
    assert not any(shard.group_ids() for shard in world.groups.shards.all())


def test_groups_behind_one_that_fails_expire_all_the_same(monkeypatch):
    world = World(MemoryJournal(1), offsets_retention_ms=DAY_MS)
    for group_id in ("broken", "g"):
        assert commit(world, group_id=group_id) == NONE
    store = world.table().offsets
    expired = store.expired

    def fails(group_id, **how):
        if group_id == "broken":
            raise KeyError("a bug")
        return expired(group_id, **how)

    monkeypatch.setattr(store, "expired", fails)
    world.pass_ms(2 * DAY_MS)
    assert world.table("g").classic.keys() == {"broken"}


MEMBER = group_records.MemberMetadata("m", "c", "/127.0.0.1", 60_000, 10_000, ORDERS, b"", "i")


@pytest.mark.parametrize(
    ("protocol", "members"),
    [(None, (MEMBER,)), ("range", (MEMBER, MEMBER)), ("range", (MEMBER, MEMBER._replace(member_id="n")))],
)
def test_a_record_of_members_that_cannot_be_is_passed_over(protocol, members):
    world = World(MemoryJournal(1))
    assert commit(world, group_id="other") == NONE
    metadata = group_records.GroupMetadata("consumer", 1, protocol, "m", 0, members)
    world.journal.append(0, [group_records.encode_group_metadata("g", metadata)], lambda error: None)
    again = world.restarted()
    assert len(again.journal.skips) == 1
    assert again.table().classic.keys() == {"other"}


def test_a_shard_of_very_many_groups_is_loaded_in_short_steps():
    count = 2_000
    world = World(MemoryJournal(1))
    for number in range(count):
        assert commit(world, group_id=f"group-{number}") == NONE
    loads = Groups(world.journal, world.clock, world.scheduler.call_later, GroupSettings(), world.topics)
    steps, most = loads.load(0, 0), 0
    while not loads.shards.active:
        most = max(most, calls_of(lambda: next(steps, None)))
    assert len(loads.shards.active[0].table.classic) == count
    assert most < 5 * count, "most of them are the journal's own: it counts its way to the next slice"


def test_nothing_stays_of_a_group_that_is_deleted():
    world = World()
    member_id = world.stable_group()
    world.leave(member_id)
    world.pass_ms(60_000)  # all that it waited for is over
    table = world.table()
    assert table._alarms.keys() == {"g"}
    world.delete("g")
    assert not table._alarms
    assert not table.classic


LONG = "x" * 40_000  # no record of a group has room for it


@pytest.mark.parametrize(
    "said",
    [
        {"group_id": LONG},
        {"client_id": LONG},
        {"client_id": LONG[: (1 << 15) - 10]},  # with what makes the member's id unique it is too long
        {"instance_id": LONG},
        {"protocol_type": LONG},
        {"protocols": ("range", LONG)},
    ],
)
def test_a_member_that_cannot_be_written_down_joins_no_group(said):
    world = World()
    box = world.join(**{"fresh_id": "f" * 36, **said})
    assert box.code == UNKNOWN_SERVER_ERROR
    assert not any(shard.group_ids() for shard in world.groups.shards.all())


def commit(world, offset=7, *, group_id="g", topic="orders", member_id="", generation=-1, version=9):
    box = Box()
    committed = CommittedOffset(offset, commit_timestamp_ms=world.clock.now_ms())
    world.groups.commit_offsets(group_id, member_id, generation, None, [(topic, 0, committed)], box, version=version)
    (code,) = box.body
    return code


def fetched(world, group_id="g", topic="orders"):
    box = Box()
    box(finish(world.groups.fetch_offsets(group_id, None, -1, [(topic, [0])], False)))
    return box.body["topics"][0]["partitions"][0]["committed_offset"]


def written(world):
    """What a restart would find, by group: its last metadata, or None for a tombstone."""
    found = {}
    for record in world.records():
        decoded = group_records.decode(record.key, record.value)
        if isinstance(decoded, group_records.GroupMetadataRecord):
            found[decoded.group_id] = decoded.value
    return found


# ── the classic protocol ─────────────────────────────────────────────────────────────────────────────────────────────


def test_group_goes_through_all_its_states():
    world = World(initial_rebalance_delay_ms=3_000)
    member_id = world.join().body["member_id"]
    assert world.state() == "Empty"
    joining = world.join(member_id)
    assert world.state() == "PreparingRebalance"
    world.pass_ms(3_000)
    assert joining.body["generation_id"] == 1
    assert world.state() == "CompletingRebalance"
    assert world.sync(member_id, 1, {member_id: b"all"}).body["assignment"] == b"all"
    assert world.state() == "Stable"
    assert world.leave(member_id).code == NONE
    assert world.state() == "Empty"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, INVALID_SESSION_TIMEOUT),
        ({"member_id": "who"}, UNKNOWN_MEMBER_ID),
    ],
)
def test_join_that_no_group_would_take_is_refused(fields, code):
    world = World()
    refused = world.join(**fields)
    assert refused.code == code
    assert refused.body["member_id"] == fields.get("member_id", "")
    assert finish(world.groups.list()) == []


def test_unknown_group_has_no_members():
    world = World()
    assert world.sync("who", 1).code == UNKNOWN_MEMBER_ID
    assert world.heartbeat("who", 1) == UNKNOWN_MEMBER_ID
    assert world.leave("who").body["members"][0]["error_code"] == UNKNOWN_MEMBER_ID


def test_group_without_a_name_is_refused():
    world = World()
    assert world.sync("who", 1, group_id="").code == INVALID_GROUP_ID
    assert world.heartbeat("who", 1, group_id="") == INVALID_GROUP_ID
    assert world.leave("who", group_id="").code == INVALID_GROUP_ID


def test_requests_before_the_journal_is_read_are_told_to_wait():
    clock = ManualClock()
    groups = Groups(MemoryJournal(), clock, Scheduler(clock).call_later, GroupSettings(), TopicTable())
    refused = Box()
    groups.join(join_request(), refused)
    assert refused.code == groups.heartbeat("g", "m", 1, None) == NOT_COORDINATOR, "it is not led here"
    groups.load(partition_for("g", 4), 0)  # and nothing is read yet
    box = Box()
    groups.join(join_request(), box)
    assert box.code == COORDINATOR_LOAD_IN_PROGRESS
    assert groups.heartbeat("g", "m", 1, None) == NONE
    assert groups.describe(["g"])[0]["error_code"] == COORDINATOR_LOAD_IN_PROGRESS


def test_silent_member_moves_its_part_to_the_other():
    world = World()
    first = world.stable_group()
    second = world.join().body["member_id"]
    waiting = world.join(second)
    world.pass_ms(10_000)
    assert waiting.body["leader"] == second
    assert world.heartbeat(first, 1) == UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_member_and_wake_the_loop_seldom():
    world = World()
    member_id = world.stable_group()
    for _ in range(100):
        world.pass_ms(3_000)
        assert world.heartbeat(member_id, 1) == NONE
    assert len(world.scheduler._timers) < 5


def test_sync_is_answered_when_the_assignment_is_safe():
    world = World()
    member_id = world.join().body["member_id"]
    world.join(member_id)
    world.journal.holds = True
    box = world.sync(member_id, 1, {member_id: b"all"})
    assert not box.is_answered
    assert written(world)["g"].generation == 0
    world.journal.release()
    assert box.body["assignment"] == b"all"
    assert written(world)["g"].members[0].assignment == b"all"


def test_journal_that_fails_makes_members_look_for_the_coordinator_again():
    world = World()
    member_id = world.stable_group()
    world.join(member_id)
    world.journal.fails = True
    assert world.sync(member_id, 2, {member_id: b"all"}).code == NOT_COORDINATOR
    world.join(member_id)
    world.journal.fails = False
    assert world.sync(member_id, 3, {member_id: b"all"}).code == NONE


def test_group_that_cannot_be_written_down_does_not_exist():
    world = World()
    world.journal.fails = True
    waiting = world.join(instance_id="i1")
    assert waiting.code == NOT_COORDINATOR
    assert finish(world.groups.list()) == []


def test_leave_is_answered_with_the_fault_if_it_cannot_be_written():
    world = World()
    member_id = world.stable_group()
    world.journal.fails = True
    assert world.leave(member_id).code == NOT_COORDINATOR


# ── restarts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_group_is_stable_after_a_restart_and_its_members_have_their_sessions():
    world = World()
    member_id = world.stable_group()
    world = world.restarted()
    assert world.state() == "Stable"
    world.pass_ms(9_000)
    assert world.heartbeat(member_id, 1) == NONE
    assert world.sync(member_id, 1).body["assignment"] == b"all"
    world.pass_ms(10_000)
    assert world.state() == "Empty"


def test_static_member_is_known_after_a_restart():
    world = World()
    member_id = world.join(instance_id="i1").body["member_id"]
    world.sync(member_id, 1, {member_id: b"all"}, instance_id="i1")
    new_id = world.join(instance_id="i1").body["member_id"]
    world = world.restarted()
    assert world.sync(new_id, 1, instance_id="i1").body["assignment"] == b"all"


def test_empty_group_and_deleted_group_are_so_after_a_restart():
    world = World()
    world.leave(world.stable_group("left"), group_id="left")
    world.leave(world.stable_group("deleted"), group_id="deleted")
    world.delete("deleted")
    world = world.restarted()
    assert [(each["group_id"], each["group_state"]) for each in finish(world.groups.list())] == [("left", "Empty")]
    generation = world.join(must_know_member_id=False, group_id="left").body["generation_id"]
    assert generation == 3


def test_member_that_waits_when_the_broker_dies_joins_again_after_the_restart():
    world = World()
    member_id = world.stable_group()
    world.join(must_know_member_id=False)
    assert world.heartbeat(member_id, 1) == REBALANCE_IN_PROGRESS
    world = world.restarted()
    assert world.heartbeat(member_id, 1) == NONE


# ── administration ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_describe_tells_members_and_their_parts():
    world = World()
    member_id = world.stable_group(session_timeout_ms=6_000)
    [group] = world.groups.describe(["g"])
    assert group == {
        "error_code": NONE,
        "group_id": "g",
        "group_state": "Stable",
        "protocol_type": "consumer",
        "protocol_data": "range",
        "members": [
            {
                "member_id": member_id,
                "group_instance_id": None,
                "client_id": "client",
                "client_host": "/127.0.0.1",
                "member_metadata": ORDERS,
                "member_assignment": b"all",
            }
        ],
    }


def test_protocol_is_not_told_while_the_group_is_not_stable():
    world = World()
    world.join(must_know_member_id=False)
    [group] = world.groups.describe(["g"])
    assert (group["group_state"], group["protocol_data"]) == ("CompletingRebalance", "")
    assert group["members"][0]["member_metadata"] == b""


def test_unknown_group_is_described_as_dead():
    [group] = World().groups.describe(["nope"])
    assert (group["error_code"], group["group_state"]) == (GROUP_ID_NOT_FOUND, "Dead")
    assert group["error_message"] == "Group nope not found."


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ((), (), {"stable", "simple"}),
        (("STABLE ",), (), {"stable"}),
        (("Empty", "Stable"), ("Classic",), {"stable", "simple"}),
        (("nonsense",), (), set()),
        ((), ("consumer",), set()),
        ((), ("nonsense",), set()),
        ((), ("nonsense", "classic"), {"stable", "simple"}),
    ],
)
def test_list_filters_by_state_and_type(states, types, found):
    world = World()
    world.stable_group("stable")
    commit(world, group_id="simple")
    assert {each["group_id"] for each in finish(world.groups.list(states, types))} == found


def test_only_empty_groups_are_deleted():
    world = World()
    world.stable_group("used")
    commit(world, group_id="simple")
    results = world.delete("used", "nope", "simple", "used").body["results"]
    assert {each["group_id"]: each["error_code"] for each in results} == {
        "used": NON_EMPTY_GROUP,
        "nope": GROUP_ID_NOT_FOUND,
        "simple": NONE,
    }
    assert fetched(world, "simple") == -1
    assert fetched(world.restarted(), "simple") == -1


def test_delete_is_answered_when_it_is_safe():
    world = World()
    commit(world)
    world.journal.holds = True
    box = world.delete("g")
    assert not box.is_answered
    world.journal.fails = True
    world.journal.release()
    assert box.body["results"] == [{"group_id": "g", "error_code": NOT_COORDINATOR}]
    assert fetched(world) == 7
    assert world.state() == "Empty"


def test_nothing_to_delete_is_answered():
    assert World().delete().body == {"results": []}


# ── offsets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_commit_makes_a_simple_group():
    world = World()
    assert commit(world, 42) == NONE
    assert fetched(world) == 42
    assert finish(world.groups.list())[0]["protocol_type"] == ""
    world = world.restarted()
    assert fetched(world) == 42
    assert world.state() == "Empty"


@pytest.mark.parametrize(("version", "code"), [(8, ILLEGAL_GENERATION), (9, GROUP_ID_NOT_FOUND)])
def test_member_of_a_group_that_is_not_there_cannot_commit(version, code):
    assert commit(World(), member_id="m", generation=3, version=version) == code


def test_member_commits_and_keeps_its_session_with_that():
    world = World()
    member_id = world.stable_group()
    for offset in range(5):
        world.pass_ms(9_000)
        assert commit(world, offset, member_id=member_id, generation=1) == NONE
    assert commit(world, member_id=member_id, generation=2) == ILLEGAL_GENERATION
    assert commit(world) == UNKNOWN_MEMBER_ID
    assert fetched(world) == 4


def test_offsets_of_a_transaction_count_when_it_is_committed():
    world = World()
    box = Box()
    entries = [("orders", 0, CommittedOffset(9))]
    world.groups.commit_offsets("g", "", -1, None, entries, box, version=5, producer=(5, 0))
    assert box.body == [NONE]
    assert fetched(world) == -1
    partition = partition_for("g", world.journal.partition_count)
    world.journal.mark(partition, 5, 0, COMMIT)
    world.groups.transaction_ended(5, partition, True)
    assert fetched(world) == 9
    assert fetched(world.restarted()) == 9


def delete_offsets(world, topic):
    box = Box()
    world.groups.delete_offsets("g", [(topic, 0)], box)
    return box.body


def test_offsets_of_a_topic_in_use_are_not_deleted():
    world = World(topics=TopicTable({"orders": 1, "refunds": 1}))
    member_id = world.stable_group()
    commit(world, topic="orders", member_id=member_id, generation=1)
    commit(world, topic="refunds", member_id=member_id, generation=1)
    code = delete_offsets(world, "orders")["topics"][0]["partitions"][0]["error_code"]
    assert code == GROUP_SUBSCRIBED_TO_TOPIC
    assert delete_offsets(world, "refunds")["topics"][0]["partitions"][0]["error_code"] == NONE
    assert fetched(world, topic="refunds") == -1


def test_offsets_of_an_unknown_group_cannot_be_deleted():
    assert delete_offsets(World(), "orders") == {"error_code": GROUP_ID_NOT_FOUND, "topics": []}


def test_offsets_of_a_group_of_another_kind_are_not_deleted_while_it_has_members():
    world = World()
    world.join(must_know_member_id=False, protocol_type="connect")
    assert delete_offsets(world, "orders")["error_code"] == NON_EMPTY_GROUP


def test_old_offsets_go_and_the_group_with_them():
    world = World(offsets_retention_ms=DAY_MS)
    member_id = world.stable_group()
    commit(world, member_id=member_id, generation=1)
    world.leave(member_id)
    world.pass_ms(DAY_MS - 1)
    assert fetched(world) == 7
    world.pass_ms(600_000)
    assert fetched(world) == -1
    assert finish(world.groups.list()) == []
    assert written(world) == {"g": None}


def test_offsets_in_use_do_not_grow_old():
    world = World(offsets_retention_ms=DAY_MS, topics=TopicTable({"orders": 1, "refunds": 1}))
    member_id = world.stable_group(session_timeout_ms=1_800_000)
    commit(world, topic="orders", member_id=member_id, generation=1)
    commit(world, topic="refunds", member_id=member_id, generation=1)
    for _ in range(200):
        world.pass_ms(600_000)
        world.heartbeat(member_id, 1)
    assert fetched(world, topic="orders") == 7
    assert fetched(world, topic="refunds") == -1


def test_group_that_was_never_used_is_forgotten():
    world = World()
    assert world.join().code == MEMBER_ID_REQUIRED
    world.pass_ms(600_000)
    assert finish(world.groups.list()) == []
    assert finish(world.restarted().groups.list()) == []


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_deadlines_come_in_their_order():
    deadlines = Deadlines()
    for key, at_ms in [("b", 20), ("a", 10), ("c", 30)]:
        deadlines.set(key, at_ms)
    deadlines.cancel("b")
    assert deadlines.wake_ms == 10
    assert [deadlines.take_due(30), deadlines.take_due(29), deadlines.take_due(30)] == ["a", None, "c"]
    assert deadlines.take_due(99) is None
    assert deadlines.wake_ms == NEVER


def test_alarm_is_armed_anew_only_for_an_earlier_time():
    clock = ManualClock(0)
    scheduler, rung = Scheduler(clock), []
    alarm = Alarm(scheduler.call_later, lambda: rung.append(clock.now_ms()))
    alarm.set(100, 0)
    alarm.set(200, 0)
    alarm.set(50, 0)
    scheduler.pass_ms(300)
    assert rung == [50]


@pytest.mark.parametrize(
    "wrong",
    [
        {"min_session_timeout_ms": 10, "max_session_timeout_ms": 9},
        {"consumer_migration_policy": "sideways"},
        {"consumer_assignors": ("magic",)},
        {"consumer_assignors": ()},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong):
    with pytest.raises(OperatorError):
        GroupSettings(**wrong)


# ── a journal that cannot be read as a whole ─────────────────────────────────────────────────────────────────────────


def test_every_request_of_a_group_whose_partition_is_lost_is_refused():
    world = World()
    member_id = world.stable_group()
    commit(world, member_id=member_id, generation=1)
    lost = partition_for("g", world.journal.partition_count)
    world.journal.unreadable.add(lost)
    again = world.restarted()
    assert again.journal.losses == [lost]
    assert again.join(group_id="g").code == NOT_COORDINATOR
    assert again.sync(member_id, 1, {}).code == NOT_COORDINATOR
    assert again.groups.heartbeat("g", member_id, 1, None) == NOT_COORDINATOR
    assert again.groups.describe(["g"])[0]["error_code"] == NOT_COORDINATOR
    assert again.groups.consumer_describe(["g"])[0]["error_code"] == NOT_COORDINATOR
    other = next(each for each in "abcdef" if partition_for(each, again.journal.partition_count) != lost)
    assert [each["error_code"] for each in again.delete("g", other).body["results"]] == [
        NOT_COORDINATOR,
        GROUP_ID_NOT_FOUND,
    ]
    assert delete_offsets(again, "orders")["error_code"] == NOT_COORDINATOR
    assert finish(again.groups.list()) == []
    assert again.join(group_id=other).code != NOT_COORDINATOR


def test_a_marker_ends_a_transaction_in_its_own_partition_only():
    world = World()
    here = "g"
    there = next(name for name in "abcdef" if partition_for(name, 4) != partition_for(here, 4))
    entries = [("orders", 0, CommittedOffset(9))]
    for group_id in (here, there):
        world.groups.commit_offsets(group_id, "", -1, None, entries, Box(), version=5, producer=(5, 0))
    world.groups.transaction_ended(5, partition_for(here, 4), True)
    assert world.table(here).offsets.get(here, "orders", 0) == CommittedOffset(9)
    assert world.table(there).offsets.has_pending(there, "orders", 0)
    world.groups.transaction_ended(5, partition_for(there, 4), False)
    assert world.table(there).offsets.get(there, "orders", 0) is None
    assert not world.table(there).offsets.has_open_transaction(there)

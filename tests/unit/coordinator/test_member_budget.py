"""What a broker remembers of group members is bounded: bytes and pending members, per group and over all groups."""

import logging

import pytest
from group_harness import ORDERS, World, finish, join_request

from headrace.coordinator.consumer.requests import Heartbeat
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.member_budget import RECOUNT_MS, MemberBudget, MemberUsage
from headrace.core.errors import PeerError
from headrace.protocol.error_codes import GROUP_MAX_SIZE_REACHED, MEMBER_ID_REQUIRED, MESSAGE_TOO_LARGE, NONE


def beat(world, member_id, *, group_id="g", topics=("orders",), epoch=0):
    answers = []
    said = {"rebalance_timeout_ms": 30_000, "owned": {}, "topics": frozenset(topics)} if epoch == 0 else {}
    world.groups.consumer_heartbeat(
        Heartbeat(group_id=group_id, member_id=member_id, member_epoch=epoch, **said), answers.append
    )
    world.pass_ms(0)
    return answers[0]


def counted(roster):
    """What the roster's members cost, by a walk through them."""
    return sum(member.byte_count for member in roster) + sum(map(len, roster.pending))


# ── classic groups ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_member_that_says_too_much_is_refused_and_makes_no_group(caplog):
    world = World(member_metadata_bytes_max=1000)
    with caplog.at_level(logging.WARNING):
        assert world.join(metadata=b"x" * 1000).code == MESSAGE_TOO_LARGE
    assert finish(world.groups.list()) == []
    assert caplog.records[0].fields["setting"] == "headrace.group.member.metadata.bytes.max"
    assert caplog.records[0].fields["limit"] == 1000


def test_names_of_protocols_count_as_what_a_member_says():
    world = World(member_metadata_bytes_max=1000)
    assert world.join(protocols=["x" * 1000], metadata=b"").code == MESSAGE_TOO_LARGE
    assert world.join(client_id="x" * 1000, metadata=b"").code == MESSAGE_TOO_LARGE


def test_group_whose_members_say_too_much_takes_no_more_until_one_has_gone():
    world = World(group_metadata_bytes_max=1500)
    first = world.join(metadata=b"x" * 1000, must_know_member_id=False).body["member_id"]
    assert world.join(metadata=b"x" * 1000, must_know_member_id=False).code == GROUP_MAX_SIZE_REACHED
    world.leave(first)
    assert world.join(metadata=b"x" * 1000, must_know_member_id=False).code == NONE


def test_member_may_join_again_in_a_group_that_is_full():
    world = World(group_metadata_bytes_max=1500)
    member_id = world.join(metadata=b"x" * 1000, must_know_member_id=False).body["member_id"]
    assert world.join(member_id, metadata=b"y" * 1000).code == NONE
    assert world.join(member_id, metadata=b"y" * 1600).code == GROUP_MAX_SIZE_REACHED


def test_static_member_that_comes_back_takes_its_own_place():
    world = World(group_metadata_bytes_max=1500)
    assert world.join(instance_id="one", metadata=b"x" * 1000).code == NONE
    assert world.join(instance_id="one", metadata=b"y" * 1000).code == NONE
    assert world.join(instance_id="two", metadata=b"x" * 1000).code == GROUP_MAX_SIZE_REACHED


def test_pending_members_of_a_group_are_bounded_and_room_comes_back_when_they_expire():
    world = World(pending_members_max=3)
    codes = [world.join().code for _ in range(5)]
    assert codes == [MEMBER_ID_REQUIRED] * 3 + [GROUP_MAX_SIZE_REACHED] * 2
    assert world.join(group_id="other").code == MEMBER_ID_REQUIRED
    world.pass_ms(10_000)
    assert world.join().code == MEMBER_ID_REQUIRED


def test_pending_members_of_all_groups_are_bounded_and_counted_again_when_the_bound_is_reached():
    world = World(pending_members_total_max=3)
    for number in range(3):
        assert world.join(group_id=f"g{number}").code == MEMBER_ID_REQUIRED
    assert world.join(group_id="g3").code == GROUP_MAX_SIZE_REACHED
    world.pass_ms(10_000)
    assert world.join(group_id="g3").code == MEMBER_ID_REQUIRED


def test_leader_that_assigns_too_much_is_refused():
    world = World(group_metadata_bytes_max=1500)
    member_id = world.join(must_know_member_id=False).body["member_id"]
    assert world.sync(member_id, 1, {member_id: b"x" * 2000}).code == MESSAGE_TOO_LARGE
    assert world.sync(member_id, 1, {member_id: b"x" * 1000}).code == NONE


def test_roster_counts_what_its_members_say_whatever_happens_to_them():
    world = World()
    for number in range(6):
        world.groups.join(join_request(instance_id=f"i{number}", metadata=ORDERS * (number + 1)), lambda _: None)
        world.groups.join(join_request(), lambda _: None)
        world.groups.join(join_request(must_know_member_id=False), lambda _: None)
    roster = world.table().classic["g"].facts.roster
    assert roster.byte_count == counted(roster) > 0
    world.join(instance_id="i3", metadata=ORDERS)  # comes back under another id
    assert roster.byte_count == counted(roster)
    world.leave(*list(roster.members)[:3], *list(roster.pending)[:3])
    assert roster.byte_count == counted(roster)
    world.pass_ms(3_600_000)
    assert (len(roster), len(roster.pending), roster.byte_count) == (0, 0, 0)


# ── consumer groups ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_consumer_member_that_says_too_much_is_told_the_limit_and_the_setting():
    world = World(member_metadata_bytes_max=1000)
    answer = beat(world, "a", topics=["x" * 1000])
    assert answer["error_code"] == MESSAGE_TOO_LARGE
    assert "headrace.group.member.metadata.bytes.max=1000" in answer["error_message"]
    assert finish(world.groups.list()) == []


def test_consumer_group_whose_members_say_too_much_takes_no_more_until_one_has_gone():
    world = World(group_metadata_bytes_max=1500)
    assert beat(world, "a", topics=["x" * 1000])["error_code"] == NONE
    assert beat(world, "b", topics=["y" * 1000])["error_code"] == GROUP_MAX_SIZE_REACHED
    assert beat(world, "a", epoch=-1)["error_code"] == NONE
    assert beat(world, "b", topics=["y" * 1000])["error_code"] == NONE
    assert beat(world, "b", epoch=-1)["error_code"] == NONE
    assert world.shard().consumers.get("g").table.byte_count == 0


def test_all_groups_of_both_kinds_share_one_bound():
    world = World(total_metadata_bytes_max=2500)
    assert beat(world, "a", group_id="new", topics=["x" * 1000])["error_code"] == NONE
    assert world.join(metadata=b"x" * 1000, must_know_member_id=False).code == NONE
    assert world.join(group_id="h", metadata=b"x" * 1000).code == MEMBER_ID_REQUIRED, "it is not remembered yet"
    refused = world.join(group_id="h", metadata=b"x" * 1000, must_know_member_id=False)
    assert refused.code == GROUP_MAX_SIZE_REACHED
    assert beat(world, "a", group_id="new", epoch=-1)["error_code"] == NONE
    world.clock.advance(RECOUNT_MS)
    assert world.join(group_id="h", metadata=b"x" * 1000, must_know_member_id=False).code == NONE


def test_all_groups_are_counted_seldom_however_often_clients_are_refused():
    counts = []

    def recount():
        counts.append(1)
        return MemberUsage(100, 0)

    budget = MemberBudget(GroupSettings(total_metadata_bytes_max=100), recount)
    for now_ms in range(3 * RECOUNT_MS):
        with pytest.raises(PeerError):
            budget.admit("g", 0, 101, now_ms)
    assert len(counts) == 3

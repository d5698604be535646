"""The classic group's machine alone: no clock, no journal, no loop."""

import pytest
from group_harness import ORDERS, Machine
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordinator.classic.facts import GroupState
from headrace.coordinator.classic.group import NEW_MEMBER_JOIN_TIMEOUT_MS, ClassicGroup
from headrace.coordinator.classic.state import LEGAL_NEXT
from headrace.coordinator.deadlines import Now
from headrace.coordinator.group_settings import GroupSettings
from headrace.core.errors import InvariantError
from headrace.core.steps import finish
from headrace.protocol.error_codes import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    GROUP_MAX_SIZE_REACHED,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NONE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)

PAYMENTS = ORDERS.replace(b"orders", b"refund")


def machine(**settings):
    settings.setdefault("initial_rebalance_delay_ms", 0)
    return Machine(ClassicGroup("g", GroupSettings(**settings), Now(0, 0)))


def stable(members=1, **settings):
    """A stable group of so many dynamic members; their ids, the leader's first."""
    it = machine(**settings)
    joined = [it.join_as_new() for _ in range(members)]
    it.pass_ms(0)
    assert all(box.code == NONE for _, box in joined)
    ids = [member_id for member_id, _ in joined]
    share_out(it, ids)
    return it, ids


def share_out(it, ids):
    leader = it.group.facts.roster.leader
    boxes = [it.sync(each, it.group.facts.generation) for each in ids if each != leader]
    boxes.append(it.sync(leader, it.group.facts.generation, {each: each.encode() for each in ids}))
    it.stored()
    assert [box.code for box in boxes] == [NONE] * len(ids)
    assert it.group.facts.state is GroupState.STABLE


def stable_static(instance_ids=("i1",), **settings):
    it = machine(**settings)
    joined = {each: it.join(instance_id=each) for each in instance_ids}
    it.pass_ms(0)
    ids = {each: box.body["member_id"] for each, box in joined.items()}
    share_out(it, list(ids.values()))
    return it, ids


# ── joining ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_new_member_is_given_an_id_and_joins_with_it():
    it = machine()
    first = it.join()
    assert first.code == MEMBER_ID_REQUIRED
    assert first.body["member_id"].startswith("client-")
    assert it.group.facts.state is GroupState.EMPTY
    second = it.join(first.body["member_id"])
    it.pass_ms(0)
    assert second.code == NONE
    assert second.body["generation_id"] == 1
    assert second.body["leader"] == second.body["member_id"] == first.body["member_id"]
    assert [each["metadata"] for each in second.body["members"]] == [ORDERS]


def test_member_of_an_older_version_joins_in_one_step():
    it = machine()
    box = it.join(must_know_member_id=False)
    it.pass_ms(0)
    assert box.code == NONE


def test_only_the_leader_hears_who_is_there():
    it = machine()
    (leader, first), (_, second) = it.join_as_new(), it.join_as_new()
    it.pass_ms(0)
    assert first.body["leader"] == second.body["leader"] == leader
    assert len(first.body["members"]) == 2
    assert second.body["members"] == []


def test_first_rebalance_waits_for_as_long_as_members_keep_coming():
    it = machine(initial_rebalance_delay_ms=3_000)
    _, first = it.join_as_new()
    it.pass_ms(2_000)
    _, second = it.join_as_new()
    it.pass_ms(3_999)
    assert not first.is_answered
    it.pass_ms(1)
    assert first.code == second.code == NONE
    assert it.group.facts.generation == 1


def test_first_rebalance_does_not_wait_longer_than_the_rebalance_timeout():
    it = machine(initial_rebalance_delay_ms=3_000)
    _, first = it.join_as_new(rebalance_timeout_ms=7_000)
    for _ in range(9):
        it.pass_ms(1_000)
        it.join_as_new(rebalance_timeout_ms=7_000)
    assert first.code == NONE


def test_pending_member_holds_up_a_rebalance_until_it_is_forgotten():
    it, (leader,) = stable()
    it.join(session_timeout_ms=6_000)  # asks for an id, and is not heard of again
    again = it.join(leader)
    assert not again.is_answered
    it.pass_ms(6_000)
    assert again.code == NONE


def test_new_member_that_waits_too_long_is_forgotten_and_told_so():
    it, (leader,) = stable()
    it.group.facts.roster[leader].rebalance_timeout_ms = 2 * NEW_MEMBER_JOIN_TIMEOUT_MS
    _, waiting = it.join_as_new()
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000):
        it.pass_ms(5_000)
        it.heartbeat(leader)
    assert waiting.code == UNKNOWN_MEMBER_ID
    assert waiting.body["member_id"] == ""


def test_protocol_with_most_votes_is_chosen_among_those_all_speak():
    it = machine()
    _, first = it.join_as_new(protocols=("a", "b", "c"))
    it.join_as_new(protocols=("d", "c", "b"))
    it.join_as_new(protocols=("c", "b"))
    it.pass_ms(0)
    assert first.body["protocol_name"] == "c"


@pytest.mark.parametrize("fields", [{"protocols": ()}, {"protocol_type": ""}])
def test_empty_group_refuses_a_member_without_protocol(fields):
    assert machine().join(**fields).code == INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("fields", [{"protocols": ("other",)}, {"protocol_type": "connect"}])
def test_member_that_speaks_another_protocol_is_refused(fields):
    it, _ = stable()
    assert it.join(**fields).code == INCONSISTENT_GROUP_PROTOCOL


def test_unknown_member_id_is_refused():
    it, _ = stable()
    refused = it.join("who")
    assert refused.code == UNKNOWN_MEMBER_ID
    assert refused.body["member_id"] == "who"


def test_full_group_refuses_new_members_but_takes_back_its_own():
    it, (first, second) = stable(2, max_size=2)
    refused = it.join()
    assert refused.code == GROUP_MAX_SIZE_REACHED
    assert refused.body["member_id"] == ""
    again = it.join(first)
    it.join(second)
    assert again.code == NONE


def test_last_to_come_back_to_a_group_too_large_is_left_out():
    it, (leader, second, third) = stable(3)
    it.group._settings = GroupSettings(max_size=2)
    boxes = [it.join(each) for each in (leader, second, third)]
    assert [box.code for box in boxes] == [NONE, NONE, GROUP_MAX_SIZE_REACHED]
    assert len(it.group.facts.roster) == 2


def test_follower_that_joins_a_stable_group_unchanged_is_told_the_generation():
    it, (_, follower) = stable(2)
    box = it.join(follower)
    assert (box.code, box.body["generation_id"], box.body["members"]) == (NONE, 1, [])
    assert it.group.facts.state is GroupState.STABLE


def test_follower_with_another_subscription_makes_a_rebalance():
    it, (leader, follower) = stable(2)
    box = it.join(follower, metadata=PAYMENTS)
    assert it.group.facts.state is GroupState.PREPARING
    assert it.heartbeat(leader) == REBALANCE_IN_PROGRESS
    it.join(leader)
    assert box.body["generation_id"] == 2
    assert it.group.facts.subscribed_topics == {"orders", "refund"}


def test_leader_that_joins_a_stable_group_makes_a_rebalance():
    it, (leader,) = stable()
    assert it.join(leader).body["generation_id"] == 2


def test_join_repeated_while_completing_is_answered_again():
    it = machine()
    leader, _ = it.join_as_new()
    it.pass_ms(0)
    again = it.join(leader)
    assert (again.code, again.body["generation_id"], len(again.body["members"])) == (NONE, 1, 1)


def test_join_sent_twice_is_answered_twice():
    it, (leader, follower) = stable(2)
    first = it.join(leader)
    second = it.join(leader)
    assert first.code == REBALANCE_IN_PROGRESS
    it.join(follower)
    assert second.code == NONE


# ── rebalancing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nobody_hears_of_an_assignment_before_it_is_stored():
    it = machine()
    (leader, _), (follower, _) = it.join_as_new(), it.join_as_new()
    it.pass_ms(0)
    waiting = it.sync(follower, 1)
    leading = it.sync(leader, 1, {leader: b"one", follower: b"two"})
    assert not waiting.is_answered
    assert not leading.is_answered
    [store] = it.stores
    assert {each.member_id: each.assignment for each in store.metadata.members} == {leader: b"one", follower: b"two"}
    it.stored()
    assert waiting.body["assignment"] == b"two"
    assert leading.body == {
        "error_code": NONE,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignment": b"one",
    }


def test_late_follower_gets_its_part_from_a_stable_group():
    it, (leader, follower) = stable(2)
    box = it.sync(follower, 1)
    assert box.body["assignment"] == follower.encode()
    assert it.sync(leader, 1, {leader: b"other"}).body["assignment"] == leader.encode()


def test_member_whom_the_leader_forgot_gets_nothing():
    it = machine()
    (leader, _), (follower, _) = it.join_as_new(), it.join_as_new()
    it.pass_ms(0)
    box = it.sync(follower, 1)
    it.sync(leader, 1, {leader: b"all", "stranger": b"x"})
    it.stored()
    assert box.body["assignment"] == b""


def test_assignment_that_cannot_be_stored_makes_all_join_again():
    it = machine()
    (leader, _), (follower, _) = it.join_as_new(), it.join_as_new()
    it.pass_ms(0)
    boxes = [it.sync(follower, 1), it.sync(leader, 1, {leader: b"all"})]
    it.stored(NOT_COORDINATOR)
    assert [box.code for box in boxes] == [NOT_COORDINATOR] * 2
    assert it.group.facts.state is GroupState.PREPARING


def test_assignment_stored_too_late_is_ignored():
    it, (leader, follower) = stable(2)
    it.join(leader)
    it.join(follower)
    box = it.sync(leader, 2, {leader: b"old"})
    newcomer = it.join(must_know_member_id=False)
    assert box.code == REBALANCE_IN_PROGRESS
    it.stored()
    assert it.group.facts.state is GroupState.PREPARING
    it.join(leader)
    it.join(follower)
    assert newcomer.body["generation_id"] == 3


def test_leader_that_syncs_twice_is_stored_once():
    it = machine()
    leader, _ = it.join_as_new()
    it.pass_ms(0)
    first = it.sync(leader, 1, {leader: b"one"})
    second = it.sync(leader, 1, {leader: b"two"})
    assert len(it.stores) == 1
    it.stored()
    assert first.code == REBALANCE_IN_PROGRESS
    assert second.body["assignment"] == b"one"


def test_member_that_does_not_join_again_is_removed_when_time_is_up():
    it, (leader, lost) = stable(2)
    again = it.join(leader)
    for _ in range(11):
        it.pass_ms(5_000)
        assert it.heartbeat(lost) == REBALANCE_IN_PROGRESS
    assert not again.is_answered
    it.pass_ms(5_000)
    assert again.body["generation_id"] == 2
    assert [each["member_id"] for each in again.body["members"]] == [leader]
    assert it.heartbeat(lost) == UNKNOWN_MEMBER_ID


def test_leader_that_does_not_join_again_is_succeeded():
    it, (leader, follower) = stable(2)
    again = it.join(follower, metadata=PAYMENTS)
    it.pass_ms(60_000)
    assert again.body["leader"] == follower
    assert leader not in it.group.facts.roster


def test_member_that_never_syncs_is_removed():
    it, (leader, follower) = stable(2)
    it.join(leader)
    it.join(follower)
    it.sync(leader, 2, {leader: b"all"})
    it.stored()
    for _ in range(12):
        it.pass_ms(5_000)
        it.heartbeat(leader)
        it.heartbeat(follower)
    assert it.group.facts.state is GroupState.PREPARING
    assert list(it.group.facts.roster.members) == [leader]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"generation": 7}, ILLEGAL_GENERATION),
        ({"member_id": "who"}, UNKNOWN_MEMBER_ID),
        ({"protocol": ("connect", None)}, INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": ("consumer", "other")}, INCONSISTENT_GROUP_PROTOCOL),
        ({"instance_id": "i"}, UNKNOWN_MEMBER_ID),
    ],
)
def test_sync_of_someone_else_is_refused(fields, code):
    it, (leader,) = stable()
    assert it.sync(**{"member_id": leader, "generation": 1, **fields}).code == code


def test_sync_during_a_rebalance_is_sent_back_to_join():
    it, (leader, follower) = stable(2)
    it.join(leader)
    assert it.sync(follower, 1).code == REBALANCE_IN_PROGRESS


# ── sessions and going ───────────────────────────────────────────────────────────────────────────────────────────────


def test_silent_member_is_removed_when_its_session_ends():
    it, (leader, silent) = stable(2)
    it.pass_ms(6_000)
    assert it.heartbeat(leader) == NONE
    it.pass_ms(4_000)
    assert it.group.facts.state is GroupState.PREPARING
    assert it.heartbeat(leader) == REBALANCE_IN_PROGRESS
    assert it.heartbeat(silent) == UNKNOWN_MEMBER_ID
    assert it.join(leader).body["generation_id"] == 2


def test_commit_of_offsets_is_as_good_as_a_heartbeat():
    it, (leader,) = stable()
    it.pass_ms(9_000)
    it.group.touch(leader, it.now)
    it.pass_ms(9_000)
    assert it.heartbeat(leader) == NONE


def test_member_that_waits_for_us_does_not_lose_its_session():
    it, (leader, follower) = stable(2)
    waiting = it.join(leader)
    for _ in range(8):
        it.pass_ms(5_000)
        it.heartbeat(follower)
    assert not waiting.is_answered
    it.join(follower)
    assert waiting.code == NONE


def test_follower_that_waits_for_the_leader_does_not_lose_its_session():
    it, (leader, follower) = stable(2)
    it.join(leader)
    it.join(follower)
    waiting = it.sync(follower, 2)
    for _ in range(8):
        it.pass_ms(5_000)
        it.heartbeat(leader)
    it.sync(leader, 2, {follower: b"x"})
    it.stored()
    assert waiting.body["assignment"] == b"x"
    assert it.heartbeat(follower) == NONE


@pytest.mark.parametrize(
    ("member", "generation", "code"), [("who", 1, UNKNOWN_MEMBER_ID), (None, 2, ILLEGAL_GENERATION)]
)
def test_heartbeat_of_someone_else_is_refused(member, generation, code):
    it, (leader,) = stable()
    assert it.heartbeat(member or leader, generation) == code


def test_group_whose_last_member_leaves_is_written_down_as_empty_before_that_is_answered():
    it, (leader,) = stable()
    box = it.leave(leader)
    assert not box.is_answered
    [store] = it.stores
    assert (store.metadata.generation, store.metadata.members, store.metadata.leader) == (2, (), None)
    assert store.metadata.protocol_type == "consumer"
    it.stored()
    assert box.body["members"] == [{"member_id": leader, "group_instance_id": None, "error_code": NONE}]
    assert it.group.facts.state is GroupState.EMPTY


def test_many_members_leave_at_once():
    it, (first, second, third) = stable(3)
    box = it.leave(first, "who", ("", "i"), second)
    assert [each["error_code"] for each in box.body["members"]] == [NONE, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID, NONE]
    assert it.group.facts.state is GroupState.PREPARING
    assert it.join(third).body["leader"] == third


def test_pending_member_may_leave():
    it, (leader,) = stable()
    pending = it.join().body["member_id"]
    again = it.join(leader)
    assert it.leave(pending).body["members"][0]["error_code"] == NONE
    assert again.code == NONE


def test_member_that_leaves_while_it_waits_is_answered():
    it, (leader, follower) = stable(2)
    waiting = it.join(leader)
    it.leave(leader)
    assert waiting.code == UNKNOWN_MEMBER_ID
    it.join(follower)
    syncing = it.sync(follower, 2, {})
    it.leave(follower)
    assert syncing.code == UNKNOWN_MEMBER_ID


def test_empty_group_takes_another_kind_of_member():
    it, (leader,) = stable()
    it.leave(leader)
    it.stored()
    _, box = it.join_as_new(protocol_type="connect", protocols=("sessioned",))
    it.pass_ms(0)
    assert box.body["protocol_type"] == "connect"
    assert it.group.facts.subscribed_topics is None


def test_member_of_an_empty_group_is_unknown():
    it, (leader,) = stable()
    it.leave(leader)
    it.stored()
    assert it.heartbeat(leader) == UNKNOWN_MEMBER_ID
    assert it.sync(leader, 2).code == UNKNOWN_MEMBER_ID
    assert it.join(leader).code == UNKNOWN_MEMBER_ID


# ── static members ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_static_member_needs_no_second_step():
    it = machine()
    box = it.join(instance_id="i1")
    it.pass_ms(0)
    assert box.code == NONE
    assert box.body["member_id"].startswith("i1-")


def test_static_member_comes_back_without_a_rebalance():
    it, ids = stable_static(("i1", "i2"))
    box = it.join(instance_id="i2")
    assert not box.is_answered
    it.stored()
    new_id = box.body["member_id"]
    assert new_id != ids["i2"]
    assert (box.code, box.body["generation_id"], box.body["skip_assignment"]) == (NONE, 1, False)
    assert it.group.facts.state is GroupState.STABLE
    assert it.sync(new_id, 1, instance_id="i2").body["assignment"] == ids["i2"].encode()
    assert it.heartbeat(ids["i2"], instance_id="i2") == FENCED_INSTANCE_ID
    assert it.heartbeat(ids["i2"]) == UNKNOWN_MEMBER_ID


def test_static_leader_comes_back_and_is_told_to_skip_the_assignment():
    it, _ = stable_static()
    box = it.join(instance_id="i1")
    it.stored()
    assert box.body["skip_assignment"] is True
    assert box.body["leader"] == box.body["member_id"]
    assert len(box.body["members"]) == 1


def test_static_leader_of_an_older_version_comes_back_and_is_not_told_that_it_leads():
    it, ids = stable_static()
    box = it.join(instance_id="i1", may_skip_assignment=False)
    it.stored()
    assert box.body["leader"] == ids["i1"]
    assert box.body["members"] == []


def test_static_member_that_cannot_be_stored_is_who_it_was():
    it, ids = stable_static()
    box = it.join(instance_id="i1", session_timeout_ms=20_000)
    it.stored(NOT_COORDINATOR)
    assert box.code == NOT_COORDINATOR
    assert it.heartbeat(ids["i1"], instance_id="i1") == NONE
    assert it.group.facts.roster[ids["i1"]].session_timeout_ms == 10_000


def test_static_member_that_changes_the_chosen_protocol_makes_a_rebalance():
    it = machine()
    box = it.join(instance_id="i1", protocols=("a", "b"))
    it.pass_ms(0)
    share_out(it, [box.body["member_id"]])
    again = it.join(instance_id="i1", protocols=("b", "a"))
    assert again.body["generation_id"] == 2
    assert again.body["protocol_name"] == "b"


def test_static_member_that_comes_back_while_completing_makes_a_rebalance():
    it = machine()
    first, second = it.join(instance_id="i1"), it.join(instance_id="i2")
    it.pass_ms(0)
    waiting = it.sync(second.body["member_id"], 1, instance_id="i2")
    again = it.join(instance_id="i2")
    assert waiting.code == FENCED_INSTANCE_ID
    assert it.group.facts.state is GroupState.PREPARING
    leading = it.join(first.body["member_id"], instance_id="i1")
    assert again.body["generation_id"] == leading.body["generation_id"] == 2


def test_former_self_that_waits_is_fenced():
    it, ids = stable_static(("i1", "i2"))
    waiting = it.join(ids["i1"], instance_id="i1", metadata=PAYMENTS)
    again = it.join(instance_id="i1")
    assert waiting.code == FENCED_INSTANCE_ID
    assert waiting.body["member_id"] == ids["i1"]
    it.join(ids["i2"], instance_id="i2")
    assert again.code == NONE


def test_static_member_that_does_not_join_again_keeps_its_place_until_its_session_ends():
    it, ids = stable_static(("i1", "i2"), max_session_timeout_ms=300_000)
    it.group.facts.roster[ids["i2"]].session_timeout_ms = 200_000
    it.heartbeat(ids["i2"], instance_id="i2")
    again = it.join(ids["i1"], instance_id="i1")
    it.pass_ms(60_000)
    assert {each["group_instance_id"] for each in again.body["members"]} == {"i1", "i2"}


def test_static_member_is_removed_by_its_instance():
    it, ids = stable_static(("i1", "i2"))
    assert it.leave(("", "i1")).body["members"][0]["error_code"] == NONE
    assert ids["i1"] not in it.group.facts.roster
    assert it.leave(("wrong", "i2")).body["members"][0]["error_code"] == FENCED_INSTANCE_ID


def test_rebalance_of_absent_static_members_ends_with_their_sessions():
    it, ids = stable_static(("i1", "i2"))
    it.leave(("", "i1"))
    it.pass_ms(10_000)
    assert it.group.facts.state is GroupState.EMPTY
    assert ids["i2"] not in it.group.facts.roster


def test_rebalance_timeout_of_zero_does_not_spin():
    it, ids = stable_static(("i1", "i2"))
    for member in it.group.facts.roster:
        member.rebalance_timeout_ms = 0
    it.leave(("", "i1"))
    it.pass_ms(5_000)
    assert it.group.facts.state is GroupState.PREPARING
    assert ids["i2"] in it.group.facts.roster


# ── restarts, deletion, faults ───────────────────────────────────────────────────────────────────────────────────────


def test_group_is_stable_again_as_it_was_written_down():
    it, ids = stable(2)
    written = finish(it.group.facts.written(None))
    other = machine()
    other.group.facts.restore(written)
    other.do(other.group.loaded(other.now))
    assert other.group.facts.state is GroupState.STABLE
    assert other.group.facts.subscribed_topics == {"orders"}
    assert other.heartbeat(ids[0], 1) == NONE
    assert other.sync(ids[1], 1).body["assignment"] == ids[1].encode()
    other.pass_ms(10_000)
    assert other.group.facts.state is GroupState.EMPTY


def test_group_that_is_too_large_after_a_restart_rebalances():
    it, ids = stable(3)
    other = machine(max_size=2)
    other.group.facts.restore(finish(it.group.facts.written({})))
    other.do(other.group.loaded(other.now))
    assert other.group.facts.state is GroupState.PREPARING
    boxes = [other.join(each) for each in ids]
    assert [box.code for box in boxes] == [NONE, NONE, GROUP_MAX_SIZE_REACHED]


def test_dead_group_sends_everyone_to_look_for_the_coordinator_again():
    it, (leader, follower) = stable(2)
    waiting = it.join(leader)
    it.do(it.group.die(NOT_COORDINATOR, it.now))
    assert waiting.code == NOT_COORDINATOR
    assert it.join().code == COORDINATOR_NOT_AVAILABLE
    assert it.sync(follower, 1).code == COORDINATOR_NOT_AVAILABLE
    assert it.leave(follower).code == COORDINATOR_NOT_AVAILABLE
    assert it.heartbeat(follower) == COORDINATOR_NOT_AVAILABLE


def test_transition_that_is_not_in_the_table_is_a_bug():
    it = machine()
    with pytest.raises(InvariantError, match="Empty cannot become Stable"):
        it.group._machine._go(GroupState.STABLE)
    assert set(LEGAL_NEXT) == set(GroupState)


@pytest.mark.parametrize(
    ("who", "code"),
    [
        (("", -1, None), UNKNOWN_MEMBER_ID),
        (("leader", 1, None), NONE),
        (("leader", 2, None), ILLEGAL_GENERATION),
        (("who", 1, None), UNKNOWN_MEMBER_ID),
        (("leader", 1, "i"), UNKNOWN_MEMBER_ID),
    ],
)
def test_stable_group_lets_its_members_commit(who, code):
    it, (leader,) = stable()
    member_id, generation, instance_id = who
    member_id = leader if member_id == "leader" else member_id
    assert it.group.facts.commit_fault(member_id, generation, instance_id, in_transaction=False) == code


def test_transaction_may_commit_without_saying_who_it_is():
    it, _ = stable()
    assert it.group.facts.commit_fault("", -1, None, in_transaction=True) == NONE


def test_commit_while_the_group_waits_for_its_leader_is_refused():
    it = machine()
    leader, _ = it.join_as_new()
    it.pass_ms(0)
    assert it.group.facts.commit_fault(leader, 1, None, in_transaction=False) == REBALANCE_IN_PROGRESS
    assert it.group.facts.commit_fault(leader, 1, None, in_transaction=True) == NONE


def test_metadata_that_is_no_subscription_is_no_fault():
    it = machine()
    it.join_as_new(metadata=b"\xff" * 9)
    it.pass_ms(0)
    assert it.group.facts.subscribed_topics is None
    assert it.group.facts.subscribes_to("anything")


# ── whatever happens ─────────────────────────────────────────────────────────────────────────────────────────────────

events = st.lists(
    st.tuples(
        st.sampled_from(["join", "join", "static", "sync", "sync", "leave", "beat", "stored", "failed", "time"]),
        st.integers(0, 4),
        st.integers(0, 3),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(events)
def test_every_request_is_answered_once_whatever_happens(steps):
    it = machine(initial_rebalance_delay_ms=500, max_size=4)
    boxes, ids = [], [""]
    for kind, which, how in steps:
        member_id = ids[which % len(ids)]
        if kind == "join":
            boxes.append(it.join(member_id, metadata=PAYMENTS if how == 3 else ORDERS))
        elif kind == "static":
            boxes.append(it.join(instance_id=f"i{which % 2}"))
        elif kind == "sync":
            boxes.append(it.sync(member_id, it.group.facts.generation, {member_id: b"x"}))
        elif kind == "leave":
            boxes.append(it.leave((member_id, f"i{which % 2}") if how == 3 else member_id))
        elif kind == "beat":
            it.heartbeat(member_id)
        elif kind == "time":
            it.pass_ms([1, 500, 9_000, 61_000][how])
        else:
            it.stored(NOT_COORDINATOR if kind == "failed" else NONE)
        ids = ["", *sorted(it.group.facts.roster.pending), *it.group.facts.roster.members]
        check(it)
    it.stored()
    it.pass_ms(1_000_000)
    it.stored()
    check(it)
    assert all(len(box.bodies) == 1 for box in boxes)
    assert it.group.facts.state is GroupState.EMPTY


def check(it):
    group, roster = it.group, it.group.facts.roster
    assert roster.joins_waiting == sum(each.join_ticket is not None for each in roster)
    assert roster.leader is None or roster.leader in roster
    assert (group.facts.state is GroupState.EMPTY) <= (len(roster) == 0)
    assert not (roster.pending & roster.members.keys())
    for member in roster:
        assert member.is_waiting or (("session", member.member_id) in group.deadlines)

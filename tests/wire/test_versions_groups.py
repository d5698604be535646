"""Classic groups over every version: joining, syncing, heartbeats, leaving, and looking at groups."""

from contextlib import ExitStack

import pytest
import raw
import raw_groups
from raw import ErrorCode
from raw_groups import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
    Member,
    subscription,
)

each_join = pytest.mark.parametrize("version", raw_groups.versions(JOIN_GROUP))
each_sync = pytest.mark.parametrize("version", raw_groups.versions(SYNC_GROUP))
each_heartbeat = pytest.mark.parametrize("version", raw_groups.versions(HEARTBEAT))
each_leave = pytest.mark.parametrize("version", raw_groups.versions(LEAVE_GROUP))
each_describe = pytest.mark.parametrize("version", raw_groups.versions(DESCRIBE_GROUPS))
each_list = pytest.mark.parametrize("version", raw_groups.versions(LIST_GROUPS))
each_delete = pytest.mark.parametrize("version", raw_groups.versions(DELETE_GROUPS))


pytestmark = pytest.mark.usefixtures("warm_coordinators")


@pytest.fixture
def group():
    return raw.fresh_name("group")


@pytest.fixture
def member(bootstrap, group):
    """`member(…)` makes one more of the group; each is disconnected at the end."""
    with ExitStack() as stack:
        yield lambda **fields: stack.enter_context(Member(bootstrap, group, **fields))


def pair(member):
    """Two members of one generation, the first of them the leader, both with their assignment."""
    leader, follower = member().settle(), member()
    follower.ask_for_id()
    follower.send_join()
    leader.await_rebalance()
    leader.join()
    follower.read_join()
    leader.sync(given={leader.id: b"one", follower.id: b"two"})
    follower.sync()
    return leader, follower


def test_the_versions_are_those_of_apache_kafka(client):
    answer = client.call(raw.API_VERSIONS, 4, {"client_software_name": "raw", "client_software_version": "1"})
    served = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
    assert {key: served.get(key) for key in raw_groups.VERSIONS} == raw_groups.VERSIONS


@each_join
def test_two_members_join_and_the_leader_is_told_of_both(member, version):
    first, second = member(), member()
    alone = first.join(version)
    assert (alone.error_code, alone.generation_id, alone.protocol_name) == (0, 1, "range")
    assert alone.leader == alone.member_id == first.id
    assert [each.member_id for each in alone.members] == [first.id]
    assert first.sync(given={first.id: b"all"}).assignment == b"all"
    if version >= 4:
        second.ask_for_id(version)
    second.send_join(version, protocols=[{"name": "range", "metadata": subscription("other")}])
    first.await_rebalance()
    both, follower = first.join(version), second.read_join()
    assert (both.generation_id, follower.generation_id) == (2, 2)
    assert both.leader == follower.leader == first.id
    seen = {each.member_id: each.metadata for each in both.members}
    assert seen == {first.id: subscription("none"), second.id: subscription("other")}
    assert follower.members == ()
    if version >= 7:
        assert both.protocol_type == follower.protocol_type == "consumer"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout": 5999}, ErrorCode.invalid_session_timeout),
        ({"session_timeout": 1_800_001}, ErrorCode.invalid_session_timeout),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"member_id": "never seen"}, ErrorCode.unknown_member_id),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
    ],
)
@each_join
def test_a_join_that_makes_no_sense_is_refused(member, version, fields, error):
    joining = member()
    joining.send_join(version, **fields)
    assert joining.client.read().error_code == error


@each_join
def test_a_member_that_shares_no_protocol_with_the_group_is_refused(member, version):
    member().settle()
    for fields in ({"protocol_type": "other"}, {"protocols": [{"name": "sticky", "metadata": b""}]}):
        joining = member()
        joining.send_join(version, **fields)
        assert joining.client.read().error_code == ErrorCode.inconsistent_group_protocol


def test_the_protocol_is_one_that_every_member_knows(member):
    many = [{"name": name, "metadata": subscription("none")} for name in ("sticky", "range")]
    first, second = member(protocols=many), member()
    assert first.join().protocol_name == "sticky"
    assert first.sync(protocol_name="sticky").error_code == 0
    second.ask_for_id()
    second.send_join()
    first.await_rebalance()
    assert (first.join().protocol_name, second.read_join().protocol_name) == ("range", "range")


def test_a_follower_that_joins_again_unchanged_gets_its_generation_and_the_leader_a_new_one(member):
    leader, follower = pair(member)
    again = follower.join()
    assert (again.error_code, again.generation_id, again.members) == (0, 2, ())
    assert leader.heartbeat() == 0
    leader.send_join()
    follower.await_rebalance()
    follower.send_join()
    assert leader.read_join().generation_id == follower.read_join().generation_id == 3


def test_a_static_member_comes_back_under_a_new_id_and_the_old_one_is_fenced(member):
    leader, follower = pair(member)
    leader.leave(), follower.leave()
    old, new = member(group_instance_id="one"), member(group_instance_id="one")
    old.settle()
    back = new.join()
    assert (back.error_code, back.generation_id) == (0, old.generation)
    assert new.id != old.id
    assert back.skip_assignment
    assert new.sync().assignment == b"all"
    fenced = ErrorCode.fenced_instance_id
    assert (old.heartbeat(), old.sync().error_code, old.leave()) == (fenced, fenced, fenced)
    old.send_join()
    assert old.client.read().error_code == fenced
    # By the instance alone, as an admin removes it.
    assert new.leave(member_id="") == 0


def test_a_static_member_of_an_older_version_leads_without_skipping(member):
    old, new = member(group_instance_id="one"), member(group_instance_id="one")
    old.settle()
    back = new.join(5)
    assert (back.error_code, back.generation_id) == (0, old.generation)
    assert new.sync().assignment == b"all"


@each_sync
def test_a_follower_gets_its_part_when_the_leader_has_given_it(member, version):
    leader, follower = pair(member)
    leader.send_join()
    follower.await_rebalance()
    follower.send_join()
    leader.read_join(), follower.read_join()
    follower.send_sync(version)
    given = leader.sync(version, given={leader.id: b"left", follower.id: b"right"})
    taken = follower.client.read()
    assert (given.error_code, given.assignment) == (0, b"left")
    assert (taken.error_code, taken.assignment) == (0, b"right")
    if version >= 5:
        assert (taken.protocol_type, taken.protocol_name) == ("consumer", "range")
    assert follower.sync(version).assignment == b"right"


@each_sync
def test_a_sync_that_does_not_fit_is_refused(member, version):
    settled = member().settle()
    for fields, error in (
        ({"generation_id": 7}, ErrorCode.illegal_generation),
        ({"member_id": "never seen"}, ErrorCode.unknown_member_id),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"group_id": raw.fresh_name("missing")}, ErrorCode.unknown_member_id),
    ):
        assert settled.sync(version, **fields).error_code == error
    if version >= 5:
        mismatch = ErrorCode.inconsistent_group_protocol
        assert settled.sync(version, protocol_type="connect").error_code == mismatch
        assert settled.sync(version, protocol_name="sticky").error_code == mismatch
    settled.send_join()
    settled.read_join()
    assert settled.heartbeat() == 0


@each_heartbeat
def test_heartbeats_are_answered_and_those_of_others_refused(member, version):
    settled = member().settle()
    assert settled.heartbeat(version) == 0
    for fields, error in (
        ({"generation_id": 7}, ErrorCode.illegal_generation),
        ({"member_id": "never seen"}, ErrorCode.unknown_member_id),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"group_id": raw.fresh_name("missing")}, ErrorCode.unknown_member_id),
    ):
        assert settled.heartbeat(version, **fields) == error
    if version >= 3:
        assert settled.heartbeat(version, group_instance_id="other") == ErrorCode.unknown_member_id


@each_leave
def test_a_member_that_leaves_makes_the_others_join_again(member, version):
    leader, follower = pair(member)
    assert follower.leave(version) == 0
    leader.await_rebalance()
    answer = leader.join()
    assert [each.member_id for each in answer.members] == [leader.id]
    assert follower.heartbeat() == ErrorCode.unknown_member_id
    assert follower.leave(version) == ErrorCode.unknown_member_id


def test_several_members_leave_by_one_request(client, group, member):
    leader, follower = pair(member)
    gone = [{"member_id": leader.id}, {"member_id": follower.id}, {"member_id": "never seen"}]
    answer = client.call(LEAVE_GROUP, 5, {"group_id": group, "members": gone})
    errors = [(each.member_id, each.error_code) for each in answer.members]
    unknown = ErrorCode.unknown_member_id
    assert (answer.error_code, errors) == (0, [(leader.id, 0), (follower.id, 0), ("never seen", unknown)])


@each_describe
def test_a_group_is_described_with_its_members(client, group, member, version):
    leader, follower = pair(member)
    (found,) = client.call(DESCRIBE_GROUPS, version, {"groups": [group]}).groups
    assert (found.error_code, found.group_id, found.group_state) == (0, group, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    seen = {each.member_id: (each.client_id, each.client_host, each.member_assignment) for each in found.members}
    assert seen == {leader.id: ("raw", "/127.0.0.1", b"one"), follower.id: ("raw", "/127.0.0.1", b"two")}
    assert {each.member_metadata for each in found.members} == {subscription("none")}
    if version >= 3:
        assert found.authorized_operations == -(2**31)


@each_describe
def test_a_missing_group_is_described_as_dead(client, version):
    (found,) = client.call(DESCRIBE_GROUPS, version, {"groups": [raw.fresh_name("missing")]}).groups
    assert found.error_code == (ErrorCode.group_id_not_found if version >= 6 else 0)
    assert (found.group_state, found.members) == ("Dead", ())


@each_list
def test_groups_are_listed_with_what_the_version_tells(client, group, member, version):
    leader, follower = pair(member)

    def listed(**filters):
        answer = client.call(LIST_GROUPS, version, filters)
        assert answer.error_code == 0
        return next((each for each in answer.groups if each.group_id == group), None)

    assert listed().protocol_type == "consumer"
    if version >= 4:
        assert listed().group_state == "Stable"
        assert listed(states_filter=["stable"])
        assert not listed(states_filter=["Empty", "PreparingRebalance"])
    if version >= 5:
        assert listed().group_type == "classic"
        assert listed(types_filter=["Classic"])
        assert not listed(types_filter=["consumer"])
    leader.leave(), follower.leave()
    if version >= 4:
        assert listed(states_filter=["Empty"]).group_state == "Empty"


@each_delete
def test_only_an_empty_group_is_deleted(client, group, member, version):
    settled, missing = member().settle(), raw.fresh_name("missing")

    def delete(*names):
        results = client.call(DELETE_GROUPS, version, {"groups_names": names}).results
        return {each.group_id: each.error_code for each in results}

    unknown = {missing: ErrorCode.group_id_not_found}
    assert delete(group, missing) == {group: ErrorCode.non_empty_group} | unknown
    assert settled.leave() == 0
    assert delete(group, missing) == {group: 0} | unknown
    assert delete(group) == {group: ErrorCode.group_id_not_found}


def test_a_member_that_falls_silent_is_dropped_after_its_session_timeout(member):
    """Six seconds is the shortest session that a broker takes."""
    silent, other = member(session_timeout=6000).settle(), member()
    other.ask_for_id()
    other.send_join()
    # The rebalance timeout is longer: what ends the wait is the session of the member that says nothing.
    joined = other.read_join()
    assert [each.member_id for each in joined.members] == [other.id]
    assert joined.generation_id > silent.generation
    assert silent.heartbeat() == ErrorCode.unknown_member_id

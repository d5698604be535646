"""The requests of the classic group protocol, in every version, through bytes and back."""

from types import SimpleNamespace

import pytest
from coordinators import give, load_all
from sessions import asking

from headrace.broker.api import Request
from headrace.broker.handlers import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    sync_group,
)
from headrace.broker.rights import Rights
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.groups import Groups
from headrace.coordinator.journal import MemoryJournal
from headrace.coordinator.topic_view import TopicTable
from headrace.core.clock import ManualClock
from headrace.core.steps import finish
from headrace.protocol import messages
from headrace.protocol.error_codes import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_ID_NOT_FOUND,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    MESSAGE_TOO_LARGE,
    NON_EMPTY_GROUP,
    NONE,
    UNKNOWN_MEMBER_ID,
)
from headrace.protocol.message_reader import compile_reader
from headrace.protocol.message_writer import compile_writer

NOT_ASKED = -(2**31)


class FakeParts:
    """What these handlers are given. Timers run when the test says so."""

    def __init__(self):
        self.rights = Rights()
        self.clock = ManualClock()
        self.timers = []
        settings = GroupSettings(initial_rebalance_delay_ms=0)
        journal = MemoryJournal()
        self.groups = Groups(journal, self.clock, self._call_later, settings, TopicTable({"orders": 4}))
        load_all(self.groups, journal.partition_count)
        self.timers.clear()

    def _call_later(self, seconds, callback):
        self.timers.append(callback)
        return SimpleNamespace(cancel=lambda: None)

    def run_timers(self):
        timers, self.timers = self.timers, []
        for timer in timers:
            timer()


class Slot:
    """Where a late answer goes."""

    def __init__(self):
        self.data = None

    def answer(self, parts):
        assert self.data is None
        self.data = b"".join(parts)[4:]


@pytest.fixture
def node():
    return FakeParts()


def send(node, api, version, **body):
    """A request through bytes to the handler; what gives its answer, through bytes back, once it is there."""
    sent = bytearray()
    schema = messages._schema(api.key, version, "request")
    compile_writer(schema).write(
        sent, {key: value for key, value in body.items() if key in schema.__dataclass_fields__}
    )
    decoded = messages.decode_request(api.key, version, bytes(sent), 0)
    request = Request(api.key, version, 1, asking("test"), decoded)
    slot = Slot()
    give(request, slot, api.handle(node, request))

    def received():
        assert slot.data is not None, "not answered yet"
        schema = messages._schema(api.key, version, "response")
        entity, end = compile_reader(schema).read(slot.data, 5 if schema.__flexible__ else 4)
        assert end == len(slot.data)
        return entity

    return received


def ask(node, api, version, **body):
    received = send(node, api, version, **body)
    node.run_timers()
    return received()


def join(node, version=9, member_id="", **fields):
    return ask(node, join_group.API, version, **join_body(member_id, **fields))


def join_body(member_id="", group_id="g", **fields):
    return {
        "group_id": group_id,
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"said"}],
        "reason": None,
        **fields,
    }


def sync(node, member_id, generation=1, version=5, group_id="g", **fields):
    body = {
        "group_id": group_id,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member_id, "assignment": b"all"}],
        **fields,
    }
    return ask(node, sync_group.API, version, **body)


def stable_group(node, group_id="g"):
    member_id = join(node, 9, group_id=group_id).member_id
    assert join(node, 9, member_id, group_id=group_id).error_code == NONE
    assert sync(node, member_id, group_id=group_id).error_code == NONE
    return member_id


def versions(api):
    return range(api.low, api.high + 1)


def test_versions_are_those_that_kafka_advertises():
    apis = (join_group, sync_group, heartbeat, leave_group, describe_groups, list_groups, delete_groups)
    assert [(module.API.key, module.API.low, module.API.high) for module in apis] == [
        (11, 0, 9),
        (14, 0, 5),
        (12, 0, 4),
        (13, 0, 5),
        (15, 0, 6),
        (16, 0, 5),
        (42, 0, 2),
    ]


@pytest.mark.parametrize("version", versions(join_group.API))
def test_join_of_a_new_member(node, version):
    first = join(node, version)
    if version >= 4:
        assert first.error_code == MEMBER_ID_REQUIRED
        assert first.protocol_name == (None if version >= 7 else "")
        first = join(node, version, first.member_id)
    assert (first.error_code, first.generation_id, first.protocol_name) == (NONE, 1, "range")
    assert first.leader == first.member_id
    assert [(each.member_id, each.metadata) for each in first.members] == [(first.member_id, b"said")]
    if version >= 7:
        assert first.protocol_type == "consumer"
    if version >= 9:
        assert first.skip_assignment is False


@pytest.mark.parametrize("version", versions(join_group.API))
def test_join_with_a_session_too_short_is_refused(node, version):
    refused = join(node, version, session_timeout=10)
    assert (refused.error_code, refused.generation_id, refused.leader) == (INVALID_SESSION_TIMEOUT, -1, "")


@pytest.mark.parametrize("version", versions(join_group.API))
def test_join_with_very_many_protocols_is_refused(node, version):
    """Empty ones would cost a member nothing, by the bytes that are counted of it."""
    many = [{"name": "", "metadata": b""}] * (join_group.PROTOCOLS_MAX + 1)
    assert join(node, version, protocols=many).error_code == MESSAGE_TOO_LARGE
    assert join(node, version, protocols=many[1:]).error_code != MESSAGE_TOO_LARGE


def test_first_version_takes_the_session_timeout_for_the_rebalance_timeout(node):
    first = join(node, 0)
    assert node.groups.shard("g").table.classic["g"].facts.roster[first.member_id].rebalance_timeout_ms == 10_000


def test_join_waits_for_the_other_members(node):
    stable = stable_group(node)
    newcomer = join(node).member_id
    received = send(node, join_group.API, 9, **join_body(newcomer))
    node.run_timers()
    with pytest.raises(AssertionError, match="not answered yet"):
        received()
    join(node, 9, stable)
    assert received().generation_id == 2


@pytest.mark.parametrize("version", versions(sync_group.API))
def test_sync_of_the_leader(node, version):
    member_id = join(node, 0).member_id
    synced = sync(node, member_id, version=version)
    assert (synced.error_code, synced.assignment) == (NONE, b"all")
    if version >= 5:
        assert (synced.protocol_type, synced.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", versions(sync_group.API))
def test_sync_of_a_stranger_is_refused(node, version):
    refused = sync(node, "who", version=version)
    assert (refused.error_code, refused.assignment) == (UNKNOWN_MEMBER_ID, b"")


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_must_name_the_protocol_since_version_5(node, missing):
    member_id = join(node, 0).member_id
    assert sync(node, member_id, **{missing: None}).error_code == INCONSISTENT_GROUP_PROTOCOL
    assert sync(node, member_id, version=4).error_code == NONE


@pytest.mark.parametrize("version", versions(heartbeat.API))
def test_heartbeat(node, version):
    member_id = stable_group(node)
    beat = {"group_id": "g", "generation_id": 1, "member_id": member_id, "group_instance_id": None}
    assert ask(node, heartbeat.API, version, **beat).error_code == NONE
    assert ask(node, heartbeat.API, version, **beat | {"member_id": "who"}).error_code == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [0, 1, 2])
def test_one_member_leaves_in_old_versions(node, version):
    member_id = stable_group(node)
    left = ask(node, leave_group.API, version, group_id="g", member_id="who")
    assert left.error_code == UNKNOWN_MEMBER_ID
    assert ask(node, leave_group.API, version, group_id="g", member_id=member_id).error_code == NONE
    assert ask(node, leave_group.API, version, group_id="nope", member_id="who").error_code == UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [3, 4, 5])
def test_several_members_leave_at_once(node, version):
    member_id = stable_group(node)
    members = [{"member_id": each, "group_instance_id": None, "reason": "done"} for each in (member_id, "who")]
    left = ask(node, leave_group.API, version, group_id="g", members=members)
    assert left.error_code == NONE
    assert [each.error_code for each in left.members] == [NONE, UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", versions(describe_groups.API))
def test_describe(node, version):
    member_id = stable_group(node)
    asked = {"groups": ["g", "nope"], "include_authorized_operations": True}
    known, unknown = ask(node, describe_groups.API, version, **asked).groups
    assert (known.error_code, known.group_state, known.protocol_data) == (NONE, "Stable", "range")
    [member] = known.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "test", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"said", b"all")
    assert (unknown.error_code, unknown.group_state) == (GROUP_ID_NOT_FOUND if version >= 6 else NONE, "Dead")
    if version >= 3:
        assert known.authorized_operations == 3400
        assert unknown.authorized_operations == (NOT_ASKED if version >= 6 else 3400)
    if version >= 6:
        assert unknown.error_message == "Group nope not found."


@pytest.mark.parametrize("version", versions(list_groups.API))
def test_list(node, version):
    stable_group(node, "stable")
    join(node, 9, group_id="empty")
    asked = {"states_filter": ["stable"], "types_filter": ["classic"]}
    listed = ask(node, list_groups.API, version, **asked)
    assert listed.error_code == NONE
    names = {each.group_id: each.protocol_type for each in listed.groups}
    assert names == ({"stable": "consumer"} if version >= 4 else {"stable": "consumer", "empty": ""})
    if version >= 5:
        assert [(each.group_state, each.group_type) for each in listed.groups] == [("Stable", "classic")]


def test_list_before_the_journal_is_read_is_told_to_wait(node):
    finish(node.groups.unload(0, 1))
    node.groups.load(0, 2)  # and it has not begun
    assert ask(node, list_groups.API, 5, states_filter=[], types_filter=[]).error_code == COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("version", versions(delete_groups.API))
def test_delete(node, version):
    stable_group(node, "used")
    join(node, 9, group_id="empty")
    results = ask(node, delete_groups.API, version, groups_names=["used", "empty", "nope"]).results
    assert [(each.group_id, each.error_code) for each in results] == [
        ("used", NON_EMPTY_GROUP),
        ("empty", NONE),
        ("nope", GROUP_ID_NOT_FOUND),
    ]

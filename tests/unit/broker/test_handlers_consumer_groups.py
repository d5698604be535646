"""ConsumerGroupHeartbeat and ConsumerGroupDescribe in every version, through bytes and back."""

import uuid
from types import SimpleNamespace

import pytest
from coordinators import give, load_all
from sessions import asking

from headrace.broker.api import Request
from headrace.broker.handlers import consumer_group_describe, consumer_group_heartbeat
from headrace.broker.rights import Rights
from headrace.coordinator.group_settings import GroupSettings
from headrace.coordinator.groups import Groups
from headrace.coordinator.journal import MemoryJournal
from headrace.coordinator.placing import partition_for
from headrace.coordinator.topic_view import TopicTable
from headrace.core.clock import ManualClock
from headrace.core.steps import finish
from headrace.protocol import error_codes as codes
from headrace.protocol import messages
from headrace.protocol.message_reader import compile_reader
from headrace.protocol.message_writer import compile_writer

HEARTBEAT, DESCRIBE = consumer_group_heartbeat.API, consumer_group_describe.API
OPERATIONS = sum(1 << bit for bit in (3, 6, 8, 10, 11))


@pytest.fixture
def topics():
    return TopicTable({"orders": 4})


@pytest.fixture
def node(topics):
    journal = MemoryJournal()
    timer = SimpleNamespace(cancel=lambda: None)
    settings = GroupSettings(consumer_assignment_interval_ms=0)
    groups = Groups(journal, ManualClock(), lambda seconds, callback: timer, settings, topics)
    load_all(groups, journal.partition_count)
    return SimpleNamespace(groups=groups, journal=journal, rights=Rights())


class Slot:
    def __init__(self):
        self.data = None

    def answer(self, parts):
        self.data = b"".join(parts)[4:]


def send(node, api, version, **body):
    """What gives the answer, as a client reads it, or None as long as there is none."""
    sent = bytearray()
    schema = messages._schema(api.key, version, "request")
    compile_writer(schema).write(
        sent, {key: value for key, value in body.items() if key in schema.__dataclass_fields__}
    )
    request = Request(api.key, version, 1, asking("test"), messages.decode_request(api.key, version, bytes(sent), 0))
    slot = Slot()
    give(request, slot, api.handle(node, request))

    def read():
        if slot.data is None:
            return None
        entity, end = compile_reader(messages._schema(api.key, version, "response")).read(slot.data, 5)
        assert end == len(slot.data)
        return entity

    return read


def beat(node, member_id="a", epoch=0, version=1, **said):
    usual = {
        "group_id": "g",
        "member_id": member_id,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": 1000 if epoch == 0 else -1,
        "subscribed_topic_names": ["orders"] if epoch == 0 else None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [] if epoch == 0 else None,
    }
    return send(node, HEARTBEAT, version, **usual | said)()


def describe(node, *group_ids, version=1, operations=False):
    asked = {"group_ids": list(group_ids), "include_authorized_operations": operations}
    return send(node, DESCRIBE, version, **asked)().groups


def parts(assignment):
    return [(each.topic_id, list(each.partitions)) for each in assignment.topic_partitions]


@pytest.mark.parametrize("version", [0, 1])
def test_member_joins_lives_and_leaves(node, topics, version):
    joined = beat(node, version=version)
    assert (joined.error_code, joined.error_message, joined.member_id, joined.member_epoch) == (0, None, "a", 2)
    assert joined.heartbeat_interval.total_seconds() == 5
    assert parts(joined.assignment) == [(topics.topic_id("orders"), [0, 1, 2, 3])]
    assert beat(node, epoch=2, version=version).assignment is None
    left = beat(node, epoch=-1, version=version)
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "a", -1)


def test_version_0_is_given_an_id_and_version_1_must_bring_one(node):
    assert uuid.UUID(beat(node, "", version=0).member_id)
    refused = beat(node, "", version=1)
    assert (refused.error_code, refused.error_message) == (codes.INVALID_REQUEST, "MemberId can't be empty.")


def test_owned_partitions_are_heard(node, topics):
    beat(node, "a")
    beat(node, "b")
    orders = topics.topic_id("orders")
    assert parts(beat(node, "a", 2).assignment) == [(orders, [0, 1])]
    kept = [{"topic_id": orders, "partitions": [0, 1]}]
    assert beat(node, "a", 2, topic_partitions=kept).member_epoch == 3
    assert parts(beat(node, "b", 3).assignment) == [(orders, [2, 3])]


def test_regular_expressions_are_taken_from_version_1_on(node):
    joined = beat(node, subscribed_topic_names=None, subscribed_topic_regex="ord.*")
    assert len(joined.assignment.topic_partitions) == 1
    assert beat(node, "b", subscribed_topic_regex="(").error_code == codes.INVALID_REGULAR_EXPRESSION


def test_errors_carry_their_message(node):
    assert beat(node, "a", 7).error_message == "Consumer group g not found."
    beat(node)
    assert beat(node, "x", 7).error_code == codes.UNKNOWN_MEMBER_ID
    assert beat(node, "a", 7).error_code == codes.FENCED_MEMBER_EPOCH
    assert beat(node, "b", server_assignor="mine").error_code == codes.UNSUPPORTED_ASSIGNOR


def test_a_member_that_says_very_much_at_once_is_refused(node, topics, monkeypatch):
    monkeypatch.setattr(consumer_group_heartbeat, "TOPICS_MAX", 2)
    monkeypatch.setattr(consumer_group_heartbeat, "PARTITIONS_MAX", 3)
    refused = beat(node, subscribed_topic_names=["a", "b", "c"])
    assert (refused.error_code, refused.member_epoch) == (codes.INVALID_REQUEST, 0)
    assert refused.error_message == "3 topics by name; at most 2 are taken: subscribe with a regular expression."
    assert beat(node, subscribed_topic_names=["orders", "b"]).error_code == 0
    orders = topics.topic_id("orders")
    owned = [{"topic_id": orders, "partitions": [0, 1]}]
    said = {"topic_partitions": owned * 2}
    assert beat(node, "a", 2, **said).error_message == "4 partitions; at most 3 are taken."
    said = {"topic_partitions": owned * 3}
    assert beat(node, "a", 2, **said).error_message == "Partitions of 3 topics; at most 2 are taken."
    assert beat(node, "a", 2, topic_partitions=owned).error_code == 0


def test_answer_waits_for_the_journal(node):
    node.journal.holds = True
    asked = {"group_id": "g", "member_id": "a", "member_epoch": 0, "rebalance_timeout": 1, "topic_partitions": []}
    read = send(node, HEARTBEAT, 1, subscribed_topic_names=["orders"], **asked)
    assert read() is None
    node.journal.release()
    assert read().member_epoch == 2


@pytest.mark.parametrize("version", [0, 1])
def test_group_is_described_with_what_each_member_has_and_should_have(node, topics, version):
    beat(node, "a", instance_id="one", rack_id="r1")
    beat(node, "b")
    (group,) = describe(node, "g", version=version)
    epochs = (group.group_epoch, group.assignment_epoch)
    assert (group.error_code, group.group_state, group.assignor_name, epochs) == (0, "Reconciling", "uniform", (3, 3))
    one, two = group.members
    assert (one.member_id, one.instance_id, one.rack_id, one.member_epoch) == ("a", "one", "r1", 2)
    assert (one.client_id, one.subscribed_topic_names, one.subscribed_topic_regex) == ("test", ("orders",), "")
    assert one.assignment.topic_partitions[0].topic_name == "orders"
    assert parts(one.assignment) == [(topics.topic_id("orders"), [0, 1, 2, 3])]
    assert parts(one.target_assignment) == [(topics.topic_id("orders"), [0, 1])]
    assert parts(two.assignment) == []
    if version == 1:
        assert one.member_type == 1


def test_operations_are_told_when_asked_for(node):
    beat(node)
    assert [each.authorized_operations for each in describe(node, "g", operations=True)] == [OPERATIONS]
    assert [each.authorized_operations for each in describe(node, "g")] == [-(2**31)]


def test_absent_groups_are_described_as_errors(node):
    absent, nameless = describe(node, "nope", "", operations=True)
    assert (absent.error_code, absent.error_message) == (codes.GROUP_ID_NOT_FOUND, "Group nope not found.")
    assert (nameless.error_code, nameless.error_message) == (codes.INVALID_GROUP_ID, None)
    assert absent.authorized_operations == -(2**31)


def test_while_their_partition_is_loaded_clients_are_told_to_wait(node):
    partition = partition_for("g", node.journal.partition_count)
    finish(node.groups.unload(partition, 1))
    assert beat(node).error_code == codes.NOT_COORDINATOR
    node.groups.load(partition, 2)  # and nothing is read yet
    assert beat(node).error_code == codes.COORDINATOR_LOAD_IN_PROGRESS
    assert describe(node, "g")[0].error_code == codes.COORDINATOR_LOAD_IN_PROGRESS

"""The throttle time of each answer is what a quota gives; it is told who asked, what for and how much.

The requests go through sockets to a node that has a fake quota.
"""

from datetime import timedelta

import pytest
from each_api import CASES, fetch, produce
from node_clients import connected, turn
from sessions import asking

from headrace.broker.client_session import Principal
from headrace.broker.handlers import fetch as fetch_handler
from headrace.broker.quotas import THROTTLE_MS_MAX, Throttle
from headrace.protocol import messages
from headrace.protocol.error_codes import FETCH_SESSION_ID_NOT_FOUND


class FakeQuota:
    def __init__(self):
        self.next_ms = 0
        self.asked = []

    def throttle_ms(self, session, client_id, api_key, size_bytes):
        self.asked.append((session.principal.name, client_id, api_key, size_bytes))
        return self.next_ms


@pytest.fixture
def quota():
    return FakeQuota()


@pytest.fixture
def node(make_node, client, quota):
    node = make_node(quota=quota)
    client.create(node, "mine", 2)
    return node


@pytest.fixture
def connect(node):
    with connected(node) as make:
        yield make


def has_throttle(key, version):
    return any(field.name == "throttle_time" for field in messages.message_fields(key, version, "response"))


def ms(answer):
    return answer.throttle_time // timedelta(milliseconds=1)


OLDER = [(0, version, produce()) for version in range(3, 12)] + [(1, version, fetch()) for version in range(4, 12)]


@pytest.mark.parametrize(("key", "version", "body"), [*(case[:3] for case in CASES), *OLDER])
def test_an_answer_carries_the_time_that_the_quota_gives(connect, quota, key, version, body):
    client = connect(principal=Principal("User", "alice"))
    assert not has_throttle(key, version) or ms(client.ask(key, version, body)) == 0
    quota.asked.clear()
    for quota.next_ms in (1234, 77):  # a kept answer of the one must not be given for the other
        answer = client.ask(key, version, body)
        assert not has_throttle(key, version) or ms(answer) == quota.next_ms
    assert [asked[:3] for asked in quota.asked] == [("alice", "test", key)] * 2
    quota.next_ms = 0
    assert not has_throttle(key, version) or ms(client.ask(key, version, body)) == 0


def test_produce_and_fetch_tell_the_quota_how_much_they_bring_and_take(connect, quota):
    client = connect()
    body = produce()
    client.ask(0, 12, body)
    sent = len(messages.encode_request(0, 12, 1, "", body)) - 11  # without its header
    read = client.ask(1, 12, fetch())
    size = len(read.responses[0].partitions[0].records)
    assert [asked[2:] for asked in quota.asked] == [(0, sent), (1, size)]
    assert size > 0


@pytest.mark.parametrize("at_once_max", [0, 500])
def test_a_fetch_of_several_partitions_counts_them_all(connect, quota, monkeypatch, at_once_max):
    monkeypatch.setattr(fetch_handler, "AT_ONCE_MAX", at_once_max)
    client = connect()
    wanted = produce()
    [topic] = wanted["topic_data"]
    topic["partition_data"] = [{**topic["partition_data"][0], "index": index} for index in (0, 1)]
    client.ask(0, 12, wanted)
    asked = fetch()
    [topic] = asked["topics"]
    topic["partitions"] = [{**topic["partitions"][0], "partition": index} for index in (0, 1)]
    quota.asked.clear()
    quota.next_ms = 55
    read = client.ask(1, 12, asked)
    sizes = [len(each.records) for each in read.responses[0].partitions]
    assert (ms(read), [asked[3] for asked in quota.asked]) == (55, [sum(sizes)])
    assert min(sizes) > 0


def test_a_fetch_that_its_session_refuses_carries_it_too(connect, quota):
    quota.next_ms = 55
    read = connect().ask(1, 12, {**fetch(), "session_id": 7, "session_epoch": 3})
    assert (read.error_code, ms(read)) == (FETCH_SESSION_ID_NOT_FOUND, 55)


def test_a_long_answer_carries_it(connect, quota):
    quota.next_ms = 55
    many = {"groups": [f"g{number}" for number in range(200)], "include_authorized_operations": False}
    answer = connect().ask(15, 5, many)
    assert (ms(answer), len(answer.groups)) == (55, 200)


def test_a_produce_request_is_the_affair_of_the_client_id_that_it_came_with(node, connect, quota):
    """The session knows the client id of the latest request only, and that may be another one."""
    client = connect()
    for name in ("first", "second"):
        client.dispatch(messages.encode_request(0, 12, 1, name, produce()))
    turn(node)
    assert [asked[1] for asked in quota.asked] == ["first", "second"]


def test_a_time_is_kept_within_what_an_answer_has_room_for(quota):
    throttle = Throttle(quota)
    for quota.next_ms, told in ((-5, 0), (2**40, THROTTLE_MS_MAX)):
        assert throttle.ms(asking(), None, 0, 0) == told


def test_without_a_quota_nobody_waits_and_nothing_is_asked():
    assert (Throttle().is_open, Throttle().ms(asking(), None, 0, 10)) == (True, 0)

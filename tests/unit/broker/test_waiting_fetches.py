"""A fetch that waits holds up what its client sent behind it, but never for long what others need."""

import contextlib

import pytest
from node_clients import connected, turn

from headrace.broker.handlers import one_fetch
from headrace.protocol import messages

FETCH, API_VERSIONS, METADATA = 1, 18, 3
MB = 1 << 20
FOREVER_MS = 2**31 - 1
BUDGET = 4 * MB
CROWD = 16


@pytest.fixture
def node(make_node, client):
    made = make_node(queued_max_request_bytes=BUDGET)
    client.create(made, "t", 2)
    return made


def fetch(*partitions):
    one = {"fetch_offset": 0, "partition_max_bytes": MB, "current_leader_epoch": -1, "last_fetched_epoch": -1}
    topic = {"topic": "t", "partitions": [{"partition": at, "log_start_offset": -1, **one} for at in partitions]}
    body = {"replica_id": -1, "max_wait": FOREVER_MS, "min_bytes": 1, "max_bytes": MB, "isolation_level": 0}
    more = {"session_id": 0, "session_epoch": -1, "topics": [topic], "forgotten_topics_data": [], "rack_id": ""}
    return framed(messages.encode_request(FETCH, 11, 1, "test", {**body, **more}))


def behind(size):
    """A request that waits for its turn behind another."""
    body = {"client_software_name": "x" * size, "client_software_version": "1"}
    return framed(messages.encode_request(API_VERSIONS, 3, 2, "test", body))


def framed(request):
    return len(request).to_bytes(4, "big") + request


def send(client, data):
    """As a socket brings it, all that the broker reads of it."""
    client.socket.setblocking(False)
    while data:
        with contextlib.suppress(BlockingIOError):
            data = data[client.socket.send(data) :]
        before = client.connection.reader.held
        client.connection.on_event(1)
        if client.connection.parked or (before == client.connection.reader.held and client.connection.reader.waiting):
            break


def test_fetches_that_hold_up_what_fills_the_budget_are_answered(node):
    with connected(node) as make:
        crowd = [make() for _ in range(CROWD)]
        for each in crowd:
            send(each, fetch(0) + behind(BUDGET // CROWD))
        assert node.server.choked
        assert sum(each.connection.barriers for each in crowd) > CROWD // 2, "they wait for records that never come"
        for _ in range(20):
            turn(node)
        assert node.server.held_bytes + node.server.in_flight_bytes < BUDGET // 2
        assert not node.server.choked, "others are read from again"


def test_a_fetch_that_holds_up_little_waits_on(node):
    with connected(node) as make:
        light = make()
        send(light, fetch(0))
        for each in [make() for _ in range(CROWD)]:
            send(each, fetch(0) + behind(BUDGET // CROWD))
        for _ in range(20):
            turn(node)
        assert light.connection.barriers == 1
        assert not light.received


@pytest.mark.parametrize("ends", ["answered", "left"])
def test_a_waiting_fetch_of_many_partitions_counts_as_memory_until_it_ends(node, monkeypatch, ends):
    monkeypatch.setattr(one_fetch, "FEW_PARTITIONS", 1)
    monkeypatch.setattr(one_fetch, "PARTITION_BYTES", 1000)
    with connected(node) as make:
        client = make()
        send(client, fetch(0, 1))
        assert (node.server.held_bytes, client.connection.weight_bytes) == (2000, 2000)
        if ends == "answered":
            client.connection.hurry()
        else:
            client.connection.close()
        assert (node.server.held_bytes, client.connection.weight_bytes) == (0, 0)

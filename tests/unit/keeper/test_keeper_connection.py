"""A keeper's connections: order, bounds, and that none of them hurts another."""

import socket
import struct

import pytest
from fake_transport import FakeTransport
from hypothesis import given, settings
from hypothesis import strategies as st
from keeper_pair import Rig, create, framed, get, hello, request

from headrace.core.errors import InvariantError
from headrace.keeper import connection as connection_module
from headrace.keeper import server as server_module
from headrace.protocol.zookeeper import codes
from headrace.protocol.zookeeper.jute import int_bytes, string_bytes


@pytest.fixture
def rig():
    made = Rig()
    yield made
    made.end()


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 90), min_size=1, max_size=30))
def test_requests_are_answered_in_order_wherever_their_bytes_are_split(sizes):
    rig = Rig()
    client = rig.session()
    data = b"".join([create(1, "/a", b"x" * 100), *(get(xid, "/a") for xid in range(2, 12))])
    answered, at = [], 0
    for size in [*sizes, len(data)]:
        client.send(data[at : at + size])
        at = min(at + size, len(data))
        rig.turn()
        answered += client.xids()
    rig.settle()
    assert answered + client.xids() == list(range(1, 12))
    rig.end()


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 0xFFFFF + 1),
        framed(b"\x00"),
        framed(int_bytes(2) + int_bytes(codes.CREATE) + string_bytes("/b")),
        framed(int_bytes(2) + int_bytes(codes.CREATE) + string_bytes("/b") + int_bytes(1 << 30)),
        framed(int_bytes(2) + int_bytes(codes.SET_DATA) + int_bytes(2) + b"/\xff"),
        framed(int_bytes(2) + int_bytes(codes.SET_WATCHES) + bytes(8) + int_bytes(1 << 30)),
    ],
)
def test_a_malformed_request_closes_its_connection_and_changes_nothing(rig, bad):
    client, other = rig.session(), rig.session()
    before, zxid = dict(rig.machine.tree.nodes), rig.machine.tree.last_zxid
    client.send(bad)
    rig.settle()
    assert client.frames() == []
    assert client.ended
    assert (dict(rig.machine.tree.nodes), rig.machine.tree.last_zxid) == (before, zxid)
    other.send(get(1, "/"))
    rig.settle()
    assert other.xids() == [1]


def test_what_came_before_a_malformed_request_is_done(rig):
    client = rig.session()
    client.send(create(1, "/a") + struct.pack(">i", -5))
    rig.settle()
    client.frames()
    assert client.ended
    assert "/a" in rig.machine.tree.nodes


def test_a_request_before_its_session_closes_the_connection(rig):
    client = rig.client()
    client.send(hello(session=99) + get(1, "/"))
    rig.settle()
    assert len(client.frames()) == 1  # no session is given
    assert client.ended


def test_a_client_with_many_requests_under_way_is_not_read_from_until_some_are_answered(rig):
    client = rig.session()
    rig.holding = True
    count = connection_module.UNANSWERED_MAX + 100
    client.send(b"".join(get(xid, "/") for xid in range(count)))
    rig.settle()
    assert client.connection.unanswered == connection_module.UNANSWERED_MAX
    assert not client.reads()
    rig.holding = False
    rig.release()
    rig.settle()
    assert client.xids() == list(range(count))
    assert client.reads()


def test_answers_that_wait_for_the_disk_are_bounded_in_bytes(rig):
    client = rig.session()
    size = 300_000
    client.send(create(0, "/big", b"x" * size))
    while "/big" not in rig.machine.tree.nodes:
        rig.turn()
    rig.holding = True
    client.send(b"".join(get(xid, "/big") for xid in range(1, 31)))
    rig.settle()
    assert client.connection.peer.bytes_held <= connection_module.ANSWER_BYTES_MAX + size + 100
    rig.holding = False
    rig.release()
    answered = []
    for _ in range(1000):
        rig.turn()
        answered += client.xids()
    assert answered == list(range(31))
    assert client.connection.peer.bytes_held == 0


def test_a_flood_of_one_client_does_not_keep_another_waiting(rig):
    flood, other = rig.session(), rig.session()
    flood.send(b"".join(get(xid, "/") for xid in range(900)))
    other.send(get(1, "/"))
    rig.turn()
    assert other.xids() == [1]
    assert 0 < len(flood.xids()) <= 2 * connection_module.REQUESTS_PER_TURN
    rig.settle()
    assert flood.connection.unanswered == 0


def test_a_turn_goes_on_to_the_next_client_when_the_time_of_one_is_over(rig, monkeypatch):
    monkeypatch.setattr(connection_module, "SLICE_S", -1.0)
    flood, other = rig.session(), rig.session()
    flood.send(b"".join(get(xid, "/") for xid in range(50)))
    other.send(get(1, "/"))
    rig.turn()
    assert other.xids() == [1]
    assert len(flood.xids()) <= 2
    rig.settle()
    assert len(flood.xids()) >= 48


def test_in_a_long_turn_each_client_is_served_one_request(rig, monkeypatch):
    monkeypatch.setattr(connection_module, "TURN_S", -1.0)
    clients = [rig.session() for _ in range(3)]
    for client in clients:
        client.send(b"".join(get(xid, "/") for xid in range(20)))
    rig.turn()
    assert all(len(client.xids()) <= 2 for client in clients)
    rig.settle()
    assert [client.connection.unanswered for client in clients] == [0, 0, 0]


def test_a_client_that_takes_no_events_is_closed(rig, monkeypatch):
    monkeypatch.setattr(connection_module, "EVENT_BYTES_MAX", 10_000)
    transport = FakeTransport()
    transport.comes = [hello()]
    idle = rig.client(transport)
    idle.connection._ready(1)
    rig.settle()
    watch = string_bytes("/") + int_bytes(codes.PERSISTENT_RECURSIVE_WATCH)
    transport.comes = [request(1, codes.ADD_WATCH, watch)]
    idle.connection._ready(1)
    rig.settle()
    transport.takes = [0] * 1000
    writer = rig.session()
    for number in range(200):
        writer.send(create(number, f"/{'n' * 50}{number}"))
        rig.settle()
        writer.frames()
    assert transport.closed
    assert not writer.ended
    assert rig.machine.watching.watches.count == 0


def test_a_bug_of_ours_costs_one_connection_and_the_others_go_on(rig, monkeypatch):
    client, other = rig.session(), rig.session()
    with monkeypatch.context() as patch:
        patch.setattr(rig.machine, "_read", lambda *_: 1 / 0)
        client.send(get(1, "/"))
        rig.settle()
    assert client.frames() == []
    assert client.ended
    other.send(get(2, "/"))
    rig.settle()
    assert other.xids() == [2]


def test_a_broken_invariant_ends_more_than_the_connection(rig, monkeypatch):
    client = rig.session()

    def broken(*_):
        raise InvariantError("the tree is not what it was")

    monkeypatch.setattr(rig.machine, "_read", broken)
    client.send(get(1, "/"))
    with pytest.raises(InvariantError):
        rig.settle()


def test_connections_are_bounded_per_address():
    rig = Rig(connections_per_address_max=2)
    port = rig.server.listen()
    clients = []
    for _ in range(3):
        clients.append(socket.create_connection(("127.0.0.1", port), timeout=60))
        rig.settle()
    clients[2].settimeout(60)
    assert clients[2].recv(1) == b""
    assert len(rig.server.connections) == 2
    for each in clients:
        each.close()
    rig.settle()
    assert not rig.server.connections
    rig.end()


def test_connections_are_bounded_in_all():
    rig = Rig(connections_per_address_max=0, connections_max=1)
    port = rig.server.listen()
    with socket.create_connection(("127.0.0.1", port)) as _first:
        rig.settle()
        with socket.create_connection(("127.0.0.1", port), timeout=60) as second:
            rig.settle()
            assert second.recv(1) == b""
    rig.end()


def test_a_connection_that_asks_for_no_session_is_closed_after_a_while(rig):
    silent, client = rig.client(), rig.session()
    rig.clock.advance((server_module.SILENT_S_MAX + 1) * 1000)
    rig.server.close_silent()
    client.frames()
    assert (silent.connection.closed, client.connection.closed) == (True, False)

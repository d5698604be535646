"""Connections are served in rotation, each within a budget; by the injected clock, never by elapsed time."""

import socket
import struct

import pytest
from sessions import asking
from socket_pair import Pair, framed

from headrace.broker import connection as connection_module
from headrace.broker import server as server_module
from headrace.broker.connection import REQUESTS_PER_TURN
from headrace.net import reactor as reactor_module
from headrace.net.transport import PlainTransport


class Clock:
    """Stands still but for what a request costs."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Crowd(Pair):
    """Several connections to one server, and a clock of their own. `cost 5` takes five milliseconds."""

    def __init__(self, count, **settings):
        super().__init__(**settings)
        self.clock = self.server.clock = Clock()
        self.clients = [self.client]
        self.connections = [self.connection]
        self.served = []  # (connection, word), in order
        for _ in range(count - 1):
            ours, theirs = socket.socketpair()
            theirs.setblocking(False)
            self.clients.append(theirs)
            self.connections.append(self.server.admit(PlainTransport(ours), asking()))

    def dispatch(self, connection, chunk, start, end):
        word = bytes(chunk.view[start:end]).decode()
        self.served.append((self.connections.index(connection), word))
        if word.startswith("cost"):
            self.clock.now += float(word.split()[1]) / 1000
            chunk.unpin()
            connection.send(framed(b"#"))
        else:
            super().dispatch(connection, chunk, start, end)

    def send_all(self, at, *words):
        self.clients[at].sendall(b"".join(framed(word.encode()) for word in words))

    def turn_served(self):
        before = len(self.served)
        self.turn()
        return self.served[before:]

    def end(self):
        for client in self.clients:
            client.close()
        super().end()


@pytest.fixture
def crowd():
    made = Crowd(3)
    yield made
    made.end()


def test_a_connection_is_served_so_many_requests_in_a_turn_and_the_rest_in_the_next_ones(crowd):
    count = 2 * REQUESTS_PER_TURN + 10
    crowd.send_all(0, *[f"now {number}" for number in range(count)])
    crowd.reactor.turn_started = crowd.clock()
    crowd.connection.on_event(reactor_module.READ)
    assert len(crowd.served) == REQUESTS_PER_TURN
    crowd.reactor.run_soon()
    assert len(crowd.served) == 2 * REQUESTS_PER_TURN
    crowd.reactor.run_soon()
    assert len(crowd.served) == count
    assert [word for _, word in crowd.served] == [f"now {number}" for number in range(count)]
    assert crowd.answers() == [str(number) for number in range(count)]


def test_a_connection_is_served_for_so_long_in_a_turn(crowd):
    """What counts is what its requests cost, by the clock, not what they are."""
    crowd.send_all(0, *["cost 0.4"] * 20)
    crowd.reactor.turn_started = crowd.clock()
    crowd.connections[0].on_event(reactor_module.READ)
    assert len(crowd.served) == 3, "1 ms is over after the third"
    crowd.reactor.run_soon()
    assert len(crowd.served) == 6


def test_an_expensive_request_ends_the_turn_of_its_connection(crowd):
    crowd.send_all(0, "cost 50", "cost 50", "cost 50")
    crowd.send_all(1, "now a")
    crowd.reactor.turn_started = crowd.clock()
    for each in crowd.connections[:2]:
        each.on_event(reactor_module.READ)
    assert crowd.served == [(0, "cost 50"), (1, "now a")]


def test_bystanders_are_served_between_the_slices_of_a_flood(crowd):
    flood = [f"now {number}" for number in range(10 * REQUESTS_PER_TURN)]
    crowd.send_all(0, *flood)
    waits = []
    while len(crowd.served) < len(flood):
        crowd.send_all(1, "now b")
        crowd.send_all(2, "now c")
        turn = crowd.turn_served()
        waits.append(max(at for at, (number, _) in enumerate(turn) if number))
    assert max(waits) <= REQUESTS_PER_TURN + 2, "neither waited for more than one slice of the flood"
    assert [word for number, word in crowd.served if number == 0][: len(flood)] == flood


def test_what_was_left_over_goes_on_in_rotation(crowd, monkeypatch):
    """Two floods take turns, also when there is time for one of them only in each turn."""
    monkeypatch.setattr(reactor_module, "SOON_S_PER_TURN", -1.0)
    for number in (0, 1):
        crowd.send_all(number, *[f"now {at}" for at in range(6 * REQUESTS_PER_TURN)])
    crowd.turn()
    order = []
    for _ in range(6):
        turn = crowd.turn_served()
        assert len({number for number, _ in turn}) == 1
        order.append(turn[0][0])
    assert order in ([0, 1] * 3, [1, 0] * 3)


def test_in_a_turn_that_has_taken_long_each_connection_is_served_one_request(crowd):
    for number in range(3):
        crowd.send_all(number, "now a", "now b")
    crowd.reactor.turn_started = crowd.clock()
    crowd.clock.now += 2 * server_module.TURN_S
    for each in crowd.connections:
        each.on_event(reactor_module.READ)
    assert crowd.served == [(0, "now a"), (1, "now a"), (2, "now a")]
    crowd.settle()
    assert sorted(crowd.served[3:]) == [(0, "now b"), (1, "now b"), (2, "now b")]


def test_more_is_read_only_after_what_was_read_is_served(crowd):
    crowd.send_all(0, *[f"now {number}" for number in range(3 * REQUESTS_PER_TURN)])
    crowd.connections[0].on_event(reactor_module.READ)
    assert not crowd.reads()
    crowd.settle()
    assert crowd.reads()


def test_one_request_at_a_time_reads_no_clock(crowd):
    """The usual case costs nothing more than it did."""

    def asked():
        raise AssertionError("the clock was asked")

    crowd.reactor.turn_started = 0.0
    crowd.server.clock = asked
    crowd.send_all(0, "now a")
    crowd.connections[0].on_event(reactor_module.READ)
    assert crowd.served == [(0, "now a")]


def test_what_waits_behind_an_answer_goes_on_in_the_next_turn_and_not_in_this_one(crowd):
    """At the end of a turn nobody is served any more: a flood behind one slow request would never let it end."""
    crowd.send_all(0, "wait a", *["now x"] * 5)
    crowd.turn()
    crowd.slots.pop("a").answer([framed(b"a")])
    crowd.server.send_answers()
    assert len(crowd.served) == 1
    assert len(crowd.turn_served()) == 5


def test_a_stop_does_not_wait_for_what_clients_have_sent(crowd):
    crowd.send_all(0, *[f"now {number}" for number in range(20 * REQUESTS_PER_TURN)])
    crowd.server.dispatch = lambda *frame: (Crowd.dispatch(crowd, *frame), crowd.reactor.stop())
    crowd.reactor.run()
    assert len(crowd.served) <= 2 * REQUESTS_PER_TURN


def test_garbage_behind_what_waits_ends_the_connection_when_its_turn_comes(crowd):
    count = REQUESTS_PER_TURN + 5
    data = b"".join(framed(b"now %d" % number) for number in range(count)) + struct.pack(">i", -1)
    crowd.clients[0].sendall(data)
    assert crowd.answers() == [str(number) for number in range(count)]
    assert crowd.connection.closed
    assert crowd.server.pool.arena.pins == 0


def test_answers_that_wait_for_earlier_ones_count_as_held(monkeypatch):
    monkeypatch.setattr(connection_module, "ANSWER_BYTES_MAX", 30_000)
    pair = Pair()
    pair.ask("later a", *["big 10000"] * 50)
    assert len(pair.handled) <= 6, "answers behind one that is not made yet wait in memory too"
    pair.answer("a")
    assert len(pair.answers()) == 51
    pair.end()

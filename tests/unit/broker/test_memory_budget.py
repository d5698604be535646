"""Unfinished frames, requests that wait or are under way, answers and groups count together against one bound."""

import socket
import struct
from contextlib import suppress

import pytest
from sessions import asking
from socket_pair import Pair, framed

from headrace.broker import connection as connection_module
from headrace.net.reactor import READ
from headrace.net.transport import PlainTransport

MB = 1 << 20
FRAME_BYTES = 3 * MB


class Crowd(Pair):
    def __init__(self, count, **settings):
        super().__init__(**settings)
        self.clients, self.connections, self.highest = [], [], 0
        for _ in range(count):
            self.join()

    def join(self):
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.clients.append(theirs)
        self.connections.append(self.server.admit(PlainTransport(ours), asking()))
        return len(self.clients) - 1

    def push(self, at, data):
        """As much as the broker takes, turn by turn; returns what it did not take."""
        while data:
            try:
                sent = self.clients[at].send(data)
            except BlockingIOError:
                sent = 0
            data = data[sent:]
            self.turn()
            self.highest = max(self.highest, self.used())
            if not sent and not self.connections[at]._events & READ:
                break
        return data

    def drain(self, at):
        """The client reads what has come; then a turn."""
        with suppress(BlockingIOError):
            self.clients[at].recv(1 << 20)
        self.settle()

    def used(self):
        return self.server.held_bytes + self.server.in_flight_bytes + self.server.group_bytes

    def read(self, bytes_max=1 << 20):
        return super().read(bytes_max)

    def end(self):
        for client in self.clients:
            client.close()
        super().end()


@pytest.fixture
def crowd():
    made = Crowd(6, queued_max_request_bytes=4 * MB)
    yield made
    made.end()


def unfinished(size=FRAME_BYTES):
    """All of a frame but its last byte."""
    return framed(b"now " + b"x" * (size - 4))[:-1]


def test_unfinished_frames_never_take_much_more_than_the_budget(crowd):
    left = [crowd.push(at, unfinished()) for at in range(6)]
    assert crowd.highest <= 4 * MB + FRAME_BYTES, "the oldest is read to its end, whatever the others take"
    assert sum(map(len, left)) > 6 * FRAME_BYTES - crowd.highest - 6 * MB, "and the rest stays with the clients"
    assert crowd.server.choked
    for connection in crowd.connections:
        connection.close()
    assert crowd.used() == 0


def test_each_frame_comes_to_its_end_one_after_the_other(crowd):
    """Nobody starves: when the oldest ends, it makes room for the next."""
    frame = unfinished().replace(b"now ", b"pin ")
    left = {at: crowd.push(at, frame) for at in range(6)}
    for _ in range(200):
        for at, data in left.items():
            left[at] = crowd.push(at, data)
            if not left[at] and crowd.connections[at].reader.unfinished:
                crowd.push(at, b"x")
        if len(crowd.handled) == 6:
            break
    assert len(crowd.handled) == 6
    assert crowd.highest <= 4 * MB + FRAME_BYTES + MB


def test_light_connections_are_served_while_the_heaviest_are_not_read_from(crowd):
    left = [crowd.push(at, unfinished()) for at in range(4)]
    assert crowd.server.choked
    assert any(left)
    light = crowd.join()
    for number in range(5):
        assert crowd.push(light, framed(b"now %d" % number)) == b""
    crowd.settle()
    assert crowd.handled == [f"now {number}" for number in range(5)]
    parked = [each for each in crowd.connections if each.parked]
    assert parked
    assert crowd.connections[light] not in parked


def test_far_above_the_budget_nobody_is_read_from_but_the_oldest(crowd):
    crowd.push(0, unfinished(2 * MB))
    crowd.server.in_flight_bytes = 6 * MB
    crowd.server._count_room()
    light = crowd.join()
    crowd.push(light, framed(b"now a"))
    assert crowd.handled == []
    crowd.push(0, b"x")
    assert len(crowd.handled) == 1, "its end makes room"
    crowd.server.in_flight_bytes = 0
    crowd.server.relieved()
    crowd.settle()
    crowd.settle()
    assert crowd.handled[1:] == ["now a"]


def test_the_oldest_frame_is_passed_over_while_its_connection_waits_for_an_answer(crowd):
    """It could not be read from anyway; another must be able to end."""
    crowd.push(0, framed(b"wait a") + unfinished(2 * MB)[: 64 << 10])
    for at in (1, 2):
        crowd.push(at, unfinished(100_000)[:50_000])
    crowd.server.in_flight_bytes = 9 * MB
    crowd.server._count_room()
    assert [crowd.server.readable_bytes(each) > 0 for each in crowd.connections[:3]] == [False, True, False]
    crowd.answer("a")
    assert [crowd.server.readable_bytes(each) > 0 for each in crowd.connections[:3]] == [True, False, False]


def test_an_oldest_frame_that_trickles_is_given_up_while_others_wait_for_its_memory(crowd):
    left = {at: crowd.push(at, unfinished()) for at in range(5)}
    assert left[4]
    crowd.push(0, b"")
    ends = []
    for _ in range(5):
        crowd.connections[0].last_active = crowd.server.tick  # a byte now and then
        crowd.server._tick()
        ends.append(crowd.connections[0].doomed or crowd.connections[0].closed)
    assert ends == [False, False, False, True, True]


def test_an_oldest_frame_that_gets_on_is_not_given_up(crowd):
    for at in range(5):
        crowd.push(at, unfinished()[: 2 * MB + 400_000 * (at > 0)])
    assert crowd.server._oldest() is crowd.connections[0]
    for _ in range(3):
        crowd.push(0, b"x" * 300_000)
        crowd.server._tick()
    assert not crowd.connections[0].doomed


def test_requests_that_wait_count(crowd):
    crowd.push(0, framed(b"wait a") + framed(b"now " + b"y" * 1000) * 100)
    assert crowd.server.held_bytes == crowd.connections[0].reader.held >= 100_000
    crowd.answer("a")
    while crowd.connections[0].reader.held:  # a slow machine answers one by one, and a socket takes few small answers
        crowd.drain(0)
    assert crowd.server.held_bytes == 0


def test_answers_that_a_socket_does_not_take_count(crowd, monkeypatch):
    monkeypatch.setattr(connection_module, "ANSWER_BYTES_MAX", 200_000)
    crowd.push(0, framed(b"big 500000") * 3)
    crowd.settle()
    held = crowd.connections[0].out.bytes_held
    assert held > 0
    assert crowd.server.held_bytes >= held
    assert crowd.connections[0].weight_bytes >= held
    while crowd.connections[0].out.bytes_held or crowd.connections[0].reader.waiting:
        crowd.drain(0)
    assert crowd.server.held_bytes == 0


def test_what_groups_remember_counts_for_half_of_the_budget_at_most(crowd):
    crowd.server.metadata_bytes = lambda: 100 * MB
    crowd.server._tick()
    assert crowd.server.group_bytes == 2 * MB
    assert crowd.server.room_bytes == 2 * MB
    crowd.push(0, unfinished(FRAME_BYTES))
    assert crowd.server.choked
    crowd.server.metadata_bytes = lambda: 0
    crowd.server._tick()
    crowd.settle()
    assert not crowd.server.choked


def test_a_length_that_is_not_sent_costs_nothing(crowd):
    for at in range(6):
        crowd.push(at, struct.pack(">i", 50 * MB) + b"x" * 100)
    assert crowd.used() == 0
    assert not crowd.server.choked


def test_the_oldest_is_looked_for_once_however_many_are_not_read_from(crowd, monkeypatch):
    for at in range(6):
        crowd.push(at, unfinished())
    assert len(crowd.server._parked) > 1
    seen = []
    oldest = crowd.server._oldest
    monkeypatch.setattr(crowd.server, "_oldest", lambda: seen.append(1) or oldest())
    crowd.server._relieve()
    assert len(seen) == 1

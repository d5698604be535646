import contextlib
import errno
import os
import select
import struct

import pytest
from fake_transport import FakeTransport
from hypothesis import given, settings
from hypothesis import strategies as st
from sessions import asking
from socket_pair import Pair, framed

from headrace.broker import connection as connection_module
from headrace.broker import server as server_module
from headrace.core.errors import InvariantError
from headrace.core.file_slice import Slice
from headrace.core.files import Disk, OpenFiles
from headrace.net.reactor import READ, WRITE


@pytest.fixture
def pair():
    made = Pair()
    yield made
    made.end()


# ── order ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(max_examples=60, deadline=None)
@given(
    words=st.lists(st.sampled_from(["now", "later", "wait"]), max_size=12),
    order=st.randoms(use_true_random=False),
    split=st.integers(1, 40),
    in_flight_max=st.sampled_from([1, 2, 64]),
)
def test_answers_come_in_the_order_of_the_requests(words, order, split, in_flight_max):
    pair = Pair(in_flight_requests_max=in_flight_max)
    names = [f"{word} {number}" for number, word in enumerate(words)]
    data = b"".join(framed(name.encode()) for name in names)
    for at in range(0, len(data), split):
        pair.client.sendall(data[at : at + split])
        pair.turn()
        if pair.slots and order.random() < 0.3:
            pair.answer(order.choice(sorted(pair.slots)))
    while pair.slots or pair.reactor._soon or pair.reactor._epoll.poll(0):
        pair.turn()
        if pair.slots:
            pair.answer(order.choice(sorted(pair.slots)))
    assert pair.handled == names
    assert pair.answers() == [name.split()[1] for name in names]
    assert pair.connection.in_flight == 0
    assert pair.connection.barriers == 0
    assert pair.reads()
    assert {chunk.pins for chunk in pair.chunks} <= {0}
    pair.end()


def test_several_requests_may_be_under_way_but_none_behind_one_that_holds_up(pair):
    pair.ask("later a", "later b", "wait c", "now d", "later e")
    assert pair.handled == ["later a", "later b", "wait c"]
    assert not pair.reads()
    pair.answer("b")
    assert pair.answers() == []
    pair.answer("c")
    assert pair.handled[3:] == ["now d", "later e"]
    assert pair.answers() == []
    pair.answer("a")
    assert pair.answers() == ["a", "b", "c", "d"]
    pair.answer("e")
    assert pair.answers() == ["a", "b", "c", "d", "e"]


def test_an_answer_made_at_once_waits_for_those_before_it(pair):
    pair.ask("later a", "now b", "now c")
    assert pair.answers() == []
    pair.answer("a")
    assert pair.answers() == ["a", "b", "c"]


def test_a_request_that_waits_does_not_keep_the_arena(pair):
    pair.ask("wait a", "now b", "now c")
    assert pair.server.pool.arena.pins == 0
    pair.client.sendall(b"\xff" * 50_000)  # would write over them, were they still there
    pair.answer("a")
    assert pair.answers()[:3] == ["a", "b", "c"]


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_more_requests_are_under_way_than_the_bound():
    pair = Pair(in_flight_requests_max=3)
    pair.ask(*[f"later {i}" for i in range(8)])
    assert len(pair.handled) == 3
    assert not pair.reads()
    for i in range(8):
        pair.answer(str(i))
        assert len(pair.handled) == min(8, i + 4)
    assert pair.answers() == [str(i) for i in range(8)]
    pair.end()


def test_no_more_bytes_are_under_way_than_the_bound():
    """Also of requests that nobody answers: Produce with acks=0."""
    pair = Pair(in_flight_bytes_max=1000)
    pair.connection.in_flight_bytes = 1001
    pair.ask("now a", "now b")
    assert pair.handled == []
    pair.connection.in_flight_bytes = 1000
    pair.connection.settle()
    assert pair.answers() == ["a", "b"]
    pair.end()


def test_a_request_that_nobody_answers_holds_up_those_behind_it_too(pair):
    """Produce with acks=0 whose batch is being packed again: the next batch must not overtake it."""
    pair.connection.barriers += 1
    pair.ask("now a", "now b")
    assert pair.handled == []
    pair.connection.barriers -= 1
    pair.connection.settle()
    assert pair.answers() == ["a", "b"]


def test_a_client_that_does_not_read_is_not_read_from():
    pair = Pair(buffer_bytes=20_000)
    sent = 0
    for _ in range(200):
        try:
            pair.client.sendall(framed(b"big 5000"))
            sent += 1
        except BlockingIOError:
            break
        pair.turn()
    assert not pair.reads()
    assert pair.connection._events & WRITE
    assert len(pair.handled) < sent
    assert pair.connection.out.bytes_held < 200_000
    assert pair.answers() == ["#" * 5000] * sent
    assert pair.reads()
    assert not pair.connection._events & WRITE
    assert pair.connection.out.bytes_held == 0
    pair.end()


def test_answers_that_wait_in_memory_are_bounded_within_one_read(monkeypatch):
    monkeypatch.setattr(connection_module, "ANSWER_BYTES_MAX", 30_000)
    pair = Pair(buffer_bytes=10_000)
    held = []
    dispatch = pair.dispatch
    pair.server.dispatch = lambda *frame: (dispatch(*frame), held.append(pair.connection.out.bytes_held))
    pair.ask(*["big 10000"] * 100)
    assert max(held) <= 30_000 + 10_004
    assert len(pair.answers()) == 100
    assert max(held) <= 30_000 + 10_004
    pair.end()


def test_while_the_broker_has_too_much_to_write_nobody_is_read_from():
    pair = Pair(queued_max_request_bytes=1 << 20)
    pair.server.in_flight_bytes = 2 << 20
    pair.server.choked = True
    pair.ask("now a")
    assert pair.handled == []
    assert not pair.reads()
    pair.server.in_flight_bytes = 1 << 20
    pair.server.relieved()
    assert pair.answers() == []
    pair.server.in_flight_bytes = 1 << 19
    pair.server.relieved()
    assert pair.answers() == ["a"]
    pair.end()


def test_the_memory_of_an_unfinished_frame_is_counted_and_let_go():
    pair = Pair()
    payload = b"now " + b"x" * 300_000
    data = framed(payload)
    for at in range(0, 200_000, 50_000):
        pair.client.sendall(data[at : at + 50_000])
        pair.turn()
    assert pair.server.held_bytes == pair.connection.reader.held >= 200_000
    pair.client.sendall(data[200_000:])
    assert pair.answers() == ["x" * 300_000]
    assert pair.server.held_bytes == 0
    for at in range(0, 200_000, 50_000):
        pair.client.sendall(data[at : at + 50_000])
        pair.turn()
    pair.connection.close()
    assert pair.server.held_bytes == 0
    pair.end()


# ── the end of a connection ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    path = tmp_path_factory.mktemp("stored") / "file"
    data = os.urandom(400_000)
    path.write_bytes(data)
    return str(path), data


@settings(max_examples=40, deadline=None)
@given(
    words=st.lists(st.sampled_from(["now", "later", "wait", "pin"]), max_size=10),
    answered=st.sets(st.integers(0, 9)),
    partial=st.integers(0, 30),
    how=st.sampled_from(["client", "ours", "stop"]),
    stalled=st.booleans(),
)
def test_whatever_is_under_way_a_closed_connection_holds_nothing(stored, words, answered, partial, how, stalled):
    path, _ = stored
    files = OpenFiles(Disk(), 4)
    pair = Pair(buffer_bytes=5000 if stalled else None)
    ended = []
    pair.connection.on_close.append(lambda: ended.append(True))
    names = [f"{word} {number}" for number, word in enumerate(words)]
    data = b"".join(framed(name.encode()) for name in names) + framed(b"now " + b"y" * 100)[:partial]
    pair.client.sendall(data)
    pair.turn()
    for number in answered:
        if str(number) in pair.slots:
            pair.slots.pop(str(number)).answer([b"head", Slice(files.get(path), 0, 150_000), b"tail"])
    pair.turn()
    if how == "client":
        pair.client.close()
        pair.turn()
        pair.turn()
        pair.connection.close()
    elif how == "ours":
        pair.connection.close()
    else:
        pair.server.drop_all()
    assert pair.connection.closed
    assert ended == [True]
    for slot in pair.slots.values():  # those that were written meanwhile are answered into the void
        slot.answer([b"head", Slice(files.get(path), 0, 150_000)])
    for chunk in pair.pinned:
        chunk.unpin()
    pair.turn()
    assert files.get(path).pins == 0
    assert {chunk.pins for chunk in [*pair.chunks, pair.server.pool.arena]} == {0}
    assert pair.connection.reader._frame is None
    assert not pair.connection.reader.waiting
    assert pair.server.held_bytes == 0
    assert len(pair.connection.out) == pair.connection.out.bytes_held == 0
    assert pair.server.metrics.connections_open == 0
    assert not pair.server._by_address
    pair.end()
    files.close()


def test_a_client_that_left_is_noticed(pair):
    pair.ask("later a")
    pair.client.close()
    pair.turn()
    assert pair.connection.closed
    pair.answer("a")
    assert pair.server.dirty == []


def test_a_client_that_left_while_its_answers_wait_is_noticed():
    pair = Pair(buffer_bytes=5000)
    pair.ask("big 500000")
    assert pair.connection.out.stalled
    pair.client.close()
    pair.turn()
    assert pair.connection.closed
    pair.end()


def test_closing_twice_is_closing_once(pair):
    seen = []
    pair.connection.on_close.append(lambda: seen.append(1))
    pair.connection.close()
    pair.connection.close()
    assert seen == [1]
    pair.connection.flush()
    pair.connection.settle()


# ── garbage ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("word", ["malformed x", "refused x", "cut x"])
def test_garbage_ends_the_connection_after_what_was_asked_before_it_is_answered(pair, word):
    pair.ask("later a", "now b", word, "now never")
    assert pair.handled[-1] == word
    assert not pair.connection.closed
    assert not pair.reads()
    pair.ask("now too late")
    pair.answer("a")
    assert pair.answers() == ["a", "b"]
    assert pair.connection.closed
    assert pair.ended
    assert "now never" not in pair.handled
    assert "now too late" not in pair.handled
    assert pair.server.metrics.connections_closed_by_garbage == 1
    assert {chunk.pins for chunk in pair.chunks} == {0}


@pytest.mark.parametrize("before", [[], ["now a"], ["wait a"], ["wait a", "now b", "now c"]])
def test_a_length_that_is_no_length_ends_the_connection_after_what_was_asked_before_it(pair, before):
    pair.client.sendall(b"".join(framed(word.encode()) for word in before) + struct.pack(">i", -7) + b"junk")
    pair.turn()
    for name in list(pair.slots):
        pair.answer(name)
    assert pair.answers() == [word.split()[1] for word in before]
    assert pair.connection.closed
    assert pair.server.metrics.connections_closed_by_garbage == 1
    assert pair.server.pool.arena.pins == 0


def test_a_garbage_client_that_does_not_read_its_answers_does_not_stay_for_ever():
    pair = Pair(buffer_bytes=5000)
    pair.ask("big 500000", "malformed x")
    assert pair.connection.out.stalled
    for _ in range(40):
        pair.server._tick()
    assert pair.connection.closed
    pair.end()


def test_a_bug_in_a_handler_ends_that_connection_only(pair):
    pair.ask("now a", "bug x", "now b")
    assert pair.connection.closed
    assert pair.handled == ["now a", "bug x"]
    assert {chunk.pins for chunk in pair.chunks} == {0}


def test_a_broken_invariant_is_not_swallowed(pair):
    pair.client.sendall(framed(b"invariant x"))
    with pytest.raises(InvariantError):
        pair.turn()


def test_no_event_means_no_work(pair):
    pair.connection.on_event(READ)
    assert pair.handled == []
    assert not pair.connection.closed
    assert pair.reactor._epoll.poll(0) == []
    assert select.EPOLLIN == READ


def test_a_large_frame_is_let_go_when_it_is_handled_and_not_when_the_next_one_comes(pair):
    large = framed(b"now " + b"x" * (3 << 20))
    while large:
        with contextlib.suppress(BlockingIOError):
            large = large[pair.client.send(large) :]
        pair.turn()
    assert len(pair.handled) == 1
    assert pair.connection.reader.frames == []


@pytest.mark.parametrize("why", ["barrier", "waiting", "nothing"])
def test_a_request_that_comes_in_part_is_not_given_up_while_it_is_we_who_do_not_read(pair, why):
    if why == "barrier":
        pair.ask("wait a")
    elif why == "waiting":
        pair.ask("wait a", "now b")
    pair.client.sendall(framed(b"now c")[:-1])
    pair.turn()
    if why == "waiting":
        pair.connection.reader._carry = b"x"  # what had come in part when the others began to wait
        assert pair.connection.reader.unfinished
        assert not pair.reads()
    for _ in range(server_module.STALLED_FRAME_TICKS_MAX + 1):
        pair.server._tick()
    assert pair.connection.doomed == (why == "nothing")


def test_the_time_to_send_the_rest_begins_when_it_is_read_again(pair):
    pair.ask("wait a", "now b")
    for _ in range(100):
        pair.server._tick()
    assert not pair.reads()
    pair.answer("a")
    pair.settle()
    assert pair.reads()
    assert pair.connection.last_active == pair.server.tick == 100


# ── another transport ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def carried(pair):
    """A connection whose transport does what a test says."""
    transport = FakeTransport()
    connection = pair.server.admit(transport, asking(port=10))
    yield pair, transport, connection
    connection.close()


def test_a_request_in_shreds_is_answered_and_the_answer_goes_out_in_shreds(carried):
    pair, transport, connection = carried
    transport.comes = [bytes([each]) for each in framed(b"now hello")]
    transport.takes = [1, 0, 2, 0]
    while transport.comes:
        connection.on_event(READ)
    pair.send()
    assert connection._events == WRITE
    while connection._events & WRITE:
        connection.on_event(WRITE)
    assert transport.sent == framed(b"hello")
    assert connection._events == READ
    assert not connection.closed


def test_a_transport_that_breaks_in_the_middle_of_an_answer_ends_its_connection_only(carried, stored):
    pair, transport, connection = carried
    path, _ = stored
    files = OpenFiles(Disk(), 4)
    transport.comes = [framed(b"later a") + framed(b"now b")]
    connection.on_event(READ)
    transport.takes = [4, 1000, OSError(errno.ECONNRESET, "reset")]
    pair.slots.pop("a").answer([b"head", Slice(files.get(path), 0, 150_000), b"tail"])
    pair.send()
    assert not connection.closed
    connection.on_event(WRITE)
    assert connection.closed
    assert transport.closed
    assert files.get(path).pins == 0
    pair.ask("now c")
    assert pair.answers() == ["c"]
    files.close()


@pytest.mark.parametrize("how", [b"", OSError(errno.ECONNRESET, "reset")])
def test_a_transport_that_ends_while_a_request_comes_ends_its_connection(carried, how):
    pair, transport, connection = carried
    transport.comes = [framed(b"now a")[:-1], how]
    connection.on_event(READ)
    connection.on_event(READ)
    assert connection.closed
    assert pair.handled == []

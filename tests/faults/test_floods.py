"""One client that floods, fails or crowds the broker hurts itself only, and a stop does not wait for it."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import struct
import threading

import pytest
import raw
from test_connections import HELLO, MB, connect, exchange, framed, is_gone, served
from waits import WAIT_S_MAX, eventually

from headrace.broker import router
from headrace.broker.api import Later

LIST_GROUPS, JOIN_GROUP = 16, 11
LIMIT = 64 * MB
FRAMES, FRAME_BYTES = 60, 40 * MB


class BrokenError(Exception):
    pass


def broken(node, request):
    raise BrokenError("a bug")


def later(node, request):
    """Answered at the end of the turn, with a body that cannot be written."""
    answer = Later()
    node.reactor.call_later(0, lambda: answer.complete({"groups": [{"nonsense": 1}]}))
    return answer


HANDLERS = {
    "handler": broken,
    "answer": lambda node, request: {"groups": [{"nonsense": 1}]},
    "later": later,
}


@pytest.mark.parametrize("at", HANDLERS)
def test_a_request_that_fails_ends_its_connection_and_nobody_elses(start_node, monkeypatch, at):
    node = start_node()
    load = router.load

    def loaded(key):
        api = load(key)
        return dataclasses.replace(api, handle=HANDLERS[at]) if key == LIST_GROUPS else api

    with connect(node.bootstrap) as victim, raw.Client(node.bootstrap) as other:
        assert served(other.socket)
        monkeypatch.setattr(router, "load", loaded)
        victim.sendall(framed(struct.pack(">hhih", LIST_GROUPS, 0, 1, -1)))
        assert is_gone(victim)
        monkeypatch.undo()
        exchange(other, raw.make_topic(other), 3)
    assert node.alive


def test_a_timer_or_a_thread_that_fails_leaves_the_broker_serving(start_node):
    node = start_node()
    for begin in (lambda work: node.node.reactor.call_later(0, work), node.node.reactor.call_soon):
        node.on_loop(lambda begin=begin: begin(lambda: broken(None, None)) and None)
    node.node.slow_workers.submit(lambda: None, broken)
    with raw.Client(node.bootstrap) as client:
        exchange(client, raw.make_topic(client), 3)
    assert node.alive


@pytest.mark.parametrize("kind", ["ApiVersions", "acks=0", "pending members"])
def test_sigterm_ends_a_broker_that_is_flooded(start_broker, kind):
    """The stop waits neither for what clients have sent nor for what they wait for. The limit only ends a hang."""
    broker = start_broker()
    with raw.Client(broker.bootstrap) as client, connect(broker.bootstrap) as flooder:
        topic, flooded = raw.make_topic(client), raw.make_topic(client)
        frame = {
            "ApiVersions": HELLO,
            "acks=0": framed(
                raw.encode_request(
                    raw.PRODUCE, 9, 1, raw.produce_body((flooded, 0, raw.batch(raw.values(b"x" * 100))), acks=0)
                )
            ),
            "pending members": framed(
                struct.pack(">hhih", JOIN_GROUP, 5, 1, -1)
                + struct.pack(">h", 1)
                + b"g"
                + struct.pack(">iihhh8sih5si", 6000, 6000, 0, -1, 8, b"consumer", 1, 5, b"range", 0)
            ),
        }[kind]
        stop = threading.Event()

        def flood() -> None:
            with contextlib.suppress(OSError):
                flooder.setblocking(False)
                while not stop.is_set():
                    with contextlib.suppress(BlockingIOError):
                        flooder.send(frame * 200)
                    with contextlib.suppress(BlockingIOError):
                        if not flooder.recv(1 << 20):
                            return

        thread = threading.Thread(target=flood, daemon=True)
        thread.start()
        try:
            exchange(client, topic, 5)
            broker.stop()  # SIGTERM; fails unless it ends by itself, and says that it ended cleanly
        finally:
            stop.set()
            thread.join(WAIT_S_MAX)


def test_unfinished_frames_take_no_more_memory_than_the_budget_and_others_are_served(start_broker, many_descriptors):
    broker = start_broker({"queued.max.request.bytes": str(LIMIT)})
    with raw.Client(broker.bootstrap) as client:
        topic = raw.make_topic(client)
        exchange(client, topic, 5)
        before = broker.rss_bytes()
        broker.forget_peak()
        crowd = [connect(broker.bootstrap) for _ in range(FRAMES)]
        piece = bytes(MB)
        left = dict.fromkeys(crowd, FRAME_BYTES - 1)
        for each in crowd:
            each.sendall(struct.pack(">i", FRAME_BYTES))
            each.setblocking(False)
        idle = 0
        while idle < 20 and left:  # until the broker takes nothing more for a while
            taken = sum(_push(each, left, piece) for each in list(left))
            idle = 0 if taken else idle + 1
            exchange(client, topic, 1)
        grown = broker.peak_rss_bytes() - before
        for each in crowd:
            each.close()
        exchange(client, topic, 5)
    assert grown < LIMIT + FRAME_BYTES + 40 * MB, f"{grown / MB:.0f} MB"


def _push(client: socket.socket, left: dict[socket.socket, int], piece: bytes) -> int:
    try:
        sent = client.send(piece[: left[client]])
    except BlockingIOError:
        return 0
    except OSError:
        del left[client]
        return 0
    left[client] -= sent
    if not left[client]:
        del left[client]
    return sent


def test_the_counters_of_memory_return_to_nothing(start_node):
    node = start_node(queued_max_request_bytes=4 * MB)
    server = node.node.server
    with raw.Client(node.bootstrap) as client:
        topic = raw.make_topic(client)
        crowd = [connect(node.bootstrap) for _ in range(8)]
        for each in crowd:
            each.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                each.send(struct.pack(">i", 3 * MB) + bytes(2 * MB))
        eventually(lambda: server.choked, "more is taken than the budget has")
        exchange(client, topic, 5)
        assert any(line for line in [server.gauges()["connections_not_read"]])
        for each in crowd:
            each.close()
        eventually(lambda: not server.choked, "all of it is given back")
        exchange(client, topic, 5)
        eventually(lambda: server.held_bytes == server.in_flight_bytes == 0, "nothing is counted for nobody")

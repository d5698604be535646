"""Produce on a node whose threads are turned by hand: slow batches one at a time, and failures that let go of all."""

import socket
import struct

import pytest

from headrace.broker.connection import Connection
from headrace.protocol.framing import Chunk
from headrace.protocol.records import Record, build_batch, recompress

GZIP = 1


class Client:
    """One connection of the node, and Produce requests (v3) on it."""

    def __init__(self, node):
        self.node = node
        ours, self.socket = socket.socketpair()
        ours.setblocking(False)
        self.socket.setblocking(False)
        self.connection = Connection(ours, "127.0.0.1:9", node.server)
        node.server._connections.add(self.connection)
        node.server._by_address["127.0.0.1"] += 1
        self.chunk = None

    def produce(self, *parts, acks=-1):
        """`parts` are (topic, partition, batch)."""
        body = struct.pack(">hhihhhii", 0, 3, 7, -1, -1, acks, 1000, len(parts))
        for topic, index, batch in parts:
            body += struct.pack(">h", len(topic)) + topic.encode()
            body += struct.pack(">iii", 1, index, len(batch)) + bytes(batch)
        self.chunk = Chunk(len(body), None)
        self.chunk.view[:] = body
        self.chunk.pins = 1
        self.node.router.dispatch(self.connection, self.chunk, 0, len(body))

    def offsets(self):
        """(partition, error, base offset) of each, from the answer."""
        self.node._end_of_turn()
        data = self.socket.recv(65536)
        at, found = 12, []
        for _ in range(struct.unpack_from(">i", data, 8)[0]):
            at += 2 + struct.unpack_from(">h", data, at)[0]
            count = struct.unpack_from(">i", data, at)[0]
            at += 4
            for _ in range(count):
                found.append(struct.unpack_from(">ihq", data, at))
                at += 22
        return found

    def lets_go(self):
        server = self.node.server
        return (self.chunk.pins, self.connection.in_flight_bytes, server.in_flight_bytes) == (0, 0, 0)


@pytest.fixture
def jobs(node):
    """What is with the thread for slow work."""
    found = []
    node.slow_workers.submit = lambda job, done: found.append((job, done))
    return found


@pytest.fixture
def client(node):
    node.topics.create("orders", 3, {})
    made = Client(node)
    yield made
    made.connection.close()
    made.socket.close()


def batch(node, value=b"x"):
    return build_batch([Record(0, node.clock.now_ms(), None, value)])


def slow(node):
    return recompress(batch(node, bytes(1 << 20)), GZIP)


def run_one(jobs):
    job, done = jobs.pop(0)
    done(job(), None)


def test_slow_batches_of_one_request_go_to_the_thread_one_by_one(node, client, jobs):
    other = Client(node)
    client.produce(*[("orders", index, slow(node)) for index in range(3)])
    other.produce(("orders", 0, slow(node)))
    assert len(jobs) == 2, "one for each client"
    run_one(jobs)
    assert client.connection.barriers == 1
    run_one(jobs)
    assert other.connection.barriers == 0, "after one batch of the other's three"
    assert other.offsets() == [(0, 0, 1)]
    while jobs:
        run_one(jobs)
    assert client.offsets() == [(0, 0, 0), (1, 0, 0), (2, 0, 0)]
    assert client.connection.barriers == 0
    assert client.lets_go()
    other.connection.close()
    other.socket.close()


def test_batches_that_are_packed_anew_go_to_the_thread_one_by_one(node, client, jobs):
    node.topics.create("packed", 2, {"compression.type": "gzip"})
    client.produce(("packed", 0, batch(node)), ("packed", 1, batch(node)))
    assert len(jobs) == 1
    run_one(jobs)
    assert len(jobs) == 1
    run_one(jobs)
    assert client.offsets() == [(0, 0, 0), (1, 0, 0)]
    assert client.lets_go()


@pytest.mark.parametrize("topic", ["orders", "packed"])
def test_a_thread_that_fails_ends_the_connection_and_all_is_let_go(node, client, jobs, topic):
    node.topics.create("packed", 1, {"compression.type": "zstd"})
    client.produce((topic, 0, slow(node)))
    jobs.pop()[1](None, RuntimeError("a bug"))
    assert client.connection.closed
    assert client.lets_go()


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_bug_while_a_batch_is_staged_ends_the_connection_and_all_is_let_go(node, client, monkeypatch, acks):
    first, second = (partition.log for partition in node.topics.get("orders").partitions[:2])
    monkeypatch.setattr(type(second), "stage", failing_for(second, type(second).stage))
    client.produce(("orders", 0, batch(node)), ("orders", 1, batch(node)), acks=acks)
    assert client.connection.closed
    assert client.chunk.pins == 1, "what was staged before is still to be written from it"
    node._end_of_turn()
    assert first.end_offset == 1
    assert client.lets_go()


def failing_for(victim, stage):
    def staged(log, *given, **named):
        if log is victim:
            raise RuntimeError("a bug")
        return stage(log, *given, **named)

    return staged


def test_a_partition_that_is_named_twice_gets_the_last_batch_and_is_answered_once(node, client):
    client.produce(("orders", 0, batch(node, b"a")), ("orders", 1, batch(node)), ("orders", 0, batch(node, b"b")))
    assert client.offsets() == [(0, 0, 0), (1, 0, 0)]
    assert node.topics.get("orders").partitions[0].log.end_offset == 1
    assert client.lets_go()

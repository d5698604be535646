"""Produce on a node whose threads are turned by hand: slow batches one at a time, and failures that let go of all."""

import socket
import struct

import pytest
from sessions import asking

from headrace.broker.handlers import produce_slowly
from headrace.net.transport import PlainTransport
from headrace.protocol import error_codes
from headrace.protocol.framing import Chunk
from headrace.protocol.records import Record, build_batch, recompress

GZIP = 1


class Client:
    """One connection of the node, and Produce requests (v3) on it."""

    def __init__(self, node):
        self.node = node
        ours, self.socket = socket.socketpair()
        self.socket.setblocking(False)
        self.connection = node.server.admit(PlainTransport(ours), asking())
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
    node.controller.create("orders", 3, {})
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
    node.controller.create("packed", 2, {"compression.type": "gzip"})
    client.produce(("packed", 0, batch(node)), ("packed", 1, batch(node)))
    assert len(jobs) == 1
    run_one(jobs)
    assert len(jobs) == 1
    run_one(jobs)
    assert client.offsets() == [(0, 0, 0), (1, 0, 0)]
    assert client.lets_go()


@pytest.mark.parametrize("topic", ["orders", "packed"])
def test_a_thread_that_fails_ends_the_connection_and_all_is_let_go(node, client, jobs, topic):
    node.controller.create("packed", 1, {"compression.type": "zstd"})
    client.produce((topic, 0, slow(node)))
    jobs.pop()[1](None, RuntimeError("a bug"))
    assert client.connection.closed
    assert client.lets_go()


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_bug_while_a_batch_is_staged_ends_the_connection_and_all_is_let_go(node, client, monkeypatch, acks):
    first, second = (partition.led.appender for partition in node.topics.get("orders").partitions[:2])
    monkeypatch.setattr(type(second), "stage", failing_for(second, type(second).stage))
    client.produce(("orders", 0, batch(node)), ("orders", 1, batch(node)), acks=acks)
    assert client.connection.closed
    assert client.chunk.pins == 1, "what was staged before is still to be written from it"
    node._end_of_turn()
    assert first.log.end_offset == 1
    assert client.lets_go()


def failing_for(victim, stage):
    def staged(appender, *given, **named):
        if appender is victim:
            raise RuntimeError("a bug")
        return stage(appender, *given, **named)

    return staged


def test_a_partition_that_is_named_twice_gets_the_last_batch_and_is_answered_once(node, client):
    client.produce(("orders", 0, batch(node, b"a")), ("orders", 1, batch(node)), ("orders", 0, batch(node, b"b")))
    assert client.offsets() == [(0, 0, 0), (1, 0, 0)]
    assert node.topics.get("orders").partitions[0].led.end_offset == 1
    assert client.lets_go()


# ── very many batches ────────────────────────────────────────────────────────────────────────────────────────────────

MANY = 100


@pytest.fixture
def crowded(node, monkeypatch):
    """A client whose request of many small packed batches takes several turns, and one beside it."""
    node.controller.create("many", MANY, {})
    monkeypatch.setattr(produce_slowly, "STAGING_S", -1.0)  # any time is too long: a few batches in each turn
    clients = Client(node), Client(node)
    yield clients
    for each in clients:
        each.connection.close()
        each.socket.close()


def packed(node):
    return recompress(batch(node, b"v" * 50), GZIP)


def test_others_are_served_while_a_request_of_very_many_batches_is_staged(node, crowded):
    busy, other = crowded
    busy.produce(*(("many", index, packed(node)) for index in range(MANY)))
    turns = 0
    while busy.connection.barriers:
        other.produce(("many", 0, packed(node)))
        assert [each[:2] for each in other.offsets()] == [(0, 0)], "answered in the turn in which it was asked"
        node.reactor.run_soon()
        turns += 1
    assert turns >= MANY // 8 - 1
    assert [each[:2] for each in busy.offsets()] == [(index, 0) for index in range(MANY)]
    assert busy.lets_go()


def test_a_topic_deleted_while_very_many_batches_are_staged_refuses_the_rest(node, crowded):
    busy, _ = crowded
    busy.produce(*(("many", index, packed(node)) for index in range(MANY)))
    node._end_of_turn()
    node.controller.delete("many")
    while node.reactor._soon:
        node.reactor.run_soon()
    codes = [code for _, code, _ in busy.offsets()]
    assert codes[:8] == [0] * 8
    assert codes[8:] == [error_codes.UNKNOWN_TOPIC_OR_PARTITION] * (MANY - 8)
    assert busy.lets_go()


def test_a_failure_while_very_many_batches_are_staged_lets_go_of_all(node, crowded, monkeypatch):
    busy, _ = crowded
    busy.produce(*(("many", index, packed(node)) for index in range(MANY)))
    monkeypatch.setattr(type(node.router._produce), "stage_some", lambda *a, **k: 1 / 0)
    while node.reactor._soon:
        node.reactor.run_soon()
        node._end_of_turn()
    assert busy.connection.closed
    assert busy.lets_go()


# ── other replicas ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def shared(node, client):
    """Partition 0 of `orders`, with a second replica that is not here."""
    partition = node.topics.get("orders").partitions[0]
    partition.led.share()
    partition.isr = partition.replicas = (0, 1)
    return partition


def answered(client):
    client.node._end_of_turn()
    try:
        return bool(client.socket.recv(65536, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def test_acks_all_is_answered_when_the_other_replica_has_it_and_memory_is_let_go_before(node, client, shared):
    client.produce(("orders", 0, batch(node)), ("orders", 1, batch(node)))
    assert not answered(client)
    assert client.lets_go()
    shared.led.commit_to(1)
    assert client.offsets() == [(0, 0, 0), (1, 0, 0)]


def test_acks_1_waits_for_no_other_replica(node, client, shared):
    client.produce(("orders", 0, batch(node)), acks=1)
    assert client.offsets() == [(0, 0, 0)]
    assert shared.led.high_watermark == 0


def test_a_request_whose_own_time_is_over_is_answered_so_and_only_once(node, client, shared):
    client.produce(("orders", 0, batch(node)), ("orders", 1, batch(node)))
    assert not answered(client)
    node.reactor.advance(0.9)
    node.reactor._run_timers()
    assert not answered(client)
    node.reactor.advance(0.2)
    node.reactor._run_timers()
    assert client.offsets() == [(0, error_codes.REQUEST_TIMED_OUT, -1), (1, 0, 0)]
    shared.led.commit_to(1)
    assert not answered(client)
    assert client.lets_go()


def test_what_is_written_after_the_time_of_others_has_its_own_time(node, client, jobs, shared):
    other = node.topics.get("orders").partitions[1]
    other.led.share()
    client.produce(("orders", 0, batch(node)), ("orders", 1, slow(node)))
    assert not answered(client)
    node.reactor.advance(1.1)
    node.reactor._run_timers()
    run_one(jobs)
    assert not answered(client)
    node.reactor.advance(1.1)
    node.reactor._run_timers()
    assert client.offsets() == [(0, error_codes.REQUEST_TIMED_OUT, -1), (1, error_codes.REQUEST_TIMED_OUT, -1)]
    assert client.lets_go()


def test_a_leader_that_is_none_any_more_says_so_to_those_who_wait(node, client, shared):
    client.produce(("orders", 0, batch(node)))
    assert not answered(client)
    shared.follow(5)
    assert client.offsets() == [(0, error_codes.NOT_LEADER_OR_FOLLOWER, -1)]
    client.produce(("orders", 0, batch(node)))
    assert client.offsets() == [(0, error_codes.NOT_LEADER_OR_FOLLOWER, -1)]
    shared.lead(6, (0, 1))
    client.produce(("orders", 0, batch(node)), acks=1)
    assert client.offsets() == [(0, 0, 1)]
    assert shared.led.epochs.entries == [(0, 0), (6, 1)]


def test_too_few_replicas_in_sync_refuse_acks_all_and_nothing_is_written(node, client, shared):
    node.controller.alter("orders", {"min.insync.replicas": "2"})
    shared.isr = (0,)
    client.produce(("orders", 0, batch(node)))
    assert client.offsets() == [(0, error_codes.NOT_ENOUGH_REPLICAS, -1)]
    assert shared.led.end_offset == 0
    client.produce(("orders", 0, batch(node)), acks=1)
    assert client.offsets() == [(0, 0, 0)]
    shared.isr = (0, 1)
    client.produce(("orders", 0, batch(node)))
    assert not answered(client)
    shared.led.commit_to(2)
    assert client.offsets() == [(0, 0, 1)]

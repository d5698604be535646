"""Garbage of every kind closes its own connection with one line in the log, and changes nothing else."""

from __future__ import annotations

import random
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta

import pytest
import raw
from broker_process import BrokerProcess
from waits import WAIT_S_MAX, eventually

from headrace.core import telemetry

MB = 1 << 20
SETTINGS = {"auto.create.topics.enable": "false"}


class Witness:
    """A topic with records in it, and a client that must go on being served whatever others send."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.client = raw.Client(broker.bootstrap)
        self.topic = raw.make_topic(self.client, 2, "witness")
        self.values = [b"%d" % number for number in range(100)]
        for value in self.values:
            assert raw.produce(self.client, self.topic, raw.batch(raw.values(value))).error_code == 0

    def check(self) -> None:
        """Served, and nothing has changed in the log."""
        assert self.broker.running
        found = raw.fetch(self.client, self.topic)
        assert found.error_code == 0
        assert raw.values_of(found.records) == self.values
        assert raw.list_offset(self.client, self.topic) == len(self.values)
        names = {topic.name for topic in self.client.call(raw.METADATA, 12, {"topics": None}).topics}
        assert {name for name in names if not name.startswith("__")} == {"witness"}


@pytest.fixture
def witness(start_broker) -> Iterator[Witness]:
    seen = Witness(start_broker(SETTINGS))
    yield seen
    seen.check()
    text = "\n".join(seen.broker.log_lines())
    assert "Traceback" not in text, text[-4000:]


def test_random_bytes_close_their_connections_and_nothing_else(witness, rng):
    for _ in range(300):
        send_and_leave(witness.broker.bootstrap, rng.randbytes(rng.choice((1, 4, 20, 300, 5000))))
    for _ in range(300):  # with a length that is true, the bytes get as far as the handlers
        payload = rng.randbytes(rng.choice((10, 30, 300)))
        send_and_leave(witness.broker.bootstrap, framed(payload))
    for _ in range(300):  # and with the header of a request that is served, as far as the codecs
        key = rng.choice(list(raw.VERSIONS))
        header = struct.pack(">hhih", key, rng.choice(raw.versions(key)), 1, -1)
        send_and_leave(witness.broker.bootstrap, framed(header + rng.randbytes(rng.randrange(200))))
    witness.check()


def test_mutated_requests_are_answered_or_refused_and_change_nothing(witness, rng):
    for count, (key, version, body) in enumerate(harmless_requests(witness.topic, rng)):
        good = raw.encode_request(key, version, 7, body)
        for _ in range(12):
            send_and_leave(witness.broker.bootstrap, framed(mutated(good, rng)))
        if count % 10 == 0:
            witness.check()


def test_mutated_produce_requests_never_put_a_broken_batch_into_a_log(witness, rng):
    """A flipped partition may send a good batch elsewhere; what is in a log is whole all the same."""
    client = witness.client
    target = raw.make_topic(client, 3, "witness-2")
    try:
        sent = [b"%d " % n + rng.randbytes(50) for n in range(25)]
        for version in raw.versions(raw.PRODUCE):
            for value in sent:
                batch = raw.batch(raw.values(value), codec=rng.choice(range(5)))
                body = raw.produce_body((target, 0, batch), acks=rng.choice((-1, 0, 1)))
                good = raw.encode_request(raw.PRODUCE, version, 7, body)
                send_and_leave(witness.broker.bootstrap, framed(mutated(good, rng)))
        for index in range(3):
            end = raw.list_offset(client, target, index)
            offset = 0
            while offset < end:
                records = raw.records_of(raw.fetch(client, target, offset, partition=index).records)
                for record in records:  # the CRC of each batch was checked on the way
                    assert record.offset == offset
                    assert record.value in sent
                    offset += 1
                assert records
    finally:
        body = {"topics": [{"name": target.name}], "timeout": 5000}
        assert client.call(raw.DELETE_TOPICS, 6, body).responses[0].error_code == 0


def test_damaged_batch_is_refused_and_its_connection_goes_on(witness, rng):
    good = raw.batch(raw.values(*[rng.randbytes(100) for _ in range(3)]))
    for _ in range(150):
        at = rng.randrange(16, len(good))  # behind the length and the leader epoch, which is the broker's
        if at in range(17, 21):
            continue  # the CRC itself is tested below
        bad = bytearray(good)
        bad[at] ^= 1 << rng.randrange(8)
        answer = raw.produce(witness.client, witness.topic, bytes(bad))
        assert answer.error_code != 0, f"a bit was flipped in byte {at}"
    for _ in range(20):
        bad = raw.batch(raw.values(b"x"), crc_flip=1 << rng.randrange(32))
        assert raw.produce(witness.client, witness.topic, bad).error_code == raw.ErrorCode.corrupt_message
    witness.check()


def test_lengths_that_are_lies_cost_no_memory(witness, many_descriptors):
    broker = witness.broker
    before = broker.rss_bytes()
    with ExitStack() as stack:
        liars = [stack.enter_context(connect(broker.bootstrap)) for _ in range(300)]
        for liar in liars:
            liar.sendall(struct.pack(">i", 100 * MB) + b"\0\0\0\x03\0\0")
        await_open(witness, len(liars))
        witness.check()
        grown = broker.rss_bytes() - before
        assert grown < 30 * MB, f"{grown / MB:.0f} MB for {len(liars)} frames of 10 bytes that claim 100 MB"


def test_half_frames_hold_no_more_memory_than_all_requests_may(start_broker, rng):
    """queued.max.request.bytes bounds what is read and not answered, also while it is read."""
    witness = Witness(start_broker(SETTINGS | {"queued.max.request.bytes": str(32 * MB)}))
    broker = witness.broker
    before = broker.rss_bytes()
    piece = bytes(MB)
    with ExitStack() as stack:
        for _ in range(12):
            halt = stack.enter_context(connect(broker.bootstrap))
            halt.settimeout(0.3)
            halt.sendall(struct.pack(">i", 40 * MB))
            try:
                for _ in range(20):
                    halt.sendall(piece)
            except TimeoutError:
                pass  # not read from any more: that is one way to keep the bound
            except ConnectionError:
                pass  # closed: another
        witness.check()
        grown = broker.rss_bytes() - before
        assert grown < 120 * MB, f"{grown / MB:.0f} MB for 12 requests that never end"
    witness.check()


def test_request_that_stalls_in_the_middle_is_closed_in_time(start_node, monkeypatch):
    from headrace.broker import server

    monkeypatch.setattr(server, "STALLED_FRAME_TICKS_MAX", 1)
    node = start_node()
    whole = framed(raw.encode_request(raw.METADATA, 9, 1, {"topics": []}))
    with ExitStack() as stack:
        halves = []
        for cut in (2, 4, 5, len(whole) - 1):
            halves.append(stack.enter_context(raw.Client(node.bootstrap)))
            halves[-1].socket.sendall(whole[:cut])
        idle = stack.enter_context(raw.Client(node.bootstrap))
        for half in halves:
            assert half.is_closed_by_broker()
        assert idle.call(raw.METADATA, 9, {"topics": []}).brokers, "one that only waits is left alone"


def test_many_garbage_senders_at_once_do_not_hold_up_others(witness, rng, many_descriptors):
    broker = witness.broker
    before = broker.rss_bytes()
    kinds: list[Callable[[], bytes]] = [
        lambda: rng.randbytes(50),
        lambda: struct.pack(">i", rng.randrange(-(1 << 31), 0)),
        lambda: struct.pack(">i", (1 << 31) - 1) + bytes(1000),
        lambda: struct.pack(">i", 5 * MB) + rng.randbytes(2000),
        lambda: framed(mutated(raw.encode_request(raw.METADATA, 9, 1, {"topics": []}), rng)),
        lambda: b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    ]
    with ExitStack() as stack:
        for turn in range(600):
            each = stack.enter_context(connect(broker.bootstrap))
            each.sendall(rng.choice(kinds)())
            if turn % 20 == 0:
                witness.check()  # while all of them are connected
    grown = broker.rss_bytes() - before
    assert grown < 40 * MB, f"{grown / MB:.0f} MB more after 600 connections of garbage"


def test_each_refusal_is_one_line_and_a_flood_of_them_is_not_a_flood_of_lines(witness):
    broker = witness.broker
    for number in range(3):
        send_and_leave(broker.bootstrap, framed(struct.pack(">hhih", 900 + number, 0, 1, -1)))
    eventually(lambda: len(refusals(broker)) == 3, "a line for each")
    for _ in range(500):
        send_and_leave(broker.bootstrap, framed(b"no request"))
    witness.check()
    # By the log's own time, in which on a slow machine several windows may pass.
    times = [datetime.fromisoformat(line.split()[0]) for line in refusals(broker)]
    window = timedelta(seconds=telemetry.WINDOW_S)
    for first in times:
        assert sum(first <= each < first + window for each in times) <= 3 + 2 * (telemetry.REPEATS_MAX + 1)


def refusals(broker: BrokerProcess) -> list[str]:
    return [line for line in broker.log_lines() if re.search(r"\b(WARNING|ERROR)\b", line)]


def harmless_requests(topic: raw.Topic, rng: random.Random) -> Iterator[tuple[int, int, dict[str, object]]]:
    """Requests of every kind that change nothing, also if a bit of them is another."""
    part = {"partition": 0, "partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    part |= {"leader_epoch": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
    topics = [topic.ref | {"partitions": [part]}]
    setting = {"name": "retention.ms", "config_operation": 0, "value": "1"}
    resource = {"resource_type": 2, "resource_name": "none", "configs": [setting]}
    bodies: dict[int, dict[str, object]] = {
        raw.FETCH: {"max_wait": 0, "max_bytes": 1000, "topics": topics, "session_epoch": -1},
        raw.LIST_OFFSETS: {"replica_id": -1, "topics": topics},
        raw.METADATA: {"topics": [topic.ref]},
        raw.FIND_COORDINATOR: {"key": "group", "coordinator_keys": ["group"]},
        raw.API_VERSIONS: {"client_software_name": "raw", "client_software_version": "1"},
        raw.CREATE_TOPICS: {
            "topics": [{"name": "x" * 300, "num_partitions": 1, "replication_factor": 1}],
            "timeout": 1000,
            "validate_only": True,
        },
        raw.DELETE_TOPICS: {"topic_names": ["none"], "topics": [{"name": "none"}], "timeout": 1000},
        raw.DELETE_RECORDS: {"topics": [{"name": "none", "partitions": [part]}], "timeout": 1000},
        raw.CREATE_PARTITIONS: {"topics": [{"name": "none", "count": 2}], "validate_only": True},
        raw.ALTER_CONFIGS: {"resources": [resource], "validate_only": True},
        raw.INCREMENTAL_ALTER_CONFIGS: {"resources": [resource], "validate_only": True},
        raw.OFFSET_FOR_LEADER_EPOCH: {"replica_id": -1, "topics": topics},
        raw.DESCRIBE_CONFIGS: {"resources": [{"resource_type": 2, "resource_name": topic.name}]},
        raw.DESCRIBE_LOG_DIRS: {"topics": [topic.ref | {"partitions": [0]}]},
        raw.DESCRIBE_CLUSTER: {"endpoint_type": 1},
        raw.DESCRIBE_TOPIC_PARTITIONS: {"topics": [topic.ref], "response_partition_limit": 10},
        raw.INIT_PRODUCER_ID: {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
    }
    for key, body in bodies.items():
        for version in raw.versions(key):
            yield key, version, body


def mutated(good: bytes, rng: random.Random) -> bytes:
    """Some bits flipped, or cut, or made longer. The key and version are left, or few would get far."""
    data = bytearray(good)
    kind = rng.randrange(4)
    if kind == 0:
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(4, len(data))
            data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[rng.randrange(4, len(data)) :]
    elif kind == 2:
        at = rng.randrange(4, len(data) + 1)
        data[at:at] = rng.randbytes(rng.randrange(1, 20))
    else:
        at = rng.randrange(4, len(data))
        data[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", bytes(4)))
    return bytes(data)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def connect(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S_MAX)


def send_and_leave(bootstrap: str, data: bytes) -> None:
    """Sends it, says that no more comes, and waits until the broker has closed or said all it has to say."""
    with connect(bootstrap) as sender:
        try:
            sender.sendall(data)
            sender.shutdown(socket.SHUT_WR)
            while sender.recv(65536):
                pass
        except ConnectionError:
            pass


def await_open(witness: Witness, count: int) -> None:
    """All of them were accepted: their descriptors are there."""
    eventually(lambda: witness.broker.descriptor_count() > count, f"{count} connections are accepted")

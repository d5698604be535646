"""Thousands of connections, and those that misbehave: bounded memory, and the others go on."""

from __future__ import annotations

import resource
import socket
import struct
import time
from contextlib import ExitStack, suppress

import pytest
import raw
from broker_process import BrokerProcess
from confluent_kafka import Producer
from waits import WAIT_S_MAX, eventually

from headrace.testing import Broker

MB = 1 << 20
IDLE_COUNT = 3000
BYTES_PER_CONNECTION_MAX = 20_000
HELLO = struct.pack(">ihhih", 10, raw.API_VERSIONS, 0, 1, -1)


def test_thousands_of_idle_connections_are_cheap_and_do_not_slow_others(start_broker, many_descriptors, capsys):
    broker = start_broker()
    with raw.Client(broker.bootstrap) as client, ExitStack() as stack:
        topic = raw.make_topic(client)
        exchange(client, topic, 200)
        alone_s = cpu_of_exchanges(broker, client, topic)
        before = broker.rss_bytes()
        crowd = [stack.enter_context(connect(broker.bootstrap)) for _ in range(IDLE_COUNT)]
        for each in crowd:
            each.sendall(HELLO)
        for each in crowd:
            assert each.recv(4), "every one of them is served"
        grown = (broker.rss_bytes() - before) / IDLE_COUNT
        crowded_s = cpu_of_exchanges(broker, client, topic)
        with capsys.disabled():
            print(f"\n  {IDLE_COUNT} connections: {grown:.0f} bytes each; 200 exchanges cost", end=" ")
            print(f"{alone_s * 1000:.0f} ms of CPU alone and {crowded_s * 1000:.0f} ms among them")
        assert grown < BYTES_PER_CONNECTION_MAX
        assert crowded_s < 10 * alone_s + 0.5, "work, not speed: nothing is done for each of them"
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic.name, b"from a real client")
        assert producer.flush(WAIT_S_MAX) == 0
    eventually(lambda: broker.descriptor_count() < 200, "connections that were closed are forgotten")


def test_max_connections_refuses_what_is_too_many_and_takes_more_when_some_leave(start_broker):
    broker = start_broker({"max.connections": "10"})

    def let_in() -> bool:
        with connect(broker.bootstrap) as another:
            return served(another)

    with ExitStack() as stack:
        crowd = [stack.enter_context(connect(broker.bootstrap)) for _ in range(10)]
        assert all(served(each) for each in crowd)
        assert not let_in()
        assert all(served(each) for each in crowd)
        crowd[0].close()
        eventually(let_in, "there is room for one again")
    assert any("max.connections=10" in line for line in broker.log_lines())


def test_max_connections_per_ip_counts_each_address_for_itself(start_broker):
    broker = start_broker({"max.connections.per.ip": "3"})
    with ExitStack() as stack:
        mine = [stack.enter_context(connect(broker.bootstrap, "127.0.0.2")) for _ in range(3)]
        assert all(served(each) for each in mine)
        assert not served(stack.enter_context(connect(broker.bootstrap, "127.0.0.2")))
        assert served(stack.enter_context(connect(broker.bootstrap, "127.0.0.3")))
        assert all(served(each) for each in mine)


def test_more_connections_than_descriptors_leave_the_broker_serving_those_it_has(start_broker):
    broker = start_broker()
    with raw.Client(broker.bootstrap) as client, ExitStack() as stack:
        topic = raw.make_topic(client, 20)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (100, 100))
        crowd = [stack.enter_context(connect(broker.bootstrap)) for _ in range(150)]
        for each in crowd:
            each.sendall(HELLO)
        eventually(lambda: broker.descriptor_count() >= 99, "no descriptor is left")
        codes = set()
        for index in range(20):  # whose files are not open yet
            batch = raw.batch(raw.values(b"x"))
            codes.add(raw.produce(client, topic, batch, partition=index).error_code)
        assert codes <= {0, raw.ErrorCode.kafka_storage_error}

        def rests() -> bool:
            used_s = broker.cpu_s()
            time.sleep(0.5)
            return broker.cpu_s() - used_s < 0.1

        eventually(rests, "it waits for a descriptor without turning round and round")
        for each in crowd:
            each.close()
        eventually(lambda: broker.descriptor_count() < 60, "descriptors come back")
        for index in range(20):
            answer = raw.produce(client, topic, raw.batch(raw.values(b"x")), partition=index)
            assert answer.error_code == 0, "a lack of descriptors is no failure of the disk"


def test_idle_connection_is_closed_but_not_one_that_waits_in_a_long_poll():
    idle_s = 100
    with (
        Broker(connections_max_idle_ms=idle_s * 1000) as broker,
        connect(broker.bootstrap_servers) as idle,
        raw.Client(broker.bootstrap_servers) as waiting,
        raw.Client(broker.bootstrap_servers) as busy,
    ):
        topic = raw.make_topic(busy)
        assert served(idle)
        waiting.send(raw.FETCH, 16, raw.fetch_body((topic, 0, 0)))
        eventually(lambda: broker._node.purgatory.count == 1, "the fetch waits")
        for _ in range(idle_s + 2):
            broker.clock.advance(seconds=1)
            assert served(busy.socket), "one that is used stays open"
        assert is_gone(idle)
        assert raw.produce(busy, topic, raw.batch(raw.values(b"at last"))).error_code == 0
        answer = waiting.read().responses[0].partitions[0]
        assert raw.values_of(answer.records) == [b"at last"]


def test_reader_that_asks_for_much_and_reads_nothing_never_grows_the_broker(start_broker, rng):
    broker = start_broker()
    with raw.Client(broker.bootstrap) as client, ExitStack() as stack:
        topic = raw.make_topic(client)
        for _ in range(32):
            batch = raw.batch(raw.values(rng.randbytes(MB - 1000)))
            assert raw.produce(client, topic, batch).error_code == 0
        before = broker.rss_bytes()
        broker.forget_peak()
        body = raw.fetch_body((topic, 0, 0), partition_max_bytes=50 * MB)
        asked = framed(raw.encode_request(raw.FETCH, 16, 1, body))
        for _ in range(30):
            greedy = stack.enter_context(connect(broker.bootstrap))
            greedy.sendall(asked * 50)  # 1.5 GB
        for _ in range(20):
            exchange(client, topic, 1)
        grown = broker.peak_rss_bytes() - before
        assert grown < 25 * MB, f"{grown / MB:.0f} MB for answers that nobody reads"


def test_small_requests_with_large_answers_are_not_all_answered_ahead(start_broker):
    """A request of 30 bytes can have an answer of 100 KB: what is not read must not be made."""
    broker = start_broker()
    with raw.Client(broker.bootstrap) as client, connect(broker.bootstrap) as greedy:
        topic = raw.make_topic(client, 2000)
        before = broker.rss_bytes()
        broker.forget_peak()
        asked = framed(raw.encode_request(raw.METADATA, 12, 1, {"topics": None}))
        greedy.settimeout(1)
        with suppress(TimeoutError):  # not read from any more: as it should be
            greedy.sendall(asked * 4000)
        exchange(client, topic, 20)
        grown = broker.peak_rss_bytes() - before
        assert grown < 25 * MB, f"{grown / MB:.0f} MB for answers that nobody reads"


def test_producer_that_never_reads_its_answers_is_stopped_and_others_go_on(start_broker):
    broker = start_broker()
    with raw.Client(broker.bootstrap) as client, connect(broker.bootstrap) as deaf:
        topic, own = raw.make_topic(client), raw.make_topic(client)  # its records may still come in afterwards
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        body = raw.produce_body((topic, 0, raw.batch(raw.values(b"x" * 100))))
        one = framed(raw.encode_request(raw.PRODUCE, 9, 1, body))
        before = broker.rss_bytes()
        broker.forget_peak()
        deaf.settimeout(1.0)
        sent = 0
        try:
            for _ in range(4000):
                sent += deaf.send(one * 100)
        except TimeoutError:
            pass
        else:
            raise AssertionError(f"{sent / MB:.0f} MB were taken from a producer that reads no answer")
        exchange(client, own, 20)
        grown = broker.peak_rss_bytes() - before
        assert grown < 25 * MB, f"{grown / MB:.0f} MB"


@pytest.mark.parametrize("acks", [-1, 1])
def test_pipelining_deeper_than_the_bound_works_and_stays_in_order(start_broker, acks):
    broker = start_broker({"headrace.connection.in.flight.requests.max": "4"})
    with raw.Client(broker.bootstrap) as client:
        topic = raw.make_topic(client)
        for number in range(500):
            batch = raw.batch(raw.values(b"%d" % number))
            client.send(raw.PRODUCE, 13, raw.produce_body((topic, 0, batch), acks=acks))
            if number % 7 == 0:
                client.send(raw.METADATA, 12, {"topics": [topic.ref], "allow_auto_topic_creation": False})
        offsets = []
        for number in range(500):
            offsets.append(client.read().responses[0].partition_responses[0].base_offset)
            if number % 7 == 0:
                client.read()
        assert offsets == list(range(500))
        found = raw.values_of(raw.fetch(client, topic).records)
        assert found == [b"%d" % number for number in range(500)]


def test_requests_behind_a_long_poll_wait_their_turn_and_cost_little(start_broker, many_descriptors, rng):
    """Each of these holds a small request back; they must not hold megabytes of receive memory with it."""
    broker = start_broker()
    count = 45
    with raw.Client(broker.bootstrap) as client, connect(broker.bootstrap) as busy, ExitStack() as stack:
        topic, other = raw.make_topic(client), raw.make_topic(client)
        body = raw.produce_body((other, 0, raw.batch(raw.values(bytes(15_000)))))
        traffic = framed(raw.encode_request(raw.PRODUCE, 9, 1, body)) * 150
        before = broker.rss_bytes()
        waiting = []
        for _ in range(count):
            each = stack.enter_context(raw.Client(broker.bootstrap))
            each.send(raw.FETCH, 16, raw.fetch_body((topic, 0, 0)))
            each.send(raw.METADATA, 9, {"topics": []})
            waiting.append(each)
            busy.sendall(traffic)  # 2 MB of others' requests in between
            for _ in range(150):
                assert is_answered(busy)
        grown = broker.rss_bytes() - before
        assert grown < 40 * MB, f"{grown / MB:.0f} MB for {count} small requests that wait"
        assert raw.produce(client, topic, raw.batch(raw.values(b"at last"))).error_code == 0
        for each in waiting:
            assert raw.values_of(each.read().responses[0].partitions[0].records) == [b"at last"]
            assert each.read().brokers


def cpu_of_exchanges(broker: BrokerProcess, client: raw.Client, topic: raw.Topic) -> float:
    """The processor time that the broker needs for two hundred, which no other load of the machine changes much."""
    used_s = broker.cpu_s()
    exchange(client, topic, 200)
    return broker.cpu_s() - used_s


def exchange(client: raw.Client, topic: raw.Topic, count: int) -> None:
    """Produces and fetches `count` times."""
    for _ in range(count):
        answer = raw.produce(client, topic, raw.batch(raw.values(b"x" * 100)))
        assert answer.error_code == 0
        assert raw.values_of(raw.fetch(client, topic, answer.base_offset).records) == [b"x" * 100]


def served(connection: socket.socket) -> bool:
    """False if the broker closes the connection instead of an answer."""
    try:
        connection.sendall(HELLO)
        return is_answered(connection)
    except ConnectionError:
        return False


def is_answered(connection: socket.socket) -> bool:
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL).ljust(4, b"\0"))
    return size > 0 and len(connection.recv(size, socket.MSG_WAITALL)) == size


def is_gone(waiting: socket.socket) -> bool:
    """Waits for its end."""
    try:
        return waiting.recv(1) == b""
    except ConnectionError:
        return True


def connect(bootstrap: str, address: str = "127.0.0.1") -> socket.socket:
    """A connection from that address of this machine."""
    host, _, port = bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S_MAX, source_address=(address, 0))


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload

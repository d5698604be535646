"""A disk that takes its time: whoever waits for it waits, and nobody else does.

A flush that hangs holds up the answers that depend on it; reads, other partitions and administration go on.
"""

from __future__ import annotations

from typing import Any

import raw
from raw import ErrorCode
from waits import WAIT_S_MAX


def test_flush_that_hangs_holds_up_only_those_who_asked_for_it(start_node):
    node = start_node()
    with raw.Client(node.bootstrap) as client, raw.Client(node.bootstrap) as patient:
        flushed = raw.make_topic(client, **{"flush.messages": 1})
        other = raw.make_topic(client)
        assert send(client, flushed, b"before") == 0
        with node.disk.hanging(flushed.name, on=("sync",)) as hangs:
            send_ahead(patient, flushed, b"waits")
            assert hangs.wait(WAIT_S_MAX)
            assert send(client, other, b"at once") == 0
            assert raw.make_topic(client).name
            assert raw.values_of(raw.fetch(client, flushed).records) == [b"before"], "not safe, so not shown"
            assert raw.list_offset(client, flushed) == 1
        assert code(patient.read()) == 0
        assert raw.values_of(raw.fetch(client, flushed).records) == [b"before", b"waits"]


def test_topic_deleted_while_its_flush_hangs_answers_its_producers_and_harms_nobody(start_node):
    node = start_node()
    with raw.Client(node.bootstrap) as client, raw.Client(node.bootstrap) as patient:
        doomed = raw.make_topic(client, **{"flush.messages": 1})
        with node.disk.hanging(doomed.name, on=("sync",)) as hangs:
            for value in (b"one", b"two", b"three"):
                send_ahead(patient, doomed, value)
            assert hangs.wait(WAIT_S_MAX)
            body = {"topics": [{"name": doomed.name}], "timeout": 5000}
            assert client.call(raw.DELETE_TOPICS, 6, body).responses[0].error_code == 0
            again = raw.make_topic(client, name=doomed.name)
            assert send(client, again, b"new") == 0
        for _ in range(3):
            assert code(patient.read()) in (0, ErrorCode.kafka_storage_error, ErrorCode.unknown_topic_or_partition)
        assert raw.values_of(raw.fetch(client, again).records) == [b"new"]
        assert node.alive


def test_large_write_that_hangs_does_not_hold_up_other_partitions(start_node):
    """Large groups are written by a thread; small ones to other logs pass it."""
    node = start_node()
    with raw.Client(node.bootstrap) as client, raw.Client(node.bootstrap) as patient:
        slow, other = raw.make_topic(client), raw.make_topic(client)
        with node.disk.hanging(slow.name, on=("write",)) as hangs:
            send_ahead(patient, slow, bytes(500_000))
            assert hangs.wait(WAIT_S_MAX)
            assert send(client, other, b"at once") == 0
            assert raw.values_of(raw.fetch(client, other).records) == [b"at once"]
            assert raw.fetch(client, slow).records in (b"", None)
        assert code(patient.read()) == 0
        assert raw.values_of(raw.fetch(client, slow).records) == [bytes(500_000)]


def test_producer_cannot_pile_up_requests_on_a_disk_that_hangs(start_node):
    node = start_node(in_flight_requests_max=8)
    with raw.Client(node.bootstrap) as client, raw.Client(node.bootstrap, timeout_s=0.5) as pushing:
        topic = raw.make_topic(client, **{"flush.messages": 1})
        sent = 0
        with node.disk.hanging(topic.name, on=("sync",)) as hangs:
            send_ahead(pushing, topic, b"first")
            assert hangs.wait(WAIT_S_MAX)
            try:
                for _ in range(400):
                    send_ahead(pushing, topic, bytes(100_000))
                    sent += 1
            except TimeoutError:
                pass
            assert sent < 300, "40 MB were taken from a producer whose first record is not safe yet"
        assert node.alive


def test_clean_stop_waits_for_a_write_that_hangs(start_node, tmp_path):
    data = str(tmp_path / "data")
    node = start_node(log_dirs=(data,))
    with raw.Client(node.bootstrap) as client:
        topic = raw.make_topic(client)
        with node.disk.hanging(topic.name, on=("write",)) as hangs:
            send_ahead(client, topic, bytes(500_000))
            assert hangs.wait(WAIT_S_MAX)
            node.node.stop()
        node.stop()
        assert code(client.read()) == 0, "what was taken is written and answered before the end"
    node = start_node(log_dirs=(data,))
    assert node.node.store.recovered_bytes == 0
    with raw.Client(node.bootstrap) as client:
        assert raw.values_of(raw.fetch(client, topic).records) == [bytes(500_000)]


def send_ahead(client: raw.Client, topic: raw.Topic, value: bytes) -> None:
    client.send(raw.PRODUCE, 13, raw.produce_body((topic, 0, raw.batch(raw.values(value)))))


def send(client: raw.Client, topic: raw.Topic, value: bytes) -> int:
    send_ahead(client, topic, value)
    return code(client.read())


def code(answer: Any) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)

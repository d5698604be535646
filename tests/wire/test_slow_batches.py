"""What can happen between the moment at which a large compressed batch arrives and the end of the check in a thread."""

from __future__ import annotations

import pytest
import raw
import raw_groups
from raw import Client, ErrorCode, list_offset, make_topic
from raw_groups import TransactionalProducer

BEFORE_IMPLICIT = 11  # versions of Produce below 12 add no partition to a transaction by themselves


class HeldWorkers:
    """In place of the thread for slow work: what is submitted waits for `release`."""

    def __init__(self, node) -> None:
        self._node = node
        self.jobs = []
        node.slow_workers.submit = self._submit

    def _submit(self, job, done) -> None:
        self.jobs.append((job, done))

    def release(self) -> None:
        while self.jobs:
            job, done = self.jobs.pop(0)
            result = job()
            self._node.reactor.call_from_thread(lambda done=done, result=result: done(result, None))


@pytest.fixture
def held(headrace_broker):
    return HeldWorkers(headrace_broker._node)


@pytest.fixture
def client(headrace_broker):
    with Client(headrace_broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def other(headrace_broker):
    with Client(headrace_broker.bootstrap_servers) as connected:
        yield connected


def send_large(client, topic, producer=None):
    """A batch that no loop inflates; the answer comes when the thread is through."""
    body = {}
    if producer is not None:
        body = {"transactional_id": producer.name}
    stamp = (producer.producer_id, producer.epoch, 0) if producer is not None else (-1, -1, -1)
    attributes = raw.TRANSACTIONAL if producer is not None else 0
    sent = raw.batch(raw.values(bytes(1 << 20)), codec=raw.ZSTD, producer=stamp, attributes=attributes)
    client.send(raw.PRODUCE, BEFORE_IMPLICIT, raw.produce_body((topic, 0, sent)) | body)


def answer(client):
    return client.read().responses[0].partition_responses[0]


@pytest.mark.parametrize("compression", ["producer", "gzip"])
def test_a_transaction_that_ended_meanwhile_takes_no_batch(client, other, held, compression):
    topic = make_topic(client, compression_type=compression)
    raw_groups.warm_up(client)
    producer = TransactionalProducer(other).started()
    assert producer.add_partitions(3, topic, 0) == [0]
    send_large(client, topic, producer)
    raw.eventually(lambda: held.jobs)
    assert producer.end(4, commit=False).error_code == 0
    raw.eventually(lambda: list_offset(other, topic) == 1)  # the marker is written
    held.release()
    assert answer(client).error_code == ErrorCode.transaction_abortable
    assert list_offset(other, topic) == 1, "nothing stands behind the marker, and nothing hangs"


@pytest.mark.parametrize("compression", ["producer", "gzip"])
def test_a_transaction_that_is_open_takes_the_batch(client, other, held, compression):
    topic = make_topic(client, compression_type=compression)
    raw_groups.warm_up(client)
    producer = TransactionalProducer(other).started()
    assert producer.add_partitions(3, topic, 0) == [0]
    send_large(client, topic, producer)
    raw.eventually(lambda: held.jobs)
    held.release()
    assert (found := answer(client)).error_code == 0, found
    assert producer.end(4, commit=True).error_code == 0
    raw.eventually(lambda: list_offset(other, topic) == 2)


def test_a_topic_that_was_deleted_meanwhile_takes_no_batch(client, other, held):
    topic = make_topic(client)
    send_large(client, topic)
    raw.eventually(lambda: held.jobs)
    deleted = other.call(raw.DELETE_TOPICS, 6, {"topics": [{"name": topic.name, "topic_id": None}], "timeout": 1000})
    assert deleted.responses[0].error_code == 0
    held.release()
    assert answer(client).error_code == ErrorCode.unknown_topic_or_partition


def test_others_are_served_meanwhile_and_the_connection_waits(client, other, held):
    topic = make_topic(client)
    send_large(client, topic)
    raw.eventually(lambda: held.jobs)
    client.send(raw.PRODUCE, 13, raw.produce_body((topic, 0, raw.batch(raw.values(b"behind")))))
    assert raw.produce(other, topic, raw.batch(raw.values(b"x"))).base_offset == 0
    held.release()
    assert answer(client).base_offset == 1
    assert answer(client).base_offset == 2


def test_a_connection_that_went_away_meanwhile_harms_nobody(headrace_broker, other, held):
    topic = make_topic(other)
    with Client(headrace_broker.bootstrap_servers) as leaving:
        send_large(leaving, topic)
        raw.eventually(lambda: held.jobs)
    held.release()
    raw.eventually(lambda: list_offset(other, topic) == 1)
    assert raw.produce(other, topic, raw.batch(raw.values(b"x"))).base_offset == 1

"""Produce with a producer id: a duplicate is answered and not written, gaps and old epochs are refused."""

import itertools

import pytest
import raw
from raw import PRODUCE, ErrorCode, batch, fetch, list_offset, make_topic, values

each_version = pytest.mark.parametrize("version", raw.versions(PRODUCE))
INT_MAX = 2**31 - 1


class Producer:
    """Batches of one producer id for one partition of a new topic."""

    ids = itertools.count(raw.now_ms())

    def __init__(self, client, version=13, **topic):
        self.client, self.version, self.id = client, version, next(self.ids)
        self.topic = make_topic(client, **topic)

    def send(self, sequence, count=2, epoch=0):
        sent = batch(values(*[b"x"] * count), producer=(self.id, epoch, sequence))
        answer = raw.produce(self.client, self.topic, sent, version=self.version)
        return answer.error_code, answer.base_offset

    @property
    def end(self):
        return list_offset(self.client, self.topic)


OUT_OF_ORDER = (ErrorCode.out_of_order_sequence_number, -1)
OLD_EPOCH = (ErrorCode.invalid_producer_epoch, -1)


@each_version
def test_duplicate_is_answered_with_its_first_offset_and_not_written_again(client, version):
    producer = Producer(client, version)
    assert [producer.send(0), producer.send(2)] == [(0, 0), (0, 2)]
    assert [producer.send(0), producer.send(2)] == [(0, 0), (0, 2)]
    assert producer.end == 4
    stored = raw.batches(fetch(client, producer.topic).records)
    assert [(each.producer_id, each.producer_epoch, each.base_sequence) for each in stored] == [
        (producer.id, 0, 0),
        (producer.id, 0, 2),
    ]


@each_version
def test_gap_in_the_sequence_is_refused(client, version):
    producer = Producer(client, version)
    assert [producer.send(0), producer.send(5), producer.send(2)] == [(0, 0), OUT_OF_ORDER, (0, 2)]
    assert producer.end == 4


@each_version
def test_old_epoch_is_refused(client, version):
    producer = Producer(client, version)
    assert [producer.send(0, epoch=1), producer.send(2, epoch=0), producer.send(0, epoch=0)] == [
        (0, 0),
        OLD_EPOCH,
        OLD_EPOCH,
    ]
    assert producer.send(2, epoch=1) == (0, 2)


def test_refusal_blames_no_single_record(client):
    producer = Producer(client)
    producer.send(0, epoch=1)
    for sequence, epoch in ((9, 1), (0, 0)):
        sent = batch(values(b"x"), producer=(producer.id, epoch, sequence))
        answer = raw.produce(client, producer.topic, sent)
        assert (answer.base_offset, answer.log_append_time, answer.record_errors) == (-1, None, ())


def test_last_five_batches_are_remembered(client):
    producer = Producer(client)
    for sequence in range(0, 12, 2):
        producer.send(sequence)
    assert [producer.send(sequence) for sequence in range(2, 12, 2)] == [(0, n) for n in range(2, 12, 2)]
    assert producer.send(0) == OUT_OF_ORDER
    assert producer.end == 12


def test_batch_that_covers_only_part_of_an_earlier_one_is_refused(client):
    producer = Producer(client)
    producer.send(0)
    producer.send(2)
    assert [producer.send(3, count=1), producer.send(0, count=1), producer.send(1, count=4)] == [OUT_OF_ORDER] * 3
    assert producer.end == 4


@each_version
def test_new_epoch_starts_at_sequence_0(client, version):
    producer = Producer(client, version)
    producer.send(0)
    assert producer.send(2, epoch=1) == OUT_OF_ORDER
    assert [producer.send(0, epoch=1), producer.send(0, epoch=1), producer.send(2, epoch=1)] == [
        (0, 2),
        (0, 2),
        (0, 4),
    ]
    assert producer.send(0, epoch=7) == (0, 6)


@each_version
def test_producer_that_the_partition_has_not_seen_may_start_anywhere(client, version):
    producer = Producer(client, version)
    assert [producer.send(7), producer.send(9)] == [(0, 0), (0, 2)]


def test_sequence_wraps_to_0_after_the_largest_integer(client):
    producer = Producer(client)
    assert [producer.send(INT_MAX - 1), producer.send(0)] == [(0, 0), (0, 2)]


def test_sequence_wraps_inside_a_batch(client):
    producer = Producer(client)
    assert producer.send(INT_MAX, count=3) == (0, 0)
    assert [producer.send(2, count=1), producer.send(INT_MAX, count=3)] == [(0, 3), (0, 0)]


def test_each_partition_has_its_own_sequence(client):
    producer = Producer(client, partitions=2)
    for index in range(2):
        sent = batch(values(b"x"), producer=(producer.id, 0, 0))
        answer = raw.produce(client, producer.topic, sent, partition=index)
        assert (answer.error_code, answer.base_offset) == (0, 0)


def test_duplicate_on_a_log_append_time_topic_is_answered_with_its_first_time(client):
    topic = make_topic(client, message_timestamp_type="LogAppendTime")
    sent = batch(values(b"x"), producer=(next(Producer.ids), 0, 0))
    first = raw.produce(client, topic, sent)
    again = raw.produce(client, topic, sent)
    assert (again.base_offset, again.log_append_time) == (0, first.log_append_time)


def test_duplicate_is_still_known_after_its_records_are_deleted(client):
    producer = Producer(client)
    producer.send(0)
    cut = [producer.topic.ref | {"partitions": [{"partition_index": 0, "offset": 1}]}]
    client.call(raw.DELETE_RECORDS, 2, {"topics": cut, "timeout": 10000})
    assert producer.send(0) == (0, 0)
    assert producer.end == 2


def test_pipelined_batches_of_a_producer_are_written_once_in_order(client):
    producer = Producer(client)
    for _ in range(2):
        for sequence in range(5):
            sent = batch(values(b"%d" % sequence), producer=(producer.id, 0, sequence))
            client.send(PRODUCE, 13, raw.produce_body((producer.topic, 0, sent)))
    answers = [client.read().responses[0].partition_responses[0] for _ in range(10)]
    assert [each.base_offset for each in answers] == [0, 1, 2, 3, 4] * 2
    assert raw.values_of(fetch(client, producer.topic).records) == [b"%d" % n for n in range(5)]

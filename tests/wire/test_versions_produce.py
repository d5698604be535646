"""Produce, over every version: what is written, what is refused and that a refusal writes nothing."""

import uuid
from typing import NamedTuple

import pytest
import raw
from raw import PRODUCE, Client, ErrorCode, Record, Topic, batch, fetch, list_offset, make_topic, values

VERSIONS = raw.versions(PRODUCE)
each_version = pytest.mark.parametrize("version", VERSIONS)
one_of_each_shape = pytest.mark.parametrize("version", [3, 7, 8, 9, 12, 13])


@pytest.fixture(scope="module")
def topic(bootstrap):
    """Shared by the tests that only compare the log's end before and after."""
    with Client(bootstrap) as connected:
        return make_topic(connected, partitions=2)


def assert_refused(answer, code, version):
    assert answer.error_code == code
    assert (answer.base_offset, answer.log_append_time) == (-1, None)
    if version >= 5:
        assert answer.log_start_offset in (-1, 0), "unknown, or told: Kafka does both"
    if version >= 8:
        assert answer.record_errors == (), "no single record is to blame"


@each_version
def test_appends_and_answers_with_the_first_offset(client, version):
    topic = make_topic(client)
    records = [
        Record(b"v1", b"k1", raw.now_ms(), (("h", b"1"), ("h", None))),
        Record(None, None, raw.now_ms()),
    ]
    sent = batch(records)
    answers = [raw.produce(client, topic, sent, version=version) for _ in range(2)]
    assert [(a.index, a.error_code, a.base_offset) for a in answers] == [(0, 0, 0), (0, 0, 2)]
    assert all(a.log_append_time is None for a in answers)
    if version >= 5:
        assert answers[1].log_start_offset == 0
    if version >= 8:
        assert (answers[1].record_errors, answers[1].error_message) == ((), None)
    if version >= 10:
        assert (answers[1].current_leader.leader_id, answers[1].current_leader.leader_epoch) == (-1, -1)
    stored = raw.batches(fetch(client, topic).records)
    assert [each.records() for each in stored] == [
        [Record(*each[:4], offset=base + index) for index, each in enumerate(records)] for base in (0, 2)
    ]
    assert all(each.raw[12:16] == bytes(4) for each in stored), "the leader epoch is stamped"
    assert all(each.raw[16:] == sent[16:] for each in stored), "everything else is stored as sent"


@each_version
def test_answer_has_the_throttle_time_and_names_the_topic(client, topic, version):
    answer = client.call(PRODUCE, version, raw.produce_body((topic, 0, batch(values(b"x")))))
    assert answer.throttle_time.total_seconds() == 0
    assert len(answer.responses) == 1
    if version >= 13:
        assert answer.responses[0].topic_id == topic.id
    else:
        assert answer.responses[0].name == topic.name
    if version >= 10:
        assert answer.node_endpoints == ()


@each_version
@pytest.mark.parametrize("acks", [1, -1])
def test_record_is_readable_once_acknowledged(client, topic, version, acks):
    value = uuid.uuid4().bytes
    body = raw.produce_body((topic, 0, batch(values(value))), acks=acks)
    offset = client.call(PRODUCE, version, body).responses[0].partition_responses[0].base_offset
    assert raw.values_of(fetch(client, topic, offset).records) == [value]


@each_version
def test_acks_0_is_never_answered_and_the_connection_goes_on(client, topic, version):
    before = list_offset(client, topic)
    for _ in range(3):
        body = raw.produce_body((topic, 0, batch(values(b"x"))), acks=0)
        client.send(PRODUCE, version, body, answered=False)
    assert raw.produce(client, topic, batch(values(b"y")), version=version).base_offset == before + 3


@pytest.mark.parametrize("version", [3, 9, 13])
@pytest.mark.parametrize("wrong", ["crc", "topic"])
def test_acks_0_with_an_error_closes_the_connection(client, topic, version, wrong):
    to = topic if wrong == "crc" else Topic(raw.fresh_name("missing"), uuid.uuid4())
    records = batch(values(b"x"), crc_flip=int(wrong == "crc"))
    client.send(PRODUCE, version, raw.produce_body((to, 0, records), acks=0), answered=False)
    assert client.is_closed_by_broker()


@each_version
def test_writes_several_partitions_of_several_topics(client, version):
    topics = [make_topic(client, partitions=2) for _ in range(2)]
    parts = [(topic, index) for topic in topics for index in range(2)]
    body = raw.produce_body(*((*part, batch(values(b"%d" % n))) for n, part in enumerate(parts)))
    answer = client.call(PRODUCE, version, body)
    found = {
        (each.topic_id if version >= 13 else each.name, part.index): (part.error_code, part.base_offset)
        for each in answer.responses
        for part in each.partition_responses
    }
    assert found == {(topic.id if version >= 13 else topic.name, index): (0, 0) for topic, index in parts}
    for n, (topic, index) in enumerate(parts):
        assert raw.values_of(fetch(client, topic, partition=index).records) == [b"%d" % n]


@each_version
def test_one_refused_partition_leaves_the_others_written(client, topic, version):
    before = [list_offset(client, topic, index) for index in range(2)]
    body = raw.produce_body(
        (topic, 0, batch(values(b"good"))),
        (topic, 1, batch(values(b"bad"), crc_flip=1)),
        (topic, 7, batch(values(b"x"))),
    )
    answers = client.call(PRODUCE, version, body).responses[0].partition_responses
    assert {each.index: each.error_code for each in answers} == {
        0: ErrorCode.none,
        1: ErrorCode.corrupt_message,
        7: ErrorCode.unknown_topic_or_partition,
    }
    assert [list_offset(client, topic, index) for index in range(2)] == [before[0] + 1, before[1]]


@each_version
def test_unknown_topic_is_refused_and_not_created(client, version):
    missing = Topic(raw.fresh_name("missing"), uuid.uuid4())
    expected = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
    assert_refused(raw.produce(client, missing, batch(values(b"x")), version=version), expected, version)
    spec = [{"name": missing.name, "topic_id": None}]
    known = client.call(raw.METADATA, 12, {"topics": spec, "allow_auto_topic_creation": False}).topics[0]
    assert known.error_code == ErrorCode.unknown_topic_or_partition


@each_version
@pytest.mark.parametrize("partition", [2, -1])
def test_unknown_partition_is_refused(client, topic, version, partition):
    answer = raw.produce(client, topic, batch(values(b"x")), partition=partition, version=version)
    assert answer.index == partition
    assert_refused(answer, ErrorCode.unknown_topic_or_partition, version)


@each_version
def test_acks_other_than_0_1_and_all_are_refused(client, topic, version):
    before = list_offset(client, topic)
    body = raw.produce_body((topic, 0, batch(values(b"x"))), acks=2)
    answer = client.call(PRODUCE, version, body).responses[0].partition_responses[0]
    assert_refused(answer, ErrorCode.invalid_required_acks, version)
    assert list_offset(client, topic) == before


def test_request_without_topics_is_answered_without_topics(client):
    assert client.call(PRODUCE, 13, raw.produce_body()).responses == ()


class Wrong(NamedTuple):
    """A partition's data that is refused, and the few words, if any, that Apache Kafka has for it."""

    data: bytes
    code: ErrorCode
    message: str | None = None


def two(**wrong):
    return batch(values(b"a", b"b"), **wrong)


SMALL = "Record size {} is less than the minimum record overhead (14)"
WRONG = {
    "crc": Wrong(two(crc_flip=1), ErrorCode.corrupt_message),
    "magic 0": Wrong(two(magic=0), ErrorCode.invalid_record),
    "magic 1": Wrong(two(magic=1), ErrorCode.invalid_record),
    "magic 3": Wrong(two(magic=3), ErrorCode.corrupt_message, "Invalid magic found in record: 3"),
    "count above the last offset": Wrong(two(count=3), ErrorCode.invalid_record),
    "count below the last offset": Wrong(two(count=1), ErrorCode.invalid_record),
    "count 0": Wrong(two(count=0), ErrorCode.invalid_record),
    "count negative": Wrong(two(count=-1), ErrorCode.invalid_record),
    "last offset below the count": Wrong(two(last_offset_delta=0), ErrorCode.invalid_record),
    "last offset above the count": Wrong(two(last_offset_delta=5), ErrorCode.invalid_record),
    "count wrong, compressed": Wrong(two(count=3, codec=raw.GZIP), ErrorCode.invalid_record),
    "base offset not 0": Wrong(two(base_offset=7), ErrorCode.invalid_record),
    "a batch without records": Wrong(batch([]), ErrorCode.invalid_record),
    "no bytes": Wrong(b"", ErrorCode.invalid_record),
    "a few bytes": Wrong(b"abc", ErrorCode.invalid_record),
    "zeroes": Wrong(bytes(70), ErrorCode.corrupt_message, SMALL.format(0)),
    "two batches": Wrong(two() + two(), ErrorCode.invalid_record),
    "length one too long": Wrong(two(length_error=1), ErrorCode.invalid_record),
    "length one too short": Wrong(two(length_error=-1), ErrorCode.corrupt_message),
    "length negative": Wrong(batch(values(b"a"), length_error=-60), ErrorCode.corrupt_message, SMALL.format(-3)),
    "control batch": Wrong(two(attributes=raw.CONTROL), ErrorCode.invalid_record),
    "transactional without a transactional id": Wrong(
        two(attributes=raw.TRANSACTIONAL), ErrorCode.transactional_id_authorization_failed
    ),
    "producer id without a sequence": Wrong(two(producer=(77, 0, -1)), ErrorCode.invalid_record),
    "negative sequence": Wrong(two(producer=(78, 0, -5)), ErrorCode.invalid_record),
    "too large": Wrong(batch(values(bytes(1048588))), ErrorCode.message_too_large),
}


@one_of_each_shape
@pytest.mark.parametrize("case", WRONG)
def test_wrong_batch_is_refused_and_nothing_is_written(client, topic, is_headrace, version, case):
    wrong = WRONG[case]
    before = list_offset(client, topic)
    answer = raw.produce(client, topic, wrong.data, version=version)
    assert_refused(answer, wrong.code, version)
    if version >= 8 and is_headrace:
        assert answer.error_message, "whatever is refused is told why"
    elif version >= 8:
        assert answer.error_message == wrong.message
    assert list_offset(client, topic) == before
    assert raw.produce(client, topic, two(), version=version).base_offset == before


INSIDE = {
    "fewer records than the count": two(count=3, last_offset_delta=2),
    "more records than the count": two(count=1, last_offset_delta=0),
    "fewer records than the count, compressed": two(count=3, last_offset_delta=2, codec=raw.GZIP),
}


@one_of_each_shape
@pytest.mark.parametrize("case", INSIDE)
def test_batch_whose_records_do_not_match_its_header_is_refused(client, topic, version, case):
    before = list_offset(client, topic)
    answer = raw.produce(client, topic, INSIDE[case], version=version)
    assert_refused(answer, ErrorCode.invalid_record, version)
    assert list_offset(client, topic) == before


@pytest.mark.parametrize("codec", [5, 7])
def test_unknown_codec_is_refused(client, topic, is_headrace, codec):
    before = list_offset(client, topic)
    answer = raw.produce(client, topic, two(attributes=codec))
    if is_headrace:  # Kafka fails over it; an error that names it is better
        assert answer.error_code in (ErrorCode.unsupported_compression_type, ErrorCode.invalid_record)
    else:
        assert_refused(answer, ErrorCode.unknown_server_error, 13)
    assert list_offset(client, topic) == before


@pytest.mark.parametrize("tail", [b"xx", two()[:30]], ids=["two bytes", "half a batch"])
def test_torn_bytes_after_a_whole_batch_are_never_stored(client, is_headrace, tail):
    """Kafka drops them; refusing the whole is as good."""
    topic = make_topic(client)
    answer = raw.produce(client, topic, two() + tail)
    if is_headrace and answer.error_code:
        assert_refused(answer, ErrorCode.invalid_record, 13)
        assert list_offset(client, topic) == 0
        return
    assert answer.error_code == 0
    stored = fetch(client, topic).records
    assert (len(stored), raw.values_of(stored)) == (len(two()), [b"a", b"b"])


@one_of_each_shape
def test_max_message_bytes_of_the_topic_is_the_size_of_the_batch(client, version):
    topic = make_topic(client, max_message_bytes=200)
    fits = batch(values(bytes(130)))
    assert len(fits) == 200
    assert raw.produce(client, topic, fits, version=version).error_code == 0
    answer = raw.produce(client, topic, batch(values(bytes(131))), version=version)
    assert_refused(answer, ErrorCode.message_too_large, version)
    assert list_offset(client, topic) == 1


@pytest.mark.parametrize("codec", [raw.GZIP, raw.SNAPPY, raw.LZ4, raw.ZSTD])
def test_compressed_batch_is_stored_as_sent(client, codec):
    topic = make_topic(client)
    sent = batch(values(b"a" * 500, b"b" * 500), codec=codec)
    assert raw.produce(client, topic, sent).error_code == 0
    (stored,) = raw.batches(fetch(client, topic).records)
    assert (stored.codec, stored.raw[16:]) == (codec, sent[16:])
    assert [each.value for each in stored.records()] == [b"a" * 500, b"b" * 500]


@each_version
def test_pipelined_requests_are_answered_in_order(client, version):
    topic = make_topic(client)
    for n in range(20):
        client.send(PRODUCE, version, raw.produce_body((topic, 0, batch(values(b"%d" % n)))))
    answers = [client.read().responses[0].partition_responses[0] for _ in range(20)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, n) for n in range(20)]
    assert raw.values_of(fetch(client, topic).records) == [b"%d" % n for n in range(20)]

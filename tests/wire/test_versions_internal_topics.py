"""Internal topics are the broker's own: what a client may not do to them, as Apache Kafka refuses it."""

import pytest
import raw
import raw_groups
from raw import CREATE_TOPICS, DELETE_RECORDS, DELETE_TOPICS, METADATA, PRODUCE, ErrorCode, Record, Topic

pytestmark = pytest.mark.usefixtures("warm_coordinators")

NAMES = ("__consumer_offsets", "__transaction_state")
FORGED_COMMIT = raw.Record(  # group g is at offset 42 of t-0, byte for byte as a coordinator writes it
    b"\x00\x03" + (42).to_bytes(8) + b"\xff\xff\xff\xff" + b"\x00\x00" + raw.now_ms().to_bytes(8),
    b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00",
    timestamp=raw.now_ms(),
)
RECORDS = {
    "no-type": Record(b"y", b"x", timestamp=raw.now_ms()),
    "no-group": Record(b"y", b"\x00\x00", timestamp=raw.now_ms()),
    "no-key": Record(b"y", None, timestamp=raw.now_ms()),
    "forged-commit": FORGED_COMMIT,
}


@pytest.fixture(params=NAMES)
def topic(request, client):
    asked = {"topics": [{"name": request.param, "topic_id": None}], "allow_auto_topic_creation": False}
    found = client.call(METADATA, 12, asked).topics[0]
    assert found.is_internal
    return Topic(found.name, found.topic_id)


@pytest.mark.parametrize("version", raw.versions(PRODUCE))
def test_a_client_cannot_produce_to_an_internal_topic(client, topic, version):
    before = raw.list_offset(client, topic)
    answer = raw.produce(client, topic, raw.batch([RECORDS["no-type"]]), version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.invalid_topic_exception, -1)
    assert raw.list_offset(client, topic) == before


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_no_record_of_a_client_reaches_an_internal_topic(client, topic, record):
    before = raw.list_offset(client, topic)
    assert raw.produce(client, topic, raw.batch([record])).error_code == ErrorCode.invalid_topic_exception
    assert raw.list_offset(client, topic) == before


def test_a_partition_that_an_internal_topic_does_not_have_is_unknown(client, topic):
    answer = raw.produce(client, topic, raw.batch([RECORDS["no-type"]]), partition=9999)
    assert answer.error_code == ErrorCode.unknown_topic_or_partition


def test_a_transaction_cannot_write_to_an_internal_topic(client, topic):
    producer = raw_groups.TransactionalProducer(client).started()
    record = raw.Record(b"y", b"x", timestamp=raw.now_ms())
    batch = raw.batch([record], attributes=raw.TRANSACTIONAL, producer=(producer.producer_id, producer.epoch, 0))
    body = raw.produce_body((topic, 0, batch)) | {"transactional_id": producer.name}
    answer = client.call(PRODUCE, 12, body).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("version", raw.versions(DELETE_RECORDS))
def test_records_of_an_internal_topic_cannot_be_deleted(client, topic, version):
    asked = [{"name": topic.name, "partitions": [{"partition_index": 0, "offset": -1}]}]
    answer = client.call(DELETE_RECORDS, version, {"topics": asked, "timeout": 10000}).topics[0].partitions[0]
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.invalid_topic_exception, -1)


def test_an_internal_topic_cannot_be_created_again(client, topic):
    asked = {"name": topic.name, "num_partitions": 1, "replication_factor": 1}
    answer = client.call(CREATE_TOPICS, 7, {"topics": [asked], "timeout": 10000}).topics[0]
    assert answer.error_code == ErrorCode.topic_already_exists


def test_transactions_that_are_open_end_well_whatever_is_asked_of_their_topic(client, is_headrace):
    if not is_headrace:
        pytest.skip("Apache Kafka deletes its internal topics when it is asked to")
    producers = [raw_groups.TransactionalProducer(client).started() for _ in range(5)]
    target = raw.make_topic(client)
    for producer in producers:
        record = raw.Record(b"y", timestamp=raw.now_ms())
        batch = raw.batch([record], attributes=raw.TRANSACTIONAL, producer=(producer.producer_id, producer.epoch, 0))
        body = raw.produce_body((target, 0, batch)) | {"transactional_id": producer.name}
        assert client.call(PRODUCE, 12, body).responses[0].partition_responses[0].error_code == 0
    doomed = [{"name": "__transaction_state", "topic_id": None}]
    client.call(DELETE_TOPICS, 6, {"topics": doomed, "timeout": 10000})
    smaller = {"name": "__transaction_state", "num_partitions": 1, "replication_factor": 1}
    client.call(CREATE_TOPICS, 7, {"topics": [smaller], "timeout": 10000})
    for producer in producers:
        asked = {"transactional_id": producer.name, "producer_id": producer.producer_id}
        asked |= {"producer_epoch": producer.epoch, "committed": True}
        assert raw_groups.once_loaded(client, raw_groups.END_TXN, 5, asked).error_code == ErrorCode.none
    raw.eventually(lambda: raw.list_offset(client, target) == 10)

"""Produce where the broker looks at timestamps or codecs: LogAppendTime, limits, compression.type."""

import datetime
import re

import pytest
import raw
from raw import PRODUCE, ErrorCode, Record, batch, fetch, list_offset, make_topic, values

each_version = pytest.mark.parametrize("version", raw.versions(PRODUCE))
HOUR_MS = 3_600_000


def ms(moment: datetime.datetime) -> int:
    return round(moment.timestamp() * 1000)


@each_version
def test_log_append_time_is_stamped_on_the_batch_and_answered(client, version):
    topic = make_topic(client, message_timestamp_type="LogAppendTime")
    before = raw.now_ms()
    answer = raw.produce(client, topic, batch(values(b"a", b"b", at_ms=5)), version=version)
    after = raw.now_ms()
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert before <= ms(answer.log_append_time) <= after
    (stored,) = raw.batches(fetch(client, topic).records)
    assert stored.attributes == raw.LOG_APPEND_TIME
    assert stored.base_timestamp == 5, "only the header's maximum is replaced"
    assert stored.max_timestamp == ms(answer.log_append_time)


@pytest.mark.parametrize("codec", [raw.GZIP, raw.SNAPPY, raw.LZ4, raw.ZSTD])
def test_log_append_time_leaves_compressed_records_as_sent(client, codec):
    topic = make_topic(client, message_timestamp_type="LogAppendTime")
    sent = batch(values(b"a", b"b", at_ms=5), codec=codec)
    assert raw.produce(client, topic, sent).error_code == 0
    (stored,) = raw.batches(fetch(client, topic).records)
    assert stored.attributes == raw.LOG_APPEND_TIME | codec
    assert stored.raw[raw.HEADER_BYTES :] == sent[raw.HEADER_BYTES :]


def test_log_append_time_topic_takes_any_timestamp(client):
    topic = make_topic(client, message_timestamp_type="LogAppendTime")
    assert raw.produce(client, topic, batch(values(b"a", at_ms=raw.now_ms() + 20 * HOUR_MS))).error_code == 0


def test_log_append_time_set_by_a_producer_is_refused_on_such_a_topic(client):
    topic = make_topic(client, message_timestamp_type="LogAppendTime")
    sent = batch(values(b"a", b"b", at_ms=5), attributes=raw.LOG_APPEND_TIME)
    answer = raw.produce(client, topic, sent)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.invalid_timestamp, -1)
    assert [each.batch_index for each in answer.record_errors] == [0, 1]
    assert list_offset(client, topic) == 0


def test_log_append_time_set_by_a_producer_is_cleared_on_a_create_time_topic(client):
    topic = make_topic(client)
    at_ms = raw.now_ms()
    sent = batch(values(b"a", at_ms=at_ms), attributes=raw.LOG_APPEND_TIME)
    assert raw.produce(client, topic, sent).error_code == 0
    (stored,) = raw.batches(fetch(client, topic).records)
    assert (stored.attributes, stored.max_timestamp) == (0, at_ms)


@each_version
def test_timestamp_too_far_in_the_future_is_refused(client, is_headrace, version):
    topic = make_topic(client)
    future_ms = raw.now_ms() + 2 * HOUR_MS
    answer = raw.produce(client, topic, batch(values(b"a") + values(b"b", at_ms=future_ms)), version=version)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.invalid_timestamp, -1)
    assert list_offset(client, topic) == 0
    if version < 8:
        return
    (error,) = answer.record_errors
    assert error.batch_index == 1
    if is_headrace:
        assert str(future_ms) in error.batch_index_error_message
        assert answer.error_message, "whatever is refused is told why"
        return
    assert answer.error_message == "One or more records have been rejected due to invalid timestamp"
    text = rf"Timestamp {future_ms} of message with offset 1 is out of range\. "
    text += r"The timestamp should be within \[-?\d+, \d+\]"
    assert re.fullmatch(text, error.batch_index_error_message)


def test_every_record_with_a_timestamp_out_of_range_is_named(client):
    topic = make_topic(client)
    sent = batch(values(b"a", b"b", at_ms=raw.now_ms() + 2 * HOUR_MS), codec=raw.GZIP)
    assert [each.batch_index for each in raw.produce(client, topic, sent).record_errors] == [0, 1]


def test_timestamp_limits_are_the_topics_own(client):
    topic = make_topic(client, message_timestamp_before_max_ms=HOUR_MS, message_timestamp_after_max_ms=4 * HOUR_MS)
    now = raw.now_ms()
    codes = [
        raw.produce(client, topic, batch(values(b"a", at_ms=at_ms))).error_code
        for at_ms in (now - 2 * HOUR_MS, now, now + 2 * HOUR_MS, now + 5 * HOUR_MS, -1)
    ]
    bad = ErrorCode.invalid_timestamp
    assert codes == [bad, 0, 0, bad, 0], "a record without a timestamp has none to check"


@pytest.mark.parametrize("sent_as", [raw.NONE, raw.GZIP, raw.SNAPPY, raw.LZ4, raw.ZSTD])
@pytest.mark.parametrize("kept_as", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_compression_type_of_the_topic_decides_how_a_batch_is_stored(client, kept_as, sent_as):
    topic = make_topic(client, compression_type=kept_as)
    now = raw.now_ms()
    records = [Record(b"v" * 300, b"k", now, (("h", b"1"), ("n", None))), Record(None, None, now + 7)]
    assert raw.produce(client, topic, batch(records, codec=sent_as, producer=(4242, 3, 0))).base_offset == 0
    (stored,) = raw.batches(fetch(client, topic).records)
    assert stored.codec == ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(kept_as)
    assert stored.records() == [records[0], records[1]._replace(offset=1)]
    assert (stored.producer_id, stored.producer_epoch, stored.base_sequence) == (4242, 3, 0)
    assert (stored.base_timestamp, stored.max_timestamp, stored.last_offset_delta) == (now, now + 7, 1)

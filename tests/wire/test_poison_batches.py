"""Batches with nonsense inside are refused as Apache Kafka refuses them, and readers never see them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing

import cramjam
import poison
import pytest
import raw
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from java import JavaTools
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from raw import Client, ErrorCode, Record, Topic, batch_of, fetch, list_offset, make_topic, produce, values, varint
from waits import WAIT_S_MAX

HOUR_MS = 3_600_000
INT64_MAX = (1 << 63) - 1
PACKED = {name: codec for name, codec in poison.CODECS.items() if codec}
each_codec = pytest.mark.parametrize("codec", poison.CODECS)


@pytest.fixture(scope="module")
def topic(bootstrap: str) -> Topic:
    """Shared by the tests that only compare the log's end before and after."""
    with Client(bootstrap) as connected:
        return make_topic(connected)


def assert_refused(client: Client, topic: Topic, sent: bytes, code: ErrorCode, is_headrace: bool) -> None:
    before = list_offset(client, topic)
    answer = produce(client, topic, sent)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.record_errors == (), "the batch as a whole is to blame"
    if is_headrace:
        assert f"{topic.name}-0: " in answer.error_message, "whatever is refused is told why"
    assert list_offset(client, topic) == before


@each_codec
@pytest.mark.parametrize("kind", poison.KINDS)
def test_records_that_make_no_sense_are_refused(client, topic, is_headrace, kind, codec):
    wrong = poison.KINDS[kind]
    sent = poison.batch(wrong, poison.CODECS[codec])
    expected = poison.INVALID if is_headrace else wrong.kafka if codec == "none" else wrong.kafka_packed
    if expected == poison.OK:
        assert produce(client, topic, sent).error_code == 0, "Kafka leaves this to readers"
    else:
        assert_refused(client, topic, sent, expected, is_headrace)


@pytest.mark.parametrize("codec", PACKED)
def test_records_that_do_not_inflate_are_refused(client, topic, is_headrace, codec):
    for kind, stream in poison.streams(PACKED[codec]).items():
        sent = batch_of(stream, count=3, base_ms=raw.now_ms(), codec=PACKED[codec])
        empty = (codec, kind) == ("zstd", "no bytes")
        code = poison.INVALID if is_headrace or empty else poison.BROKEN
        assert_refused(client, topic, sent, code, is_headrace)


def test_lz4_in_linked_blocks_is_refused_since_java_cannot_read_it(client, topic, is_headrace):
    linked = bytes(cramjam.lz4.compress(poison.middle()))
    assert not linked[4] & 0x20
    sent = batch_of(linked, count=3, base_ms=raw.now_ms(), codec=raw.LZ4)
    assert_refused(client, topic, sent, poison.INVALID if is_headrace else poison.BROKEN, is_headrace)


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("kept_as", ["uncompressed", "gzip"])
def test_a_batch_that_is_packed_again_is_checked_first(client, is_headrace, codec, kept_as):
    topic = make_topic(client, compression_type=kept_as)
    for kind in ("a record too few", "bytes behind the last record", "key beyond the record"):
        sent = poison.batch(poison.KINDS[kind], poison.CODECS[codec])
        assert_refused(client, topic, sent, poison.INVALID, is_headrace)
    assert produce(client, topic, raw.batch(values(b"a", b"b"), codec=poison.CODECS[codec])).base_offset == 0


# ── times ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def one(base_ms: int, *, delta_ms: int = 0, codec: int = raw.NONE, top_ms: int | None = None) -> bytes:
    body = raw.compress(codec, poison.record(0, delta_ms=varint(delta_ms)))
    return batch_of(body, count=1, base_ms=base_ms, top_ms=top_ms, codec=codec)


@each_codec
@pytest.mark.parametrize("forged", [INT64_MAX, -1, 5, -(1 << 63)])
def test_a_forged_largest_timestamp_is_set_right(client, codec, forged):
    topic = make_topic(client)
    now = raw.now_ms()
    sent = [Record(b"a", b"k", now), Record(b"b", b"k", now + 9), Record(b"c", b"k", now + 5)]
    answer = produce(client, topic, raw.batch(sent, codec=poison.CODECS[codec], max_timestamp=forged))
    assert answer.error_code == 0
    (stored,) = raw.batches(fetch(client, topic).records)
    assert stored.max_timestamp == now + 9
    assert [each.timestamp for each in stored.records()] == [now, now + 9, now + 5]
    assert list_offset(client, topic, timestamp=now + 6) == 1, "look-ups by time find it"


@each_codec
def test_absurd_timestamps_are_refused_with_the_record_that_has_them(client, topic, codec):
    before = list_offset(client, topic)
    number = poison.CODECS[codec]
    wrong = [
        one(INT64_MAX, codec=number),
        one(INT64_MAX, codec=number, top_ms=raw.now_ms()),
        one(-(1 << 63), codec=number),
        one(INT64_MAX, delta_ms=10, codec=number),
        one(raw.now_ms(), delta_ms=10 * HOUR_MS, codec=number),
        one(raw.now_ms(), delta_ms=INT64_MAX - raw.now_ms() - 1, codec=number, top_ms=raw.now_ms()),
    ]
    for sent in wrong:
        answer = produce(client, topic, sent)
        assert answer.error_code == ErrorCode.invalid_timestamp
        assert [each.batch_index for each in answer.record_errors] == [0]
    assert list_offset(client, topic) == before


def test_a_producer_that_claims_append_time_hides_no_absurd_timestamp(client, topic, is_headrace):
    if not is_headrace:
        pytest.skip("Kafka looks at the header only, and stores records of the year 292278994")
    sent = batch_of(poison.record(0), count=1, base_ms=INT64_MAX, top_ms=raw.now_ms(), attributes=raw.LOG_APPEND_TIME)
    assert produce(client, topic, sent).error_code == ErrorCode.invalid_timestamp


@each_codec
def test_records_without_a_key_are_named_in_a_compacted_topic(client, codec):
    topic = make_topic(client, cleanup_policy="compact")
    now = raw.now_ms()
    sent = [Record(b"v", key, now) for key in (b"k", None, b"k", None)]
    answer = produce(client, topic, raw.batch(sent, codec=poison.CODECS[codec]))
    assert answer.error_code == ErrorCode.invalid_record
    assert [each.batch_index for each in answer.record_errors] == [1, 3]


def test_a_missing_key_and_a_wrong_time_are_named_together(client):
    topic = make_topic(client, cleanup_policy="compact")
    now = raw.now_ms()
    late = now + 2 * HOUR_MS
    sent = [Record(b"v", b"k", now), Record(b"v", None, late), Record(b"v", b"k", late)]
    answer = produce(client, topic, raw.batch(sent))
    assert answer.error_code == ErrorCode.invalid_timestamp
    assert [each.batch_index for each in answer.record_errors] == [1, 2]
    assert "key" in answer.record_errors[0].batch_index_error_message


# ── what inflates to much ────────────────────────────────────────────────────────────────────────────────────────────


def zeroes(size: int, codec: int) -> bytes:
    """One record with so many zeroes in it."""
    body = raw.compress(codec, poison.record(0, value=varint(size) + bytes(size)))
    return batch_of(body, count=1, base_ms=raw.now_ms(), codec=codec)


@pytest.mark.parametrize("codec", PACKED)
@pytest.mark.parametrize("size", [200_000, 1 << 20, 20 << 20])
def test_what_is_small_only_because_it_is_compressed_is_taken(client, codec, size):
    topic = make_topic(client)
    sent = zeroes(size, PACKED[codec])
    if len(sent) > 1 << 20:
        pytest.skip(f"{codec} does not make {size} zeroes fit a request")
    assert produce(client, topic, sent).error_code == 0
    assert list_offset(client, topic) == 1


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_a_bomb_is_refused_and_the_broker_goes_on(client, topic, is_headrace, codec):
    if not is_headrace:
        pytest.skip("Kafka inflates without a bound; librdkafka's consumers stop at 100 MB")
    assert_refused(client, topic, zeroes(110 << 20, PACKED[codec]), poison.INVALID, is_headrace)
    assert produce(client, topic, raw.batch(values(b"x"))).error_code == 0


@pytest.mark.parametrize("codec", PACKED)
def test_batches_that_a_thread_looks_at_keep_their_order(client, codec):
    """Large ones between small ones, pipelined: offsets are in the order of the requests."""
    topic = make_topic(client)
    sizes = [10, 300_000, 10, 10, 500_000, 10]
    for n, size in enumerate(sizes):
        sent = raw.batch([Record(b"%d" % n + bytes(size), timestamp=raw.now_ms())], codec=PACKED[codec])
        client.send(raw.PRODUCE, 13, raw.produce_body((topic, 0, sent)))
    answers = [client.read().responses[0].partition_responses[0] for _ in sizes]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, n) for n in range(len(sizes))]
    stored = [each.value for at in range(len(sizes)) for each in raw.records_of(fetch(client, topic, at).records)[:1]]
    assert [each[:1] for each in stored] == [b"%d" % n for n in range(len(sizes))]


def test_one_request_with_slow_quick_and_bad_batches_is_answered_whole(client, is_headrace):
    topic = make_topic(client, partitions=4)
    slow = raw.batch(values(bytes(300_000)), codec=raw.GZIP)
    bad = poison.batch(poison.KINDS["a record too few"], raw.GZIP)
    quick = raw.batch(values(b"x"))
    noise = batch_of(b"noise" * 9, count=1, base_ms=raw.now_ms(), codec=raw.ZSTD)
    body = raw.produce_body((topic, 0, slow), (topic, 1, bad), (topic, 2, quick), (topic, 3, noise))
    answers = client.call(raw.PRODUCE, 13, body).responses[0].partition_responses
    found = {each.index: each.error_code for each in answers}
    assert found == {0: 0, 1: poison.INVALID, 2: 0, 3: poison.INVALID if is_headrace else poison.BROKEN}
    assert [list_offset(client, topic, index) for index in range(4)] == [1, 0, 1, 0]


def test_acks_0_with_a_poison_batch_closes_the_connection(bootstrap, topic):
    for codec in (raw.NONE, raw.GZIP):
        with Client(bootstrap) as client:
            before = list_offset(client, topic)
            sent = poison.batch(poison.KINDS["a record too few"], codec)
            client.send(raw.PRODUCE, 13, raw.produce_body((topic, 0, sent), acks=0), answered=False)
            assert client.is_closed_by_broker()
        with Client(bootstrap) as client:
            assert list_offset(client, topic) == before


# ── readers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def poisoned(bootstrap: str, is_headrace: bool) -> Iterator[tuple[Topic, list[str]]]:
    """A topic that was sent good records between poison of every kind; its name and the good ones."""
    with Client(bootstrap) as client:
        topic, good = make_topic(client), []
        for kind, wrong in poison.KINDS.items():
            for codec in (raw.NONE, raw.GZIP, raw.ZSTD):
                kafka = wrong.kafka_packed if codec else wrong.kafka
                if is_headrace or kafka != poison.OK:
                    assert produce(client, topic, poison.batch(wrong, codec)).error_code != 0
            good.append(f"behind {kind}")
            assert produce(client, topic, raw.batch(values(good[-1].encode()))).error_code == 0
        yield topic, good


def test_confluent_reads_the_good_records_around_poison(bootstrap, poisoned):
    topic, good = poisoned
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "check.crcs": True})) as consumer:
        consumer.assign([TopicPartition(topic.name, 0, OFFSET_BEGINNING)])
        messages = [consumer.poll(WAIT_S_MAX) for _ in good]
    assert [each.error() for each in messages] == [None] * len(good)
    assert [each.value().decode() for each in messages] == good


def test_kafka_python_reads_the_good_records_around_poison(bootstrap, poisoned):
    topic, good = poisoned
    with closing(KafkaConsumer(bootstrap_servers=[bootstrap], fetch_max_wait_ms=100)) as consumer:
        here = KafkaPythonPartition(topic.name, 0)
        consumer.assign([here])
        consumer.seek_to_beginning(here)
        found: list[str] = []
        deadline = time.monotonic() + WAIT_S_MAX
        while len(found) < len(good) and time.monotonic() < deadline:
            found += [each.value.decode() for batch in consumer.poll(timeout_ms=500).values() for each in batch]
    assert found == good


def test_headrace_consume_reads_the_good_records_around_poison(bootstrap, poisoned):
    topic, good = poisoned
    command = [sys.executable, "-m", "headrace.cli.main", "consume", topic.name, "--bootstrap", bootstrap]
    command += ["--format", "raw"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert (ran.returncode, ran.stdout.splitlines()) == (0, good)


@pytest.mark.xdist_group("java")
def test_java_reads_the_good_records_around_poison(bootstrap: str, java: JavaTools, poisoned) -> None:
    topic, good = poisoned
    records = java.ok("JavaClient", "consume", bootstrap, topic.name, len(good)).objects
    assert [each["value"] for each in records] == good

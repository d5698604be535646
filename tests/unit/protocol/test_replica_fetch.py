"""A follower's Fetch: what it sends is what kio and our leader read, and it reads what our leader and kio write."""

import contextlib
import io
import uuid
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from headrace.protocol import fetch, replica_fetch
from headrace.protocol.fetch import Fetched
from headrace.protocol.message_fields import schema_fields
from headrace.protocol.replica_fetch import Wanted
from headrace.protocol.wire import MalformedError

I32, I64 = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (31, 63))
INDEX, SIZE = st.integers(0, 1 << 20), st.integers(0, (1 << 31) - 1)
IDS = st.integers(1, (1 << 128) - 1).map(lambda number: uuid.UUID(int=number))
WANTED = st.builds(Wanted, INDEX, I32, I64, I32, I64)
HEADER_BYTES = 4 + 8 + 2 + len("broker-7") + 1  # length, numbers, client id, no tags


@given(
    topics=st.dictionaries(IDS, st.lists(WANTED, min_size=1, max_size=3), max_size=3),
    forgotten=st.dictionaries(IDS, st.lists(INDEX, min_size=1, max_size=3), max_size=2),
    session=st.tuples(SIZE, SIZE),
    broker=SIZE,
    incarnation=st.integers(0, 1 << 40),
)
def test_a_request_says_to_kio_and_to_a_leader_what_it_was_made_of(topics, forgotten, session, broker, incarnation):
    frame = replica_fetch.encode(
        correlation_id=5,
        client_id="broker-7",
        broker=broker,
        incarnation=incarnation,
        wait_ms_max=500,
        bytes_min=1,
        bytes_max=1 << 20,
        partition_bytes_max=1 << 16,
        session=session,
        wanted={topic.bytes: each for topic, each in topics.items()},
        forgotten={topic.bytes: each for topic, each in forgotten.items()},
    )
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    read = entity_reader(load_request_schema(replica_fetch.KEY, replica_fetch.VERSION))
    body, size = read(frame, HEADER_BYTES)
    assert HEADER_BYTES + size == len(frame)
    assert (body.replica_state.replica_id, body.replica_state.replica_epoch) == (broker, incarnation)
    assert body.max_wait == timedelta(milliseconds=500)
    told = {
        topic.topic_id: [
            Wanted(
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.log_start_offset,
            )
            for each in topic.partitions
        ]
        for topic in body.topics
    }
    assert told == topics
    assert {each.topic_id: list(each.partitions) for each in body.forgotten_topics_data} == forgotten
    ours = fetch.decode(memoryview(frame), HEADER_BYTES, len(frame), replica_fetch.VERSION)
    assert (ours.replica_id, ours.replica_epoch) == (broker, incarnation)
    assert (ours.session_id, ours.session_epoch) == session
    assert [key for key, _ in ours.topics] == [topic.bytes for topic in topics]


PART = st.builds(
    Fetched,
    INDEX,
    st.integers(-1, 100),
    I64,
    I64,
    I64,
    st.just(0),
    st.none(),
    st.none() | st.tuples(I32, I64),
    st.none() | st.tuples(I32, I32),
)

PARTS = st.lists(PART, min_size=1, max_size=3, unique_by=lambda part: part.partition)


def leaders_answer(topics, records):
    """As our leader writes it."""
    version = replica_fetch.VERSION
    out = bytearray(fetch.encode_head(version, 5, 0, 77, len(topics)))
    for topic, parts in topics.items():
        out += fetch.encode_topic(version, topic.bytes, len(parts))
        for part in parts:
            out += fetch.encode_partition(version, part._replace(size=len(records)))
            out += records
            out += fetch.encode_partition_end(version, part)
        out += fetch.encode_topic_end(version)
    return bytes(out + fetch.encode_tail(version))


@given(
    topics=st.dictionaries(IDS, PARTS, max_size=3),
    records=st.binary(max_size=40),
)
def test_an_answer_of_our_leader_is_read_as_it_was_written(topics, records):
    frame = leaders_answer(topics, records)
    answer = replica_fetch.decode(memoryview(frame))
    assert (answer.correlation_id, answer.error, answer.session_id) == (5, 0, 77)
    expected = [(topic.bytes, part) for topic, parts in topics.items() for part in parts]
    assert len(answer.partitions) == len(expected)
    for told, (topic, part) in zip(answer.partitions, expected, strict=True):
        assert (told.topic_id, told.partition, told.error) == (topic, part.partition, part.error)
        assert (told.high_watermark, told.start_offset) == (part.high_watermark, part.start_offset)
        assert (told.diverging, told.leader) == (part.diverging, part.leader)
        assert frame[told.start : told.end] == records


def test_an_answer_of_kio_is_read_with_what_a_follower_has_no_use_for():
    version = replica_fetch.VERSION
    schema = load_response_schema(replica_fetch.KEY, version)
    fields = schema_fields(schema)
    (topics,) = (each for each in fields if each.name == "responses")
    topic_schema = topics.python_type
    (partitions,) = (each for each in schema_fields(topic_schema) if each.name == "partitions")
    (aborted,) = (each for each in schema_fields(partitions.python_type) if each.name == "aborted_transactions")
    part = partitions.python_type(
        partition_index=3,
        error_code=ErrorCode.none,
        high_watermark=10,
        last_stable_offset=9,
        log_start_offset=1,
        aborted_transactions=(aborted.python_type(producer_id=1, first_offset=2),),
        preferred_read_replica=4,
        records=b"records",
    )
    topic = topic_schema(topic_id=uuid.UUID(int=9), partitions=(part,))
    body = schema(
        throttle_time=timedelta(milliseconds=3),
        error_code=ErrorCode.none,
        session_id=8,
        responses=(topic,),
        node_endpoints=(),
    )
    with io.BytesIO() as out:
        entity_writer(schema)(out, body)
        frame = (5).to_bytes(4, "big") + b"\0" + out.getvalue()
    (told,) = replica_fetch.decode(memoryview(frame)).partitions
    assert (told.partition, told.high_watermark, frame[told.start : told.end]) == (3, 10, b"records")


@given(st.binary(max_size=120))
def test_garbage_is_malformed_or_an_answer_but_nothing_else(data):
    with contextlib.suppress(MalformedError):
        replica_fetch.decode(memoryview(data))


@given(cut=st.integers(0, 200))
def test_an_answer_that_is_cut_short_is_malformed(cut):
    frame = leaders_answer({uuid.UUID(int=1): [Fetched(0, 0, 1, 1, 0, 0)]}, b"r" * 100)
    if cut < len(frame):
        with pytest.raises(MalformedError):
            replica_fetch.decode(memoryview(frame[:cut]))


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch():
    def batch(size):
        return bytes(8) + (size - 12).to_bytes(4, "big") + bytes(size - 12)

    data = batch(70) + batch(80) + batch(90)[:50]
    assert replica_fetch.batches(memoryview(data), 0, len(data)) == [(0, 70), (70, 150)]
    assert replica_fetch.batches(memoryview(bytes(12)), 0, 12) == []

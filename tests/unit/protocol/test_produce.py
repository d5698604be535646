"""Our Produce codec against kio's, over all versions, both ways."""

import io
import struct
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from headrace.protocol import produce
from headrace.protocol.message_fields import schema_fields
from headrace.protocol.produce import Refusal
from headrace.protocol.wire import NAME_CHARACTERS_MAX, MalformedError, compact_string, string, uvarint

VERSIONS = range(produce.LOW, produce.HIGH + 1)
I16, I32, I64 = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (15, 31, 63))
TEXT = st.text(max_size=12) | st.integers(120, 140).map("n".__mul__)
RECORDS = st.none() | st.binary(min_size=1, max_size=40) | st.integers(120, 140).map(bytes)
UUIDS = st.integers(0, (1 << 128) - 1).map(lambda number: uuid.UUID(int=number))
PARTITIONS = st.lists(st.tuples(I32, RECORDS), max_size=4)
TOPICS = st.lists(st.tuples(TEXT, UUIDS, PARTITIONS), max_size=4)
# Unknown tagged fields, as a client of the future may send them.
TAGS = st.dictionaries(st.integers(0, 300), st.binary(max_size=150), max_size=3)


def kio_bytes(entity):
    with io.BytesIO() as out:
        entity_writer(type(entity))(out, entity)
        return out.getvalue()


def nested(schema, name):
    return next(field.python_type for field in schema_fields(schema) if field.name == name)


def kio_request(version, transactional_id, acks, timeout_ms, topics):
    schema = load_request_schema(produce.KEY, version)
    topic_schema = nested(schema, "topic_data")
    partition_schema = nested(topic_schema, "partition_data")
    by_id = version >= produce.TOPIC_IDS_FROM
    return schema(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=tuple(
            topic_schema(
                **({"topic_id": topic_id} if by_id else {"name": name}),
                partition_data=tuple(partition_schema(index=i, records=r) for i, r in partitions),
            )
            for name, topic_id, partitions in topics
        ),
    )


def spelled(version, transactional_id, acks, timeout_ms, topics, tags):
    """The request written out by hand, with tagged fields in every place that has them."""
    flexible = version >= produce.FLEXIBLE_FROM
    text, end = (compact_string, section(tags)) if flexible else (string, b"")

    def count(items):
        return uvarint(len(items) + 1) if flexible else struct.pack(">i", len(items))

    def null():
        return b"\0" if flexible else b"\xff\xff"

    out = null() if transactional_id is None else text(transactional_id)
    out += struct.pack(">hi", acks, timeout_ms) + count(topics)
    for name, topic_id, partitions in topics:
        out += topic_id.bytes if version >= produce.TOPIC_IDS_FROM else text(name)
        out += count(partitions)
        for index, records in partitions:
            out += struct.pack(">i", index)
            if records is None:
                out += b"\0" if flexible else b"\xff\xff\xff\xff"
            else:
                out += count(records) + records
            out += end
        out += end
    return out + end


def section(tags):
    return uvarint(len(tags)) + b"".join(
        uvarint(tag) + uvarint(len(value)) + value for tag, value in sorted(tags.items())
    )


def decoded(data, version, start=0):
    """Through an arena with other things before and behind it, as in the broker."""
    arena = memoryview(bytearray(b"\x7f" * start) + data + b"\x01" * 50)
    *fields, wanted = produce.decode(arena, start, start + len(data), version)
    topics = [
        (key, [(index, bytes(arena[at:stop]) or None) for index, at, stop in partitions]) for key, partitions in wanted
    ]
    return (*fields, topics)


@settings(max_examples=40, deadline=None)
@given(
    transactional_id=st.none() | TEXT,
    acks=I16,
    timeout_ms=st.integers(0, (1 << 31) - 1),
    topics=TOPICS,
    tags=TAGS,
    start=st.integers(0, 9),
)
def test_requests_decode_to_what_kio_was_given(transactional_id, acks, timeout_ms, topics, tags, start):
    for version in VERSIONS:
        data = kio_bytes(kio_request(version, transactional_id, acks, timeout_ms, topics))
        by_id = version >= produce.TOPIC_IDS_FROM
        wanted = [(topic_id.bytes if by_id else name, partitions) for name, topic_id, partitions in topics]
        expected = (transactional_id, acks, timeout_ms, wanted)
        assert (version, decoded(data, version, start)) == (version, expected)
        assert spelled(version, transactional_id, acks, timeout_ms, topics, {}) == data
        tagged = spelled(version, transactional_id, acks, timeout_ms, topics, tags)
        assert (version, decoded(tagged, version, start)) == (version, expected)


def test_empty_records_are_an_empty_span():
    for version in VERSIONS:
        data = kio_bytes(kio_request(version, None, 1, 0, [("t", uuid.UUID(int=1), [(3, b"")])]))
        ((_, ((index, at, stop),)),) = produce.decode(memoryview(data), 0, len(data), version)[3]
        assert (index, stop - at) == (3, 0)


@settings(max_examples=5, deadline=None)
@given(
    transactional_id=st.none() | TEXT,
    topics=TOPICS.filter(any),
    tags=TAGS,
    more=st.binary(max_size=30),
)
def test_a_request_cut_anywhere_is_malformed(transactional_id, topics, tags, more):
    for version in VERSIONS:
        data = spelled(version, transactional_id, -1, 5000, topics, tags)
        for cut in range(len(data)):
            # What lies behind it in the arena is not its own; each version meets each cut with another of these.
            behind = (b"", data[cut:], more, bytes(40))[(cut + version) % 4]
            with pytest.raises(MalformedError):
                produce.decode(memoryview(data[:cut] + behind), 0, cut, version)


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=60))
def test_garbage_is_malformed_or_a_request_but_nothing_else(data):
    for version in VERSIONS:
        try:
            request = produce.decode(memoryview(data), 0, len(data), version)
        except MalformedError:
            continue
        for _, partitions in request[3]:
            for _, at, stop in partitions:
                assert 0 <= at <= stop <= len(data)


@pytest.mark.parametrize("version", [3, 8])
@pytest.mark.parametrize("size", [-1, -2, -6, -100, -(1 << 15)])
def test_a_topic_without_a_name_is_malformed(version, size):
    # A negative length must not lead back to bytes that were read before: that would never end.
    body = struct.pack(">hhii", -1, 1, 1000, 1 << 20) + bytes(40) + struct.pack(">hi", size, 0)
    data = struct.pack(">hhii", -1, 1, 1000, 1) + struct.pack(">h", size) + body
    with pytest.raises(MalformedError):
        produce.decode(memoryview(data), 0, len(data), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_array_larger_than_any_request_is_malformed(version):
    many = b"\xff\xff\xff\xff\x07" if version >= produce.FLEXIBLE_FROM else struct.pack(">i", (1 << 31) - 1)
    null = b"\0" if version >= produce.FLEXIBLE_FROM else b"\xff\xff"
    data = null + struct.pack(">hi", 1, 1000) + many + bytes(100)
    with pytest.raises(MalformedError, match="topics or partitions; at most"):
        produce.decode(memoryview(data), 0, len(data), version)


def test_text_that_is_not_utf8_is_malformed():
    data = struct.pack(">hhiih", -1, 1, 1000, 1, 2) + b"\xff\xfe" + bytes(4)
    with pytest.raises(MalformedError, match="UTF-8"):
        produce.decode(memoryview(data), 0, len(data), 3)


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

REFUSALS = st.none() | st.builds(
    Refusal,
    message=st.none() | TEXT,
    record_errors=st.lists(st.tuples(I32, st.none() | TEXT), max_size=2).map(tuple),
)
NUMBERS = st.tuples(
    I32,
    st.sampled_from([int(code) for code in ErrorCode]),
    I64,
    st.just(-1) | st.integers(0, 1 << 41),
    I64,
)
ANSWERS = st.tuples(NUMBERS, REFUSALS)
IDS = UUIDS.filter(lambda topic_id: topic_id.int)  # to kio, the id 0 is None
ANSWER_TOPICS = st.lists(
    st.tuples(TEXT, IDS, st.lists(ANSWERS, min_size=1, max_size=3)),
    max_size=3,
    unique_by=(lambda topic: topic[0], lambda topic: topic[1]),
)


THROTTLES = st.sampled_from([0, 1, 2**31 - 1])


def kio_response(version, topics, throttle_ms):
    schema = load_response_schema(produce.KEY, version)
    topic_schema = nested(schema, "responses")
    partition_schema = nested(topic_schema, "partition_responses")
    known = {field.name for field in schema_fields(partition_schema)}

    def partition(numbers, refusal):
        index, error, base_offset, append_time_ms, start_offset = numbers
        message, record_errors = refusal or (None, ())
        stamped = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=append_time_ms)
        fields = {
            "index": index,
            "error_code": ErrorCode(error),
            "base_offset": base_offset,
            "log_append_time": stamped if append_time_ms >= 0 else None,
            "log_start_offset": start_offset,
            "error_message": message,
        }
        if "record_errors" in known:
            error_schema = nested(partition_schema, "record_errors")
            fields["record_errors"] = tuple(
                error_schema(batch_index=at, batch_index_error_message=why) for at, why in record_errors
            )
        return partition_schema(**{name: value for name, value in fields.items() if name in known})

    return schema(
        responses=tuple(
            topic_schema(
                **({"topic_id": topic_id} if version >= produce.TOPIC_IDS_FROM else {"name": name}),
                partition_responses=tuple(partition(*answer) for answer in answers),
            )
            for name, topic_id, answers in topics
        ),
        throttle_time=timedelta(milliseconds=throttle_ms),
    )


def check_answer(version, correlation_id, topics, throttle_ms):
    entity = kio_response(version, topics, throttle_ms)
    by_id = version >= produce.TOPIC_IDS_FROM
    answers = [
        (topic_id.bytes if by_id else name, numbers, refusal)
        for name, topic_id, answers in topics
        for numbers, refusal in answers
    ]
    ours = produce.encode(version, correlation_id, answers, throttle_ms)
    header = struct.pack(">i", correlation_id) + (b"\0" if version >= produce.FLEXIBLE_FROM else b"")
    body = kio_bytes(entity)
    assert ours == struct.pack(">i", len(header) + len(body)) + header + body
    assert entity_reader(type(entity))(ours, 4 + len(header)) == (entity, len(body))


@settings(max_examples=40, deadline=None)
@given(correlation_id=I32, topics=ANSWER_TOPICS, throttle_ms=THROTTLES)
def test_answers_are_byte_for_byte_what_kio_writes(correlation_id, topics, throttle_ms):
    for version in VERSIONS:
        check_answer(version, correlation_id, topics, throttle_ms)


@settings(max_examples=25, deadline=None)
@given(correlation_id=I32, name=TEXT, topic_id=IDS, answer=ANSWERS, throttle_ms=THROTTLES)
def test_the_answer_of_one_partition_is_byte_for_byte_what_kio_writes(
    correlation_id, name, topic_id, answer, throttle_ms
):
    for version in VERSIONS:
        check_answer(version, correlation_id, [(name, topic_id, [answer])], throttle_ms)


LONG = "t" * 100_000  # a name that no topic has, and that a request may have all the same


@pytest.mark.parametrize("version", range(produce.LOW, produce.TOPIC_IDS_FROM))
def test_what_a_request_names_at_length_is_not_remembered(version):
    short, name = "t" * NAME_CHARACTERS_MAX, LONG if version >= produce.FLEXIBLE_FROM else LONG[:30_000]
    produce._frame_of_one.cache_clear()
    for each in (short, name):
        check_answer(version, 1, [(each, None, [((0, 3, -1, -1, -1), None)])], 0)
    assert produce._frame_of_one.cache_info().currsize == 1
    decoder = produce.ProduceDecoder()
    for each in (short, name):
        sent = spelled(version, None, 1, 1000, [(each, None, [(0, b"batch")])], {})
        ((key, _),) = decoder.decode(memoryview(sent), 0, len(sent), version)[3]
        assert key == each
        assert len(decoder._begin) < produce.BEGIN_BYTES_MAX
        assert len(str(decoder._known)) < produce.BEGIN_BYTES_MAX


def test_answers_of_one_topic_stand_together():
    first, second, third = ((i, 0, 10 + i, -1, 0) for i in range(3))
    mixed = [("a", first, None), ("b", second, None), ("a", third, None)]
    for version in range(produce.LOW, produce.TOPIC_IDS_FROM):
        sorted_ = [mixed[0], mixed[2], mixed[1]]
        assert produce.encode(version, 5, mixed) == produce.encode(version, 5, sorted_)


def test_a_refusal_has_no_offset():
    assert produce.refused("t", 3, 87, Refusal("why")) == ("t", (3, 87, -1, -1, -1), Refusal("why"))


@pytest.mark.parametrize("version", VERSIONS)
def test_all_partitions_of_a_request_together_are_bounded(version, monkeypatch):
    topics = [(name, uuid.UUID(int=1), [(0, b"x"), (1, b"x"), (2, b"x")]) for name in ("a", "b")]
    data = memoryview(kio_bytes(kio_request(version, None, 1, 1, topics)))
    monkeypatch.setattr(produce, "NAMED_MAX", 6)
    assert len(produce.decode(data, 0, len(data), version)[3]) == 2
    monkeypatch.setattr(produce, "NAMED_MAX", 5)
    with pytest.raises(MalformedError, match="names 6 topics or partitions; at most"):
        produce.decode(data, 0, len(data), version)

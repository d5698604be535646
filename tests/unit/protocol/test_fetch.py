"""Our Fetch codec against kio's, over all versions, both ways."""

import contextlib
import io
import struct
import uuid
from datetime import timedelta

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from headrace.protocol import fetch
from headrace.protocol.fetch import Fetched, FetchPartition, FetchRequest
from headrace.protocol.message_fields import schema_fields
from headrace.protocol.wire import NAME_CHARACTERS_MAX, MalformedError, uvarint

VERSIONS = range(fetch.LOW, fetch.HIGH + 1)
I32, I64 = (st.integers(-(1 << bits), (1 << bits) - 1) for bits in (31, 63))
POSITIVE = st.integers(0, (1 << 31) - 1)
TEXT = st.text(max_size=12) | st.integers(120, 140).map("n".__mul__)
IDS = st.integers(1, (1 << 128) - 1).map(lambda number: uuid.UUID(int=number))
ASKED = st.fixed_dictionaries(
    {
        "partition": I32,
        "current_leader_epoch": I32,
        "fetch_offset": I64,
        "last_fetched_epoch": I32,
        "log_start_offset": I64,
        "partition_max_bytes": I32,
        "replica_directory_id": st.none() | IDS,
        "high_watermark": I64,
    }
)
TOPICS = st.lists(st.tuples(TEXT, IDS, st.lists(ASKED, max_size=3)), max_size=3)
FORGOTTEN = st.lists(st.tuples(TEXT, IDS, st.lists(I32, max_size=3)), max_size=3)
REQUESTS = st.fixed_dictionaries(
    {
        "cluster_id": st.none() | TEXT,
        "replica": st.tuples(I32, I64),
        "max_wait": POSITIVE,
        "min_bytes": I32,
        "max_bytes": I32,
        "isolation_level": st.integers(0, 1),
        "session_id": I32,
        "session_epoch": I32,
        "topics": TOPICS,
        "forgotten": FORGOTTEN,
        "rack_id": TEXT,
    }
)


def kio_bytes(entity):
    with io.BytesIO() as out:
        entity_writer(type(entity))(out, entity)
        return out.getvalue()


def nested(schema, name):
    return next(field.python_type for field in schema_fields(schema) if field.name == name)


def names(schema):
    return {field.name for field in schema_fields(schema)}


def fitting(schema, fields):
    known = names(schema)
    return schema(**{name: value for name, value in fields.items() if name in known})


def kio_request(version, wanted):
    schema = load_request_schema(fetch.KEY, version)
    topic_schema = nested(schema, "topics")
    partition_schema = nested(topic_schema, "partitions")
    key = {"topic_id": 1} if version >= fetch.TOPIC_IDS_FROM else {"topic": 0}
    ((key_name, key_at),) = key.items()
    fields = {
        **wanted,
        "max_wait": timedelta(milliseconds=wanted["max_wait"]),
        "replica_id": wanted["replica"][0],
        "topics": tuple(
            topic_schema(
                **{key_name: topic[key_at]}, partitions=tuple(fitting(partition_schema, asked) for asked in topic[2])
            )
            for topic in wanted["topics"]
        ),
    }
    if "forgotten_topics_data" in names(schema):
        forgotten_schema = nested(schema, "forgotten_topics_data")
        fields["forgotten_topics_data"] = tuple(
            forgotten_schema(**{key_name: topic[key_at]}, partitions=tuple(topic[2])) for topic in wanted["forgotten"]
        )
    if "replica_state" in names(schema):
        state_schema = nested(schema, "replica_state")
        fields["replica_state"] = state_schema(replica_id=wanted["replica"][0], replica_epoch=wanted["replica"][1])
    return fitting(schema, fields)


def expected_request(version, wanted):
    key_at = 1 if version >= fetch.TOPIC_IDS_FROM else 0

    def key(topic):
        return topic[1].bytes if key_at else topic[0]

    return FetchRequest(
        wanted["replica"][0],
        wanted["replica"][1] if version >= fetch.REPLICA_STATE_FROM else -1,
        wanted["max_wait"],
        wanted["min_bytes"],
        wanted["max_bytes"],
        wanted["isolation_level"] == 1,
        wanted["session_id"] if version >= 7 else 0,
        wanted["session_epoch"] if version >= 7 else -1,
        [
            (
                key(topic),
                [
                    FetchPartition(
                        asked["partition"],
                        asked["current_leader_epoch"] if version >= 9 else -1,
                        asked["fetch_offset"],
                        asked["last_fetched_epoch"] if version >= 12 else -1,
                        asked["partition_max_bytes"],
                    )
                    for asked in topic[2]
                ],
            )
            for topic in wanted["topics"]
        ],
        [(key(topic), topic[2]) for topic in wanted["forgotten"]] if version >= 7 else [],
    )


@settings(max_examples=40, deadline=None)
@given(wanted=REQUESTS, start=st.integers(0, 9))
def test_requests_decode_to_what_kio_was_given(wanted, start):
    for version in VERSIONS:
        data = kio_bytes(kio_request(version, wanted))
        arena = memoryview(b"\x7f" * start + data + b"\x01" * 50)
        decoded = fetch.decode(arena, start, start + len(data), version)
        assert (version, decoded) == (version, expected_request(version, wanted))


@settings(max_examples=5, deadline=None)
@given(wanted=REQUESTS, more=st.binary(max_size=30))
def test_a_request_cut_anywhere_is_malformed(wanted, more):
    for version in VERSIONS:
        data = kio_bytes(kio_request(version, wanted))
        for cut in range(len(data)):
            # What lies behind it in the arena is not its own; each version meets each cut with another of these.
            behind = (b"", data[cut:], more, bytes(40))[(cut + version) % 4]
            with pytest.raises(MalformedError):
                fetch.decode(memoryview(data[:cut] + behind), 0, cut, version)


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=80))
def test_garbage_is_malformed_or_a_request_but_nothing_else(data):
    for version in VERSIONS:
        with contextlib.suppress(MalformedError):
            assert isinstance(fetch.decode(memoryview(data), 0, len(data), version), FetchRequest)


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= fetch.FLEXIBLE_FROM])
def test_unknown_tagged_fields_are_passed_over(version):
    tags = b"\x02" + uvarint(70) + uvarint(3) + b"abc" + uvarint(300) + uvarint(0)
    topic = bytes(15) + b"\x07" if version >= fetch.TOPIC_IDS_FROM else b"\x02t"
    data = struct.pack(">i", -1) if version < 15 else b""
    data += struct.pack(">iiibii", 500, 1, 1000, 0, 0, 0)
    data += b"\x02" + topic + b"\x02" + struct.pack(">iiqiqi", 3, 4, 5, 6, 7, 8) + tags + tags
    data += b"\x02" + topic + b"\x02" + struct.pack(">i", 9) + tags
    data += b"\x01" + tags
    request = fetch.decode(memoryview(data), 0, len(data), version)
    key = topic if version >= fetch.TOPIC_IDS_FROM else "t"
    assert request.topics == [(key, [FetchPartition(3, 4, 5, 6, 8)])]
    assert request.forgotten == [(key, [9])]
    assert request.replica_id == -1


@pytest.mark.parametrize("version", VERSIONS)
def test_an_array_larger_than_any_request_is_malformed(version):
    flexible = version >= fetch.FLEXIBLE_FROM
    many = b"\xff\xff\xff\xff\x07" if flexible else struct.pack(">i", (1 << 31) - 1)
    head = struct.pack(">i", -1) if version < 15 else b""
    head += struct.pack(">iiib", 500, 1, 1000, 0) + (bytes(8) if version >= 7 else b"")
    data = head + many + bytes(100)
    with pytest.raises(MalformedError, match="topics or partitions; at most"):
        fetch.decode(memoryview(data), 0, len(data), version)


@pytest.mark.parametrize("version", range(fetch.LOW, fetch.FLEXIBLE_FROM))
def test_a_topic_without_a_name_is_malformed(version):
    head = struct.pack(">iiiib", -1, 500, 1, 1000, 0) + (bytes(8) if version >= 7 else b"")
    data = head + struct.pack(">ih", 1, -1) + bytes(60)
    with pytest.raises(MalformedError, match="null"):
        fetch.decode(memoryview(data), 0, len(data), version)


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

PAIRS32 = st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
FETCHED = st.tuples(
    st.builds(
        Fetched,
        partition=I32,
        error=st.sampled_from([int(code) for code in ErrorCode]),
        high_watermark=I64,
        stable_offset=I64,
        start_offset=I64,
        size=st.just(0),
        aborted=st.none() | st.lists(st.tuples(I64, I64), max_size=2).map(tuple),
        diverging=st.none() | st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 60)),
        leader=st.none() | PAIRS32,
    ),
    st.none() | st.binary(max_size=40) | st.integers(120, 140).map(bytes),
)
ANSWERED = st.lists(st.tuples(TEXT, IDS, st.lists(FETCHED, max_size=3)), max_size=3)


THROTTLES = st.sampled_from([0, 1, 2**31 - 1])


def kio_response(version, error, session_id, topics, throttle_ms=0):
    schema = load_response_schema(fetch.KEY, version)
    topic_schema = nested(schema, "responses")
    partition_schema = nested(topic_schema, "partitions")
    aborted_schema = nested(partition_schema, "aborted_transactions")

    def partition(part, records):
        fields = {
            "partition_index": part.partition,
            "error_code": ErrorCode(part.error),
            "high_watermark": part.high_watermark,
            "last_stable_offset": part.stable_offset,
            "log_start_offset": part.start_offset,
            "aborted_transactions": None
            if part.aborted is None
            else tuple(aborted_schema(producer_id=p, first_offset=o) for p, o in part.aborted),
            "records": records,
        }
        if version >= fetch.FLEXIBLE_FROM:
            if part.diverging is not None:
                epoch, end_offset = part.diverging
                fields["diverging_epoch"] = nested(partition_schema, "diverging_epoch")(
                    epoch=epoch, end_offset=end_offset
                )
            if part.leader is not None:
                leader_id, leader_epoch = part.leader
                fields["current_leader"] = nested(partition_schema, "current_leader")(
                    leader_id=leader_id, leader_epoch=leader_epoch
                )
        return fitting(partition_schema, fields)

    return fitting(
        schema,
        {
            "throttle_time": timedelta(milliseconds=throttle_ms),
            "error_code": ErrorCode(error),
            "session_id": session_id,
            "responses": tuple(
                topic_schema(
                    **({"topic_id": topic_id} if version >= fetch.TOPIC_IDS_FROM else {"topic": name}),
                    partitions=tuple(partition(part, records) for part, records in parts),
                )
                for name, topic_id, parts in topics
            ),
        },
    )


def our_response(version, correlation_id, error, session_id, topics, throttle_ms=0):
    out = fetch.encode_head(version, correlation_id, error, session_id, len(topics), throttle_ms)
    for name, topic_id, parts in topics:
        out += fetch.encode_topic(version, topic_id.bytes if version >= fetch.TOPIC_IDS_FROM else name, len(parts))
        for part, records in parts:
            sized = part._replace(size=-1 if records is None else len(records))
            out += fetch.encode_partition(version, sized) + (records or b"")
            out += fetch.encode_partition_end(version, sized)
        out += fetch.encode_topic_end(version)
    return out + fetch.encode_tail(version)


@settings(max_examples=50, deadline=None)
@given(correlation_id=I32, error=st.sampled_from([0, 70, 71]), session_id=I32, topics=ANSWERED, throttle_ms=THROTTLES)
def test_answers_are_byte_for_byte_what_kio_writes(correlation_id, error, session_id, topics, throttle_ms):
    for version in VERSIONS:
        entity = kio_response(version, error, session_id, topics, throttle_ms)
        header = struct.pack(">i", correlation_id) + (b"\0" if version >= fetch.FLEXIBLE_FROM else b"")
        body = kio_bytes(entity)
        ours = our_response(version, correlation_id, error, session_id, topics, throttle_ms)
        assert (version, ours) == (version, header + body)
        assert entity_reader(type(entity))(ours, len(header)) == (entity, len(body))


def check_encoding_of_one(version, correlation_id, session_id, topic, throttle_ms, expected):
    name, topic_id, [(part, records)] = topic
    key = topic_id.bytes if version >= fetch.TOPIC_IDS_FROM else name
    sized = part._replace(size=-1 if records is None else len(records))
    head, tail = fetch.encode_one(version, correlation_id, session_id, key, sized, throttle_ms)
    assert head + (records or b"") + tail == len(expected).to_bytes(4, "big") + expected


@settings(max_examples=25, deadline=None)
@given(correlation_id=I32, session_id=I32, topics=ANSWERED, throttle_ms=THROTTLES)
def test_the_answer_of_one_partition_is_what_the_general_way_gives(correlation_id, session_id, topics, throttle_ms):
    assume(topics and topics[0][2])
    name, topic_id, parts = topics[0]
    for version in VERSIONS:
        one = (name, topic_id, parts[:1])
        general = our_response(version, correlation_id, 0, session_id, [one], throttle_ms)
        check_encoding_of_one(version, correlation_id, session_id, one, throttle_ms, general)


@pytest.mark.parametrize("version", range(fetch.FLEXIBLE_FROM, fetch.TOPIC_IDS_FROM))
def test_a_name_that_no_topic_has_is_not_remembered(version):
    fetch._head_of_one.cache_clear()
    for name in ("t" * NAME_CHARACTERS_MAX, "t" * 100_000):
        fetch.encode_one(version, 1, 0, name, Fetched(0, 3, -1, -1, -1, 0))
    assert fetch._head_of_one.cache_info().currsize == 1


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("forgotten", [False, True])
def test_all_partitions_of_a_request_together_are_bounded(version, forgotten, monkeypatch):
    asked = {
        "partition": 0,
        "current_leader_epoch": 0,
        "fetch_offset": 0,
        "last_fetched_epoch": 0,
        "log_start_offset": 0,
    }
    three = [{**asked, "partition_max_bytes": 1}] * 3
    last = ("b", uuid.UUID(int=1), [0, 1, 2]) if forgotten and version >= 7 else None
    wanted = {
        "replica": (-1, -1),
        "max_wait": 1,
        "min_bytes": 1,
        "max_bytes": 1,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "rack_id": "",
        "cluster_id": None,
        "topics": [("a", uuid.UUID(int=1), three)] + ([] if last else [("b", uuid.UUID(int=1), three)]),
        "forgotten": [last] if last else [],
    }
    data = memoryview(kio_bytes(kio_request(version, wanted)))
    monkeypatch.setattr(fetch, "NAMED_MAX", 6)
    fetch.decode(data, 0, len(data), version)
    monkeypatch.setattr(fetch, "NAMED_MAX", 5)
    with pytest.raises(MalformedError, match="names 6 topics or partitions; at most"):
        fetch.decode(data, 0, len(data), version)

"""ListOffsets and OffsetForLeaderEpoch, over every version."""

import pytest
import raw
from raw import (
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    Client,
    ErrorCode,
    Record,
    Topic,
    batch,
    make_topic,
    values,
)

each_list = pytest.mark.parametrize("version", raw.versions(LIST_OFFSETS))
each_epoch = pytest.mark.parametrize("version", raw.versions(OFFSET_FOR_LEADER_EPOCH))
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
FIRST_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
BASE_MS = raw.now_ms() - 100_000
NOTHING = (0, -1, -1, -1)


@pytest.fixture(scope="module")
def filled(bootstrap):
    """Partition 0: a batch for each codec, a second apart, records at +0, +30, +10, +20 ms. 1: empty."""
    with Client(bootstrap) as connected:
        topic = make_topic(connected, partitions=2)
        for codec in range(5):
            records = [Record(b"x", timestamp=BASE_MS + codec * 1000 + late) for late in (0, 30, 10, 20)]
            assert raw.produce(connected, topic, batch(records, codec=codec)).base_offset == codec * 4
        return topic


def ask(client, version, topic, timestamp, partition=0, epoch=-1, isolation=0):
    """(error, timestamp, offset, leader epoch); versions without the epoch read as if they had it."""
    asked = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
    topics = [topic.ref | {"partitions": [asked]}]
    body = {"replica_id": -1, "isolation_level": isolation, "topics": topics, "timeout": 10000}
    answer = client.call(LIST_OFFSETS, version, body)
    if version >= 2:
        assert answer.throttle_time.total_seconds() == 0
    (about,) = answer.topics
    assert about.name == topic.name
    (found,) = about.partitions
    assert found.partition_index == partition
    leader_epoch = getattr(found, "leader_epoch", 0 if found.offset >= 0 else -1)
    return found.error_code, found.timestamp, found.offset, leader_epoch


@each_list
@pytest.mark.parametrize("isolation", [0, 1])
def test_start_and_end_of_the_log(client, filled, version, isolation):
    assert ask(client, version, filled, LATEST, isolation=isolation) == (0, -1, 20, 0)
    assert ask(client, version, filled, EARLIEST, isolation=isolation) == (0, -1, 0, 0)
    assert ask(client, version, filled, LATEST, partition=1, isolation=isolation) == (0, -1, 0, 0)
    assert ask(client, version, filled, EARLIEST, partition=1, isolation=isolation) == (0, -1, 0, 0)


@each_list
@pytest.mark.parametrize("batch_number", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
def test_time_is_looked_up_inside_batches(client, filled, version, batch_number):
    """The first record at or after the time; not the one with the nearest time."""
    start_ms, first = BASE_MS + batch_number * 1000, batch_number * 4
    for late, expected, expected_ms in ((-500, 0, 0), (0, 0, 0), (1, 1, 30), (15, 1, 30), (30, 1, 30)):
        found = ask(client, version, filled, start_ms + late)
        assert found == (0, start_ms + expected_ms, first + expected, 0)


@each_list
def test_time_before_the_first_record_is_the_first_record(client, filled, version):
    assert ask(client, version, filled, 0) == (0, BASE_MS, 0, 0)


@each_list
def test_time_after_the_last_record_has_no_offset(client, filled, version):
    assert ask(client, version, filled, BASE_MS + 4031) == NOTHING
    assert ask(client, version, filled, 0, partition=1) == NOTHING


@each_list
@pytest.mark.parametrize(
    ("special", "expected", "of_empty"),
    [
        (MAX_TIMESTAMP, (0, BASE_MS + 4030, 17, 0), NOTHING),
        (EARLIEST_LOCAL, (0, -1, 0, 0), (0, -1, 0, 0)),
        (LATEST_TIERED, NOTHING, NOTHING),
        (EARLIEST_PENDING, NOTHING, NOTHING),
    ],
)
def test_special_times_are_known_from_their_version_on(client, filled, version, special, expected, of_empty):
    refused = (ErrorCode.unsupported_version, -1, -1, -1)
    known = version >= FIRST_VERSION[special]
    assert ask(client, version, filled, special) == (expected if known else refused)
    assert ask(client, version, filled, special, partition=1) == (of_empty if known else refused)


@each_list
def test_other_negative_times_are_refused(client, filled, version):
    assert ask(client, version, filled, -7) == (ErrorCode.unsupported_version, -1, -1, -1)


@each_list
def test_unknown_partitions_and_topics_are_refused(client, filled, version):
    unknown = (ErrorCode.unknown_topic_or_partition, -1, -1, -1)
    assert ask(client, version, filled, LATEST, partition=9) == unknown
    assert ask(client, version, Topic(raw.fresh_name("missing"), None), LATEST) == unknown


@each_list
def test_leader_epoch_is_checked_from_version_4(client, filled, version):
    assert ask(client, version, filled, LATEST, epoch=0) == (0, -1, 20, 0)
    from_the_future = ask(client, version, filled, LATEST, epoch=1)
    refused = (ErrorCode.unknown_leader_epoch, -1, -1, -1)
    assert from_the_future == (refused if version >= 4 else (0, -1, 20, 0))


@each_list
def test_partition_twice_in_a_request_is_refused_and_the_rest_answered(client, filled, version):
    asked = [{"partition_index": index, "timestamp": LATEST} for index in (0, 0, 1)]
    body = {"replica_id": -1, "topics": [filled.ref | {"partitions": asked}]}
    found = client.call(LIST_OFFSETS, version, body).topics[0].partitions
    assert sorted((each.partition_index, each.error_code, each.offset) for each in found) == [
        (0, ErrorCode.invalid_request, -1),
        (1, 0, 0),
    ]


@each_list
def test_several_topics_and_partitions_are_answered_together(client, filled, version):
    second = make_topic(client)
    asked = [{"partition_index": index, "timestamp": LATEST} for index in range(2)]
    topics = [filled.ref | {"partitions": asked}, second.ref | {"partitions": asked[:1]}]
    found = client.call(LIST_OFFSETS, version, {"replica_id": -1, "topics": topics}).topics
    assert {(t.name, p.partition_index): p.offset for t in found for p in t.partitions} == {
        (filled.name, 0): 20,
        (filled.name, 1): 0,
        (second.name, 0): 0,
    }


@each_list
def test_deleted_records_are_not_found_by_time(client, version):
    topic = make_topic(client)
    for start_ms in (BASE_MS, BASE_MS + 1000):
        records = [Record(b"x", timestamp=start_ms + late) for late in (0, 10, 20)]
        raw.produce(client, topic, batch(records))
    cut = [topic.ref | {"partitions": [{"partition_index": 0, "offset": 4}]}]
    client.call(raw.DELETE_RECORDS, 2, {"topics": cut, "timeout": 10000})
    assert ask(client, version, topic, EARLIEST) == (0, -1, 4, 0)
    for asked_ms in (0, BASE_MS + 5, BASE_MS + 1000, BASE_MS + 1005):
        assert ask(client, version, topic, asked_ms) == (0, BASE_MS + 1010, 4, 0)


def test_max_timestamp_is_the_first_record_that_has_it(client):
    topic = make_topic(client)
    late = Record(b"x", timestamp=BASE_MS + 5)
    raw.produce(client, topic, batch([Record(b"x", timestamp=BASE_MS), late, late]))
    raw.produce(client, topic, batch([late]))
    raw.produce(client, topic, batch([Record(b"x", timestamp=BASE_MS)]))
    assert ask(client, 11, topic, MAX_TIMESTAMP) == (0, BASE_MS + 5, 1, 0)


@pytest.mark.parametrize("codec", [raw.NONE, raw.GZIP])
def test_log_append_time_is_the_time_of_every_record_of_its_batch(client, codec):
    topic = make_topic(client, message_timestamp_type="LogAppendTime")
    times = []
    for _ in range(2):
        raw.eventually(lambda: not times or raw.now_ms() > times[-1])
        answer = raw.produce(client, topic, batch(values(b"a", b"b", at_ms=5), codec=codec))
        times.append(round(answer.log_append_time.timestamp() * 1000))
    assert ask(client, 11, topic, 0) == (0, times[0], 0, 0)
    assert ask(client, 11, topic, times[0] + 1) == (0, times[1], 2, 0)
    assert ask(client, 11, topic, MAX_TIMESTAMP) == (0, times[1], 2, 0)


# OffsetForLeaderEpoch: where an epoch ends, which on a broker that has led once is the log's end.


def end_of(client, version, topic, epoch, partition=0, current=-1):
    """(error, epoch, end offset)"""
    asked = {"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch}
    body = {"replica_id": -1, "topics": [topic.ref | {"partitions": [asked]}]}
    answer = client.call(OFFSET_FOR_LEADER_EPOCH, version, body)
    assert answer.throttle_time.total_seconds() == 0
    (about,) = answer.topics
    (found,) = about.partitions
    assert (about.topic, found.partition) == (topic.name, partition)
    return found.error_code, found.leader_epoch, found.end_offset


@each_epoch
def test_current_epoch_ends_at_the_end_of_the_log(client, filled, version):
    assert end_of(client, version, filled, 0) == (0, 0, 20)
    assert end_of(client, version, filled, 0, partition=1) == (0, 0, 0)


@each_epoch
@pytest.mark.parametrize("epoch", [-1, 1, 7])
def test_unknown_epoch_has_no_end(client, filled, version, epoch):
    assert end_of(client, version, filled, epoch) == (0, -1, -1)


@each_epoch
def test_epoch_of_the_reader_is_checked(client, filled, version):
    assert end_of(client, version, filled, 0, current=0) == (0, 0, 20)
    assert end_of(client, version, filled, 0, current=1) == (ErrorCode.unknown_leader_epoch, -1, -1)


@each_epoch
def test_unknown_partitions_and_topics_have_no_epochs(client, filled, version):
    unknown = (ErrorCode.unknown_topic_or_partition, -1, -1)
    assert end_of(client, version, filled, 0, partition=9) == unknown
    assert end_of(client, version, Topic(raw.fresh_name("missing"), None), 0) == unknown

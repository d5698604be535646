"""Fetch without a session, over every version: offsets, limits, waits, epochs and fields."""

import select
import uuid

import pytest
import raw
from raw import FETCH, Client, ErrorCode, Topic, batch, fetch_body, make_topic, values
from waits import NEVER_MS

VERSIONS = raw.versions(FETCH)
each_version = pytest.mark.parametrize("version", VERSIONS)
one_of_each_shape = pytest.mark.parametrize("version", [4, 7, 12, 13, 18])


@pytest.fixture
def client(bootstrap):
    """It gives up long before a fetch with `NEVER_MS` to wait would be answered empty."""
    with Client(bootstrap) as connected:
        yield connected


@pytest.fixture
def other(bootstrap):
    with Client(bootstrap) as connected:
        yield connected


@pytest.fixture(scope="module")
def filled(bootstrap):
    """Two partitions with three batches of three records each: values 0..8, never written again."""
    with Client(bootstrap) as connected:
        topic = make_topic(connected, partitions=2)
        for partition in range(2):
            for first in (0, 3, 6):
                sent = batch(values(*(b"%d" % n * 10 for n in range(first, first + 3))))
                assert raw.produce(connected, topic, sent, partition=partition).base_offset == first
        return topic


BATCH_BYTES = len(batch(values(b"0" * 10, b"1" * 10, b"2" * 10)))


def one(client, version, topic, offset, partition=0, **fields):
    """The answer for one partition, at once."""
    answer = client.call(FETCH, version, fetch_body((topic, partition, offset), **({"max_wait": 0} | fields)))
    assert getattr(answer, "error_code", 0) == 0
    (about,) = answer.responses
    (data,) = about.partitions
    assert data.partition_index == partition
    return data


def is_waiting(client):
    """Whether nothing was answered yet; a broker that answers what it should not is caught if it is quick."""
    return not select.select([client.socket], [], [], 0.02)[0]


def assert_no_data(data, version, code):
    assert data.error_code == code
    assert (data.high_watermark, data.last_stable_offset, data.records) == (-1, -1, b"")
    assert not data.aborted_transactions
    if version >= 5:
        assert data.log_start_offset == -1


@each_version
def test_reads_from_the_start(client, filled, version):
    data = one(client, version, filled, 0)
    assert data.error_code == 0
    assert raw.values_of(data.records) == [b"%d" % n * 10 for n in range(9)]
    assert [each.offset for each in raw.records_of(data.records)] == list(range(9))
    assert (data.high_watermark, data.last_stable_offset, data.aborted_transactions) == (9, 9, None)
    if version >= 5:
        assert data.log_start_offset == 0
    if version >= 11:
        assert data.preferred_read_replica == -1
    if version >= 12:
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (-1, -1)
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (-1, -1)
        assert (data.snapshot_id.epoch, data.snapshot_id.end_offset) == (-1, -1)


@each_version
def test_answer_names_the_topic_and_has_no_session(client, filled, version):
    answer = client.call(FETCH, version, fetch_body((filled, 0, 0), max_wait=0))
    assert answer.throttle_time.total_seconds() == 0
    (about,) = answer.responses
    if version >= 13:
        assert about.topic_id == filled.id
    else:
        assert about.topic == filled.name
    if version >= 7:
        assert (answer.error_code, answer.session_id) == (0, 0)
    if version >= 16:
        assert answer.node_endpoints == ()


@each_version
def test_reads_from_the_middle_of_a_batch_the_whole_batch(client, filled, version):
    stored = raw.batches(one(client, version, filled, 4).records)
    assert [each.base_offset for each in stored] == [3, 6]


@each_version
def test_at_the_end_there_is_no_data_and_no_error(client, filled, version):
    data = one(client, version, filled, 9)
    assert (data.error_code, data.high_watermark, data.records) == (0, 9, b"")


@each_version
@pytest.mark.parametrize("offset", [10, -1])
def test_offset_out_of_range_is_refused(client, filled, version, offset):
    data = one(client, version, filled, offset, max_wait=NEVER_MS)
    assert_no_data(data, version, ErrorCode.offset_out_of_range)


@each_version
def test_unknown_partition_is_refused(client, filled, version):
    data = one(client, version, filled, 0, partition=2)
    assert_no_data(data, version, ErrorCode.unknown_topic_or_partition)


@each_version
def test_unknown_topic_is_refused(client, filled, version):
    missing = Topic(raw.fresh_name("missing"), uuid.uuid4())
    data = one(client, version, missing, 0)
    expected = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
    assert_no_data(data, version, expected)


@each_version
def test_one_refused_partition_leaves_the_others_readable(client, filled, version):
    body = fetch_body((filled, 0, 0), (filled, 1, 99), (filled, 7, 0), max_wait=0)
    found = {each.partition_index: each for each in client.call(FETCH, version, body).responses[0].partitions}
    assert {index: each.error_code for index, each in found.items()} == {
        0: ErrorCode.none,
        1: ErrorCode.offset_out_of_range,
        7: ErrorCode.unknown_topic_or_partition,
    }
    assert len(raw.records_of(found[0].records)) == 9


@each_version
def test_reads_several_topics(client, filled, version):
    second = make_topic(client)
    raw.produce(client, second, batch(values(b"x")))
    answer = client.call(FETCH, version, fetch_body((filled, 1, 6), (second, 0, 0), max_wait=0))
    found = {
        (each.topic_id if version >= 13 else each.topic): raw.values_of(each.partitions[0].records)
        for each in answer.responses
    }
    key = 1 if version >= 13 else 0
    assert found == {filled[key]: [b"6" * 10, b"7" * 10, b"8" * 10], second[key]: [b"x"]}


@one_of_each_shape
@pytest.mark.parametrize("limit", [0, 1, BATCH_BYTES - 1, BATCH_BYTES, 2 * BATCH_BYTES - 1, 2 * BATCH_BYTES])
@pytest.mark.parametrize("which", ["partition_max_bytes", "max_bytes"])
def test_limit_in_bytes_is_kept_but_for_the_first_batch(client, filled, version, which, limit):
    data = one(client, version, filled, 0, **{which: limit})
    assert len(data.records) <= max(limit, BATCH_BYTES)
    assert len(raw.batches(data.records)) == max(1, limit // BATCH_BYTES)


@one_of_each_shape
def test_only_the_first_partition_with_data_may_exceed_the_limits(client, filled, version):
    for limits in ({"partition_max_bytes": 1}, {"max_bytes": 1}):
        body = fetch_body((filled, 0, 9), (filled, 1, 0), max_wait=0, **limits)
        sizes = [len(each.records) for each in client.call(FETCH, version, body).responses[0].partitions]
        assert sizes == [0, BATCH_BYTES]
        body = fetch_body((filled, 0, 0), (filled, 1, 0), max_wait=0, **limits)
        sizes = [len(each.records) for each in client.call(FETCH, version, body).responses[0].partitions]
        assert sizes == [BATCH_BYTES, 0]


@one_of_each_shape
def test_max_bytes_is_shared_by_the_partitions_in_order(client, filled, version):
    body = fetch_body((filled, 0, 0), (filled, 1, 0), max_wait=0, max_bytes=4 * BATCH_BYTES)
    found = client.call(FETCH, version, body).responses[0].partitions
    assert [(each.partition_index, len(each.records)) for each in found] == [
        (0, 3 * BATCH_BYTES),
        (1, BATCH_BYTES),
    ]


@each_version
def test_waits_at_the_end_for_max_wait_then_answers_empty(client, other, filled, version):
    client.send(FETCH, version, fetch_body((filled, 0, 9), max_wait=NEVER_MS))
    data = one(other, version, filled, 9, max_wait=60)
    assert (data.error_code, data.records) == (0, b"")
    assert is_waiting(client), "the one with the longer wait"


@each_version
def test_waiting_fetch_is_answered_as_soon_as_a_record_arrives(client, other, version):
    topic = make_topic(other)
    client.send(FETCH, version, fetch_body((topic, 0, 0), max_wait=NEVER_MS))
    raw.list_offset(other, topic)  # the broker has had time for the fetch, too
    assert is_waiting(client), "there is nothing to answer with yet"
    raw.produce(other, topic, batch(values(b"news")))
    data = client.read().responses[0].partitions[0]
    assert (raw.values_of(data.records), data.high_watermark) == ([b"news"], 1)


@one_of_each_shape
def test_waiting_fetch_is_answered_once_min_bytes_are_there_over_all_partitions(client, other, version):
    topic = make_topic(other, partitions=2)
    sent = batch(values(b"x" * 100))
    body = fetch_body((topic, 0, 0), (topic, 1, 0), max_wait=NEVER_MS, min_bytes=2 * len(sent))
    client.send(FETCH, version, body)
    raw.produce(other, topic, sent, partition=1)
    raw.list_offset(other, topic)
    assert is_waiting(client), "half of min_bytes is not enough"
    raw.produce(other, topic, sent, partition=0)
    found = client.read().responses[0].partitions
    assert [len(each.records) for each in found] == [len(sent)] * 2


@one_of_each_shape
def test_fetch_with_enough_data_does_not_wait(client, filled, version):
    assert len(one(client, version, filled, 0, max_wait=NEVER_MS, min_bytes=BATCH_BYTES).records) > 0


@one_of_each_shape
def test_min_bytes_0_does_not_wait(client, filled, version):
    assert one(client, version, filled, 9, max_wait=NEVER_MS, min_bytes=0).records == b""


@one_of_each_shape
def test_request_behind_a_waiting_fetch_is_answered_after_it(client, filled, version):
    client.send(FETCH, version, fetch_body((filled, 0, 9), max_wait=50))
    client.send(raw.METADATA, 9, {"topics": [{"name": filled.name}]})
    assert client.read().responses[0].partitions[0].records == b""
    assert client.read().topics[0].name == filled.name


@one_of_each_shape
def test_fetch_of_nothing_is_answered_at_once(client, version):
    assert client.call(FETCH, version, fetch_body(max_wait=NEVER_MS)).responses == ()


@each_version
def test_read_committed_of_plain_data_is_all_of_it_with_no_aborted_transactions(client, filled, version):
    data = one(client, version, filled, 0, isolation_level=1)
    assert (len(raw.records_of(data.records)), data.last_stable_offset) == (9, 9)
    assert data.aborted_transactions == ()
    assert one(client, version, filled, 0, isolation_level=0).aborted_transactions is None


@each_version
def test_deleted_records_are_out_of_range_and_the_log_start_is_told(client, version):
    topic = make_topic(client)
    for _ in range(2):
        raw.produce(client, topic, batch(values(b"a", b"b")))
    cut = [topic.ref | {"partitions": [{"partition_index": 0, "offset": 3}]}]
    client.call(raw.DELETE_RECORDS, 2, {"topics": cut, "timeout": 10000})
    assert_no_data(one(client, version, topic, 2), version, ErrorCode.offset_out_of_range)
    data = one(client, version, topic, 3)
    assert [each.base_offset for each in raw.batches(data.records)] == [2], "batches are never cut"
    assert data.high_watermark == 4
    if version >= 5:
        assert data.log_start_offset == 3


def with_epochs(topic, offset, current=-1, last=-1):
    body = fetch_body((topic, 0, offset), max_wait=0)
    body["topics"][0]["partitions"][0] |= {"current_leader_epoch": current, "last_fetched_epoch": last}
    return body


@each_version
def test_leader_epoch_is_checked_from_version_9(client, filled, version):
    for epoch, expected in ((0, 0), (-1, 0), (1, ErrorCode.unknown_leader_epoch if version >= 9 else 0)):
        data = client.call(FETCH, version, with_epochs(filled, 0, current=epoch)).responses[0].partitions[0]
        assert data.error_code == expected
        if expected:
            assert_no_data(data, version, expected)


@pytest.mark.parametrize("version", range(12, raw.latest(FETCH) + 1))
def test_end_that_the_reader_has_passed_is_told_as_the_diverging_epoch(client, filled, version):
    data = client.call(FETCH, version, with_epochs(filled, 20, last=0)).responses[0].partitions[0]
    assert (data.error_code, data.high_watermark, data.records) == (0, 9, b"")
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 9)


@pytest.mark.parametrize("version", range(12, raw.latest(FETCH) + 1))
def test_last_fetched_epoch_that_agrees_changes_nothing(client, filled, version):
    data = client.call(FETCH, version, with_epochs(filled, 3, last=0)).responses[0].partitions[0]
    assert (data.error_code, len(raw.records_of(data.records)), data.diverging_epoch.epoch) == (0, 6, -1)


@pytest.mark.parametrize("version", range(12, raw.latest(FETCH) + 1))
def test_last_fetched_epoch_from_the_future_is_refused(client, filled, version):
    data = client.call(FETCH, version, with_epochs(filled, 3, last=1)).responses[0].partitions[0]
    assert_no_data(data, version, ErrorCode.offset_out_of_range)

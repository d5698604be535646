"""WriteTxnMarkers over every version: a transaction is ended past its coordinator, as an administrator does it."""

import pytest
import raw
import raw_groups
from raw import FETCH, LIST_OFFSETS, ErrorCode
from raw_groups import (
    DESCRIBE_PRODUCERS,
    WRITE_TXN_MARKERS,
    TransactionalProducer,
    committed,
    describe_transaction,
)

each_version = pytest.mark.parametrize("version", raw_groups.versions(WRITE_TXN_MARKERS))
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ABORT, COMMIT = False, True
BEGAN_MS = raw.now_ms()


pytestmark = pytest.mark.usefixtures("warm_coordinators")


@pytest.fixture
def topic(client):
    return raw.make_topic(client, partitions=2)


@pytest.fixture
def producer(client):
    """Its epoch is 1, so that there is an older one."""
    started = TransactionalProducer(client).started()
    assert started.init().producer_epoch == 1
    return started


def marker(producer, topics, result=ABORT, *, coordinator_epoch=0, **fields):
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "transaction_result": result,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()],
        "coordinator_epoch": coordinator_epoch,
    } | fields


def write(client, version, *markers):
    """{producer id: {(topic, partition): error}}; Kafka gives no order to them."""
    found = {}
    for each in client.call(WRITE_TXN_MARKERS, version, {"markers": list(markers)}).markers:
        assert each.producer_id not in found, "a producer is answered once"
        parts = [(topic.name, part) for topic in each.topics for part in topic.partitions]
        found[each.producer_id] = {(name, part.partition_index): part.error_code for name, part in parts}
    return found


def write_one(client, version, producer, topic, result=ABORT, **fields):
    """The one partition's error."""
    answer = write(client, version, marker(producer, {topic.name: [0]}, result, **fields))
    ((place, error),) = answer[fields.get("producer_id", producer.producer_id)].items()
    assert place == (topic.name, 0)
    return error


def ends(client, topic):
    """(where the log ends, where it is stable)."""

    def end(isolation):
        asked = [{"partition_index": 0, "timestamp": -1}]
        body = {"replica_id": -1, "isolation_level": isolation, "topics": [topic.ref | {"partitions": asked}]}
        return client.call(LIST_OFFSETS, 8, body).topics[0].partitions[0].offset

    return end(READ_UNCOMMITTED), end(READ_COMMITTED)


def described(client, topic, producer):
    """(epoch, last sequence, coordinator's epoch, start of the open transaction) of the producer."""
    body = {"topics": [{"name": topic.name, "partition_indexes": [0]}]}
    for each in client.call(DESCRIBE_PRODUCERS, 0, body).topics[0].partitions[0].active_producers:
        if each.producer_id == producer.producer_id:
            assert BEGAN_MS <= each.last_timestamp <= raw.now_ms()
            return each.producer_epoch, each.last_sequence, each.coordinator_epoch, each.current_txn_start_offset
    return None


def aborted(client, topic):
    body = raw.fetch_body((topic, 0, 0), max_wait=0, isolation_level=READ_COMMITTED)
    found = client.call(FETCH, 16, body).responses[0].partitions[0]
    return [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]


@each_version
@pytest.mark.parametrize("result", [ABORT, COMMIT])
def test_a_marker_ends_the_transaction_in_its_partition(client, topic, producer, version, result):
    assert producer.produce(13, topic, b"open").error_code == 0
    assert (ends(client, topic), described(client, topic, producer)) == ((1, 0), (1, 0, -1, 0))
    assert write_one(client, version, producer, topic, result) == 0
    assert (ends(client, topic), described(client, topic, producer)) == ((2, 2), (1, 0, 0, -1))
    assert aborted(client, topic) == ([] if result else [(producer.producer_id, 0)])


@each_version
def test_the_producer_goes_on_and_its_next_record_opens_a_transaction_again(client, topic, producer, version):
    assert producer.produce(13, topic, b"hanging").error_code == 0
    assert write_one(client, version, producer, topic) == 0
    assert producer.produce(13, topic, b"next").error_code == 0
    assert (ends(client, topic), described(client, topic, producer)) == ((3, 2), (1, 1, 0, 2))
    producer.end(5, commit=True)
    raw.eventually(lambda: ends(client, topic) == (4, 4))
    assert aborted(client, topic) == [(producer.producer_id, 0)]


@each_version
def test_records_sent_behind_a_marker_wait_for_their_own_end(client, topic, producer, version):
    """Both are on the way at once: the marker must not end what comes after it."""
    assert producer.produce(13, topic, b"hanging").error_code == 0
    client.send(WRITE_TXN_MARKERS, version, {"markers": [marker(producer, {topic.name: [0]})]})
    behind = raw.produce_body((topic, 0, producer.batch(topic, b"behind"))) | {"transactional_id": producer.name}
    client.send(raw.PRODUCE, 13, behind)
    assert client.read().markers[0].topics[0].partitions[0].error_code == 0
    assert client.read().responses[0].partition_responses[0].error_code == 0
    assert ends(client, topic) == (3, 2)


@each_version
def test_partitions_that_do_not_exist_are_refused_and_the_others_written(client, topic, producer, version):
    assert producer.produce(13, topic, b"open").error_code == 0
    missing = raw.fresh_name("missing")
    answer = write(client, version, marker(producer, {topic.name: [0, 9], missing: [0], "not/a/name": [1]}))
    unknown = ErrorCode.unknown_topic_or_partition
    expected = {(topic.name, 0): 0, (topic.name, 9): unknown, (missing, 0): unknown, ("not/a/name", 1): unknown}
    assert answer == {producer.producer_id: expected}
    assert ends(client, topic) == (2, 2)


@each_version
def test_an_older_producer_or_coordinator_is_fenced(client, topic, producer, version):
    assert producer.produce(13, topic, b"open").error_code == 0
    assert write_one(client, version, producer, topic, producer_epoch=0) == ErrorCode.invalid_producer_epoch
    assert ends(client, topic) == (1, 0)
    assert write_one(client, version, producer, topic, coordinator_epoch=5) == 0
    assert described(client, topic, producer) == (1, 0, 5, -1)
    fenced = ErrorCode.transaction_coordinator_fenced
    assert write_one(client, version, producer, topic, coordinator_epoch=4) == fenced
    both = {"coordinator_epoch": 4, "producer_epoch": 0}
    assert write_one(client, version, producer, topic, **both) == ErrorCode.invalid_producer_epoch
    assert ends(client, topic) == (2, 2), "what is refused is not written"


@each_version
def test_a_marker_of_a_newer_epoch_fences_the_producer(client, topic, producer, version):
    assert producer.produce(13, topic, b"open").error_code == 0
    assert write_one(client, version, producer, topic, producer_epoch=4) == 0
    assert described(client, topic, producer) == (4, -1, 0, -1)
    assert producer.produce(13, topic, b"late").error_code == ErrorCode.invalid_producer_epoch


@each_version
def test_a_marker_without_a_transaction_is_written_and_ends_nothing(client, topic, producer, version):
    assert described(client, topic, producer) is None
    assert write_one(client, version, producer, topic, coordinator_epoch=-1) == 0
    assert described(client, topic, producer) == (1, -1, -1, -1)
    assert write_one(client, version, producer, topic) == 0, "the same again"
    assert (ends(client, topic), aborted(client, topic)) == ((2, 2), [])


@each_version
def test_many_markers_of_one_producer_are_written_in_order_and_answered_once(client, topic, producer, version):
    newer = marker(producer, {topic.name: [0, 1]}, producer_epoch=7)
    answer = write(client, version, marker(producer, {topic.name: [0]}, producer_epoch=6), newer)
    assert answer == {producer.producer_id: {(topic.name, 0): 0, (topic.name, 1): 0}}
    assert (ends(client, topic), described(client, topic, producer)) == ((2, 2), (7, -1, 0, -1))
    assert write(client, version) == write(client, version, marker(producer, {})) == {}


@each_version
def test_a_producer_without_an_id_has_no_transaction(client, topic, producer, version):
    nobody = {"producer_id": -1, "producer_epoch": -1}
    assert write_one(client, version, producer, topic, **nobody) == ErrorCode.unknown_server_error
    assert ends(client, topic) == (0, 0)


def test_a_marker_of_transaction_version_2_bears_the_epoch_after_the_transaction(client, topic, producer):
    assert producer.produce(13, topic, b"open").error_code == 0
    newer = {"transaction_version": 2}
    assert write_one(client, 2, producer, topic, **newer) == ErrorCode.invalid_producer_epoch
    assert ends(client, topic) == (1, 0)
    assert write_one(client, 2, producer, topic, producer_epoch=2, **newer) == 0
    assert (ends(client, topic), described(client, topic, producer)) == ((2, 2), (2, -1, 0, -1))
    assert write_one(client, 2, producer, topic, producer_epoch=2, **newer) == 0, "sent again after a lost answer"
    assert write_one(client, 2, producer, topic, **newer) == ErrorCode.invalid_producer_epoch
    assert write_one(client, 2, producer, topic, producer_epoch=3, transaction_version=-1) == -1


@each_version
@pytest.mark.parametrize("result", [ABORT, COMMIT])
def test_a_marker_for_a_groups_offsets_ends_them_too(client, topic, producer, version, result):
    group = raw.fresh_name("group")
    assert producer.add_offsets(4, group) == 0
    assert producer.commit_offsets(4, group, topic, {0: 7}) == [0]
    ((offsets, [place]),) = describe_transaction(client, producer.name).topics.items()
    answer = write(client, version, marker(producer, {offsets: [place, 9999]}, result))
    unknown = ErrorCode.unknown_topic_or_partition
    assert answer == {producer.producer_id: {(offsets, place): 0, (offsets, 9999): unknown}}
    assert committed(client, 8, group, topic).offset == (7 if result else -1)

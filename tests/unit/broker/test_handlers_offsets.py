"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeLogDirs: what they make of a log."""

from types import SimpleNamespace

import pytest

from headrace.core.errors import PeerError, StorageError
from headrace.log.config import LogConfig
from headrace.protocol import error_codes as codes

LIST, DELETE, EPOCH, DIRECTORIES = 2, 21, 23, 35
NOTHING = (-1, -1, -1)


class FakeLog:
    """Offsets from 5 to 20, visible to 15, stable to 12; a record's time is ten times its offset."""

    directory = SimpleNamespace(error=None)
    start_offset, end_offset, high_watermark, last_stable_offset, leader_epoch = 5, 20, 15, 12, 3
    config = LogConfig()
    broken = False

    def leader_epoch_at(self, offset):
        return 2 if offset < 10 else 3

    def offset_for_time(self, timestamp):
        if self.broken:
            raise OSError("broken")
        offset = max(5, -(-timestamp // 10))
        return (offset, offset * 10, 3) if offset < 20 else None

    def max_timestamp(self):
        return (14, 140, 3)

    def end_offset_for_epoch(self, epoch):
        return (epoch, 20) if epoch == 3 else (-1, -1)

    def delete_records_before(self, offset):
        if offset > 15:
            raise PeerError(codes.OFFSET_OUT_OF_RANGE, "beyond the end")
        if self.broken:
            raise StorageError("broken")
        return max(self.start_offset, offset)


@pytest.fixture
def log(node, client):
    client.create(node, "x", 2)
    client.create(node, "kept", cleanup_policy="")
    client.create(node, "__consumer_offsets")
    partition = node.topics.get("x").partitions[0]
    partition.led, partition.leader_epoch = FakeLog(), FakeLog.leader_epoch
    return partition.led


@pytest.fixture
def offset(node, client, log):
    def call(timestamp, version=11, index=0, topic="x", epoch=-1, isolation=0):
        partition = {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
        answer = client.ask(
            node,
            LIST,
            version,
            replica_id=-1,
            isolation_level=isolation,
            topics=[{"name": topic, "partitions": [partition]}],
            timeout=1000,
        )
        (found,) = answer.topics[0].partitions
        return found.error_code, (found.offset, found.timestamp, getattr(found, "leader_epoch", None))

    return call


@pytest.mark.parametrize("version", range(1, 12))
def test_first_and_last_offset_over_all_versions(offset, version):
    code, (last, timestamp, epoch) = offset(-1, version)
    assert (code, last, timestamp) == (0, 15, -1)
    assert epoch == (3 if version >= 4 else None)
    assert offset(-2, version)[1][:2] == (5, -1)
    assert offset(61, version)[1][:2] == (7, 70)


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_special_times_need_the_version_that_brought_them(offset, timestamp, since):
    assert offset(timestamp, since - 1)[0] == codes.UNSUPPORTED_VERSION
    assert offset(timestamp, since)[0] == codes.NONE


def test_special_times(offset):
    assert offset(-3) == (0, (14, 140, 3))
    assert offset(-4) == (0, (5, -1, 2))
    assert offset(-5) == offset(-6) == (0, NOTHING)
    assert offset(-7) == (codes.UNSUPPORTED_VERSION, NOTHING)


def test_nothing_is_found_beyond_what_may_be_seen(offset):
    assert offset(149) == (0, NOTHING)
    assert offset(10_000) == (0, NOTHING)
    assert offset(-1, isolation=1) == (0, (12, -1, 3))
    assert offset(125, isolation=1) == (0, NOTHING)
    assert offset(125, isolation=0) == (0, (13, 130, 3))


def test_a_client_with_another_leader_in_mind_is_told_so(offset):
    assert offset(-1, epoch=3)[0] == codes.NONE
    assert offset(-1, epoch=2) == (codes.FENCED_LEADER_EPOCH, NOTHING)
    assert offset(-1, epoch=4) == (codes.UNKNOWN_LEADER_EPOCH, NOTHING)


def test_partitions_that_are_not_there_offline_or_broken(node, offset, log):
    assert offset(-1, index=9) == offset(-1, topic="nope") == (codes.UNKNOWN_TOPIC_OR_PARTITION, NOTHING)
    assert offset(-1, index=-1)[0] == codes.UNKNOWN_TOPIC_OR_PARTITION
    log.broken = True
    assert offset(100) == (codes.KAFKA_STORAGE_ERROR, NOTHING)
    node.topics.get("x").partitions[1].go_offline()
    assert offset(-1, index=1) == (codes.KAFKA_STORAGE_ERROR, NOTHING)


def test_a_partition_asked_for_twice_is_refused_once(node, client, log):
    twice = [{"partition_index": 0, "timestamp": -1}] * 2
    answer = client.ask(
        node,
        LIST,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": "x", "partitions": twice}],
        timeout=1,
    )
    assert [p.error_code for p in answer.topics[0].partitions] == [codes.INVALID_REQUEST]


@pytest.mark.parametrize("version", range(2, 5))
@pytest.mark.parametrize(
    ("topic", "index", "current", "asked", "expected"),
    [
        ("x", 0, -1, 3, (0, 3, 20)),
        ("x", 0, 3, 9, (0, -1, -1)),
        ("x", 0, 2, 3, (codes.FENCED_LEADER_EPOCH, -1, -1)),
        ("x", 0, 4, 3, (codes.UNKNOWN_LEADER_EPOCH, -1, -1)),
        ("x", 7, -1, 3, (codes.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)),
        ("nope", 0, -1, 3, (codes.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)),
    ],
)
def test_where_an_epoch_ends(node, client, log, version, topic, index, current, asked, expected):
    partition = {"partition": index, "current_leader_epoch": current, "leader_epoch": asked}
    topics = [{"topic": topic, "partitions": [partition]}]
    answer = client.ask(node, EPOCH, version, replica_id=-1, topics=topics)
    (found,) = answer.topics[0].partitions
    assert (found.error_code, found.leader_epoch, found.end_offset) == expected


@pytest.fixture
def delete(node, client, log):
    def call(offset, index=0, topic="x", version=2):
        topics = [{"name": topic, "partitions": [{"partition_index": index, "offset": offset}]}]
        (found,) = client.ask(node, DELETE, version, topics=topics, timeout=0).topics[0].partitions
        return found.error_code, found.low_watermark

    return call


@pytest.mark.parametrize("version", range(3))
def test_deleting_records_over_all_versions(delete, version):
    assert delete(9, version=version) == (0, 9)


def test_deleting_records_that_cannot_be_deleted(delete, log):
    assert delete(16) == (codes.OFFSET_OUT_OF_RANGE, -1)
    assert delete(1, index=9) == delete(1, topic="nope") == (codes.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(0, topic="__consumer_offsets") == (codes.INVALID_TOPIC_EXCEPTION, -1)
    assert delete(0, topic="kept") == (codes.POLICY_VIOLATION, -1)
    log.broken = True
    assert delete(9) == (codes.KAFKA_STORAGE_ERROR, -1)


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_over_all_versions(node, client, version):
    client.create(node, "x", 2)
    wanted = [{"topic": "x", "partitions": [1, 7]}]
    (found,) = client.ask(node, DIRECTORIES, version, topics=wanted).results
    assert (found.error_code, found.log_dir) == (0, node.store.directories[0].path)
    sizes = [(t.name, [(p.partition_index, p.partition_size) for p in t.partitions]) for t in found.topics]
    assert sizes == [("x", [(1, 0)])]
    if version >= 4:
        assert found.total_bytes >= found.usable_bytes > 0


def test_all_partitions_or_none(node, client):
    client.create(node, "x", 2)
    (everything,) = client.ask(node, DIRECTORIES, topics=None).results
    (nothing,) = client.ask(node, DIRECTORIES, topics=()).results
    assert (len(everything.topics[0].partitions), nothing.topics) == (2, ())


def test_an_offline_directory_is_shown_with_an_error(node, client):
    client.create(node, "x", 2)
    node.store.take_offline(node.store.directories[0], "broken")
    (found,) = client.ask(node, DIRECTORIES, topics=None).results
    assert (found.error_code, found.topics) == (codes.KAFKA_STORAGE_ERROR, ())

"""A disk that fails takes the partitions on it offline with a clear error; those on another go on."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest
import raw
from faulty_disk import EVERYTHING
from node_thread import NodeThread
from raw import ErrorCode
from two_disks import PARTITIONS, TwoDisks
from waits import NEVER_MS, WAIT_S_MAX, eventually

from headrace.broker import http


@pytest.fixture
def disks(start_node, directories) -> Iterator[TwoDisks]:
    two = TwoDisks(start_node(log_dirs=directories, metrics_port=0))
    yield two
    two.client.socket.close()


@pytest.mark.parametrize("operation", ["write", "open"])
def test_failing_write_takes_the_directory_offline_and_no_other(disks, operation):
    disks.node.forget_open_files()
    disks.node.disk.fail("/bad/", on=(operation,))
    first = disks.bad[0]
    assert disks.produce(first) == ErrorCode.kafka_storage_error
    disks.check_offline()
    disks.check_good()
    assert disks.node.alive


def test_failing_flush_is_not_acknowledged_and_takes_the_directory_offline(start_node, directories):
    disks = TwoDisks(start_node(log_dirs=directories), **{"flush.messages": 1})
    disks.node.disk.fail("/bad/", on=("sync",))
    assert disks.produce(disks.bad[0], b"perhaps on the disk, perhaps not") == ErrorCode.kafka_storage_error
    disks.check_offline()
    disks.check_good()


def test_nothing_is_acknowledged_behind_a_flush_that_failed(start_node, directories):
    """The kernel tells of a failed flush once; the next one succeeds, and proves nothing."""
    disks = TwoDisks(start_node(log_dirs=directories), **{"flush.messages": 1})
    index = disks.bad[0]
    disks.node.disk.fail("/bad/", on=("sync",), times=1)
    codes = []
    for _ in range(30):
        batch = raw.batch(raw.values(b"behind it"))
        disks.client.send(raw.PRODUCE, 13, raw.produce_body((disks.topic, index, batch)))
    for _ in range(30):
        codes.append(disks.client.read().responses[0].partition_responses[0].error_code)
    assert set(codes) == {ErrorCode.kafka_storage_error}
    disks.check_good()


def test_torn_write_that_cannot_be_cut_loses_nothing_acknowledged(start_node, directories):
    disks = TwoDisks(start_node(log_dirs=directories))
    index, node = disks.bad[0], disks.node
    acknowledged = [b"one"]
    node.disk.fail("/bad/", on=("truncate",))
    node.disk.fill_after(300)
    assert disks.produce(index, bytes(5000)) == ErrorCode.kafka_storage_error
    node.disk.fill_after(None)
    for number in range(5):
        if disks.produce(index, b"%d" % number) == 0:
            acknowledged.append(b"%d" % number)
    node.stop()
    os.unlink(os.path.join(directories[0], ".kafka_cleanshutdown"))
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(directories[1], ".kafka_cleanshutdown"))
    node = start_node(log_dirs=directories)
    with raw.Client(node.bootstrap) as client:
        found = raw.values_of(raw.fetch(client, disks.topic, partition=index).records)
        assert found[: len(acknowledged)] == acknowledged


def test_retention_on_a_dead_disk_leaves_the_broker_alive_and_goes_on_elsewhere(start_node, directories):
    node = start_node(log_dirs=directories, log_retention_check_interval_ms=20)
    disks = TwoDisks(node)
    node.disk.fail("/bad/", on=("rename", "unlink"))
    spec = [{"name": "retention.ms", "config_operation": 0, "value": "1"}]
    resource = {"resource_type": 2, "resource_name": disks.topic.name, "configs": spec}
    body = {"resources": [resource], "validate_only": False}
    (answer,) = disks.client.call(raw.INCREMENTAL_ALTER_CONFIGS, 1, body).responses
    assert answer.error_code == 0
    for index in disks.good:
        deleted = partial(raw.list_offset, disks.client, disks.topic, index, timestamp=-2)
        eventually(lambda deleted=deleted: deleted() > 0, "old segments go from the disk that works")
    assert node.alive


def test_failing_read_is_an_error_of_that_partition_alone(disks):
    disks.node.forget_open_files()
    disks.node.disk.fail("/bad/", on=("read", "open"))
    for index in disks.bad:
        assert disks.fetch(index).error_code == ErrorCode.kafka_storage_error
    disks.check_good()
    assert disks.node.alive


def test_disk_on_which_everything_fails_leaves_the_rest_untouched(disks):
    disks.node.disk.fail("/bad/", on=EVERYTHING)
    eventually(lambda: disks.produce(disks.bad[0]) == ErrorCode.kafka_storage_error, "the disk is missed")
    disks.check_offline()
    disks.check_good()
    more = raw.make_topic(disks.client, 4)
    for index in range(4):
        answer = raw.produce(disks.client, more, raw.batch(raw.values(b"new")), partition=index)
        assert answer.error_code == 0, "a new topic goes to the directory that works"
    body = {"topics": [{"name": more.name}], "timeout": 5000}
    assert disks.client.call(raw.DELETE_TOPICS, 6, body).responses[0].error_code == 0
    assert disks.node.alive


def test_topic_on_a_dead_disk_can_be_deleted_and_the_broker_stops_cleanly(disks):
    disks.node.disk.fail("/bad/", on=EVERYTHING)
    assert disks.produce(disks.bad[0]) == ErrorCode.kafka_storage_error
    body = {"topics": [{"name": disks.topic.name}], "timeout": 5000}
    assert disks.client.call(raw.DELETE_TOPICS, 6, body).responses[0].error_code == 0
    disks.node.stop()


def test_every_disk_dead_is_a_broker_that_still_says_so(disks):
    disks.node.disk.fail("/", on=EVERYTHING)
    for index in range(PARTITIONS):
        assert disks.produce(index) == ErrorCode.kafka_storage_error
    assert {each.leader_id for each in disks.metadata().values()} == {-1}
    answer = disks.client.call(raw.INIT_PRODUCER_ID, 4, {"transactional_id": None})
    assert answer.error_code in (0, ErrorCode.kafka_storage_error)
    spec = {"name": "more", "num_partitions": 1, "replication_factor": 1}
    (refused,) = disks.client.call(raw.CREATE_TOPICS, 7, {"topics": [spec], "timeout": 5000}).topics
    assert refused.error_code == ErrorCode.kafka_storage_error
    assert disks.node.alive


def test_metadata_and_log_directories_show_what_is_offline_as_kafka_does(disks):
    disks.node.disk.fail("/bad/", on=("write",))
    assert disks.produce(disks.bad[0]) == ErrorCode.kafka_storage_error
    for index, partition in disks.metadata().items():
        online = index in disks.good
        assert partition.error_code == (0 if online else ErrorCode.leader_not_available)
        assert partition.leader_id == (1 if online else -1)
        assert partition.offline_replicas == (() if online else (1,))
        assert partition.replica_nodes == (1,)
    results = disks.client.call(raw.DESCRIBE_LOG_DIRS, 4, {"topics": None}).results
    codes = {os.path.basename(each.log_dir): each.error_code for each in results}
    assert codes == {"good": 0, "bad": ErrorCode.kafka_storage_error}


def test_list_offsets_of_an_offline_partition_is_an_error_and_not_an_offset(disks):
    disks.node.disk.fail("/bad/", on=("write",))
    assert disks.produce(disks.bad[0]) == ErrorCode.kafka_storage_error
    for timestamp in (-1, -2, -3, 0):
        asked = [{"partition_index": index, "timestamp": timestamp} for index in range(PARTITIONS)]
        body = {"replica_id": -1, "topics": [disks.topic.ref | {"partitions": asked}]}
        for found in disks.client.call(raw.LIST_OFFSETS, 8, body).topics[0].partitions:
            if found.partition_index in disks.bad:
                assert found.error_code in (ErrorCode.kafka_storage_error, ErrorCode.leader_not_available)
                assert found.offset == -1
            else:
                assert found.error_code == 0


def test_health_says_503_with_the_directory_that_failed(disks, monkeypatch):
    monkeypatch.setattr(http, "ANSWER_S_MAX", WAIT_S_MAX)  # a loop that is slow to answer is another illness
    assert health(disks.node)[0] == 200
    disks.node.disk.fail("/bad/", on=("write",))
    assert disks.produce(disks.bad[0]) == ErrorCode.kafka_storage_error
    status, said = health(disks.node)
    assert status == 503
    assert said["status"] == "unhealthy"
    assert said["reason"].endswith("/bad")


def test_fetch_that_waits_is_answered_when_its_disk_fails(disks):
    index = disks.bad[0]
    with raw.Client(disks.node.bootstrap) as waiting:
        waiting.send(raw.FETCH, 16, raw.fetch_body((disks.topic, index, 1), max_wait=NEVER_MS))
        eventually(lambda: disks.node.node.purgatory.count == 1, "the fetch waits")
        disks.node.disk.fail("/bad/", on=("write",))
        assert disks.produce(index) == ErrorCode.kafka_storage_error
        (found,) = waiting.read().responses[0].partitions
        assert found.error_code == ErrorCode.kafka_storage_error


def test_offline_directory_is_back_after_a_restart_with_what_was_acknowledged(start_node, directories):
    disks = TwoDisks(start_node(log_dirs=directories))
    disks.node.disk.fail("/bad/", on=("write",))
    assert disks.produce(disks.bad[0], b"refused") == ErrorCode.kafka_storage_error
    disks.node.stop()
    node = start_node(log_dirs=directories)
    with raw.Client(node.bootstrap) as client:
        for index in range(PARTITIONS):
            assert raw.values_of(raw.fetch(client, disks.topic, partition=index).records) == [b"one"]


def health(node: NodeThread) -> tuple[int, dict[str, str]]:
    url = f"http://127.0.0.1:{node.node.metrics_port}/health"
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S_MAX) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)

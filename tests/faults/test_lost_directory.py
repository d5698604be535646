"""A log directory that is gone, empty or broken at the start: its partitions are offline, the rest starts.

Its offsets are never given out again. A disk that was not mounted looks like an empty directory; what it holds
must still be good when it is back.
"""

from __future__ import annotations

import errno
import os
import shutil

import pytest
import raw
from faulty_disk import FaultyDisk
from raw import ErrorCode
from two_disks import PARTITIONS, TwoDisks

ASIDE = "-aside"


def unreadable_disk(path: str) -> FaultyDisk:
    disk = FaultyDisk()
    disk.fail("/bad")
    return disk


def read_only_disk(path: str) -> FaultyDisk:
    disk = FaultyDisk()
    disk.fail("/bad", on=("write", "truncate", "rename", "unlink", "make_directory"), code=errno.EROFS)
    return disk


def file_instead_of_directory(path: str) -> FaultyDisk:
    os.rename(path, path + ASIDE)
    with open(path, "w"):
        return FaultyDisk()


def empty_directory(path: str) -> FaultyDisk:
    os.rename(path, path + ASIDE)
    os.mkdir(path)
    return FaultyDisk()


def no_directory(path: str) -> FaultyDisk:
    os.rename(path, path + ASIDE)
    return FaultyDisk()


def bring_back(path: str) -> None:
    if os.path.exists(path + ASIDE):
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
        os.rename(path + ASIDE, path)


@pytest.mark.parametrize(
    "loss",
    [unreadable_disk, read_only_disk, file_instead_of_directory, empty_directory, no_directory],
    ids=lambda loss: loss.__name__,
)
@pytest.mark.parametrize("clean", [True, False], ids=["after-a-stop", "after-a-crash"])
def test_directory_lost_at_the_start_has_its_partitions_offline_until_it_is_back(start_node, directories, loss, clean):
    disks = TwoDisks(start_node(log_dirs=directories))
    topic, good, bad = disks.topic, disks.good, disks.bad
    two = raw.batch(raw.values(b"two"))
    disks.node.stop()
    if not clean:
        for path in directories:
            os.unlink(os.path.join(path, ".kafka_cleanshutdown"))
    node = start_node(log_dirs=directories, disk=loss(directories[1]))
    with raw.Client(node.bootstrap) as client:
        for index in good:
            assert raw.values_of(raw.fetch(client, topic, partition=index).records) == [b"one"]
            assert raw.produce(client, topic, two, partition=index).error_code == 0
        for index in bad:
            answer = raw.produce(client, topic, two, partition=index)
            assert answer.error_code == ErrorCode.kafka_storage_error, "its offsets are not given out again"
            assert raw.fetch(client, topic, partition=index).error_code == ErrorCode.kafka_storage_error
    node.stop()
    bring_back(directories[1])
    node = start_node(log_dirs=directories)
    with raw.Client(node.bootstrap) as client:
        for index in range(PARTITIONS):
            expected = [b"one", b"two"] if index in good else [b"one"]
            assert raw.values_of(raw.fetch(client, topic, partition=index).records) == expected
            assert raw.produce(client, topic, two, partition=index).error_code == 0


def test_new_directory_beside_old_ones_is_simply_used(start_node, directories, tmp_path):
    node = start_node(log_dirs=directories[:1])
    with raw.Client(node.bootstrap) as client:
        topic = raw.make_topic(client, 2)
        assert raw.produce(client, topic, raw.batch(raw.values(b"old"))).error_code == 0
    node.stop()
    node = start_node(log_dirs=directories)
    with raw.Client(node.bootstrap) as client:
        assert raw.values_of(raw.fetch(client, topic).records) == [b"old"]
        more = raw.make_topic(client, 2)
        assert raw.produce(client, more, raw.batch(raw.values(b"new"))).error_code == 0
        held = client.call(raw.DESCRIBE_LOG_DIRS, 4, {"topics": None}).results
        assert any(each.topics and each.log_dir == directories[1] for each in held)

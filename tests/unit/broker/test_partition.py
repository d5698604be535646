"""The gate through which clients reach a log."""

import uuid
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from headrace.broker.partition import ELSEWHERE, FOLLOWER, LEADER, OFFLINE, Partition
from headrace.core.errors import PeerError
from headrace.protocol import error_codes as codes


class Log:
    leader_epoch = 3

    def __init__(self):
        self.on_high_watermark = []
        self.failed = []
        self.epochs = []
        self.config = SimpleNamespace(min_insync_replicas=1)

    def fail_uncommitted(self, error):
        self.failed.append(error.code)

    def begin_epoch(self, epoch):
        self.epochs.append(epoch)
        self.leader_epoch = epoch


@pytest.fixture
def partition():
    return Partition("t", uuid.UUID(int=1), 0, Log(), 0)


def code(partition, epoch=-1):
    with pytest.raises(PeerError) as refused:
        partition.log_for(epoch)
    return refused.value.code


def test_a_leader_gives_its_log_to_those_who_know_its_epoch(partition):
    assert (partition.role, partition.led is partition.local) == (LEADER, True)
    assert partition.log_for() is partition.log_for(3) is partition.local
    assert (code(partition, 2), code(partition, 4)) == (codes.FENCED_LEADER_EPOCH, codes.UNKNOWN_LEADER_EPOCH)


def test_a_follower_sends_clients_elsewhere_and_keeps_its_copy(partition):
    log = partition.local
    partition.follow(4)
    assert (partition.role, partition.led, partition.local) == (FOLLOWER, None, log)
    assert log.failed == [codes.NOT_LEADER_OR_FOLLOWER]
    assert code(partition) == code(partition, 4) == codes.NOT_LEADER_OR_FOLLOWER
    assert code(partition, 3) == codes.FENCED_LEADER_EPOCH
    partition.lead(5, (0,))
    assert (partition.log_for(5), log.epochs) == (log, [5])


def test_a_lost_directory_is_a_storage_error_whatever_the_epoch(partition):
    log = partition.local
    partition.go_offline()
    assert (partition.role, partition.local, partition.isr) == (OFFLINE, None, ())
    assert log.failed == [codes.KAFKA_STORAGE_ERROR]
    assert code(partition) == code(partition, 2) == codes.KAFKA_STORAGE_ERROR
    partition.lead(6, (0,))
    assert partition.role == OFFLINE


@pytest.mark.parametrize("leave", [lambda it: it.go_offline(), lambda it: it.go_elsewhere(6, (9,))])
def test_a_log_that_is_given_up_tells_its_partition_nothing_more(partition, leave):
    given_up, waiting = partition.local, Mock()
    partition.await_growth(waiting)
    assert len(given_up.on_high_watermark) == 1
    leave(partition)
    assert given_up.on_high_watermark == []
    assert waiting.wake.call_count == 1, "who waits learns that it is gone"
    leave(partition)
    partition.attach(Log())
    assert len(partition.local.on_high_watermark) == 1


def test_a_partition_that_other_brokers_have_is_not_led_here():
    partition = Partition("t", uuid.UUID(int=1), 0, None, 0)
    partition.role = ELSEWHERE
    assert code(partition) == codes.NOT_LEADER_OR_FOLLOWER


def test_acks_all_needs_as_many_replicas_in_sync_as_the_topic_says(partition):
    partition.local.config.min_insync_replicas = 2
    assert partition.too_few() is None, "it has one replica, and more cannot be in sync"
    partition.replicas = (0, 1)
    assert partition.too_few().code == codes.NOT_ENOUGH_REPLICAS
    assert "1 replica(s) in sync, min.insync.replicas is 2" in partition.too_few().message
    partition.isr = (0, 1)
    assert partition.too_few() is None

"""A topic whose deletion was noted never comes back, wherever a kill or a stop ends it; before that it is whole."""

import gc
import random
import shutil
from types import SimpleNamespace

import pytest

from headrace.broker.catalog import JOURNAL_NAME
from headrace.coordinator.group_records import CommittedOffset
from headrace.core.errors import PeerError
from headrace.core.files import Disk
from headrace.core.steps import finish
from headrace.log.partition_log import PartitionLog
from headrace.protocol import error_codes
from headrace.protocol.records import build_plain_batch

GROUPS = ("shop", "office")
KEPT = "kept"
NOBODY = SimpleNamespace(done=lambda log, error: None)  # waits for a write


class Killed(BaseException):
    """No handler may hold it up: a killed process handles nothing."""


class MortalDisk(Disk):
    """The process dies before the operation number `dies_at`, and does nothing more."""

    def __init__(self):
        self.count = 0
        self.dies_at = None

    def step(self):
        if self.dies_at is not None and self.count >= self.dies_at:
            raise Killed
        self.count += 1

    def write(self, fd, pieces, at):
        self.step()
        super().write(fd, pieces, at)

    def rename(self, old, new):
        self.step()
        super().rename(old, new)

    def unlink(self, path):
        self.step()
        super().unlink(path)

    def make_directory(self, path):
        self.step()
        super().make_directory(path)

    def sync(self, fd):
        """What a killed process has written is there, synced or not."""
        self.step()

    def sync_directory(self, path):
        self.step()


class Scene:
    """Topics with a record and the offsets of two groups in each partition; which of them to delete."""

    def __init__(self, make_node, tmp_path, seed):
        choose = random.Random(seed)
        self._make_node = make_node
        self._path = tmp_path
        self.directories = [f"disk{number}" for number in range(choose.randint(1, 2))]
        self.topics = {f"topic{number}": choose.randint(1, 4) for number in range(choose.randint(1, 3))}
        self.doomed = choose.sample(sorted(self.topics), choose.randint(1, len(self.topics)))
        self.topics[KEPT] = 2
        self.start("before").close()  # no directory is new any more: a log that is not there was deleted
        node = self.start("before")
        for name, partitions in self.topics.items():
            node.controller.create(name, partitions, {})
            for partition in node.topics.get(name).partitions:
                batch = build_plain_batch([(b"key", name.encode())], node.clock.now_ms())
                partition.led.appender.stage_own(batch, node.clock.now_ms(), NOBODY)
        for group in GROUPS:
            self.commit(node, group, [(name, at) for name, count in self.topics.items() for at in range(count)])
        end_turn(node)
        node.abandon()

    def start(self, copy, disk=None):
        paths = tuple(str(self._path / copy / name) for name in self.directories)
        few = {"offsets_topic_num_partitions": 2, "transaction_state_log_num_partitions": 1}
        return self._make_node(log_dirs=paths, disk=disk or MortalDisk(), **few)

    def copied(self, copy):
        shutil.copytree(self._path / "before", self._path / copy)

    def partition_directories(self, copy, name):
        return sorted(
            path.name
            for directory in self.directories
            for path in (self._path / copy / directory).glob(f"{name}-*")
            if not path.name.endswith("-delete")
        )

    @staticmethod
    def commit(node, group, partitions, offset=1):
        told = []
        entries = [(*each, CommittedOffset(offset, commit_timestamp_ms=node.clock.now_ms())) for each in partitions]
        node.groups.commit_offsets(group, "", -1, None, entries, told.append, version=9)
        end_turn(node)
        assert told == [[0] * len(entries)]

    def assert_whole(self, node, name):
        partitions = node.topics.get(name).partitions
        assert [partition.led.end_offset for partition in partitions] == [1] * self.topics[name]
        assert all(committed(node, group, name) == [1] * self.topics[name] for group in GROUPS)

    def assert_gone(self, node, copy, name):
        assert node.topics.get(name) is None
        assert self.partition_directories(copy, name) == []
        end_turn(node)
        made = node.controller.create(name, 1, {})
        assert made.partitions[0].led.end_offset == 0
        assert all(committed(node, group, name) == [] for group in GROUPS)
        self.commit(node, GROUPS[0], [(name, 0)], offset=7)


def end_turn(node):
    node._end_of_turn()
    node.reactor.run_pending()


def committed(node, group, name):
    """In the order of partitions; nothing for those without an offset."""
    found = finish(node.groups.fetch_offsets(group, None, -1, None, False))
    partitions = [each for topic in found["topics"] if topic["name"] == name for each in topic["partitions"]]
    return [each["committed_offset"] for each in partitions]


def delete(node, names):
    for _ in node.controller.delete_in_steps(*names):
        pass
    end_turn(node)


@pytest.mark.parametrize("seed", [1, 4, 6])
def test_a_kill_before_any_write_or_rename_leaves_a_topic_whole_or_nothing_of_it(make_node, tmp_path, seed):
    """Every operation of the deletion on the disks is the last one once."""
    scene = Scene(make_node, tmp_path, seed)
    gone_before, dies_at, over = set(), 0, False
    while not over:
        copy = f"killed{dies_at}"
        scene.copied(copy)
        disk = MortalDisk()
        node = scene.start(copy, disk)
        end_turn(node)
        disk.dies_at = disk.count + dies_at
        try:
            delete(node, scene.doomed)
            over = True
        except Killed:
            dies_at += 1
        node.abandon()
        again = scene.start(copy)
        scene.assert_whole(again, KEPT)
        gone = {name for name in scene.doomed if again.topics.get(name) is None}
        assert gone_before <= gone, "what was noted as deleted stays deleted"
        gone_before = gone
        for name in scene.topics:
            if name in gone:
                scene.assert_gone(again, copy, name)
            else:
                scene.assert_whole(again, name)
        end_turn(again)
        again.abandon()
        third = scene.start(copy)
        assert {name: len(third.topics.get(name).partitions) for name in gone} == dict.fromkeys(gone, 1)
        assert all(committed(third, GROUPS[0], name) == [7] for name in gone), "offsets of the new topic stay"
        third.abandon()
        shutil.rmtree(tmp_path / copy)
    assert gone_before == set(scene.doomed)
    assert dies_at >= sum(scene.topics[name] for name in scene.doomed) + 3, "each rename, and some writes"


@pytest.mark.parametrize("ends", ["abandon", "close"])
def test_a_kill_or_a_stop_between_any_two_steps_brings_nothing_back(make_node, tmp_path, ends):
    scene = Scene(make_node, tmp_path, 1)
    steps, over = 1, False
    while not over:
        copy = f"stopped{steps}"
        scene.copied(copy)
        node = scene.start(copy)
        deleting = node.controller.delete_in_steps(*scene.doomed)
        over = any(next(deleting, deleting) is deleting for _ in range(steps))
        getattr(node, ends)()
        again = scene.start(copy)
        scene.assert_whole(again, KEPT)
        for name in scene.doomed:
            scene.assert_gone(again, copy, name)
        again.abandon()
        steps += 1
    assert steps > 3


def test_a_deletion_that_cannot_be_noted_changes_nothing(make_node, tmp_path, monkeypatch):
    scene = Scene(make_node, tmp_path, 1)
    node = scene.start("before")

    def full(fd, pieces, at):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node.disk, "write", full)
    with pytest.raises(PeerError) as refusal:
        node.controller.delete(*scene.doomed)
    assert refusal.value.code == error_codes.KAFKA_STORAGE_ERROR
    monkeypatch.undo()
    for name in scene.topics:
        scene.assert_whole(node, name)
    node.controller.delete(*scene.doomed)


def test_the_only_topic_does_not_come_back_when_a_loss_of_power_undoes_the_renames(make_node, tmp_path):
    """An empty catalog is not a lost one: what it does not know is set aside, not adopted."""
    node = make_node(disk=MortalDisk())
    node.controller.create("orders", 1, {})
    data = tmp_path / "data"
    shutil.copytree(data / "orders-0", tmp_path / "orders-0")
    node.controller.delete("orders")
    for number in range(2000):  # until the journal has forgotten whom it deleted
        node.catalog.put_broker_settings("cluster", {"log.retention.ms": str(number + 1)})
    assert b"orders" not in (data / JOURNAL_NAME).read_bytes()
    node.close()
    shutil.copytree(tmp_path / "orders-0", data / "orders-0")
    again = make_node()
    assert again.topics.get("orders") is None
    assert [path.name.rpartition("-")[2] for path in data.glob("orders-0*")] == ["stray"]


@pytest.mark.parametrize("is_under_way", [False, True])
def test_a_deleted_log_is_not_left_to_the_collector(make_node, is_under_way):
    """It goes through all that is old, which takes long, and therefore seldom."""
    node = make_node()
    batch = build_plain_batch([(b"k", b"v")], 1)
    gc.collect()
    gc.disable()
    try:
        for name in ("one", "two"):
            node.controller.create(name, 3, {})
            log = node.topics.get(name).partitions[0].led
            for _ in range(2):
                log.appender.stage(memoryview(bytearray(batch)), 0, len(batch), node.clock.now_ms(), NOBODY)
                if not is_under_way:
                    end_turn(node)
            if not is_under_way:
                assert log.read(0, 1 << 20, whole_first=True, copy=True, end=log.high_watermark) is not None
            del log
            delete(node, [name])
        assert [each.name for each in gc.get_objects() if isinstance(each, PartitionLog)] == []
    finally:
        gc.enable()

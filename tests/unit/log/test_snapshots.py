import os
from types import SimpleNamespace

import pytest
from harness import Bench, FaultyDisk, batch

from headrace.log.producer_state import ProducerState
from headrace.log.snapshots import Snapshots


def state(producers=1, sequence=0, offset=0):
    made = ProducerState()
    for producer in range(producers):
        made.record(producer, 0, sequence, sequence, offset, offset, 1000)
    return made


@pytest.fixture
def disk():
    return FaultyDisk()


def names(path):
    return sorted(int(name.split(".")[0]) for name in os.listdir(path) if name.endswith(".snapshot"))


def test_a_new_log_has_an_empty_state_and_no_file(disk, tmp_path):
    snapshots = Snapshots(str(tmp_path), disk, [])
    assert len(snapshots.state()) == 0
    assert os.listdir(tmp_path) == []


def test_a_snapshot_is_named_by_the_end_of_its_log_and_read_back(disk, tmp_path):
    snapshots = Snapshots(str(tmp_path), disk, [])
    snapshots.use(state(3, sequence=7, offset=41))
    snapshots.take(42)
    assert os.listdir(tmp_path) == ["00000000000000000042.snapshot"]
    again = Snapshots(str(tmp_path), disk, [42])
    assert again.state().get(2) == state(3, sequence=7, offset=41).get(2)
    assert again.load(None)[0] == 42


def test_the_state_is_read_on_first_use_only(disk, tmp_path):
    Snapshots(str(tmp_path), disk, [], state(3)).take(5)
    disk.bytes_read = 0
    snapshots = Snapshots(str(tmp_path), disk, [5])
    assert disk.bytes_read == 0
    assert snapshots.state() is snapshots.state()
    assert disk.bytes_read == os.path.getsize(tmp_path / "00000000000000000005.snapshot")


def test_the_newest_at_or_below_an_offset_is_loaded(disk, tmp_path):
    snapshots = Snapshots(str(tmp_path), disk, [])
    for offset in (10, 20, 30):
        snapshots.use(state(1, offset=offset - 1))
        snapshots.take(offset)
    assert [snapshots.load(limit)[0] for limit in (9, 10, 19, 20, 29, 30, 100, None)] == [0, 10, 10, 20, 20, 30, 30, 30]
    assert len(snapshots.load(9)[1]) == 0


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: data[:-1] + b"\x55"])
def test_a_torn_snapshot_gives_way_to_an_older_one(disk, tmp_path, damage):
    snapshots = Snapshots(str(tmp_path), disk, [])
    snapshots.use(state(1))
    snapshots.take(10)
    snapshots.use(state(2))
    snapshots.take(20)
    torn = tmp_path / "00000000000000000020.snapshot"
    torn.write_bytes(damage(torn.read_bytes()))
    offset, found = Snapshots(str(tmp_path), disk, [20, 10]).load(None)
    assert (offset, len(found)) == (10, 1)
    assert not torn.exists(), "it can be taken again"
    assert Snapshots(str(tmp_path), disk, [20, 10]).load(None)[0] == 10


def test_a_roll_is_kept_as_it_was_staged_and_written_when_the_log_gets_there(disk, tmp_path):
    snapshots = Snapshots(str(tmp_path), disk, [])
    snapshots.use(state(1))
    snapshots.stage_roll(10)
    snapshots.use(state(2))
    snapshots.stage_roll(20)
    snapshots.use(state(3))
    snapshots.roll_committed(SimpleNamespace(end_offset=9))
    assert names(tmp_path) == []
    snapshots.roll_committed(SimpleNamespace(end_offset=10))
    assert names(tmp_path) == [10]
    snapshots.roll_committed(SimpleNamespace(end_offset=25))
    assert names(tmp_path) == [10, 20]
    assert [len(snapshots.load(offset)[1]) for offset in (10, 20)] == [1, 2]


def test_snapshots_of_a_log_that_turned_out_shorter_are_forgotten(disk, tmp_path):
    snapshots = Snapshots(str(tmp_path), disk, [], state())
    for offset in (10, 20, 30):
        snapshots.take(offset)
    snapshots.stage_roll(40)
    snapshots.forget_from(20)
    assert names(tmp_path) == [10, 20]
    snapshots.roll_committed(SimpleNamespace(end_offset=100))
    assert names(tmp_path) == [10, 20]
    assert snapshots.load(None)[0] == 20


def test_those_older_than_a_start_after_a_crash_needs_are_removed(disk, tmp_path):
    snapshots = Snapshots(str(tmp_path), disk, [], state())
    for offset in (10, 20, 30, 40):
        snapshots.take(offset)
    snapshots.keep_from(9)
    assert names(tmp_path) == [10, 20, 30, 40]
    snapshots.keep_from(35)
    assert names(tmp_path) == [30, 40]
    assert snapshots.load(35)[0] == 30


def test_an_empty_state_is_worth_a_file_unless_the_log_is_small(disk, tmp_path):
    snapshots = Snapshots(str(tmp_path), disk, [])
    snapshots.take(5, small=True)
    assert names(tmp_path) == []
    snapshots.take(5)
    assert names(tmp_path) == [5]
    snapshots.use(state())
    snapshots.take(6, small=True)
    assert names(tmp_path) == [5, 6]


def test_a_small_log_whose_producers_expired_does_not_get_them_back(disk, tmp_path):
    snapshots = Snapshots(str(tmp_path), disk, [], state())
    snapshots.take(5)
    snapshots.expire(now_ms=10**9, expiration_ms=1)
    assert len(snapshots.state()) == 0
    snapshots.take(6, small=True)
    assert len(Snapshots(str(tmp_path), disk, names(tmp_path)).state()) == 0


def test_expiring_does_not_read_a_state_that_nobody_uses(disk, tmp_path):
    Snapshots(str(tmp_path), disk, [], state()).take(5)
    disk.bytes_read = 0
    Snapshots(str(tmp_path), disk, [5]).expire(10**9, 1)
    assert disk.bytes_read == 0


# ── in a log ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("flush_messages", [1, 1 << 40])
@pytest.mark.parametrize("checkpoints", [0, 1, 2])
def test_producers_are_known_after_any_chain_of_stops(tmp_path, clean, flush_messages, checkpoints):
    bench = Bench(tmp_path)
    log = bench.create(flush_messages=flush_messages)
    sent = [batch(2, producer=4, sequence=2 * i) for i in range(3)]
    bench.append(log, *sent)
    for _ in range(checkpoints):
        bench.housekeeping.checkpoint()
    for stop in (clean, True, False, True):
        log = bench.restart(clean=stop, flush_messages=flush_messages)
        offset, answer = bench.stage(log, sent[-1])
        assert (offset, answer.ok) == (4, True)
        assert log.end_offset == 6
    assert bench.append(log, batch(1, producer=4, sequence=6)) == [6]
    bench.crash()


def test_a_failed_write_is_in_no_snapshot(tmp_path):
    bench = Bench(tmp_path)
    log = bench.create(segment_bytes=200)
    bench.append(log, batch(size=100, producer=1, sequence=0))
    bench.disk.fail("write", 28, path=".log", times=1)
    _, answer = bench.stage(log, batch(size=100, producer=1, sequence=1))
    bench.writer.end_of_turn()
    assert answer.failed
    log = bench.restart(clean=True)
    assert log.producers.get(1).batches[-1].last_sequence == 0
    assert bench.append(log, batch(size=100, producer=1, sequence=1)) == [1]
    bench.crash()


def test_the_number_of_snapshots_is_bounded_by_what_recovery_needs(tmp_path):
    bench = Bench(tmp_path)
    log = bench.create(segment_bytes=200)
    for i in range(20):
        bench.append(log, batch(size=100, producer=1, sequence=i))
    assert len(names(log.path)) == 19
    bench.housekeeping.checkpoint()
    bench.housekeeping.checkpoint()
    assert names(log.path) == [20]
    bench.crash()

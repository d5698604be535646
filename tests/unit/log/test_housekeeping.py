import errno
import os

import pytest
from harness import NOW_MS, Bench, batch, offsets_of

from headrace.log import checkpoints

HOUR_MS = 3_600_000


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.crash()


@pytest.fixture
def jbod(tmp_path):
    made = Bench(tmp_path / "a", tmp_path / "b")
    yield made
    made.crash()


def recovery_points(bench, number=0):
    path = os.path.join(bench.paths[number], checkpoints.RECOVERY_POINT_FILE)
    with open(path) as file:
        return {index: offset for (_, index), offset in checkpoints.decode_offsets(file.read(), path).items()}


# ── recovery points ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_recovery_point_is_moved_only_to_what_is_on_the_disk(bench):
    bench.flushers.held = True
    log = bench.create()
    bench.append(log, batch(5))
    bench.housekeeping.checkpoint()
    assert recovery_points(bench) == {0: 0}
    bench.append(log, batch(2))
    bench.flushers.run()
    bench.housekeeping.checkpoint()
    assert recovery_points(bench) == {0: 5}
    bench.flushers.run()
    bench.housekeeping.checkpoint()
    assert recovery_points(bench) == {0: 7}


def test_all_that_belongs_to_the_records_below_a_recovery_point_is_on_the_disk(bench):
    log = bench.create(index_interval_bytes=1000, segment_bytes=6000)
    for i in range(12):
        bench.append(log, batch(size=900, timestamp=NOW_MS + i, producer=1, sequence=i))
    for _ in range(3):
        bench.housekeeping.checkpoint()
    assert recovery_points(bench) == {0: 12}
    kept = {os.path.basename(path) for path in bench.disk.unsynced}
    assert not {name for name in kept if name.endswith((".log", "index", ".snapshot"))}


@pytest.mark.parametrize("how", ["flush.messages", "flush.ms"])
def test_a_flush_alone_moves_no_recovery_point_past_what_was_not_spilled(bench, how):
    log = bench.create(flush_messages=1 if how == "flush.messages" else 1 << 40, flush_ms=1)
    bench.append(log, batch(2, producer=1, sequence=0))
    for _ in range(2):
        bench.housekeeping.flush_due()
        bench.clock.advance(10)
    assert log.flush_state.flushed_offset == 2
    bench.store.save_checkpoints()
    log = bench.restart(clean=False)
    assert log.max_timestamp() == (0, NOW_MS, 0)
    assert log.producers.get(1).batches[-1].last_sequence == 1


def test_checkpoints_are_written_by_a_thread_as_the_logs_were_when_it_was_asked(bench):
    log = bench.create()
    bench.append(log, batch(5))
    bench.housekeeping.checkpoint()
    bench.append(log, batch(2))
    bench.housekeeping.flush_for_checkpoint()
    bench.flushers.held = True
    bench.store.save_checkpoints_soon()
    assert recovery_points(bench) == {0: 5}
    bench.append(log, batch(1))
    bench.flushers.run()
    assert recovery_points(bench) == {0: 7}


def test_checkpoints_that_are_still_being_written_are_not_begun_again(bench):
    bench.append(bench.create(), batch(5))
    bench.flushers.held = True
    bench.store.save_checkpoints_soon()
    bench.store.save_checkpoints_soon()
    assert len(bench.flushers.jobs) == 1
    bench.flushers.run()
    bench.store.save_checkpoints_soon()
    assert len(bench.flushers.jobs) == 1


@pytest.mark.parametrize(("code", "online"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_checkpoints_that_a_thread_cannot_write_cost_their_directory_only(jbod, code, online):
    logs = [jbod.create(index=i) for i in range(2)]
    for log in logs:
        jbod.append(log, batch(3))
    jbod.housekeeping.checkpoint()
    for log in logs:
        jbod.append(log, batch(1))
    jbod.housekeeping.flush_for_checkpoint()
    jbod.disk.fail("write", code, path=os.path.join(jbod.paths[0], checkpoints.RECOVERY_POINT_FILE))
    jbod.store.save_checkpoints_soon()
    assert logs[0].directory.online is online
    assert logs[1].directory.online
    assert (recovery_points(jbod, 0), recovery_points(jbod, 1)) == ({0: 3}, {1: 4})
    jbod.disk.repair()
    jbod.store.save_checkpoints_soon()
    assert recovery_points(jbod, 0) == {0: 4 if online else 3}


def test_a_log_deleted_while_its_checkpoint_is_written_is_left_alone(bench):
    log = bench.create()
    bench.append(log, batch(5, producer=1, sequence=0))
    bench.housekeeping.checkpoint()
    bench.flushers.held = True
    bench.store.save_checkpoints_soon()
    bench.store.delete(log)
    bench.flushers.run()
    assert recovery_points(bench) == {0: 5}  # stale until the next time, as in Kafka
    bench.store.save_checkpoints_soon()
    bench.flushers.run()
    assert recovery_points(bench) == {}


def test_a_log_that_is_being_written_is_left_for_the_next_time(bench):
    log = bench.create()
    bench.stage(log, batch())
    bench.housekeeping.checkpoint()
    assert recovery_points(bench) == {0: 0}
    assert not [name for name in os.listdir(log.path) if name.endswith(".snapshot")]


def test_an_idle_log_is_not_flushed_again(bench):
    bench.append(bench.create(), batch())
    for _ in range(2):
        bench.housekeeping.checkpoint()
    bench.disk.synced.clear()
    for _ in range(3):
        bench.housekeeping.checkpoint()
    assert not [name for name in bench.disk.synced if name.endswith((".log", "index"))]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_one_log_that_cannot_be_checkpointed_keeps_no_other_from_it(jbod, code):
    logs = [jbod.create(index=i, index_interval_bytes=100) for i in range(4)]
    for log in logs:
        jbod.append(log, *[batch(size=100, timestamp=NOW_MS + i) for i in range(5)])
    broken = logs[0].directory
    for operation in ("write", "open", "sync"):
        jbod.disk.fail(operation, code, path=f"{logs[0].path}/")
    for _ in range(2):
        jbod.housekeeping.checkpoint()
    assert recovery_points(jbod, 1) == {1: 5, 3: 5}
    if code == errno.ENOSPC:
        assert broken.online
        assert recovery_points(jbod, 0)[2] == 5
        assert recovery_points(jbod, 0)[0] == 0
    else:
        assert not broken.online


# ── flush.ms ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_has_waited_for_flush_ms_is_flushed(bench):
    log = bench.create(flush_ms=1000)
    bench.append(log, batch())
    bench.housekeeping.flush_due()
    bench.clock.advance(999)
    bench.housekeeping.flush_due()
    assert bench.disk.synced == []
    bench.clock.advance(1)
    bench.housekeeping.flush_due()
    assert bench.disk.synced == ["00000000000000000000.log"]
    assert log.flush_state.flushed_offset == 1
    bench.clock.advance(5000)
    bench.housekeeping.flush_due()
    assert len(bench.disk.synced) == 1  # there is nothing new


def test_without_flush_ms_the_kernel_decides(bench):
    bench.append(bench.create(), batch())
    for _ in range(3):
        bench.housekeeping.flush_due()
        bench.clock.advance(10**12)
    assert bench.disk.synced == []


def test_what_waits_is_visible_all_the_same(bench):
    bench.flushers.held = True
    log = bench.create(flush_ms=10)
    bench.append(log, batch(3))
    assert log.high_watermark == 3


# ── retention ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES])
def test_one_log_that_cannot_be_cleaned_keeps_no_other_from_it(jbod, code):
    logs = [jbod.create(index=i, retention_ms=HOUR_MS) for i in range(4)]
    for log in logs:
        jbod.append(log, batch(3))
    jbod.clock.advance(2 * HOUR_MS)
    for operation in ("rename", "open", "write"):
        jbod.disk.fail(operation, code, path=f"{logs[0].path}/")
    jbod.housekeeping.delete_expired()
    assert [log.start_offset for log in logs[1::2]] == [3, 3]
    if code != errno.EIO:
        assert logs[2].start_offset == 3
    jbod.disk.repair()
    jbod.crash()
    jbod.start()
    for index in range(4):
        log = jbod.store.find("t", index)
        assert log.end_offset == 3
        assert offsets_of(log) in ([], [0, 1, 2])


def test_snapshots_and_epochs_survive_the_segments_they_speak_of(bench):
    log = bench.create(segment_bytes=300, retention_bytes=1)
    for i in range(6):
        bench.append(log, batch(size=200, producer=1, sequence=i))
    bench.housekeeping.delete_expired()
    assert log.start_offset == 5
    log = bench.restart(clean=False)
    assert log.epochs.entries == [(0, 5)]
    assert log.producers.get(1).batches[-1].last_sequence == 5


# ── producers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_producers_that_have_been_silent_for_a_day_are_forgotten(bench):
    log = bench.create()
    bench.append(log, batch(producer=1, sequence=0, timestamp=NOW_MS))
    bench.append(log, batch(producer=2, sequence=0, timestamp=NOW_MS + 1000))
    bench.clock.advance(86_400_000)
    bench.housekeeping.expire_producers()
    assert log.producers.get(1) is None
    assert log.producers.get(2) is not None

import errno
import os
import shutil

import pytest
from harness import BULK_BYTES, Bench, batch, offsets_of, payloads, read_all
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import InvariantError, StorageError
from headrace.log.config import LogConfig
from headrace.log.log_writer import FLUSHES_MAX, HAND_OVER_BYTES_MIN, INLINE_BYTES_MAX, SPLIT_BYTES_MIN, LogWriter


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.crash()


def bulk(**fields):
    return batch(size=BULK_BYTES, **fields)


# ── on the loop, or on the writer thread ─────────────────────────────────────────────────────────────────────────────


def test_a_small_group_is_written_on_the_loop_and_a_large_one_by_the_thread(bench):
    bench.writers.held = True
    log = bench.create()
    small = bench.stage(log, batch())[1]
    bench.writer.end_of_turn()
    assert small.ok
    large = bench.stage(log, batch(size=INLINE_BYTES_MAX))[1]
    bench.writer.end_of_turn()
    assert large.pending
    assert len(bench.writers.jobs) == 1
    bench.writers.run()
    assert large.ok
    assert log.end_offset == 2


def test_what_is_large_for_a_log_but_not_much_in_all_is_written_on_the_loop(bench):
    bench.writer.hand_over_bytes_min = HAND_OVER_BYTES_MIN
    bench.writers.held = True
    logs = [bench.create(index=index) for index in range(3)]
    few = [bench.stage(log, bulk())[1] for log in logs]
    bench.writer.end_of_turn()
    assert all(answer.ok for answer in few)
    much = [bench.stage(log, batch(size=HAND_OVER_BYTES_MIN // 2))[1] for log in logs[:2]]
    bench.writer.end_of_turn()
    assert all(answer.pending for answer in much)
    bench.writers.run()
    assert all(answer.ok for answer in much)


def test_what_comes_while_a_log_is_being_written_waits_and_is_written_together(bench):
    bench.writers.held = True
    log = bench.create()
    first = bench.stage(log, bulk())[1]
    bench.writer.end_of_turn()
    later = []
    for _ in range(3):
        later.append(bench.stage(log, batch())[1])
        bench.writer.end_of_turn()
    assert all(answer.pending for answer in [first, *later])
    bench.disk.fail("write", path=".log", skip=2)  # one write for the first, one for the other three
    bench.writers.run()
    assert all(answer.ok for answer in [first, *later])
    assert offsets_of(log) == [0, 1, 2, 3]


def test_other_logs_are_written_while_one_is_with_the_thread(bench):
    bench.writers.held = True
    busy, other = bench.create(), bench.create(index=1)
    bench.stage(busy, bulk())
    bench.writer.end_of_turn()
    answer = bench.stage(other, batch())[1]
    bench.writer.end_of_turn()
    assert answer.ok
    large = bench.stage(other, bulk())[1]
    bench.writer.end_of_turn()
    assert len(bench.writers.jobs) == 1  # one job at a time; the rest gathers
    bench.writers.run()
    assert large.ok


def test_large_appends_to_several_logs_are_shared_out_between_threads(bench):
    bench.writer = LogWriter(bench.disk, bench.writers.submit, bench.flushers.submit, 2)
    bench.writers.held = True
    logs = [bench.create(index=index) for index in range(4)]
    for log in logs:
        log.writer = bench.writer
    answers = [bench.stage(log, batch(size=SPLIT_BYTES_MIN))[1] for log in logs[:3]]
    bench.writer.end_of_turn()
    assert len(bench.writers.jobs) == 2
    answers.append(bench.stage(logs[3], bulk())[1])
    answers.append(bench.stage(logs[0], bulk())[1])
    bench.writer.end_of_turn()
    assert len(bench.writers.jobs) == 2  # no third thread, and no log with two of them
    bench.writers.run()
    assert all(answer.ok for answer in answers)
    assert offsets_of(logs[0]) == [0, 1]


def test_the_memory_of_a_request_is_let_go_when_it_is_written(bench):
    bench.writers.held = True
    log = bench.create()
    bench.stage(log, bulk())
    (group,) = log.appender.append_sets
    bench.writer.end_of_turn()
    bench.writers.run()
    assert group.views == []


def test_files_are_pinned_only_while_they_are_written(bench):
    bench.writers.held = True
    log = bench.create()
    bench.append(log, batch())
    file = log.active.file()
    bench.stage(log, bulk())
    bench.writer.end_of_turn()
    assert file.pins == 1
    bench.writers.run()
    assert file.pins == 0


def test_more_open_files_than_the_bound_are_written_all_the_same(tmp_path):
    bench = Bench(tmp_path)
    bench.crash()
    bench.start(files_max=3)
    logs = [bench.create(index=i) for i in range(12)]
    for _ in range(3):
        answers = [bench.stage(log, bulk(count=1))[1] for log in logs]
        bench.writer.end_of_turn()
        assert all(answer.ok for answer in answers)
        assert len(bench.files) <= 3
    assert bench.disk.open_count <= 3
    assert [log.end_offset for log in logs] == [3] * 12
    bench.crash()


def test_a_bug_in_the_thread_is_not_taken_for_a_disk_that_fails(bench):
    bench.writers.held = True
    log = bench.create()
    bench.stage(log, bulk())
    bench.writer.end_of_turn()
    (_, done), bench.writers.jobs = bench.writers.jobs[0], []
    with pytest.raises(InvariantError, match="outside a write"):
        done(None, RuntimeError("a bug"))


def test_an_offset_that_is_nowhere_is_our_bug(bench):
    with pytest.raises(InvariantError, match="neither written nor staged"):
        bench.writer.in_flight(bench.create(), 5)


# ── failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("data", [batch(), bulk()], ids=["small", "bulk"])
def test_a_full_disk_fails_the_batch_and_leaves_the_log_online(bench, code, data):
    log = bench.create()
    bench.append(log, batch())
    bench.disk.fail("write", code, path=".log", times=1, torn_bytes=50)
    answer = bench.stage(log, data)[1]
    bench.writer.end_of_turn()
    assert isinstance(answer.calls[0], StorageError)
    assert log.directory.path in str(answer.calls[0])
    assert log.directory.online
    assert os.path.getsize(log.active.log_path) == log.active.size  # what was written in part is cut
    assert bench.append(log, data) == [1]


def test_a_broken_disk_takes_its_directory_offline(bench):
    log, other = bench.create(), bench.create(index=1)
    seen = []
    bench.store.on_offline = seen.append
    bench.disk.fail("write", errno.EIO, path="t-0/")
    answers = [bench.stage(log, batch())[1], bench.stage(other, batch())[1]]
    bench.writer.end_of_turn()
    assert seen == bench.store.directories
    assert "Input/output" in log.directory.error
    assert answers[0].failed
    assert answers[1].failed  # it is on the same disk, and nothing there is acknowledged any more


def test_what_the_thread_wrote_is_not_acknowledged_if_its_directory_has_failed_meanwhile(bench):
    bench.writers.held = True
    log, other = bench.create(), bench.create(index=1)
    under_way = bench.stage(log, bulk())[1]
    bench.writer.end_of_turn()
    bench.disk.fail("write", errno.EIO, path="t-1/")
    broken = bench.stage(other, batch())[1]
    bench.writer.end_of_turn()
    assert broken.failed
    assert not log.directory.online
    bench.writers.run()
    assert under_way.failed
    assert log.high_watermark == 0


def test_what_was_staged_meanwhile_fails_with_the_write_before_it(bench):
    bench.writers.held = True
    log = bench.create()
    bench.disk.fail("write", errno.ENOSPC, path=".log", times=1)
    first = bench.stage(log, bulk(producer=1, sequence=0))[1]
    bench.writer.end_of_turn()
    second = bench.stage(log, batch(producer=1, sequence=1))[1]
    bench.writer.end_of_turn()
    bench.writers.run()
    assert (first.failed, second.failed) == (True, True)
    assert log.next_offset == 0
    assert log.producers.check(1, 0, 0, 0) is None  # it begins where it began
    bench.writer.end_of_turn()
    assert len(second.calls) == 1


def test_a_failed_write_that_cannot_be_cut_never_costs_an_acknowledged_record(bench):
    log = bench.create()
    bench.append(log, batch(size=300))
    bench.disk.fail("write", errno.ENOSPC, path=".log", times=1, torn_bytes=900)
    bench.disk.fail("truncate", errno.EIO, times=1)
    bench.stage(log, batch(size=1000))
    bench.writer.end_of_turn()
    bench.disk.repair()
    acknowledged = [0]
    for segment_bytes in (1 << 20, 100, 100):  # the next in the same place, then in new segments
        log.reconfigure(LogConfig(segment_bytes=segment_bytes))
        offset, answer = bench.stage(log, batch(size=100))
        bench.writer.end_of_turn()
        if answer.ok:
            acknowledged.append(offset)
    log = bench.restart(clean=False)
    assert set(acknowledged) <= set(offsets_of(log))


# ── flushing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_with_a_flush_for_each_message_nothing_is_seen_or_answered_before_it_is_on_the_disk(bench):
    bench.flushers.held = True
    log = bench.create(flush_messages=1)
    seen = []
    log.on_high_watermark.append(lambda: seen.append(log.high_watermark))
    answer = bench.stage(log, batch(2))[1]
    bench.writer.end_of_turn()
    assert (log.end_offset, log.high_watermark, seen) == (2, 0, [])
    assert answer.pending
    assert log.read(0, 1000, whole_first=True) is None
    bench.flushers.run()
    assert answer.ok
    assert bench.disk.synced == [os.path.basename(log.active.log_path)]
    assert (log.high_watermark, log.flush_state.flushed_offset, seen) == (2, 2, [2])


def test_one_flush_answers_all_that_was_written_before_it_began(bench):
    bench.flushers.held = True
    log = bench.create(flush_messages=1)
    answers = []
    for _ in range(5):
        answers.append(bench.stage(log, batch())[1])
        bench.writer.end_of_turn()
    assert len(bench.flushers.jobs) == 1
    bench.flushers.run(1)
    assert [answer.ok for answer in answers] == [True, False, False, False, False]
    bench.flushers.run(1)
    assert all(answer.ok for answer in answers)
    assert len(bench.disk.synced) == 2


def test_logs_that_wait_for_a_flush_keep_no_files_open(bench):
    bench.flushers.held = True
    logs = [bench.create("t", index, flush_messages=1) for index in range(3 * FLUSHES_MAX)]
    answers = [bench.stage(log, batch())[1] for log in logs]
    bench.writer.end_of_turn()
    assert sum(log.active.file().pins for log in logs) == len(bench.flushers.jobs) == FLUSHES_MAX
    while bench.flushers.jobs:
        bench.flushers.run(1)
    assert all(answer.ok for answer in answers)


def test_flush_messages_counts_records(bench):
    log = bench.create(flush_messages=5)
    bench.append(log, batch(4))
    assert bench.disk.synced == []
    bench.append(log, batch(1))
    assert len(bench.disk.synced) == 1
    bench.append(log, batch(4))
    assert len(bench.disk.synced) == 1


def test_what_comes_behind_a_batch_that_waits_for_its_flush_is_not_seen_before_it(bench):
    bench.flushers.held = True
    log = bench.create(flush_messages=3)
    answers = [bench.stage(log, batch(3))[1]]
    bench.writer.end_of_turn()
    answers.append(bench.stage(log, batch(1))[1])
    bench.writer.end_of_turn()
    assert log.high_watermark == 0
    assert all(answer.pending for answer in answers)
    bench.flushers.run()
    assert all(answer.ok for answer in answers)
    assert log.high_watermark == 4


def test_a_batch_that_need_not_wait_does_not_overtake_one_that_does(bench):
    bench.flushers.held = True
    log = bench.create(flush_messages=1)
    first = bench.stage(log, batch())[1]
    bench.writer.end_of_turn()
    log.reconfigure(LogConfig())
    second = bench.stage(log, batch())[1]
    bench.writer.end_of_turn()
    assert (first.pending, second.pending, log.high_watermark) == (True, True, 0)
    bench.flushers.run()
    assert (first.ok, second.ok, log.high_watermark) == (True, True, 2)


def test_a_flush_covers_every_segment_since_the_last_one(bench):
    bench.flushers.held = True
    log = bench.create(segment_bytes=200)
    for _ in range(4):
        bench.append(log, batch(size=100))
    bench.flushers.run()
    bench.disk.synced.clear()
    log.flush_state.flushed_offset = 1
    bench.writer.flush(log)
    bench.flushers.run()
    assert sorted(bench.disk.synced) == [f"{base:020d}.log" for base in (1, 2, 3)]
    assert log.flush_state.flushed_offset == 4


def test_a_failed_flush_fails_what_waits_for_it_and_takes_the_directory_offline(bench):
    bench.flushers.held = True
    log = bench.create(flush_messages=1)
    first = bench.stage(log, batch())[1]
    bench.writer.end_of_turn()
    written = bench.stage(log, batch())[1]
    bench.writer.end_of_turn()
    staged = bench.stage(log, batch())[1]
    bench.disk.fail("sync", errno.EIO, times=1)  # once: the kernel says it once and then forgets
    bench.flushers.run()
    bench.writer.end_of_turn()
    bench.flushers.run()
    assert not log.directory.online
    assert [answer.failed for answer in (first, written, staged)] == [True, True, True]
    assert log.high_watermark == 0
    assert log.active.file().pins == 0


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["small", "bulk", "turn", "write", "flush"]), max_size=30),
    flush_messages=st.sampled_from([1, 3, 1 << 40]),
    segment_bytes=st.sampled_from([500, 1 << 20]),
)
def test_whatever_the_order_answers_come_in_order_and_only_for_what_is_safe(
    tmp_path_factory, steps, flush_messages, segment_bytes
):
    bench = Bench(tmp_path_factory.mktemp("order"))
    bench.writers.held = bench.flushers.held = True
    log = bench.create(flush_messages=flush_messages, segment_bytes=segment_bytes)
    sent, answers = [], []
    for step in [*steps, "turn", "write", "turn", "write", "flush", "flush", "flush"]:
        if step in ("small", "bulk"):
            data = bulk() if step == "bulk" else batch(2)
            sent.append(data)
            answers.append(bench.stage(log, data)[1])
        elif step == "turn":
            bench.writer.end_of_turn()
        elif step == "write":
            bench.writers.run(1)
        else:
            bench.flushers.run(1)
        done = [answer.ok for answer in answers]
        assert done == sorted(done, reverse=True)
        assert log.start_offset <= log.high_watermark <= log.end_offset <= log.next_offset
        if flush_messages == 1:
            assert log.high_watermark <= log.flush_state.flushed_offset
        assert len(read_all(log)) == sum(done)
    while bench.writers.jobs or bench.flushers.jobs:
        bench.writers.run()
        bench.flushers.run()
    assert all(answer.ok for answer in answers)
    assert payloads(read_all(log)) == [bytes(data[21:]) for data in sent]
    bench.crash()


# ── deleting and stopping ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["staged", "being written", "being flushed", "written, behind a flush"])
@pytest.mark.parametrize("made_again", [False, True])
def test_deleting_a_log_that_is_being_written_fails_what_waits_and_harms_nothing(bench, where, made_again):
    bench.writers.held = bench.flushers.held = True
    flushed = "flush" in where
    log = bench.create(flush_messages=1 if flushed else 1 << 40, segment_bytes=200_000)
    answers = [bench.stage(log, bulk() if where == "being written" else batch())[1]]
    if where != "staged":
        bench.writer.end_of_turn()
    if where in ("being written", "written, behind a flush"):
        answers.append(bench.stage(log, batch())[1])
        if flushed:
            bench.writer.end_of_turn()
    bench.store.delete(log)
    again = bench.create() if made_again else None
    if again is not None:
        bench.append(again, batch(3))
    bench.writer.end_of_turn()
    bench.writers.run()
    bench.flushers.run()
    bench.writer.end_of_turn()
    assert all(len(answer.calls) == 1 for answer in answers)
    assert all(answer.failed for answer in answers)
    assert log.directory.online
    assert bench.store.find("t", 0) is again
    if again is not None:
        assert offsets_of(again) == [0, 1, 2]
    assert bench.disk.open_count <= (1 if made_again else 0)


@pytest.mark.parametrize("flush_messages", [1, 1 << 40])
def test_a_stop_writes_all_that_is_staged(bench, flush_messages):
    bench.writers.held = True
    log, other = bench.create(flush_messages=flush_messages), bench.create(index=1)
    answers = [bench.stage(log, bulk(producer=1, sequence=0))[1]]
    bench.writer.end_of_turn()
    answers += [bench.stage(log, bulk(producer=1, sequence=1))[1], bench.stage(other, batch())[1]]
    bench.writer.end_of_turn()
    answers.append(bench.stage(log, batch(producer=1, sequence=2))[1])
    bench.writer.closing = True  # as Node.close does it: no thread to hand anything to
    bench.writers.end()
    bench.writer.drain()
    assert all(answer.ok for answer in answers)
    assert (log.end_offset, log.next_offset, other.end_offset) == (3, 3, 1)
    bench.store.close()
    bench.start()
    assert offsets_of(bench.log) == [0, 1, 2]
    assert bench.log.producers.get(1).batches[-1].last_sequence == 2


def test_what_fails_in_the_background_harms_nothing(bench, tmp_path):
    bench.writer.in_background(lambda: shutil.rmtree(tmp_path / "not there"))
    bench.append(bench.create(), batch())


# ── failures behind a write ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_failure_after_a_thread_has_written_is_a_broken_invariant(bench, monkeypatch):
    """It is not known what is in the log: the broker must end, as it does when it writes on the loop itself."""
    bench.writers.held = True
    log = bench.create()
    bench.stage(log, bulk())
    bench.writer.end_of_turn()

    def broken(taken, result):
        raise RuntimeError("a bug")

    share = bench.writer._in_flight[0]
    results = share.write()
    monkeypatch.setattr(LogWriter, "_finish", lambda self, taken, result: broken(taken, result))
    with pytest.raises(InvariantError, match="RuntimeError: a bug"):
        bench.writer.handed_back(share, results, None)


def test_a_segment_that_was_never_written_is_dropped_though_its_files_cannot_be_removed(bench):
    log = bench.create(segment_bytes=300)
    bench.append(log, batch(size=200))
    answer = bench.stage(log, batch(size=200))[1]
    assert len(log.segments) == 2
    bench.disk.fail("write", errno.ENOSPC, path=".log", times=1)
    bench.disk.fail("unlink")
    bench.writer.end_of_turn()
    assert answer.failed
    assert len(log.segments) == 1
    bench.disk.repair()

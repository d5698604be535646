"""Open, committed and aborted transactions of one partition, over crashes, clean stops and disks that fail."""

import errno

import pytest
from harness import NOW_MS, Answer, Bench
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.transactions import Marker, build_marker, read_marker
from headrace.protocol.records import Record, build_batch


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def send(bench, log, producer, sequence, *, epoch=0, count=1):
    """A transactional batch; returns its base offset."""
    records = [Record(at, NOW_MS, None, b"x" * 20) for at in range(count)]
    data = build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=True)
    answer = Answer()
    offset = log.appender.stage(memoryview(data), 0, len(data), NOW_MS, answer, transactional=True)[0]
    bench.writer.end_of_turn()
    assert answer.ok
    return offset


def end(bench, log, producer, *, commit, epoch=0):
    marker = Marker(producer, epoch, 3, commit)
    answer = Answer()
    log.appender.stage_own(build_marker(marker, NOW_MS), NOW_MS, answer, marker)
    bench.writer.end_of_turn()
    assert answer.ok


def test_a_marker_says_what_it_was_made_of():
    for commit in (True, False):
        marker = Marker(7, 2, 5, commit)
        assert read_marker(build_marker(marker, NOW_MS), 7, 2) == marker


def test_readers_of_committed_records_stop_at_the_oldest_open_transaction(bench):
    log = bench.create()
    send(bench, log, 1, 0)
    send(bench, log, 2, 0)
    assert (log.high_watermark, log.last_stable_offset) == (2, 0)
    end(bench, log, 1, commit=True)
    assert log.last_stable_offset == 1
    end(bench, log, 2, commit=True)
    assert log.last_stable_offset == log.high_watermark == 4
    assert log.aborted_between(0, 4) == ()


def test_an_aborted_transaction_is_told_to_those_who_read_its_range_and_to_nobody_else(bench):
    log = bench.create()
    send(bench, log, 1, 0)
    end(bench, log, 1, commit=False)  # at offset 1
    send(bench, log, 2, 0)  # at 2
    end(bench, log, 2, commit=False)  # at 3
    assert log.aborted_between(0, 4) == ((1, 0), (2, 2))
    assert log.aborted_between(2, 4) == ((2, 2),)
    assert log.aborted_between(0, 2) == ((1, 0),)


def test_a_staged_marker_changes_nothing_before_it_is_written(bench):
    log = bench.create()
    send(bench, log, 1, 0)
    marker = Marker(1, 0, 0, False)
    log.appender.stage_own(build_marker(marker, NOW_MS), NOW_MS, Answer(), marker)
    assert log.last_stable_offset == 0
    bench.writer.end_of_turn()
    assert log.last_stable_offset == 2


def stage_abort_and_next(log, answer):
    """An administrator's marker, and behind it in the same turn what the producer sends next."""
    marker = Marker(1, 0, 0, False)
    log.appender.stage_own(build_marker(marker, NOW_MS), NOW_MS, answer, marker)
    data = build_batch(
        [Record(0, NOW_MS, None, b"x")], producer_id=1, producer_epoch=0, base_sequence=1, transactional=True
    )
    log.appender.stage(memoryview(data), 0, len(data), NOW_MS, answer, transactional=True)


def test_a_marker_does_not_end_the_transaction_that_was_begun_behind_it(bench):
    log = bench.create()
    send(bench, log, 1, 0)
    stage_abort_and_next(log, Answer())
    assert log.open_transactions == {1: 0}
    bench.writer.end_of_turn()
    assert (log.open_transactions, log.last_stable_offset) == ({1: 2}, 2)
    assert log.aborted_between(0, 3) == ((1, 0),)
    assert bench.restart(clean=False).open_transactions == {1: 2}


def test_a_marker_that_could_not_be_written_leaves_the_transaction_open(bench):
    log = bench.create()
    send(bench, log, 1, 0)
    bench.disk.fail("write", errno.ENOSPC, path=".log")
    answer = Answer()
    stage_abort_and_next(log, answer)
    bench.writer.end_of_turn()
    assert len(answer.calls) == 2
    assert all(answer.calls)
    bench.disk.repair()
    assert (log.open_transactions, log.last_stable_offset) == ({1: 0}, 0)
    assert log.producers.get(1).txn_first_offset == 0
    assert send(bench, log, 1, 1) == 1


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("checkpointed", [True, False])
def test_open_and_aborted_transactions_survive_a_restart(bench, clean, checkpointed):
    log = bench.create()
    send(bench, log, 1, 0)
    end(bench, log, 1, commit=False)
    send(bench, log, 2, 0)
    if checkpointed:
        bench.housekeeping.checkpoint()
    send(bench, log, 3, 0)
    log = bench.restart(clean=clean)
    assert log.open_transactions == {2: 2, 3: 3}
    assert log.last_stable_offset == 2
    assert log.aborted_between(0, 4) == ((1, 0),)
    end(bench, log, 2, commit=False)
    end(bench, log, 3, commit=True)
    assert log.last_stable_offset == log.high_watermark == 6
    assert log.aborted_between(0, 6) == ((1, 0), (2, 2))


def test_a_marker_with_a_new_epoch_begins_the_sequence_again(bench):
    log = bench.create()
    send(bench, log, 1, 0)
    end(bench, log, 1, commit=True, epoch=1)
    assert send(bench, log, 1, 0, epoch=1) == 2
    assert log.open_transactions == {1: 2}


def test_a_transactional_batch_that_could_not_be_written_opened_nothing(bench):
    log = bench.create()
    bench.disk.fail("write", errno.ENOSPC, path=".log")
    data = build_batch(
        [Record(0, NOW_MS, None, b"x")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    )
    answer = Answer()
    log.appender.stage(memoryview(data), 0, len(data), NOW_MS, answer, transactional=True)
    bench.writer.end_of_turn()
    assert answer.failed
    bench.disk.repair()
    assert log.open_transactions == {}
    assert send(bench, log, 1, 0) == 0


def test_an_abort_counts_even_when_its_index_cannot_be_written(bench):
    log = bench.create()
    send(bench, log, 1, 0)
    bench.disk.fail("write", errno.ENOSPC, path=".txnindex")
    end(bench, log, 1, commit=False)
    assert log.aborted_between(0, 2) == ((1, 0),)
    bench.disk.repair()
    log = bench.restart(clean=True)
    assert log.aborted_between(0, 2) == ((1, 0),)


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["send", "commit", "abort", "crash", "stop", "mark"]))),
    segment_bytes=st.sampled_from([200, 1 << 20]),
)
def test_what_is_stable_and_what_is_aborted_is_the_same_after_any_crash(tmp_path_factory, steps, segment_bytes):
    bench = Bench(tmp_path_factory.mktemp("txn"))
    log = bench.create(segment_bytes=segment_bytes)
    opened: dict[int, int] = {}
    aborted: list[tuple[int, int]] = []
    sequences = {1: 0, 2: 0, 3: 0}
    for producer, step in steps:
        if step == "send":
            offset = send(bench, log, producer, sequences[producer])
            sequences[producer] += 1
            opened.setdefault(producer, offset)
        elif step in ("commit", "abort"):
            end(bench, log, producer, commit=step == "commit")
            first = opened.pop(producer, None)
            if first is not None and step == "abort":
                aborted.append((producer, first))
        elif step == "mark":
            bench.housekeeping.checkpoint()
        else:
            log = bench.restart(clean=step == "stop", segment_bytes=segment_bytes)
        assert log.open_transactions == opened
        assert log.last_stable_offset == min([log.high_watermark, *opened.values()])
        assert sorted(log.aborted_between(0, log.high_watermark)) == sorted(aborted)
    bench.crash()

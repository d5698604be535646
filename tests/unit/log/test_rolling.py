"""When a log begins its next segment."""

import dataclasses
import os

import pytest
from harness import NOW_MS, Bench, batch, offsets_of

from headrace.core.errors import InvariantError
from headrace.log import appender

DAY_MS = 86_400_000


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.crash()


def bases(log):
    return [segment.base_offset for segment in log.segments]


@pytest.mark.parametrize("one_turn", [False, True])
def test_a_segment_is_rolled_before_it_would_be_too_large(bench, one_turn):
    size = len(batch(size=100))
    log = bench.create(segment_bytes=3 * size)
    answers = []
    for _ in range(8):
        answers.append(bench.stage(log, batch(size=100))[1])
        if not one_turn:
            bench.writer.end_of_turn()
    bench.writer.end_of_turn()
    assert all(answer.ok for answer in answers)
    assert bases(log) == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [3 * size, 3 * size, 2 * size]
    assert offsets_of(log) == list(range(8))
    for segment in log.segments[:-1]:
        assert os.path.getsize(segment.path + ".timeindex") == 12
        assert os.path.exists(segment.path + ".index")
    assert sorted(name for name in os.listdir(log.path) if name.endswith(".snapshot"))[-1].startswith("0" * 19 + "6")


def test_a_batch_larger_than_a_segment_has_one_of_its_own(bench):
    log = bench.create(segment_bytes=200)
    bench.append(log, batch(size=500), batch(size=10), batch(size=500))
    assert bases(log) == [0, 1, 2]


def test_a_segment_is_rolled_when_its_first_record_is_too_old(bench):
    log = bench.create(segment_ms=1000)
    bench.append(log, batch(timestamp=NOW_MS), batch(timestamp=NOW_MS + 1000))
    assert bases(log) == [0]
    bench.append(log, batch(timestamp=NOW_MS + 1001))
    assert bases(log) == [0, 2]
    bench.append(log, batch(timestamp=NOW_MS + 2001), batch(timestamp=NOW_MS + 2002))
    assert bases(log) == [0, 2, 4]


def test_rolling_by_time_counts_from_the_first_record_even_before_it_is_written(bench):
    bench.clock.advance(DAY_MS)  # not from when the segment was made
    log = bench.create(segment_ms=1000)
    answers = [bench.stage(log, batch(timestamp=NOW_MS + t))[1] for t in (0, 1000, 1001)]
    bench.writer.end_of_turn()
    assert all(answer.ok for answer in answers)
    assert bases(log) == [0, 2]


def test_rolling_by_time_counts_from_the_first_record_after_a_restart_too(bench):
    log = bench.create(segment_ms=1000)
    bench.append(log, batch(timestamp=NOW_MS), batch(timestamp=NOW_MS + 900))
    log = bench.restart(clean=True, segment_ms=1000)
    bench.append(log, batch(timestamp=NOW_MS + 1000), batch(timestamp=NOW_MS + 1001))
    assert bases(log) == [0, 3]


def test_a_changed_segment_ms_holds_for_the_active_segment(bench):
    log = bench.create(segment_ms=DAY_MS)
    bench.append(log, batch(timestamp=NOW_MS), batch(timestamp=NOW_MS + 5000))
    log.reconfigure(dataclasses.replace(log.config, segment_ms=1000))
    bench.append(log, batch(timestamp=NOW_MS + 5000))
    assert bases(log) == [0, 2]


def test_jitter_rolls_earlier_and_is_the_same_each_time(bench):
    log = bench.create(segment_ms=1000, segment_jitter_ms=400)
    jitter = log.appender.jitter_ms(log.active)
    assert 0 <= jitter < 400
    bench.append(log, batch(timestamp=NOW_MS), batch(timestamp=NOW_MS + 1000 - jitter))
    assert bases(log) == [0]
    bench.append(log, batch(timestamp=NOW_MS + 1001 - jitter))
    assert bases(log) == [0, 2]


def test_a_segment_is_rolled_when_an_index_is_full(bench):
    log = bench.create(segment_index_bytes=96, index_interval_bytes=100)
    for i in range(60):
        bench.append(log, batch(size=100, timestamp=NOW_MS + i))
    assert len(log.segments) > 3
    for segment in log.segments:
        segment.spill()
        assert os.path.getsize(segment.path + ".index") <= 96
        assert os.path.getsize(segment.path + ".timeindex") <= 2 * 96
    assert offsets_of(log) == list(range(60))


def test_a_segment_is_rolled_before_its_offsets_do_not_fit_an_index(bench, monkeypatch):
    monkeypatch.setattr(appender, "RELATIVE_OFFSET_MAX", 10)
    log = bench.create()
    for _ in range(8):
        bench.append(log, batch(3))
    assert bases(log) == [0, 9, 18]
    assert all(end - 1 - base <= 10 for base, end in zip(bases(log), [*bases(log)[1:], 24], strict=True))


def test_a_log_is_not_rolled_under_what_is_staged(bench):
    log = bench.create()
    bench.stage(log, batch())
    with pytest.raises(InvariantError):
        log.appender.roll_now(NOW_MS)


def test_what_was_staged_before_a_roll_still_goes_to_the_old_segment(bench):
    size = len(batch(size=100))
    log = bench.create(segment_bytes=2 * size)
    bench.writers.held = True
    answers = [bench.stage(log, batch(size=100))[1] for _ in range(5)]
    bench.writer.end_of_turn()
    bench.writers.run()
    assert [answer.ok for answer in answers] == [True] * 5
    assert [os.path.getsize(segment.log_path) for segment in log.segments] == [2 * size, 2 * size, size]

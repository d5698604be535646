import os

import pytest
from harness import NOW_MS, Bench, batch, offsets_of
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import PeerError
from headrace.log.config import LogConfig
from headrace.log.retention import Age, expired

HOUR_MS = 3_600_000


def ages(*sizes, start=0, timestamps=None, records=10):
    """Segments of ten records each."""
    return [
        Age(start + (i + 1) * records, size, timestamps[i] if timestamps else NOW_MS) for i, size in enumerate(sizes)
    ]


def decide(segments, *, start=0, watermark=None, now=NOW_MS, **config):
    end = segments[-1].end_offset if segments else 0
    return expired(
        segments,
        LogConfig(**{"retention_ms": -1, **config}),
        start_offset=start,
        high_watermark=end if watermark is None else watermark,
        now_ms=now,
    )


# ── the decision ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_log_without_bounds_keeps_everything():
    assert decide(ages(100, 100, 100, timestamps=[0, 0, 0]), retention_ms=-1, retention_bytes=-1) == 0


def test_segments_older_than_the_bound_go_and_one_as_old_as_it_stays():
    segments = ages(1, 1, 1, timestamps=[NOW_MS - 2001, NOW_MS - 2000, NOW_MS])
    assert decide(segments, retention_ms=2000) == 1
    assert decide(segments, retention_ms=1999) == 2
    assert decide(segments, retention_ms=0, now=NOW_MS + 1) == 3


def test_an_old_segment_behind_a_young_one_stays():
    assert decide(ages(1, 1, timestamps=[NOW_MS, 0]), retention_ms=1000) == 0


def test_timestamps_of_the_future_keep_a_segment():
    assert decide(ages(1, timestamps=[NOW_MS + HOUR_MS]), retention_ms=0) == 0


@pytest.mark.parametrize(
    ("bound", "count"), [(300, 0), (299, 0), (200, 1), (199, 1), (101, 1), (100, 2), (1, 2), (0, 3)]
)
def test_the_oldest_go_while_what_is_left_is_not_below_the_bound(bound, count):
    assert decide(ages(100, 100, 100), retention_bytes=bound) == count


def test_segments_below_the_start_of_the_log_go_whatever_the_settings():
    segments = ages(100, 100, 100)
    assert decide(segments, start=9) == 0
    assert decide(segments, start=10) == 1
    assert decide(segments, start=29, cleanup_delete=False) == 2
    assert decide(segments, start=30) == 3


def test_without_the_delete_policy_nothing_expires():
    segments = ages(100, 100, timestamps=[0, 0])
    assert decide(segments, retention_ms=1, retention_bytes=1, cleanup_delete=False) == 0


def test_what_is_not_visible_yet_stays():
    segments = ages(100, 100, 100, timestamps=[0, 0, 0])
    assert decide(segments, retention_ms=1, watermark=19) == 1
    assert decide(segments, retention_ms=1, watermark=20) == 2


def test_the_empty_active_segment_stays():
    segments = [*ages(100, timestamps=[0]), Age(10, 0, 0)]
    assert decide(segments, retention_ms=1) == 1
    assert decide([Age(0, 0, 0)], retention_ms=1) == 0


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 100), max_size=8),
    bound=st.integers(-1, 400),
    ms=st.integers(-1, 100),
    stamps=st.lists(st.integers(0, 120), min_size=8, max_size=8),
    start=st.integers(0, 80),
    watermark=st.integers(0, 80),
)
def test_what_goes_is_what_had_to_and_no_more(sizes, bound, ms, stamps, start, watermark):
    segments = ages(*sizes, timestamps=stamps)
    count = decide(segments, retention_bytes=bound, retention_ms=ms, start=start, watermark=watermark, now=120)
    left = sum(segment.size for segment in segments[count:])
    for at, segment in enumerate(segments[:count]):
        rest = sum(each.size for each in segments[at + 1 :])
        assert segment.end_offset <= watermark
        too_old = 0 <= ms < 120 - segment.timestamp_ms
        assert segment.end_offset <= start or too_old or 0 <= bound <= rest
    if count < len(segments) and segments[count].end_offset <= watermark:
        kept = segments[count]
        assert not 0 <= ms < 120 - kept.timestamp_ms
        assert kept.end_offset > start
        assert bound < 0 or left - kept.size < bound


# ── done to a log ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.crash()


def filled(bench, **config):
    """Five segments of two records each, an hour apart."""
    size = len(batch(size=100))
    log = bench.create(segment_bytes=2 * size, **{"retention_ms": -1, **config})
    for i in range(10):
        bench.append(log, batch(size=100, timestamp=NOW_MS + i // 2 * HOUR_MS))
        bench.clock.advance(HOUR_MS // 2)
    assert len(log.segments) == 5
    return log


def test_old_segments_are_deleted_by_time(bench):
    log = filled(bench, retention_ms=3 * HOUR_MS)
    assert bench.housekeeping.delete_expired() == 2
    assert log.start_offset == 4
    assert offsets_of(log) == [4, 5, 6, 7, 8, 9]
    with pytest.raises(PeerError):
        log.check_offset(3)
    assert bench.housekeeping.delete_expired() == 0


def test_old_segments_are_deleted_by_bytes(bench):
    size = 2 * len(batch(size=100))
    log = filled(bench, retention_bytes=3 * size)
    assert bench.housekeeping.delete_expired() == 2
    assert log.size_bytes == 3 * size


def test_segments_below_deleted_records_are_deleted(bench):
    log = filled(bench)
    log.delete_records_before(5)
    assert bench.housekeeping.delete_expired() == 2
    assert log.segments[0].base_offset == 4
    assert log.start_offset == 5


def test_without_timestamps_the_time_of_the_file_counts(bench):
    log = bench.create(retention_ms=1000)
    bench.append(log, batch(timestamp=-1))
    bench.clock.advance(1000)
    assert bench.housekeeping.delete_expired() == 0
    bench.clock.advance(1)
    assert bench.housekeeping.delete_expired() == 1


@pytest.mark.parametrize("end", ["clean", "crash", "crash after a checkpoint"])
def test_a_log_that_lost_all_its_records_goes_on_at_the_same_offset(bench, end):
    log = filled(bench, retention_ms=HOUR_MS)
    bench.append(log, batch(producer=1, sequence=0, timestamp=NOW_MS))
    bench.clock.advance(100 * HOUR_MS)
    assert bench.housekeeping.delete_expired() == 6
    assert (log.start_offset, log.end_offset, log.size_bytes) == (11, 11, 0)
    if end == "crash after a checkpoint":
        bench.housekeeping.checkpoint()
        bench.housekeeping.checkpoint()
    log = bench.restart(clean=end == "clean")
    assert (log.start_offset, log.high_watermark, log.end_offset) == (11, 11, 11)
    assert log.producers.get(1).batches[-1].last_offset == 10
    assert bench.append(log, batch()) == [11]
    log = bench.restart(clean=end == "clean")
    assert offsets_of(log) == [11]


@pytest.mark.parametrize("bulk", [False, True])
def test_a_log_that_is_being_written_keeps_its_active_segment(bench, bulk):
    log = bench.create(retention_ms=1000)
    bench.append(log, batch())
    bench.writers.held = True
    bench.clock.advance(5000)
    offset, answer = bench.stage(log, batch(size=60_000 if bulk else 10, timestamp=NOW_MS + 5000))
    if bulk:
        bench.writer.end_of_turn()
    assert bench.housekeeping.delete_expired() == 0
    bench.writer.end_of_turn()
    bench.writers.run()
    assert answer.ok
    assert offset == 1
    assert offsets_of(log) == [0, 1]


def test_deleted_files_stay_for_a_while_under_another_name(bench):
    log = filled(bench, retention_ms=3 * HOUR_MS, file_delete_delay_ms=60_000)
    bench.housekeeping.delete_expired()
    doomed = sorted(name for name in os.listdir(log.path) if name.endswith(".deleted"))
    assert [name for name in doomed if ".log" in name] == [f"{base:020d}.log.deleted" for base in (0, 2)]
    assert not os.path.exists(os.path.join(log.path, f"{0:020d}.log"))
    bench.clock.advance(59_999)
    bench.housekeeping.remove_doomed()
    assert doomed == sorted(name for name in os.listdir(log.path) if name.endswith(".deleted"))
    bench.clock.advance(1)
    bench.housekeeping.remove_doomed()
    assert not [name for name in os.listdir(log.path) if name.endswith(".deleted")]


def test_deleted_segments_do_not_come_back_after_a_crash(bench):
    log = filled(bench, retention_ms=3 * HOUR_MS)
    bench.housekeeping.delete_expired()
    log = bench.restart(clean=False)
    assert log.start_offset == 4
    assert offsets_of(log) == [4, 5, 6, 7, 8, 9]
    assert not [name for name in os.listdir(log.path) if name.endswith(".deleted")]


@pytest.mark.parametrize("end", ["clean", "crash"])
def test_deleted_records_do_not_come_back_once_their_start_is_on_the_disk(bench, end):
    log = filled(bench)
    log.delete_records_before(5)
    bench.housekeeping.checkpoint()
    log = bench.restart(clean=end == "clean")
    assert log.start_offset == 5
    assert log.offset_for_time(NOW_MS)[0] == 5


def test_the_segments_of_an_offline_directory_are_left_alone(bench):
    log = filled(bench, retention_ms=1)
    bench.store.take_offline(log.directory, "broken")
    assert bench.housekeeping.delete_expired() == 0
    assert len(log.segments) == 5

import pytest
from harness import NOW_MS, Bench, batch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.records import Record, build_batch


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.crash()


def timed(*timestamps, size=200, codec=0):
    return build_batch([Record(i, NOW_MS + t, None, bytes(size)) for i, t in enumerate(timestamps)], codec=codec)


def first_at_or_after(records, timestamp, start):
    return next(((o, t, 0) for o, t in records if t >= timestamp and o >= start), None)


def latest(records):
    """The first of those with the largest timestamp."""
    return max(((o, t, 0) for o, t in records), key=lambda each: (each[1], -each[0]), default=None)


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), max_size=14),
    codec=st.sampled_from([0, 1]),
    segment_bytes=st.sampled_from([500, 2000, 1 << 20]),
    interval=st.sampled_from([0, 300, 4096]),
    reopen=st.sampled_from(["no", "clean", "crash", "checkpoint, crash"]),
    start=st.integers(0, 60),
)
def test_every_timestamp_leads_to_the_first_record_at_or_after_it(
    tmp_path_factory, batches, codec, segment_bytes, interval, reopen, start
):
    bench = Bench(tmp_path_factory.mktemp("time"))
    log = bench.create(segment_bytes=segment_bytes, index_interval_bytes=interval)
    records = []
    for timestamps in batches:
        records += [(log.end_offset + i, NOW_MS + t) for i, t in enumerate(timestamps)]
        bench.append(log, timed(*timestamps, codec=codec))
    if "checkpoint" in reopen:
        bench.housekeeping.checkpoint()
        bench.housekeeping.checkpoint()
    if reopen != "no":
        log = bench.restart(clean=reopen == "clean", segment_bytes=segment_bytes)
    assert log.max_timestamp() == latest(records)
    start = min(start, log.high_watermark)
    for begin in (0, start):
        log.delete_records_before(begin)
        for timestamp in range(NOW_MS - 1, NOW_MS + 32):
            assert log.offset_for_time(timestamp) == first_at_or_after(records, timestamp, begin)
    bench.crash()


def test_an_empty_log_has_no_time(bench):
    log = bench.create()
    assert log.offset_for_time(0) is None
    assert log.max_timestamp() is None


def test_records_without_a_timestamp_are_found_by_none(bench):
    log = bench.create()
    bench.append(log, batch(2, timestamp=-1))
    assert log.offset_for_time(0) is None
    assert log.max_timestamp() is None
    bench.append(log, batch(2, timestamp=NOW_MS))
    assert log.offset_for_time(0) == (2, NOW_MS, 0)


def test_what_waits_for_its_flush_is_not_found(bench):
    bench.flushers.held = True
    log = bench.create(flush_messages=2)
    bench.stage(log, timed(1))
    bench.writer.end_of_turn()
    bench.stage(log, timed(5, 9))
    bench.writer.end_of_turn()
    assert log.high_watermark == 1
    assert log.offset_for_time(NOW_MS + 1) == (0, NOW_MS + 1, 0)
    assert log.offset_for_time(NOW_MS + 2) is None
    assert log.max_timestamp() in (None, (0, NOW_MS + 1, 0))
    bench.flushers.run()
    assert log.offset_for_time(NOW_MS + 2) == (1, NOW_MS + 5, 0)
    assert log.max_timestamp() == (2, NOW_MS + 9, 0)


def test_append_time_is_the_time_of_all_records_of_a_batch(bench):
    log = bench.create(log_append_time=True)
    bench.append(log, timed(5, 3, 9))
    bench.clock.advance(10)
    bench.append(log, timed(1))
    assert log.offset_for_time(NOW_MS) == (0, NOW_MS, 0)
    assert log.offset_for_time(NOW_MS + 1) == (3, NOW_MS + 10, 0)
    assert log.max_timestamp() == (3, NOW_MS + 10, 0)


def test_the_leader_epoch_of_the_record_comes_along(bench):
    log = bench.create()
    bench.append(log, timed(1))
    log.leader_epoch = 4
    bench.append(log, timed(2))
    assert log.offset_for_time(NOW_MS + 1) == (0, NOW_MS + 1, 0)
    assert log.offset_for_time(NOW_MS + 2) == (1, NOW_MS + 2, 4)
    assert log.max_timestamp() == (1, NOW_MS + 2, 4)


def test_a_look_up_in_a_large_log_reads_little_of_it(bench):
    log = bench.create(index_interval_bytes=2000, segment_bytes=100_000)
    for i in range(600):
        bench.append(log, timed(i, size=1000))
    bench.disk.bytes_read = 0
    assert log.offset_for_time(NOW_MS + 433)[0] == 433
    assert bench.disk.bytes_read < 20_000

"""A write that fails leaves the log as if it had never been, producers' sequences included."""

import errno
import os

import pytest
from harness import NOW_MS, Bench, batch, log_state, offsets_of, payloads, read_all
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import StorageError


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.crash()


@settings(max_examples=40, deadline=None)
@given(
    before=st.lists(st.integers(1, 3), max_size=3),
    staged=st.lists(st.tuples(st.integers(1, 3), st.sampled_from([10, 400, 60_000])), min_size=1, max_size=5),
    segment_bytes=st.sampled_from([300, 1000, 1 << 20]),
    skip=st.integers(0, 3),
    torn=st.integers(0, 500),
    more=st.booleans(),
)
def test_a_failed_write_leaves_the_log_as_if_it_had_never_been(
    tmp_path_factory, before, staged, segment_bytes, skip, torn, more
):
    """Staged over several segments, torn at any place, with more staged meanwhile: one part is in, the rest is not."""
    bench = Bench(tmp_path_factory.mktemp("failed"))
    log = bench.create(segment_bytes=segment_bytes, index_interval_bytes=200)
    sequence = 0
    kept = []
    for count in before:
        data = batch(count, producer=1, sequence=sequence)
        bench.append(log, data)
        kept.append(bytes(data[21:]))
        sequence += count
    bench.writers.held = True
    bench.disk.fail("write", errno.ENOSPC, path=".log", times=1, skip=skip, torn_bytes=torn)
    tried = []
    for count, size in staged:
        data = batch(count, size=size, producer=1, sequence=sequence)
        tried.append((count, data, bench.stage(log, data)[1]))
        sequence += count
    bench.writer.end_of_turn()
    if more and tried[0][2].pending:
        data = batch(1, producer=1, sequence=sequence)
        tried.append((1, data, bench.stage(log, data)[1]))
    bench.writers.run()
    bench.writer.end_of_turn()
    bench.writers.run()
    assert all(answer.ok or answer.failed for _, _, answer in tried)
    good = [answer.ok for _, _, answer in tried]
    assert good == sorted(good, reverse=True)  # a prefix of them
    bench.disk.repair()
    kept += [bytes(data[21:]) for _, data, answer in tried if answer.ok]
    assert payloads(read_all(log)) == kept
    assert log.next_offset == log.end_offset == log.high_watermark == len(offsets_of(log))
    assert all(segment.reserved == segment.size for segment in log.segments)
    assert [os.path.getsize(segment.log_path) for segment in log.segments if segment.size] == [
        segment.size for segment in log.segments if segment.size
    ]
    # The producer sends again what failed, and gets the offsets that it would have got.
    bench.writers.held = False
    for _, data, answer in tried:
        if answer.failed:
            expected = log.end_offset
            assert bench.append(log, data) == [expected]
            kept.append(bytes(data[21:]))
    assert payloads(read_all(log)) == kept
    log = bench.restart(clean=False)
    assert payloads(read_all(log)) == kept
    bench.crash()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_new_segment_that_cannot_be_opened_fails_the_batch_and_nothing_else(bench, code):
    log = bench.create(segment_bytes=200)
    bench.append(log, batch(size=100, producer=1, sequence=0))
    before = log_state(log)
    bench.disk.fail("open", code, path="00001.log", times=1)
    _, answer = bench.stage(log, batch(size=100, producer=1, sequence=1))
    bench.writer.end_of_turn()
    assert isinstance(answer.calls[0], StorageError)
    assert log_state(log) == before
    assert bench.store.directories[0].online == (code == errno.ENOSPC)


def test_the_end_has_moved_even_if_what_belongs_to_a_batch_cannot_be_written(bench):
    log = bench.create()
    bench.disk.fail("write", errno.ENOSPC, path="leader-epoch")
    bench.append(log, batch())
    bench.disk.fail("write", errno.ENOSPC, path=".log", times=1)
    assert bench.stage(log, batch())[0] == 1
    bench.writer.end_of_turn()
    assert bench.append(log, batch()) == [1]


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_a_full_disk_at_a_roll_fails_no_batch(bench, suffix):
    log = bench.create(segment_bytes=400, index_interval_bytes=100)
    for operation in ("write", "open"):
        bench.disk.fail(operation, errno.ENOSPC, path=suffix)
    sent = [batch(size=100, producer=1, sequence=i, timestamp=NOW_MS + i) for i in range(9)]
    assert bench.append(log, *sent) == list(range(9))
    assert offsets_of(log) == list(range(9))
    bench.disk.repair()
    log = bench.restart(clean=True)
    assert offsets_of(log) == list(range(9))
    assert [log.offset_for_time(NOW_MS + i)[0] for i in range(9)] == list(range(9))
    assert bench.stage(log, sent[-1])[0] == 8

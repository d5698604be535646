import os

import pytest
from harness import Bench, batch, headers, offsets_of, payloads, read_all, run_bytes
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.file_slice import Slice
from headrace.log import reader
from headrace.log.config import LogConfig

SIZES = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 60, 300, 5000])), min_size=1, max_size=14)


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.crash()


@pytest.fixture(autouse=True)
def small_copies(monkeypatch):
    """So that small logs take all the ways that large ones take."""
    monkeypatch.setattr(reader, "COPIED_BYTES_MAX", 700)
    monkeypatch.setattr(reader, "CURSORS_MAX", 4)


@settings(max_examples=40, deadline=None)
@given(
    sizes=SIZES,
    segment_bytes=st.sampled_from([400, 2000, 1 << 20]),
    interval=st.sampled_from([0, 100, 4096]),
    bytes_max=st.sampled_from([0, 1, 11, 12, 61, 100, 250, 400, 699, 701, 1500, 6000, 1 << 20]),
    copy=st.booleans(),
    whole_first=st.booleans(),
    hold_last=st.booleans(),
)
def test_a_read_begins_with_the_batch_of_its_offset_and_ends_before_what_is_not_visible(
    tmp_path_factory, sizes, segment_bytes, interval, bytes_max, copy, whole_first, hold_last
):
    bench = Bench(tmp_path_factory.mktemp("read"))
    log = bench.create(segment_bytes=segment_bytes, index_interval_bytes=interval)
    places = []
    for count, size in sizes:
        data = batch(count, size=size)
        (base,) = bench.append(log, data)
        places.append((base, base + count - 1, len(data)))
    if hold_last:  # the last batches are written, but wait for their flush
        bench.flushers.held = True
        log.reconfigure(LogConfig(flush_messages=1))
        for _ in range(2):
            bench.stage(log, batch(2, size=100))
            bench.writer.end_of_turn()
    visible = places[-1][1] + 1
    assert log.high_watermark == visible
    for base, last, size in places:
        for offset in range(base, last + 1):
            run = log.read(offset, bytes_max, whole_first=whole_first, copy=copy)
            data = run_bytes(run)
            if size > bytes_max and not whole_first:
                assert data == b""
                continue
            found = list(headers(data))
            assert (found[0][0].base_offset, found[0][0].last_offset) == (base, last)
            assert found[-1][0].last_offset < visible
            bases = [header.base_offset for header, _ in found]
            assert bases == [place[0] for place in places if base <= place[0] <= bases[-1]]
            assert len(data) <= max(bytes_max, size)
            if size > bytes_max:
                assert len(data) == size  # that one batch and no more
            if len(found) > 1 or size == bytes_max:
                assert len(data) <= bytes_max
            assert len(data) <= sum(place[2] for place in places if place[0] >= base)  # nothing beyond what is visible
    for offset in (visible, visible + 1, visible + 100):
        assert log.read(offset, bytes_max, whole_first=True, copy=copy) is None
    bench.crash()


@settings(max_examples=40, deadline=None)
@given(
    sizes=SIZES,
    segment_bytes=st.sampled_from([400, 2000, 1 << 20]),
    interval=st.sampled_from([0, 100, 4096]),
    limits=st.lists(st.sampled_from([1, 12, 100, 400, 700, 1500, 6000, 1 << 20]), min_size=1, max_size=4),
    copy=st.booleans(),
    reopen=st.sampled_from(["no", "clean", "crash"]),
)
def test_readers_at_any_pace_get_every_batch_once_and_in_order(
    tmp_path_factory, sizes, segment_bytes, interval, limits, copy, reopen
):
    """Also while the log grows: the places that are remembered stay right."""
    bench = Bench(tmp_path_factory.mktemp("pace"))
    log = bench.create(segment_bytes=segment_bytes, index_interval_bytes=interval)
    sent = [batch(count, size=size) for count, size in sizes]
    half = len(sent) // 2
    bench.append(log, *sent[:half])
    if reopen != "no":
        log = bench.restart(clean=reopen == "clean", segment_bytes=segment_bytes, index_interval_bytes=interval)
    for limit in limits:
        assert payloads(read_all(log, limit, copy=copy)) == [bytes(data[21:]) for data in sent[:half]]
    for at in range(half, len(sent)):
        bench.append(log, sent[at])
        for limit in limits:
            tail = log.read(log.high_watermark - 1, limit, whole_first=True, copy=copy)
            assert next(headers(run_bytes(tail)))[1][21:] == sent[at][21:]
    for limit in limits:
        assert payloads(read_all(log, limit, copy=copy)) == [bytes(data[21:]) for data in sent]
    bench.crash()


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("bytes_max", [-(1 << 31), -1, 0])
def test_a_limit_below_nothing_is_nothing(bench, copy, bytes_max):
    log = bench.create()
    bench.append(log, batch(2), batch(2))
    assert log.read(0, bytes_max, whole_first=False, copy=copy) is None
    assert len(list(headers(run_bytes(log.read(0, bytes_max, whole_first=True, copy=copy))))) == 1


def test_a_small_run_is_given_as_bytes_and_a_large_one_as_a_slice_of_its_file(bench):
    log = bench.create()
    bench.append(log, *[batch(size=300) for _ in range(4)])
    assert not isinstance(log.read(0, 500, whole_first=True, copy=True), Slice)
    large = log.read(0, 10_000, whole_first=True, copy=True)
    assert isinstance(large, Slice)
    assert len(large) == log.size_bytes
    large.close()
    slice_ = log.read(0, 500, whole_first=True)
    assert isinstance(slice_, Slice)
    slice_.close()


def test_a_slice_keeps_its_file_open_while_segments_come_and_go(bench):
    log = bench.create(segment_bytes=1000)
    bench.append(log, *[batch(size=300) for _ in range(6)])
    held = log.read(0, 100_000, whole_first=True)
    expected = run_bytes(log.read(0, 100_000, whole_first=True))
    for index in range(1, 40):
        bench.append(bench.create(index=index), batch())
    bench.clock.advance(10**10)
    assert bench.housekeeping.delete_expired() > 0
    bench.clock.advance(10**6)
    bench.housekeeping.remove_doomed()
    assert run_bytes(held) == expected


def test_a_sequential_reader_needs_no_look_up(bench):
    """What a read costs does not grow with what lies before it."""
    log = bench.create(index_interval_bytes=500)
    bench.append(log, *[batch(size=200) for _ in range(400)])
    for copy in (False, True):
        costs = []
        offset = 0
        while offset < log.high_watermark:
            bench.disk.bytes_read = 0
            some = list(headers(run_bytes(log.read(offset, 1500, whole_first=True, copy=copy))))
            costs.append(bench.disk.bytes_read)
            offset = some[-1][0].last_offset + 1
        assert max(costs[2:]) <= 1500 + 2048 + 100


def test_the_places_remembered_are_bounded(bench):
    log = bench.create(index_interval_bytes=100)
    bench.append(log, *[batch(size=100) for _ in range(50)])
    for offset in range(50):
        run_bytes(log.read(offset, 200, whole_first=True, copy=True))
    assert len(log._reader._cursors) <= reader.CURSORS_MAX


def test_a_deleted_segment_is_not_read_from_a_remembered_place(bench):
    log = bench.create(segment_bytes=600, retention_bytes=700, index_interval_bytes=100)
    bench.append(log, *[batch(size=100) for _ in range(10)])
    gone = log.segments[0].log_path
    for offset in range(3):  # each remembers where the next one begins
        run_bytes(log.read(offset, 200, whole_first=True, copy=True))
    assert bench.housekeeping.delete_expired() > 0
    assert log.start_offset >= 3
    assert offsets_of(log) == list(range(log.start_offset, 10))
    for offset in range(4):
        run = log.read(offset, 200, whole_first=True, copy=True)
        assert next(headers(run_bytes(run)))[0].base_offset == log.start_offset
    assert not os.path.exists(gone)

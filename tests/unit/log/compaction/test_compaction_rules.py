"""Compaction keeps of each key the last record, at its offset, and never anything of an aborted transaction."""

import os
import struct
from pathlib import Path

import pytest
from compaction_harness import EAGER, Cleaner, batches, committed, end_transaction, keyed, put, seal, table
from crc32c import crc32c
from harness import NOW_MS, Answer, Bench, Fault, run_bytes

from headrace.core.errors import RecordsError
from headrace.log.compaction.compactor import CompactionSettings
from headrace.log.compaction.requests import CompactionRefused, MapRequest, MergeRequest
from headrace.log.config import LogConfig
from headrace.protocol.batch import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME
from headrace.protocol.records import iter_records

DAY_MS = 86_400_000


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.crash()


def offsets(log):
    return [record.offset for record in committed(log)]


# ── what stays ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_last_record_of_each_key_stays_at_its_offset(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1"), (b"b", b"1"), (b"a", b"2")]))
    put(bench, log, keyed([(b"c", b"1"), (b"b", b"2")]))
    seal(bench, log)
    put(bench, log, keyed([(b"a", b"3")]))
    cleaner = Cleaner(bench)
    assert cleaner.tick() == 1
    assert [(r.offset, r.key, r.value) for r in committed(log)] == [
        (2, b"a", b"2"),
        (3, b"c", b"1"),
        (4, b"b", b"2"),
        (5, b"a", b"3"),
    ]
    assert cleaner.compactor.clean_offset(log) == 5
    assert cleaner.tick() == 0, "the active segment is never compacted"


def test_a_batch_keeps_its_first_and_last_offset_its_producer_and_its_headers(bench):
    log = bench.create(**EAGER)
    headers = (("h", b"1"), ("h", None))
    put(
        bench,
        log,
        keyed([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2")], producer=7, sequence=0, headers=headers),
    )
    put(bench, log, keyed([(b"b", b"3")], headers=headers))
    seal(bench, log)
    Cleaner(bench).tick()
    (header, data), _ = batches(log)
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 3, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 0)
    assert [record.headers for record in iter_records(data)] == [list(headers)]


def test_a_batch_of_which_all_stays_is_not_touched(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1"), (b"b", b"1")], codec=4))
    seal(bench, log)
    before = batches(log)
    assert Cleaner(bench).tick() == 1
    assert batches(log) == before


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_is_packed_again_as_it_was(bench, codec):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"k%d" % (n % 50), b"v" * 30) for n in range(200)], codec=codec, step_ms=3))
    put(bench, log, keyed([(b"k0", b"last")]))
    seal(bench, log)
    Cleaner(bench).tick()
    header, data = batches(log)[0]
    assert header.attributes == codec
    assert header.record_count == 49
    assert [r.timestamp for r in iter_records(data)] == [NOW_MS + 3 * n for n in range(151, 200)]
    assert (header.base_timestamp, header.max_timestamp) == (NOW_MS + 3 * 151, NOW_MS + 3 * 199)


def test_append_time_stays(bench):
    log = bench.create(**EAGER, log_append_time=True)
    put(bench, log, keyed([(b"a", b"1"), (b"b", None)], timestamp=5, step_ms=1000))
    bench.clock.advance(10)
    put(bench, log, keyed([(b"a", b"2")], timestamp=6))
    seal(bench, log)
    Cleaner(bench).tick()
    header, data = batches(log)[0]
    assert header.attributes & LOG_APPEND_TIME
    assert [(r.key, r.timestamp) for r in iter_records(data)] == [(b"b", NOW_MS)]
    assert header.max_timestamp == NOW_MS


def test_segments_that_have_become_small_are_put_together(bench):
    log = bench.create(**EAGER, segment_bytes=2000)
    for number in range(30):
        put(bench, log, keyed([(b"key", b"%d" % number + b"x" * 400)]))
    seal(bench, log)
    assert len(log.segments) > 5
    cleaner = Cleaner(bench)
    assert cleaner.tick() == 1
    assert offsets(log) == [29]
    put(bench, log, keyed([(b"key", b"new")]))
    seal(bench, log)
    assert cleaner.tick() == 1
    assert [segment.base_offset for segment in log.segments] == [0, 31]
    assert offsets(log) == [30]
    assert log.start_offset == 0, "a reader who asks for what is gone gets what follows"


def test_reading_from_an_offset_that_is_gone_gives_the_next_batch(bench):
    log = bench.create(**EAGER, segment_bytes=3000)
    for number in range(40):
        put(bench, log, keyed([(b"%d" % (number % 3), b"x" * 200)]))
    seal(bench, log)
    put(bench, log, keyed([(b"other", b"")]))
    Cleaner(bench).tick()
    kept = offsets(log)
    for offset in range(log.end_offset):
        data = run_bytes(log.read(offset, 1 << 20, whole_first=True, copy=True))
        found = [r.offset for h in [data] for r in iter_records(h)] if data else []
        following = next(each for each in kept if each >= offset)
        assert not found or found[0] <= following


# ── tombstones ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tombstone_stays_for_delete_retention_ms_after_it_was_first_compacted(bench):
    log = bench.create(**EAGER, delete_retention_ms=1000)
    put(bench, log, keyed([(b"a", b"1"), (b"b", b"1")]))
    put(bench, log, keyed([(b"a", None), (b"c", b"1")], step_ms=7))
    seal(bench, log)
    cleaner = Cleaner(bench)
    bench.clock.advance(5)
    assert cleaner.tick() == 1
    header, data = batches(log)[1]
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW_MS + 1005
    assert [(r.key, r.value, r.timestamp) for r in iter_records(data)] == [
        (b"a", None, NOW_MS),
        (b"c", b"1", NOW_MS + 7),
    ]
    for wait_ms, kept in ((500, [1, 2, 3]), (499, [1, 2, 3]), (1, [1, 3])):
        bench.clock.advance(wait_ms)
        put(bench, log, keyed([(b"filler", b"")]))
        seal(bench, log)
        assert cleaner.tick() == 1
        assert [offset for offset in offsets(log) if offset < 4] == kept


def test_a_tombstone_that_was_written_over_goes_at_once(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", None), (b"a", b"1")]))
    seal(bench, log)
    Cleaner(bench).tick()
    assert offsets(log) == [1]


# ── producers and transactions ───────────────────────────────────────────────────────────────────────────────────────


def test_a_producers_last_sequence_survives_its_records(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1"), (b"b", b"1")], producer=7, sequence=0))
    put(bench, log, keyed([(b"a", b"2")], producer=7, sequence=2))
    put(bench, log, keyed([(b"a", b"3"), (b"b", b"2")]))
    put(bench, log, keyed([(b"c", b"3")]))
    seal(bench, log)
    Cleaner(bench).tick()
    found = [(h.base_offset, h.last_offset, h.record_count, h.producer_id) for h, _ in batches(log)]
    assert found == [(2, 2, 0, 7), (3, 4, 2, -1), (5, 5, 1, -1)]
    # Nothing is left but the log itself.
    for name in os.listdir(log.path):
        if name.endswith(".snapshot"):
            os.unlink(os.path.join(log.path, name))
    log = bench.restart(clean=False, **EAGER)
    span = log.producers.get(7).batches[-1]
    assert (span.last_sequence, span.last_offset) == (2, 2)


def test_records_of_an_aborted_transaction_go_and_their_marker_later(bench):
    log = bench.create(**EAGER, delete_retention_ms=1000)
    put(bench, log, keyed([(b"a", b"1")]))
    put(bench, log, keyed([(b"a", b"aborted")], producer=7, sequence=0, transactional=True))
    put(bench, log, keyed([(b"b", b"2")], producer=8, sequence=0, transactional=True))
    end_transaction(bench, log, 7, commit=False)
    end_transaction(bench, log, 8, commit=True)
    put(bench, log, keyed([(b"x", b"")], producer=7, sequence=1))
    put(bench, log, keyed([(b"x", b"")], producer=8, sequence=1))
    seal(bench, log)
    cleaner = Cleaner(bench)

    def again(wait_ms):
        bench.clock.advance(wait_ms)
        put(bench, log, keyed([(b"filler", b"")]))
        seal(bench, log)
        assert cleaner.tick() == 1
        return [(h.base_offset, bool(h.attributes & CONTROL)) for h, _ in batches(log) if h.base_offset < 5]

    assert cleaner.tick() == 1
    assert table(log) == {b"a": b"1", b"b": b"2", b"x": b""}
    assert [h.base_offset for h, _ in batches(log)] == [0, 2, 3, 4, 5, 6]
    assert log.aborted_between(0, 10) == ((7, 1),)
    # Now no batch of it is left: the marker gets its horizon, and the index forgets it.
    assert again(1) == [(0, False), (2, False), (3, True), (4, True)]
    assert log.aborted_between(0, 10) == ()
    assert again(999) == [(0, False), (2, False), (3, True), (4, True)]
    assert again(1) == [(0, False), (2, False), (4, True)]
    assert table(log) == {b"a": b"1", b"b": b"2", b"x": b"", b"filler": b""}


def test_an_open_transaction_holds_compaction_up(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1"), (b"a", b"2")]))
    seal(bench, log)
    put(bench, log, keyed([(b"a", b"3")], producer=7, sequence=0, transactional=True))
    seal(bench, log)
    put(bench, log, keyed([(b"a", b"4")]))
    seal(bench, log)
    cleaner = Cleaner(bench)
    assert cleaner.tick() == 1
    assert cleaner.compactor.clean_offset(log) == 2
    assert offsets(log) == [1, 2, 3]
    end_transaction(bench, log, 7, commit=False)
    assert cleaner.tick() == 1
    assert offsets(log) == [3]


def test_a_transaction_that_is_aborted_above_what_is_compacted_takes_no_key_with_it(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1")]))
    put(bench, log, keyed([(b"a", b"aborted")], producer=7, sequence=0, transactional=True))
    seal(bench, log)
    end_transaction(bench, log, 7, commit=False)
    assert Cleaner(bench).tick() == 1
    assert table(log) == {b"a": b"1"}


# ── when ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_log_waits_until_enough_of_it_is_dirty(bench):
    log = bench.create(**{**EAGER, "min_cleanable_dirty_ratio": 0.4})
    cleaner = Cleaner(bench)
    rounds = []
    for number in range(8):
        put(bench, log, keyed([(b"%d" % number, b"x" * 1000)]))
        seal(bench, log)
        rounds.append(cleaner.tick())
    assert rounds == [1, 1, 0, 1, 0, 0, 1, 0]


def test_records_younger_than_the_minimum_lag_stay(bench):
    log = bench.create(**EAGER, min_compaction_lag_ms=1000)
    put(bench, log, keyed([(b"a", b"1"), (b"a", b"2")]))
    seal(bench, log)
    bench.clock.advance(600)
    put(bench, log, keyed([(b"a", b"3"), (b"a", b"4")], timestamp=bench.clock.now_ms()))
    seal(bench, log)
    cleaner = Cleaner(bench)
    assert cleaner.tick() == 0
    bench.clock.advance(500)
    assert cleaner.tick() == 1
    assert offsets(log) == [1, 2, 3]
    bench.clock.advance(600)
    assert cleaner.tick() == 1
    assert offsets(log) == [3]


def test_the_maximum_lag_seals_the_active_segment_and_does_not_wait_for_the_ratio(bench):
    log = bench.create(
        cleanup_compact=True, cleanup_delete=False, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000
    )
    put(bench, log, keyed([(b"a", b"1"), (b"a", b"2")]))
    cleaner = Cleaner(bench)
    bench.clock.advance(1000)
    assert cleaner.tick() == 0
    bench.clock.advance(1)
    assert cleaner.tick() == 1
    assert offsets(log) == [1]
    assert cleaner.tick() == 0
    assert len(log.segments) == 2


def test_the_dirtiest_log_comes_first_and_then_the_others(bench):
    logs = [bench.create(index=index, **EAGER) for index in range(3)]
    cleaner = Cleaner(bench)
    for log in logs:
        put(bench, log, keyed([(b"clean", b"x" * 1000)]))
        seal(bench, log)
    assert cleaner.tick() == 3
    for log, size in zip(logs, (10, 4000, 400), strict=True):
        put(bench, log, keyed([(b"dirty", b"x" * size)]))
        seal(bench, log)
    cleaner.requests.clear()
    assert cleaner.tick() == 3
    order = [os.path.dirname(r.segments[0][0])[-1] for r in cleaner.requests if isinstance(r, MapRequest)]
    assert order == ["1", "2", "0"]


def test_a_log_that_is_not_compacted_is_left_alone(bench):
    log = bench.create()
    put(bench, log, keyed([(b"a", b"1"), (b"a", b"2")]))
    seal(bench, log)
    assert Cleaner(bench).tick() == 0
    off = Cleaner(bench, CompactionSettings(enabled=False))
    log.reconfigure(LogConfig(**EAGER))
    assert off.tick() == 0


def test_more_keys_than_fit_take_more_rounds(bench, monkeypatch):
    monkeypatch.setattr("headrace.log.compaction.plan.KEYS_MIN", 10)
    log = bench.create(**EAGER, segment_bytes=3000)
    for number in range(100):
        put(bench, log, keyed([(b"%d" % (number % 40), b"%d" % number + b"x" * 50)] * 2))
    seal(bench, log)
    expected = table(log)
    cleaner = Cleaner(bench, CompactionSettings(dedupe_bytes=1))
    assert cleaner.tick() > 5
    assert table(log) == expected
    assert offsets(log) == [2 * number + 1 for number in range(60, 100)]


# ── beside everything else ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_appended_meanwhile_stays(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1"), (b"a", b"2")]))
    seal(bench, log)
    cleaner = Cleaner(bench)
    cleaner.before = lambda request: put(bench, log, keyed([(b"a", b"new")])) and None
    assert cleaner.tick() == 1
    assert offsets(log) == [1, 2, 3]
    assert log.end_offset == 4


def test_a_log_that_is_deleted_meanwhile_is_dropped(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1"), (b"a", b"2")]))
    seal(bench, log)
    cleaner = Cleaner(bench)
    cleaner.before = lambda request: bench.store.delete(log) if isinstance(request, MergeRequest) else None
    assert cleaner.tick() == 0
    assert not cleaner.compactor.busy
    again = bench.create(**EAGER)
    cleaner.before = lambda request: None
    put(bench, again, keyed([(b"b", b"1"), (b"b", b"2")]))
    seal(bench, again)
    assert cleaner.tick() == 1
    assert offsets(again) == [1]


def test_a_topic_made_again_is_dirty_from_its_start(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1")] * 5))
    seal(bench, log)
    cleaner = Cleaner(bench)
    assert cleaner.tick() == 1
    bench.store.delete(log)
    again = bench.create(**EAGER)
    put(bench, again, keyed([(b"a", b"1")] * 9))
    seal(bench, again)
    assert cleaner.compactor.clean_offset(again) is None
    assert cleaner.tick() == 1
    assert offsets(again) == [8]


def test_segments_that_retention_takes_meanwhile_stay_gone(bench):
    log = bench.create(cleanup_compact=True, min_cleanable_dirty_ratio=0.0, segment_bytes=500)
    for number in range(10):
        put(bench, log, keyed([(b"%d" % (number % 2), b"x" * 300)]))
    seal(bench, log)
    cleaner = Cleaner(bench)
    log.reconfigure(LogConfig(cleanup_compact=True, min_cleanable_dirty_ratio=0.0))

    def retain(request):
        if isinstance(request, MergeRequest):
            log.start_offset = 4
            bench.housekeeping.delete_expired()

    cleaner.before = retain
    assert cleaner.tick() == 0
    assert log.segments[0].base_offset == 4
    assert offsets(log) == [4, 5, 6, 7, 8, 9]
    assert not [name for name in os.listdir(log.path) if name.endswith((".cleaned", ".swap"))]
    cleaner.before = lambda request: None
    assert cleaner.tick() == 1
    assert offsets(log) == [8, 9]


def test_a_segment_that_became_the_active_one_again_and_grew_is_not_replaced(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1"), (b"a", b"2")]))
    seal(bench, log)

    def grow(request):
        if isinstance(request, MergeRequest):
            bench.disk.fail("write", 28, path=".log", times=1)
            _, failed = bench.stage(log, keyed([(b"b", b"lost")]))  # takes the empty active segment with it
            bench.writer.end_of_turn()
            assert failed.failed
            put(bench, log, keyed([(b"b", b"kept")]))
            seal(bench, log)

    cleaner = Cleaner(bench)
    cleaner.before = grow
    assert cleaner.tick() == 0
    assert offsets(log) == [0, 1, 2]
    cleaner.before = lambda request: None
    assert cleaner.tick() == 1
    assert offsets(log) == [1, 2]


def test_aborted_transactions_are_still_told_after_a_crash_with_an_older_recovery_point(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1")]))
    put(bench, log, keyed([(b"a", b"aborted")], producer=7, sequence=0, transactional=True))
    end_transaction(bench, log, 7, commit=False)
    put(bench, log, keyed([(b"b", b"1")]))
    bench.housekeeping.checkpoint()
    bench.housekeeping.checkpoint()
    assert log.recovery_point == 4
    put(bench, log, keyed([(b"b", b"2")]))
    put(bench, log, keyed([(b"b", b"3")]))
    seal(bench, log)
    assert Cleaner(bench).tick() == 1
    assert [header.base_offset for header, _ in batches(log)] == [0, 1, 2, 5]
    told = log.aborted_between(0, 10)
    assert told == ((7, 1),)
    log = bench.restart(clean=False, **EAGER)
    assert log.aborted_between(0, 10) == told
    assert table(log) == {b"a": b"1", b"b": b"3"}


def test_a_reader_goes_on_with_the_old_file(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"x" * 200_000), (b"a", b"2")]))
    seal(bench, log)
    run = log.read(0, 1 << 20, whole_first=True)
    size = len(run)
    assert Cleaner(bench).tick() == 1
    bench.clock.advance(DAY_MS)
    bench.housekeeping.remove_doomed()
    assert len(run_bytes(run)) == size
    assert not [name for name in os.listdir(log.path) if name.endswith(".deleted")]


def test_a_policy_of_compact_alone_deletes_nothing_by_age_or_size(bench):
    log = bench.create(**EAGER, retention_ms=1, retention_bytes=1)
    put(bench, log, keyed([(b"a", b"1")]))
    seal(bench, log)
    bench.clock.advance(DAY_MS)
    assert bench.housekeeping.delete_expired() == 0
    log.reconfigure(LogConfig(cleanup_compact=True, retention_ms=1))
    assert bench.housekeeping.delete_expired() == 1


# ── when it goes wrong ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_damaged_batch_is_not_made_to_look_whole(bench, caplog):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1"), (b"a", b"2")]))
    seal(bench, log)
    path = Path(log.segments[0].log_path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    cleaner = Cleaner(bench)
    assert cleaner.tick() == 0
    assert "is not compacted any more" in caplog.text
    cleaner.requests.clear()
    bench.clock.advance(DAY_MS)
    assert cleaner.tick() == 0
    assert not cleaner.requests
    assert path.read_bytes() == data


def test_records_that_make_no_sense_get_no_crc_of_ours(bench, caplog):
    """As an older version stored them: the header's count of the last record is wrong, the CRC is right."""
    log = bench.create(**EAGER)
    poison = keyed([(b"a", b"1"), (b"b", b"2")])
    poison[-1] = 1  # zigzag of -1 headers
    struct.pack_into(">I", poison, 17, crc32c(poison[21:]))
    log.appender.stage_own(poison, bench.clock.now_ms(), Answer())
    bench.writer.end_of_turn()
    put(bench, log, keyed([(b"a", b"3")]))
    seal(bench, log)
    path = Path(log.segments[0].log_path)
    data = path.read_bytes()
    assert Cleaner(bench).tick() == 0
    assert f"{path}: the batch at byte 0 is damaged: record 1 of 2" in caplog.text
    assert path.read_bytes() == data


def test_a_worker_that_dies_is_tried_again_later(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1"), (b"a", b"2")]))
    seal(bench, log)
    cleaner = Cleaner(bench)
    cleaner.after = lambda request, answer: CompactionRefused(why="killed")
    assert cleaner.tick() == 0
    cleaner.after = lambda request, answer: answer
    assert cleaner.tick() == 0
    bench.clock.advance(300_001)
    assert cleaner.tick() == 1


def test_a_swap_that_cannot_begin_leaves_all_as_it_was(bench):
    log = bench.create(**EAGER)
    put(bench, log, keyed([(b"a", b"1"), (b"a", b"2")]))
    seal(bench, log)
    bench.disk.faults.append(Fault("rename", 28, path=".cleaned"))
    cleaner = Cleaner(bench)
    assert cleaner.tick() == 0
    assert log.directory.online
    assert offsets(log) == [0, 1]
    assert not [name for name in os.listdir(log.path) if name.endswith((".cleaned", ".swap"))]


# ── what is not let in ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_a_record_without_a_key_is_refused_in_kafkas_words(bench, codec):
    log = bench.create(**EAGER)
    pairs = [(b"k", b""), (None, b""), (b"", b""), (None, None), (None, b"x"), (None, b"y")]
    with pytest.raises(RecordsError) as refused:
        put(bench, log, keyed(pairs, codec=codec))
    why = "Compacted topic cannot accept message without key in topic partition t-0"
    assert refused.value.code == 87
    assert refused.value.records == ((1, why), (3, why), (4, why), (5, why))
    assert refused.value.message.startswith(
        "One or more records have been rejected due to 4 record errors in total, and only showing the first three"
        f" errors at most: [RecordError(batchIndex=1, message='{why}'), RecordError(batchIndex=3"
    )
    assert log.next_offset == 0
    log.reconfigure(LogConfig())
    put(bench, log, keyed(pairs, codec=codec))

"""What a log takes of what producers send: records that are what the header says, at times that can be."""

import logging
import struct

import pytest
from crc32c import crc32c
from harness import NOW_MS, Answer, Bench, batch, log_state, offsets_of, read_all

from headrace.core.errors import PeerError, RecordsError
from headrace.log import record_faults
from headrace.log.admission import UNCHECKED, check_slowly
from headrace.log.config import NEVER
from headrace.protocol import record_check
from headrace.protocol.batch import HEADER_BYTES, LOG_APPEND_TIME, check_produced, read_header
from headrace.protocol.error_codes import INVALID_RECORD, INVALID_TIMESTAMP
from headrace.protocol.records import Record, build_batch, iter_records

HOUR_MS = 3_600_000
CODECS = range(5)
MAX_TIMESTAMP_AT, BASE_TIMESTAMP_AT, COUNT_AT, DELTA_AT = 35, 27, 57, 23


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.crash()


def sealed(data: bytearray) -> bytearray:
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


def forged(data: bytearray, *, at: int, value: int) -> bytearray:
    """With another number of 64 bits in the header, under a CRC that matches."""
    struct.pack_into(">q", data, at, value)
    return sealed(data)


def counted(data: bytearray, count: int) -> bytearray:
    struct.pack_into(">i", data, COUNT_AT, count)
    struct.pack_into(">i", data, DELTA_AT, count - 1)
    return sealed(data)


def spread(codec: int = 0, **more) -> bytearray:
    """Three records, the second of which is the newest."""
    times = (NOW_MS, NOW_MS + 50, NOW_MS + 20)
    return build_batch([Record(at, time, b"k", b"v") for at, time in enumerate(times)], codec=codec, **more)


def offer(bench, log, data) -> int:
    """Stages a batch as the produce handler does: where the loop would be kept, a thread looks at it first."""
    offset, _ = bench.stage(log, data)
    if offset == UNCHECKED:
        return check_slowly(log.name, log.config, memoryview(data), 0, len(data), bench.clock.now_ms())
    return offset


def refused(bench, log, data) -> PeerError:
    before = log_state(log)
    with pytest.raises(PeerError) as caught:
        offer(bench, log, data)
    bench.writer.end_of_turn()
    assert log_state(log) == before, "a refusal leaves no trace"
    return caught.value


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("claimed", [NEVER, -1, 0, NOW_MS])
def test_the_largest_timestamp_is_that_of_the_records(bench, codec, claimed):
    log = bench.create()
    bench.append(log, forged(spread(codec), at=MAX_TIMESTAMP_AT, value=claimed))
    ((header, data),) = read_all(log)
    assert header.max_timestamp == NOW_MS + 50
    assert check_produced(memoryview(data), 0, len(data))[8] == NOW_MS + 50
    assert log.max_timestamp()[:2] == (1, NOW_MS + 50)
    assert log.offset_for_time(NOW_MS + 10)[0] == 1


def test_a_batch_whose_header_is_right_is_stored_as_it_came(bench):
    log = bench.create()
    sent = spread()
    bench.append(log, sent)
    ((_, data),) = read_all(log)
    assert data[16:] == sent[16:]


def test_a_forged_largest_timestamp_does_not_switch_retention_off(bench):
    size = len(batch(size=100))
    log = bench.create(segment_bytes=2 * size, retention_ms=HOUR_MS)
    for number in range(20):
        data = batch(size=100, timestamp=bench.clock.now_ms())
        bench.append(log, forged(data, at=MAX_TIMESTAMP_AT, value=NEVER) if number % 5 == 0 else data)
    bench.clock.advance(HOUR_MS + 1)
    bench.append(log, batch(size=100, timestamp=bench.clock.now_ms()))
    assert bench.housekeeping.delete_expired() == 10
    assert offsets_of(log) == [20]


def test_a_forged_largest_timestamp_neither_rolls_a_segment_nor_hides_that_it_is_due(bench):
    log = bench.create(segment_ms=HOUR_MS)
    bench.append(log, forged(batch(), at=MAX_TIMESTAMP_AT, value=NEVER))
    bench.append(log, batch(timestamp=NOW_MS + 10))
    assert len(log.segments) == 1
    bench.clock.advance(2 * HOUR_MS)
    bench.append(log, batch(timestamp=NOW_MS + HOUR_MS + 1))
    assert len(log.segments) == 2


@pytest.mark.parametrize("codec", CODECS)
def test_records_that_do_not_match_the_count_are_refused(bench, codec):
    log = bench.create()
    for count in (1, 2, 4, 1 << 20):
        error = refused(bench, log, counted(spread(codec), count))
        assert error.code == INVALID_RECORD
        assert "t-0: " in error.message
        assert not isinstance(error, RecordsError)


def test_timestamps_are_checked_one_by_one_and_named(bench):
    log = bench.create(timestamp_before_max_ms=HOUR_MS, timestamp_after_max_ms=HOUR_MS)
    times = (NOW_MS, NOW_MS - HOUR_MS - 1, -1, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1, -2)
    error = refused(bench, log, build_batch([Record(at, time, b"k", b"v") for at, time in enumerate(times)]))
    assert isinstance(error, RecordsError)
    assert error.code == INVALID_TIMESTAMP
    assert [at for at, _ in error.records] == [1, 4, 5]


@pytest.mark.parametrize("base", [NEVER, -(1 << 63)])
def test_timestamps_of_no_time_are_refused_whatever_the_header_says(bench, base):
    log = bench.create(timestamp_before_max_ms=NEVER)
    data = forged(batch(), at=BASE_TIMESTAMP_AT, value=base)
    assert refused(bench, log, data).code == INVALID_TIMESTAMP


def test_a_topic_with_append_time_takes_any_time_and_no_nonsense(bench):
    log = bench.create(log_append_time=True)
    bench.append(log, forged(batch(), at=BASE_TIMESTAMP_AT, value=NEVER))
    ((header, data),) = read_all(log)
    assert (header.max_timestamp, header.attributes) == (NOW_MS, LOG_APPEND_TIME)
    assert [record.timestamp for record in iter_records(data)] == [NOW_MS]
    assert refused(bench, log, counted(batch(), 2)).code == INVALID_RECORD


def test_a_count_that_lies_costs_nothing(bench):
    """Two thousand million records, each of which would be named, were they there."""
    log = bench.create(log_append_time=True)
    data = counted(build_batch([Record(0, NOW_MS, None, b"v")], timestamp_type=1), (1 << 31) - 1)
    assert refused(bench, log, data).code == INVALID_RECORD


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_inflates_to_much_is_for_a_thread(bench, codec):
    log = bench.create()
    data = build_batch([Record(0, NOW_MS + 5, b"k", bytes(record_check.INFLATED_HERE_BYTES_MAX))], codec=codec)
    before = log_state(log)
    assert bench.stage(log, data)[0] == UNCHECKED
    assert log_state(log) == before
    largest = check_slowly(log.name, log.config, memoryview(data), 0, len(data), NOW_MS)
    assert largest == NOW_MS + 5
    answer = Answer()
    assert log.appender.stage(memoryview(data), 0, len(data), NOW_MS, answer, largest=largest) == (0, -1)
    bench.writer.end_of_turn()
    assert answer.ok


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_what_inflates_to_more_than_the_bound_is_refused(monkeypatch, bench, codec):
    monkeypatch.setattr(record_check, "INFLATED_BYTES_MAX", 1 << 20)
    log = bench.create()
    data = build_batch([Record(0, NOW_MS, b"k", bytes((1 << 20) + 1))], codec=codec)
    assert refused(bench, log, data).code == INVALID_RECORD
    data = build_batch([Record(0, NOW_MS, b"k", bytes((1 << 20) - 100))], codec=codec)
    assert check_slowly(log.name, log.config, memoryview(data), 0, len(data), NOW_MS) == NOW_MS


def test_poison_of_older_versions_is_kept_said_and_counted_by_recovery(monkeypatch, bench, caplog):
    monkeypatch.setattr(record_faults, "IS_NATIVE", True)  # an editable install has the twin only
    log = bench.create()
    bench.append(log, batch(2))
    poison = [counted(spread(codec), 5) for codec in CODECS] + [counted(batch(), 9), counted(batch(), 2)]
    for data in poison:
        log.appender.stage_own(data, bench.clock.now_ms(), Answer())
        bench.writer.end_of_turn()
    bench.append(log, batch(3))
    stored = read_all(log)
    caplog.set_level(logging.WARNING)
    log = bench.restart(clean=False)
    assert read_all(log) == stored, "acknowledged is acknowledged"
    assert bench.store.poison_batches == len(poison)
    said = [record.getMessage() for record in caplog.records if "make no sense" in record.getMessage()]
    position = len(stored[0][1])
    assert said[0].startswith(f"{log.active.log_path}: the batch at byte {position} (offsets 2 to 6)")
    assert said[0].endswith("go on at offset 7")
    assert said[-1].endswith("2 more batches with records that make no sense are kept")
    assert len(said) == 6


def test_what_compaction_left_is_no_fault(monkeypatch, bench):
    monkeypatch.setattr(record_faults, "IS_NATIVE", True)
    log = bench.create()
    gaps = build_batch([Record(offset, NOW_MS, b"k", b"v") for offset in (1, 4)], last_offset=6)
    emptied = build_batch([], last_offset=2)
    assert len(emptied) == HEADER_BYTES
    for data in (gaps, emptied):
        log.appender.stage_own(data, NOW_MS, Answer())
        bench.writer.end_of_turn()
    bench.restart(clean=False)
    assert bench.store.poison_batches == 0
    assert [header.last_offset for header, _ in read_all(bench.log)] == [6, 9]


def test_a_stored_batch_with_a_negative_count_is_a_fault(monkeypatch, bench):
    monkeypatch.setattr(record_faults, "IS_NATIVE", True)
    log = bench.create()
    data = batch()
    struct.pack_into(">i", data, COUNT_AT, -5)
    log.appender.stage_own(sealed(data), NOW_MS, Answer())
    bench.writer.end_of_turn()
    bench.restart(clean=False)
    assert bench.store.poison_batches == 1
    with pytest.raises(PeerError, match="negative"):
        record_check.check_stored(read_header(data), bytes(data[HEADER_BYTES:]))

import errno

import pytest
from harness import BULK_BYTES, NOW_MS, Bench, batch, headers, log_state, payloads, read_all, run_bytes

from headrace.core.errors import PeerError
from headrace.protocol.batch import LOG_APPEND_TIME, read_header
from headrace.protocol.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    OFFSET_OUT_OF_RANGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
)
from headrace.protocol.records import iter_records


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.crash()


# ── appending ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_offsets_are_given_in_order_and_a_reader_gets_the_bytes_that_were_sent(bench):
    log = bench.create()
    sent = [batch(count) for count in (1, 3, 2)]
    assert bench.append(log, *sent) == [0, 1, 4]
    found = read_all(log)
    assert [(h.base_offset, h.last_offset, h.leader_epoch) for h, _ in found] == [(0, 0, 0), (1, 3, 0), (4, 5, 0)]
    assert payloads(found) == [bytes(data[21:]) for data in sent]
    assert (log.start_offset, log.high_watermark, log.end_offset, log.next_offset) == (0, 6, 6, 6)


def test_nothing_staged_is_seen_or_answered_before_it_is_written(bench):
    log = bench.create()
    bench.append(log, batch(2))
    offset, answer = bench.stage(log, batch(3))
    assert (offset, log.next_offset, log.end_offset, log.high_watermark) == (2, 5, 2, 2)
    assert answer.pending
    assert log.read(2, 1000, whole_first=True) is None
    bench.writer.end_of_turn()
    assert answer.ok
    assert (log.end_offset, log.high_watermark) == (5, 5)


def test_what_one_turn_stages_is_one_write_for_a_partition(bench):
    log, other = bench.create(), bench.create(index=1)
    fault = bench.disk.fail("write", path=".log", skip=2)  # the first two writes go well, there must be no third
    answers = [bench.stage(each, batch(2))[1] for each in (log, other, log, other, log)]
    bench.writer.end_of_turn()
    assert [answer.ok for answer in answers] == [True] * 5
    assert fault.hits == 0
    assert (log.end_offset, other.end_offset) == (6, 4)


def test_the_log_tells_when_more_is_visible(bench):
    log = bench.create()
    seen = []
    log.on_high_watermark.append(lambda: seen.append(log.high_watermark))
    bench.append(log, batch(2), batch(1))
    assert seen == [2, 3]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:-1] + b"\x55"])
def test_a_bad_batch_changes_nothing(bench, damage):
    log = bench.create()
    bench.append(log, batch(2))
    before = log_state(log)
    with pytest.raises(PeerError):
        bench.stage(log, damage(batch(2, fill=1)))
    assert log_state(log) == before
    assert not bench.writer.fresh
    assert bench.append(log, batch(1)) == [2]


def test_a_batch_of_the_largest_size_is_taken_and_a_larger_one_is_not(bench):
    size = len(batch(size=500))
    log = bench.create(max_message_bytes=size)
    bench.append(log, batch(size=500))
    with pytest.raises(PeerError, match=f"{size + 1} bytes is above the limit of {size}") as caught:
        bench.stage(log, batch(size=501))
    assert caught.value.code == MESSAGE_TOO_LARGE


def test_append_time_is_the_brokers(bench):
    log = bench.create(log_append_time=True)
    data = memoryview(batch(3, timestamp=5))
    assert log.appender.stage(data, 0, len(data), NOW_MS, bench.stage(log, batch())[1]) == (1, NOW_MS)
    bench.writer.end_of_turn()
    header, stored = read_all(log)[1]
    assert header.attributes == LOG_APPEND_TIME
    assert [record.timestamp for record in iter_records(stored)] == [NOW_MS] * 3


def test_create_time_is_the_producers(bench):
    log = bench.create()
    data = memoryview(batch(3, timestamp=5))
    assert log.appender.stage(data, 0, len(data), NOW_MS, bench.stage(log, batch())[1]) == (1, -1)


@pytest.mark.parametrize(
    ("timestamp", "good"),
    [(NOW_MS - 1000, True), (NOW_MS - 1001, False), (NOW_MS + 500, True), (NOW_MS + 501, False), (-1, True)],
)
def test_timestamps_have_bounds(bench, timestamp, good):
    log = bench.create(timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    if good:
        assert bench.append(log, batch(timestamp=timestamp)) == [0]
    else:
        with pytest.raises(PeerError) as caught:
            bench.stage(log, batch(timestamp=timestamp))
        assert caught.value.code == INVALID_TIMESTAMP


# ── idempotence ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_again_is_answered_with_its_first_offset_and_written_once(bench):
    log = bench.create()
    bench.append(log, batch(2), batch(2, producer=1, sequence=0))
    offset, answer = bench.stage(log, batch(2, producer=1, sequence=0))
    assert offset == 2
    assert answer.ok
    bench.writer.end_of_turn()
    assert log.end_offset == 4


@pytest.mark.parametrize("where", ["staged", "being written", "being flushed"])
def test_a_batch_again_is_answered_only_after_its_first_copy(bench, where):
    log = bench.create(flush_messages=1 if where == "being flushed" else 1 << 40)
    bench.writers.held = bench.flushers.held = True
    size = BULK_BYTES if where == "being written" else 10
    first, answer = bench.stage(log, batch(size=size, producer=1, sequence=0))
    if where != "staged":
        bench.writer.end_of_turn()
    again, second = bench.stage(log, batch(size=size, producer=1, sequence=0))
    assert (first, again) == (0, 0)
    assert answer.pending
    assert second.pending
    bench.writer.end_of_turn()
    bench.writers.run()
    bench.flushers.run()
    assert answer.ok
    assert second.ok
    assert log.end_offset == 1


@pytest.mark.parametrize("bulk", [False, True])
def test_a_batch_again_fails_with_its_first_copy(bench, bulk):
    log = bench.create()
    bench.writers.held = True
    data = batch(size=BULK_BYTES if bulk else 10, producer=1, sequence=0)
    bench.disk.fail("write", errno.ENOSPC, path=".log", times=1)
    answers = [bench.stage(log, data)[1]]
    if bulk:
        bench.writer.end_of_turn()
    answers.append(bench.stage(log, data)[1])
    bench.writer.end_of_turn()
    bench.writers.run()
    assert [answer.failed for answer in answers] == [True, True]
    assert bench.stage(log, data)[0] == 0


def test_a_gap_in_a_producers_sequence_is_refused_and_changes_nothing(bench):
    log = bench.create()
    bench.append(log, batch(2, producer=1, sequence=0))
    before = log_state(log)
    with pytest.raises(PeerError) as caught:
        bench.stage(log, batch(1, producer=1, sequence=5))
    assert caught.value.code == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log_state(log) == before


# ── DeleteRecords ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_records_below_the_new_start_are_not_given_any_more(bench):
    log = bench.create()
    bench.append(log, batch(2), batch(2), batch(2))
    assert log.delete_records_before(3) == 3
    with pytest.raises(PeerError, match=r"offset 2 is outside \[3, 6\]; start from 3") as caught:
        log.check_offset(2)
    assert caught.value.code == OFFSET_OUT_OF_RANGE
    assert next(headers(run_bytes(log.read(3, 10_000, whole_first=True))))[0].base_offset == 2
    assert log.delete_records_before(1) == 3
    assert log.delete_records_before(-1) == 6
    log.check_offset(6)


@pytest.mark.parametrize("offset", [7, -2, 1 << 40])
def test_records_that_are_not_there_cannot_be_deleted(bench, offset):
    log = bench.create()
    bench.append(log, batch(6))
    with pytest.raises(PeerError) as caught:
        log.delete_records_before(offset)
    assert caught.value.code == OFFSET_OUT_OF_RANGE
    assert log.start_offset == 0


def test_corrupt_is_the_code_of_a_bad_crc(bench):
    log = bench.create()
    data = batch(2)
    data[-1] ^= 1
    with pytest.raises(PeerError) as caught:
        bench.stage(log, data)
    assert caught.value.code == CORRUPT_MESSAGE
    assert read_header(data).base_offset == 0

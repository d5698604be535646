import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import PeerError
from headrace.log.producer_state import SEQUENCE_MAX, Duplicate, ProducerEntry, ProducerState

OUT_OF_ORDER, FENCED, COORDINATOR_FENCED = 45, 47, 52
DAY = 86_400_000
NOW = 1_700_000_000_000

# Written by Apache Kafka 4.3.1 on a clean stop, after ten batches of one producer; the last has 10 records.
KAFKA_SNAPSHOT = bytes.fromhex(
    "0001dd0875770000000100000000000000000000000000360000000000000036000000090000018bcfe56809ffffffffffffffffffffffff"
)


def append(
    state: ProducerState,
    base: int,
    last: int,
    *,
    producer: int = 1,
    epoch: int = 0,
    offset: int | None = None,
) -> ProducerEntry | None:
    assert state.check(producer, epoch, base, last) is None
    start = base if offset is None else offset
    return state.record(producer, epoch, base, last, start, start + (last - base) % (1 << 31), NOW + base)


def refused(state: ProducerState, base: int, last: int, *, epoch: int = 0) -> int:
    with pytest.raises(PeerError) as caught:
        state.check(1, epoch, base, last)
    return caught.value.code


def test_batches_in_sequence_are_appended() -> None:
    state = ProducerState()
    for base in range(0, 50, 5):
        append(state, base, base + 4)
    assert len(state) == 1


def test_one_of_the_last_five_batches_again_is_a_duplicate() -> None:
    state = ProducerState()
    for i in range(7):
        append(state, i * 10, i * 10 + 9, offset=1000 + i * 10)
    for i in range(2, 7):
        found = state.check(1, 0, i * 10, i * 10 + 9)
        assert found == Duplicate(1000 + i * 10, 1009 + i * 10, NOW + i * 10)
    assert refused(state, 10, 19) == OUT_OF_ORDER


def test_part_of_a_batch_again_is_out_of_order() -> None:
    state = ProducerState()
    append(state, 0, 9)
    assert refused(state, 0, 8) == OUT_OF_ORDER
    assert refused(state, 5, 9) == OUT_OF_ORDER


def test_a_gap_is_out_of_order_and_the_message_says_what_is_next() -> None:
    state = ProducerState()
    append(state, 0, 9)
    with pytest.raises(PeerError, match=r"producer 1: sequence 11 does not follow 9, .*; send 10") as caught:
        state.check(1, 0, 11, 11)
    assert caught.value.code == OUT_OF_ORDER


def test_an_unknown_producer_is_taken_at_any_sequence() -> None:
    state = ProducerState()
    append(state, 1234, 1240)
    assert refused(state, 0, 0) == OUT_OF_ORDER
    append(state, 1241, 1241)


def test_a_new_epoch_begins_at_sequence_zero_and_forgets_the_batches_before_it() -> None:
    state = ProducerState()
    append(state, 0, 9)
    assert refused(state, 10, 10, epoch=1) == OUT_OF_ORDER
    append(state, 0, 9, epoch=1, offset=10)
    assert state.check(1, 1, 0, 9) == Duplicate(10, 19, NOW)


def test_an_old_epoch_is_fenced_even_where_it_repeats_a_batch() -> None:
    state = ProducerState()
    append(state, 0, 9)
    append(state, 0, 0, epoch=3, offset=10)
    assert refused(state, 0, 9, epoch=0) == FENCED
    assert refused(state, 10, 10, epoch=2) == FENCED


def test_sequences_wrap_after_the_largest() -> None:
    state = ProducerState()
    append(state, SEQUENCE_MAX - 4, SEQUENCE_MAX, offset=0)
    assert refused(state, 1, 1) == OUT_OF_ORDER
    append(state, 0, 3, offset=5)
    append(state, 4, 4, offset=9)
    assert state.check(1, 0, SEQUENCE_MAX - 4, SEQUENCE_MAX) == Duplicate(0, 4, NOW + SEQUENCE_MAX - 4)


def test_a_batch_may_wrap_inside() -> None:
    state = ProducerState()
    append(state, SEQUENCE_MAX - 1, 2, offset=100)
    assert state.check(1, 0, SEQUENCE_MAX - 1, 2) == Duplicate(100, 104, NOW + SEQUENCE_MAX - 1)
    append(state, 3, 3, offset=105)
    state = ProducerState()
    append(state, SEQUENCE_MAX - 1, 2, offset=100)
    again = ProducerState.decode_snapshot(state.encode_snapshot())
    assert again.check(1, 0, SEQUENCE_MAX - 1, 2) == Duplicate(100, 104, NOW + SEQUENCE_MAX - 1)


def test_a_failed_write_is_undone_batch_by_batch() -> None:
    state = ProducerState()
    first = append(state, 0, 9)
    before = state.encode_snapshot()
    second = append(state, 10, 10)
    third = append(state, 11, 11)
    state.restore(1, third)
    state.restore(1, second)
    assert state.encode_snapshot() == before
    state.restore(1, first)
    assert first is None
    with pytest.raises(PeerError):
        state.check(1, 0, 10, 10)  # what came behind the batch that failed must wait for it
    assert state.check(1, 0, 0, 9) is None


def test_producers_expire_by_the_time_of_their_last_batch() -> None:
    state = ProducerState()
    state.record(1, 0, 0, 0, 0, 0, NOW)
    state.record(2, 0, 0, 0, 1, 1, NOW + 1)
    assert state.expire(NOW + DAY - 1, DAY) == 0
    assert state.expire(NOW + DAY, DAY) == 1
    assert (state.get(1), state.get(2) is None) == (None, False)


def test_a_producer_with_an_open_transaction_neither_expires_nor_is_evicted() -> None:
    state = ProducerState(producers_max=2)
    state.restore(1, ProducerEntry(0, (), NOW, 4, 7))
    assert state.expire(NOW + 2 * DAY, DAY) == 0
    for producer in range(2, 6):
        append(state, 0, 0, producer=producer)
    assert state.get(1) is not None
    assert len(state) == 2


def test_beyond_the_bound_the_least_recently_written_are_forgotten() -> None:
    state = ProducerState(producers_max=3)
    for producer in (1, 2, 3):
        append(state, 0, 0, producer=producer)
    append(state, 1, 1, producer=1)
    append(state, 0, 0, producer=4)
    assert [producer for producer in range(1, 5) if state.get(producer)] == [1, 3, 4]


def test_many_producers_stay_within_the_bound() -> None:
    state = ProducerState(producers_max=1000)
    for producer in range(5000):
        state.record(producer, 0, 0, 0, producer, producer, NOW)
        assert len(state) <= 1000
    assert state.get(4999) is not None


def test_a_cut_forgets_the_batches_after_it() -> None:
    state = ProducerState()
    for base in range(0, 40, 10):
        append(state, base, base + 9)
    append(state, 0, 0, producer=2, offset=40)
    state.truncate_from_end(25)
    assert state.get(2) is None
    assert state.check(1, 0, 10, 19) == Duplicate(10, 19, NOW + 10)
    assert refused(state, 30, 39) == OUT_OF_ORDER
    append(state, 20, 29)
    state.truncate_from_end(0)
    assert len(state) == 0


def test_nothing_is_known_after_clear() -> None:
    state = ProducerState()
    append(state, 0, 9)
    state.clear()
    append(state, 500, 500)


def test_a_snapshot_that_kafka_wrote_is_read_and_written_alike() -> None:
    state = ProducerState.decode_snapshot(KAFKA_SNAPSHOT)
    assert len(state) == 1
    assert state.check(0, 0, 45, 54) == Duplicate(45, 54, 1_700_000_000_009)
    assert state.check(0, 0, 55, 55) is None
    assert state.encode_snapshot() == KAFKA_SNAPSHOT


def test_a_producer_without_batches_survives_a_snapshot() -> None:
    state = ProducerState()
    state.restore(9, ProducerEntry(3, (), NOW, 5, -1))
    again = ProducerState.decode_snapshot(state.encode_snapshot())
    assert again.get(9) == ProducerEntry(3, (), NOW, 5, -1)
    assert again.check(9, 3, 0, 0) is None


entries = st.tuples(
    st.integers(0, (1 << 63) - 1),
    st.integers(0, (1 << 15) - 1),
    st.integers(0, SEQUENCE_MAX),
    st.integers(0, 1 << 40),
    st.integers(0, 1000),
    st.integers(-1, 1 << 45),
)


@given(st.lists(entries, max_size=10))
def test_the_last_batch_of_each_producer_survives_a_snapshot(found: list[tuple[int, ...]]) -> None:
    state = ProducerState()
    for producer, epoch, last, base_offset, delta, timestamp in found:
        base = (last - delta) % (1 << 31)
        state.record(producer, epoch, base, last, base_offset, base_offset + delta, timestamp)
    again = ProducerState.decode_snapshot(state.encode_snapshot())
    assert again.encode_snapshot() == state.encode_snapshot()
    for producer, *_ in found:
        before, after = state.get(producer), again.get(producer)
        assert before is not None
        assert after is not None
        assert after.batches == before.batches[-1:]


def test_a_snapshot_larger_than_the_bound_keeps_the_most_recent() -> None:
    state = ProducerState()
    for producer in range(50):
        append(state, 0, 0, producer=producer)
    again = ProducerState.decode_snapshot(state.encode_snapshot(), producers_max=10)
    assert len(again) == 10
    assert again.get(49) is not None


def test_a_snapshot_cut_or_changed_anywhere_is_a_value_error() -> None:
    for cut in range(len(KAFKA_SNAPSHOT)):
        with pytest.raises(ValueError, match="producer snapshot"):
            ProducerState.decode_snapshot(KAFKA_SNAPSHOT[:cut])
    for position in range(len(KAFKA_SNAPSHOT)):
        changed = bytearray(KAFKA_SNAPSHOT)
        changed[position] ^= 0x40
        with pytest.raises(ValueError, match="producer snapshot"):
            ProducerState.decode_snapshot(bytes(changed))


def test_a_snapshot_of_another_version_is_a_value_error() -> None:
    body = struct.pack(">i", 0)
    with pytest.raises(ValueError, match="version 2"):
        ProducerState.decode_snapshot(struct.pack(">hI", 2, crc32c(body)) + body)


def marker_refused(state: ProducerState, epoch: int, coordinator_epoch: int, *, epoch_bumped: bool = False) -> int:
    with pytest.raises(PeerError) as caught:
        state.check_marker(1, epoch, coordinator_epoch, epoch_bumped)
    return caught.value.code


def test_a_marker_is_refused_from_an_older_producer_or_coordinator() -> None:
    state = ProducerState()
    state.check_marker(1, 0, -1, False)
    state.end_transaction(1, 3, 5, NOW)
    assert state.get(1) == ProducerEntry(3, (), NOW, 5, -1)
    state.check_marker(1, 3, 5, False)
    state.check_marker(1, 4, 6, False)
    assert marker_refused(state, 2, 9) == FENCED
    assert marker_refused(state, 3, 4) == COORDINATOR_FENCED


def test_a_marker_with_a_bumped_epoch_does_not_end_a_transaction_of_that_epoch() -> None:
    state = ProducerState()
    state.end_transaction(1, 3, 0, NOW)
    state.check_marker(1, 3, 0, True)  # sent again
    state.record(1, 3, 0, 0, 10, 10, NOW, transactional=True)
    assert marker_refused(state, 3, 0, epoch_bumped=True) == FENCED
    state.check_marker(1, 3, 0, False)
    state.check_marker(1, 4, 0, True)

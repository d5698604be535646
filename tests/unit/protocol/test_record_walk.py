"""The walk over a batch's records: what it finds, and that the native one and its twin in Python never differ."""

from __future__ import annotations

import native_walk
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.protocol.batch import HEADER_BYTES
from headrace.protocol.record_walk import (
    CUT,
    END,
    GAPS,
    HEADER_COUNT,
    HEADER_KEY,
    HEADER_VALUE,
    KEY,
    KEYED,
    LEFT_OVER,
    LENGTH,
    NUMBER,
    OFFSET,
    RECORD_ERRORS_MAX,
    RECORDS,
    VALUE,
    Walked,
    walk_interpreted,
)
from headrace.protocol.records import Record, build_batch, iter_records

ANY = (-(1 << 63), (1 << 63) - 1)
NOW = 1_763_400_000_000

lengths = st.sampled_from([0, 1, 62, 63, 64, 65, 200, 8191, 8192])
texts = st.one_of(st.none(), st.binary(max_size=20), lengths.map(bytes))
headers = st.lists(st.tuples(st.text(max_size=5), texts), max_size=3)
times = st.one_of(st.integers(NOW - 100, NOW + 100), st.sampled_from([-1, 0, -5, 1 << 40, NOW + (1 << 33)]))
records = st.lists(st.tuples(times, texts, texts, headers), min_size=1, max_size=5)
ranges = st.sampled_from([ANY, (NOW - 50, NOW + 50), (0, 1 << 50)])
rules = st.sampled_from([0, KEYED, GAPS, KEYED | GAPS])
bases = st.sampled_from([NOW, -1, 0, ANY[0], ANY[1]])


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    if (absent := native_walk.missing_compiler()) is not None:
        pytest.skip(absent)
    return native_walk.build(tmp_path_factory.mktemp("native")).walk


@pytest.fixture(params=["native", "interpreted"])
def walk(request):
    return request.getfixturevalue("native") if request.param == "native" else walk_interpreted


def body_of(chosen) -> bytes:
    """The records of a batch of these (timestamp, key, value, headers)."""
    return bytes(build_batch([Record(at, *each) for at, each in enumerate(chosen)])[HEADER_BYTES:])


def same(native, data: bytes, count: int, base: int = NOW, within=ANY, wanted: int = 0) -> Walked:
    padded = b"\xff" * 7 + data + b"\xff" * 9  # nothing outside may be looked at
    arguments = (padded, 7, 7 + len(data), count, base, *within, wanted)
    found = walk_interpreted(*arguments)
    assert native(*arguments) == found
    assert native(memoryview(bytearray(padded)), *arguments[1:]) == found
    return found


@given(chosen=records, within=ranges, wanted=rules)
def test_well_formed_records_are_walked_to_their_largest_timestamp(native, chosen, within, wanted):
    found = same(native, body_of(chosen), len(chosen), chosen[0][0], within, wanted)
    oldest, newest = within
    keyless = {at for at, each in enumerate(chosen) if wanted & KEYED and each[1] is None}
    late = {at for at, each in enumerate(chosen) if each[0] != -1 and not oldest <= each[0] <= newest}
    if not keyless | late:
        assert found == max(-1, *(each[0] for each in chosen))
    else:
        expected = tuple((at, None if at in keyless else chosen[at][0]) for at in sorted(keyless | late))
        assert (found[0], found[1], found[3], found[4]) == (RECORDS, expected[0][0], len(expected), expected)


@settings(max_examples=200)
@given(chosen=records, data=st.data(), base=bases, within=ranges, wanted=rules)
def test_twins_agree_on_mutated_records(native, chosen, data, base, within, wanted):
    body = bytearray(body_of(chosen))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF])))
    cut = data.draw(st.sampled_from([len(body)] * 3 + [len(body) // 2, len(body) - 1]))
    more = data.draw(st.sampled_from([b""] * 3 + [b"\0", b"\x80" * 6]))
    count = len(chosen) + data.draw(st.sampled_from([0, 0, 0, 1, -1, (1 << 31) - 2]))
    same(native, bytes(body[:cut]) + more, count, base, within, wanted)


@settings(max_examples=200)
@given(body=st.binary(max_size=60), count=st.integers(0, 8), base=bases, within=ranges, wanted=rules)
def test_twins_agree_on_noise(native, body, count, base, within, wanted):
    same(native, body, count, base, within, wanted)


@settings(max_examples=100)
@given(chosen=records, at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_what_passes_is_what_a_reader_can_read(chosen, at, byte):
    """Every accepted mutation must decode, to the records that the walk has seen."""
    batch = build_batch([Record(at, *each) for at, each in enumerate(chosen)])
    at = HEADER_BYTES + at % (len(batch) - HEADER_BYTES)
    batch[at] = byte
    found = walk_interpreted(batch, HEADER_BYTES, len(batch), len(chosen), chosen[0][0], *ANY, 0)
    if isinstance(found, int):
        read = list(iter_records(batch))
        assert [record.offset for record in read] == list(range(len(chosen)))
        assert found == max(-1, *(min(max(record.timestamp, ANY[0]), ANY[1]) for record in read))


# One record, field by field: length, attributes, timestamp delta, offset delta, key, value, headers.
GOOD = bytes([18, 0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + bytes([0, 0])
PLAIN = bytes([16, 0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + bytes([0])

FAULTS = {
    "no bytes": (b"", 1, (CUT, 0, 0, 0)),
    "one record too few": (PLAIN, 2, (CUT, 1, 9, 0)),
    "one record too many": (PLAIN, 0, (LEFT_OVER, 0, 0, 9)),
    "a byte behind the records": (PLAIN + b"x", 1, (LEFT_OVER, 1, 9, 1)),
    "length 0": (b"\0" + PLAIN, 1, (LENGTH, 0, 0, 0)),
    "length -1": (b"\1" + PLAIN[1:], 1, (LENGTH, 0, 0, -1)),
    "length beyond the end": (bytes([18]) + PLAIN[1:], 1, (LENGTH, 0, 0, 9)),
    "length of six bytes": (b"\x80" * 5 + b"\0" + PLAIN[1:], 1, (NUMBER, 0, 0, 0)),
    "length of 33 bits": (b"\x90\x80\x80\x80\x10" + PLAIN[1:], 1, (NUMBER, 0, 0, 0)),
    "a record of its attributes only": (bytes([2, 0]), 1, (CUT, 0, 2, 0)),
    "a timestamp of eleven bytes": (bytes([50, 0]) + b"\x80" * 10 + bytes(14), 1, (NUMBER, 0, 2, 0)),
    "a timestamp of 65 bits": (bytes([50, 0]) + b"\x80" * 9 + b"\2" + bytes(14), 1, (NUMBER, 0, 2, 0)),
    "offset 1 first": (bytes([16, 0, 0, 2]) + PLAIN[4:], 1, (OFFSET, 0, 3, 1)),
    "offset 0 twice": (PLAIN + PLAIN, 2, (OFFSET, 1, 12, 0)),
    "offset -1": (bytes([16, 0, 0, 1]) + PLAIN[4:], 1, (OFFSET, 0, 3, -1)),
    "a key beyond the record": (PLAIN[:4] + bytes([10]) + PLAIN[5:], 1, (KEY, 0, 4, 5)),
    "a value beyond the record": (PLAIN[:6] + bytes([4]) + PLAIN[7:] + bytes(9), 1, (CUT, 0, 9, 0)),
    "a value far beyond the record": (PLAIN[:6] + bytes([6]) + PLAIN[7:] + bytes(9), 1, (VALUE, 0, 6, 3)),
    "a key of -2 bytes": (PLAIN[:4] + bytes([3]) + PLAIN[5:], 1, (KEY, 0, 4, -2)),
    "a value of -3 bytes": (PLAIN[:6] + bytes([5]) + PLAIN[7:], 1, (VALUE, 0, 6, -3)),
    "a header's value of -2 bytes": (bytes([20]) + PLAIN[1:8] + b"\2\0\3", 1, (HEADER_VALUE, 0, 10, -2)),
    "-1 headers": (PLAIN[:8] + b"\1", 1, (HEADER_COUNT, 0, 8, -1)),
    "more headers than bytes": (PLAIN[:8] + b"\2", 1, (HEADER_COUNT, 0, 8, 1)),
    "a header without a key": (bytes([20]) + PLAIN[1:8] + b"\2\1\0", 1, (HEADER_KEY, 0, 9, -1)),
    "a header's key beyond the record": (bytes([20]) + PLAIN[1:8] + b"\2\4\0", 1, (HEADER_KEY, 0, 9, 2)),
    "a header's value beyond the record": (bytes([20]) + PLAIN[1:8] + b"\2\0\2", 1, (HEADER_VALUE, 0, 10, 1)),
    "a record that is longer than its fields": (GOOD, 1, (END, 0, 9, 1)),
}


@pytest.mark.parametrize("case", FAULTS)
def test_every_kind_of_fault_is_found_where_it_is(walk, case):
    data, count, expected = FAULTS[case]
    assert walk(data, 0, len(data), count, NOW, *ANY, 0) == (*expected, ())


def test_a_length_of_minus_one_is_that_of_null(walk):
    record = bytes([16, 0, 0, 0, 1, 1, 2, 0, 1])  # no key, no value, a header with an empty key and no value
    assert walk(record, 0, len(record), 1, NOW, *ANY, 0) == NOW
    assert walk(record, 0, len(record), 1, NOW, *ANY, KEYED)[4] == ((0, None),)


def test_timestamps_beyond_64_bits_count_as_out_of_range(walk):
    record = body_of([(0, None, None, ()), (5, None, None, ()), (-5, None, None, ())])
    assert walk(record, 0, len(record), 3, ANY[1], 0, ANY[1] - 6, 0)[4] == ((0, ANY[1]), (1, ANY[1]), (2, ANY[1] - 5))
    assert walk(record, 0, len(record), 3, ANY[0], 0, 9, 0)[4] == ((0, ANY[0]), (1, ANY[0] + 5), (2, ANY[0]))


def test_records_that_are_to_blame_are_counted_and_the_first_are_named(walk):
    count = RECORD_ERRORS_MAX + 5
    body = body_of([(NOW, None, b"v", ())] * count)
    kind, record, _, total, bad = walk(body, 0, len(body), count, NOW, *ANY, KEYED)
    assert (kind, record, total) == (RECORDS, 0, count)
    assert bad == tuple((at, None) for at in range(RECORD_ERRORS_MAX))


def test_offsets_with_gaps_are_right_only_where_compaction_may_have_been(walk):
    batch = build_batch([Record(offset, NOW, b"k", b"v") for offset in (2, 3, 7)])
    arguments = (batch, HEADER_BYTES, len(batch), 3, NOW, *ANY)
    assert walk(*arguments, GAPS) == NOW
    assert walk(*arguments, 0)[0] == OFFSET
    batch = build_batch([Record(offset, NOW, b"k", b"v") for offset in (2, 7, 7)])
    assert walk(batch, HEADER_BYTES, len(batch), 3, NOW, *ANY, GAPS)[:2] == (OFFSET, 2)


def test_a_long_batch_is_walked_to_its_end(native):
    body = body_of([(NOW + at, b"k", bytes(1000), ()) for at in range(300)])
    assert len(body) > 65536, "above what is walked with the interpreter locked"
    assert same(native, body, 300) == NOW + 299
    assert same(native, body[:-1], 300)[0] == LENGTH


@pytest.mark.parametrize(("start", "end", "count"), [(-1, 3, 1), (2, 1, 1), (0, 4, 1), (0, 3, -1)])
def test_a_range_outside_the_data_is_our_own_mistake(walk, start, end, count):
    with pytest.raises(ValueError, match="records at"):
        walk(b"abc", start, end, count, NOW, *ANY, 0)

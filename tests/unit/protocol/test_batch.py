import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import PeerError
from headrace.protocol import batch
from headrace.protocol.batch import (
    CONTROL,
    CRC_END,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    STAMP,
    TRANSACTIONAL,
    check_produced,
    read_header,
    stamp_times,
)
from headrace.protocol.error_codes import CORRUPT_MESSAGE, INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE
from headrace.protocol.records import Record, build_batch, iter_records

NOW = 1_700_000_000_000


def made(count=3, **fields):
    return build_batch([Record(i, NOW + i, b"key", b"value") for i in range(count)], **fields)


def sealed(data):
    """The same bytes with a CRC that matches them."""
    struct.pack_into(">I", data, 17, crc32c(bytes(data[CRC_END:])))
    return data


def refusal(data, start=0, end=None):
    with pytest.raises(PeerError) as caught:
        check_produced(memoryview(data), start, len(data) if end is None else end)
    return caught.value.code, caught.value.message


def test_a_header_has_61_bytes_and_reads_back_what_was_written():
    assert HEADER_BYTES == 61
    data = made(5, base_offset=7, leader_epoch=2, producer_id=9, producer_epoch=1, base_sequence=4)
    header = read_header(b"##" + bytes(data), 2)
    assert header.size == len(data) == header.length + 12
    assert (header.base_offset, header.leader_epoch, header.magic) == (7, 2, 2)
    assert (header.record_count, header.last_offset_delta) == (5, 4 - 7)  # build_batch keeps absolute offsets
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 4)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 4)
    assert header.crc == crc32c(bytes(data[CRC_END:]))


@pytest.mark.parametrize("padding", [0, 13])
def test_a_good_batch_is_taken_wherever_it_lies(padding):
    data = made()
    view = memoryview(bytearray(b"\xff" * padding) + data + b"\xee" * padding)
    assert check_produced(view, padding, padding + len(data)) == tuple(read_header(data))


@pytest.mark.parametrize("codec", range(5))
def test_a_codec_that_is_known_is_taken_without_a_look_inside(codec):
    data = made()
    struct.pack_into(">h", data, CRC_END, codec)
    assert check_produced(memoryview(sealed(data)), 0, len(data))[5] == codec


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_nobody_knows_is_refused(codec):
    data = made()
    struct.pack_into(">h", data, CRC_END, codec)
    assert refusal(sealed(data))[0] == UNSUPPORTED_COMPRESSION_TYPE


def test_a_transactional_batch_is_a_batch():
    assert check_produced(memoryview(made(transactional=True)), 0, len(made()))[5] == TRANSACTIONAL


def test_no_batch_at_all_is_an_invalid_record():
    assert refusal(bytearray()) == (
        INVALID_RECORD,
        "a produce request must hold one record batch per partition; found none",
    )


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(1, len(made()) - 1))
def test_a_batch_that_was_cut_is_refused(cut):
    data = made()
    code, message = refusal(data[: len(data) - cut])
    assert code == INVALID_RECORD
    assert str(len(data) - cut) in message


def test_the_space_behind_a_short_batch_is_not_taken_for_its_end():
    data = made()
    assert refusal(data, 0, len(data) - 1)[0] == INVALID_RECORD


@pytest.mark.parametrize("behind", [bytes(made()), b"\0"])
def test_anything_behind_the_one_batch_is_refused(behind):
    code, message = refusal(made() + behind)
    assert code == INVALID_RECORD
    assert f"{len(behind)} bytes follow" in message


@pytest.mark.parametrize("length", [-(1 << 31), -13, -12, 0, 13, 48, len(made()) - 13])
def test_a_length_that_is_too_short_is_corrupt(length):
    data = made()
    struct.pack_into(">i", data, 8, length)
    assert refusal(data)[0] == CORRUPT_MESSAGE


@pytest.mark.parametrize("length", [len(made()) - 11, 1 << 20, (1 << 31) - 1])
def test_a_length_beyond_what_was_sent_is_refused(length):
    data = made()
    struct.pack_into(">i", data, 8, length)
    assert refusal(data)[0] == INVALID_RECORD


@pytest.mark.parametrize(
    ("magic", "code"), [(0, INVALID_RECORD), (1, INVALID_RECORD), (3, CORRUPT_MESSAGE), (-1, CORRUPT_MESSAGE)]
)
def test_another_magic_is_refused(magic, code):
    data = made()
    struct.pack_into(">b", data, 16, magic)
    found, message = refusal(data)
    assert found == code
    assert f"magic {magic}" in message


@settings(max_examples=100, deadline=None)
@given(at=st.integers(CRC_END, len(made()) - 1), bit=st.integers(0, 7))
def test_one_flipped_bit_in_what_the_crc_covers_is_found(at, bit):
    data = made()
    data[at] ^= 1 << bit
    code, message = refusal(data)
    assert code == CORRUPT_MESSAGE
    assert "CRC" in message


@pytest.mark.parametrize(("count", "delta"), [(0, -1), (-1, -2), (3, 1), (3, 3), (2, 2), (1, -1)])
def test_counts_that_do_not_agree_are_refused(count, delta):
    data = made()
    struct.pack_into(">i", data, 23, delta)
    struct.pack_into(">i", data, 57, count)
    code, message = refusal(sealed(data))
    assert code == INVALID_RECORD
    assert str(count) in message
    assert str(delta) in message


def test_control_records_are_not_a_clients_to_write():
    assert refusal(made(control=True))[0] == INVALID_RECORD
    data = made()
    struct.pack_into(">h", data, CRC_END, CONTROL | TRANSACTIONAL)
    assert "control" in refusal(sealed(data))[1]


def test_a_base_offset_is_the_brokers_to_give():
    data = made()
    struct.pack_into(">q", data, 0, 1)
    assert refusal(data)[0] == INVALID_RECORD


def test_an_idempotent_batch_has_a_sequence():
    assert refusal(made(producer_id=3, producer_epoch=0, base_sequence=-1))[0] == INVALID_RECORD
    good = made(producer_id=3, producer_epoch=0, base_sequence=0)
    assert check_produced(memoryview(good), 0, len(good))[9:12] == (3, 0, 0)


def test_a_refused_batch_is_left_as_it_is():
    data = made() + made()
    before = bytes(data)
    refusal(data)
    assert data == before


@settings(max_examples=60, deadline=None)
@given(offset=st.integers(0, (1 << 63) - 10), epoch=st.integers(0, (1 << 31) - 1), padding=st.integers(0, 9))
def test_a_stamp_changes_offset_and_epoch_and_nothing_that_the_crc_covers(offset, epoch, padding):
    data = made()
    view = bytearray(padding) + data + bytearray(5)
    STAMP.pack_into(view, padding, offset, read_header(data).length, epoch)
    stamped = view[padding : padding + len(data)]
    expected = read_header(data)._replace(base_offset=offset, leader_epoch=epoch)
    assert read_header(stamped) == expected
    assert stamped[CRC_END:] == data[CRC_END:]
    assert view[:padding] == bytes(padding)
    assert view[-5:] == bytes(5)


@settings(max_examples=40, deadline=None)
@given(now=st.integers(0, 1 << 45), codec=st.sampled_from([0, 1, 4]), padding=st.integers(0, 9))
def test_append_time_is_one_timestamp_for_all_records_under_a_crc_that_matches(now, codec, padding):
    data = made(4, codec=codec)
    view = memoryview(bytearray(padding) + data + bytearray(b"rest"))
    attributes = read_header(data).attributes | LOG_APPEND_TIME
    stamp_times(view, padding, padding + len(data), attributes, now)
    header = read_header(view, padding)
    assert header.attributes == codec | LOG_APPEND_TIME
    assert header.max_timestamp == now
    assert header.base_timestamp == NOW
    assert check_produced(view, padding, padding + len(data)) == header
    records = list(iter_records(view[padding : padding + len(data)]))
    assert [(r.timestamp, r.key, r.value) for r in records] == [(now, b"key", b"value")] * 4
    assert view[padding + len(data) :] == b"rest"


def test_other_attributes_and_another_time_get_a_crc_that_matches():
    data = made()
    view = memoryview(bytearray(3) + data)
    stamp_times(view, 3, len(view), TRANSACTIONAL, 77)
    assert check_produced(view, 3, len(view)) == read_header(view, 3)
    assert (read_header(view, 3).attributes, read_header(view, 3).max_timestamp) == (TRANSACTIONAL, 77)
    assert view[3 + 23 : 3 + 35] == data[23:35]
    assert view[3 + 43 :] == data[43:]


def test_the_layout_is_the_one_in_the_docstring():
    assert HEADER.format == ">qiibIhiqqqhii"
    assert batch.MAGIC == 2

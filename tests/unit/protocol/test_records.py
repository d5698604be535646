import struct
from collections.abc import Callable

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import PeerError
from headrace.protocol.records import (
    Record,
    build_batch,
    build_plain_batch,
    first_offset_at_or_after,
    iter_records,
    max_timestamp_record,
    recompress,
)

CODECS = [0, 1, 2, 3, 4]
NOW = 1_700_000_000_000

blobs = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=10), blobs), max_size=3)
contents = st.lists(
    st.tuples(st.integers(0, 1 << 45), blobs, blobs, headers),
    min_size=1,
    max_size=20,
)


def numbered(
    found: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> list[Record]:
    return [Record(offset, *content) for offset, content in enumerate(found)]


def plain(records: object) -> list[tuple[object, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in records]  # type: ignore[attr-defined]


def error_code(read: Callable[[bytearray], object], batch: bytearray) -> int | None:
    try:
        read(batch)
    except PeerError as error:
        return error.code
    return None


def sample(codec: int = 0, **options: object) -> bytearray:
    records = [
        Record(100 + i, NOW + (i * 37) % 100, b"key-%d" % i, b"value " * i, [("h", b"x"), ("n", None)])
        for i in range(30)
    ]
    return build_batch(records, base_offset=100, codec=codec, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", CODECS)
@given(content=contents)
@settings(deadline=None, max_examples=20)
def test_records_that_a_client_builds_are_decoded(codec: int, content: list) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    records = numbered(content)
    for record in records:
        builder.append(
            record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    assert plain(iter_records(bytes(builder.build()))) == plain(records)


@pytest.mark.parametrize("codec", CODECS)
@given(content=contents)
@settings(deadline=None, max_examples=20)
def test_a_client_decodes_records_that_we_build(codec: int, content: list) -> None:
    records = numbered(content)
    batch = build_batch(records, codec=codec, producer_id=7, producer_epoch=2, base_sequence=9)
    read = DefaultRecordBatch(bytes(batch))
    assert read.validate_crc()
    assert (read.producer_id, read.producer_epoch, read.base_sequence) == (7, 2, 9)
    assert plain(read) == plain(records)
    assert plain(iter_records(memoryview(batch))) == plain(records)


def test_an_uncompressed_batch_equals_the_clients_byte_for_byte() -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=1,
        producer_id=5,
        producer_epoch=1,
        base_sequence=3,
        batch_size=1 << 20,
    )
    records = [Record(i, NOW - i * 1000, None if i % 2 else b"k", b"v" * i * 40, [("a", b"b")]) for i in range(9)]
    for r in records:
        builder.append(r.offset, timestamp=r.timestamp, key=r.key, value=r.value, headers=list(r.headers))
    ours = build_batch(records, producer_id=5, producer_epoch=1, base_sequence=3, transactional=True, leader_epoch=0)
    theirs = bytes(builder.build())
    assert bytes(ours[16:]) == theirs[16:]  # aiokafka leaves the leader epoch to the broker


def test_log_append_time_gives_every_record_the_time_of_the_batch() -> None:
    batch = sample(timestamp_type=1)
    assert {record.timestamp for record in iter_records(batch)} == {NOW + 99}
    assert max_timestamp_record(batch) == (100, NOW + 99)
    assert first_offset_at_or_after(batch, NOW + 99) == (100, NOW + 99)
    assert first_offset_at_or_after(batch, NOW + 100) is None


def test_attribute_bits_are_set_as_asked() -> None:
    (attributes,) = struct.unpack_from(">h", sample(3, transactional=True, control=True, timestamp_type=1), 21)
    assert attributes == 3 | 0x08 | 0x10 | 0x20


@pytest.mark.parametrize("codec", CODECS)
def test_search_by_time_finds_the_first_record_that_is_late_enough(codec: int) -> None:
    batch = sample(codec)
    records = list(iter_records(batch))
    for wanted in range(NOW - 1, NOW + 101):
        for low in (0, 110):
            expected = next(
                ((r.offset, r.timestamp) for r in records if r.timestamp >= wanted and r.offset >= low), None
            )
            assert first_offset_at_or_after(batch, wanted, offset_min=low) == expected
    top = max(r.timestamp for r in records)
    assert max_timestamp_record(batch) == next((r.offset, top) for r in records if r.timestamp == top)


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_recompression_changes_the_codec_and_nothing_else(source: int, target: int) -> None:
    batch = sample(source, producer_id=3, producer_epoch=1, base_sequence=4, leader_epoch=6, transactional=True)
    result = recompress(bytes(batch), target)
    assert struct.unpack_from(">h", result, 21)[0] == target | 0x10
    assert struct.unpack_from(">i", result, 8)[0] == len(result) - 12
    assert struct.unpack_from(">I", result, 17)[0] == crc32c(bytes(result[21:]))
    assert (result[:8], result[12:17], result[23:61]) == (batch[:8], batch[12:17], batch[23:61])
    assert list(iter_records(result)) == list(iter_records(batch))


def test_recompression_keeps_the_bound() -> None:
    with pytest.raises(PeerError):
        recompress(build_batch([Record(0, NOW, None, bytes(50_000))], codec=4), 1, size_max=50_000)


def test_offsets_may_have_gaps_and_end_after_the_last_record() -> None:
    records = [Record(10, NOW, b"a", b"1"), Record(17, NOW + 1, b"b", None)]
    batch = build_batch(records, base_offset=8, last_offset=20)
    assert [r.offset for r in iter_records(batch)] == [10, 17]
    assert struct.unpack_from(">i", batch, 23)[0] == 12


def test_a_batch_that_compaction_emptied_has_no_records() -> None:
    batch = build_batch([], base_offset=5, last_offset=9, codec=4)
    assert list(iter_records(batch)) == []
    assert max_timestamp_record(batch) is None
    assert list(iter_records(recompress(batch, 3))) == []


def test_header_keys_that_are_not_utf8_survive() -> None:
    batch = build_batch([Record(0, NOW, None, None, [(b"\xff\xfe".decode(errors="surrogateescape"), b"1")])])
    assert build_batch(iter_records(batch)) == batch


def test_bytes_after_the_batch_are_not_read() -> None:
    assert len(list(iter_records(sample() + b"the next batch"))) == 30


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_cut_anywhere_is_a_corrupt_message(codec: int) -> None:
    batch = bytes(sample(codec))
    for cut in range(len(batch)):
        with pytest.raises(PeerError) as caught:
            list(iter_records(batch[:cut]))
        assert caught.value.code == 2


def test_records_cut_anywhere_inside_a_whole_batch_are_a_corrupt_message() -> None:
    batch = sample()
    for cut in range(61, len(batch)):
        shorter = batch[:cut]
        struct.pack_into(">i", shorter, 8, cut - 12)
        for read in (lambda b: list(iter_records(b)), max_timestamp_record):
            with pytest.raises(PeerError) as caught:
                read(shorter)
            assert caught.value.code == 2


@given(data=st.data())
@settings(deadline=None, max_examples=500)
def test_changed_bytes_raise_a_corrupt_message_or_nothing(data: st.DataObject) -> None:
    batch = sample(data.draw(st.sampled_from(CODECS)))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.sampled_from([0, 1, 127, 128, 254, 255]))
    for read in (
        lambda b: list(iter_records(b, 1 << 20)),
        lambda b: max_timestamp_record(b, size_max=1 << 20),
        lambda b: recompress(b, 0, size_max=1 << 20),
    ):
        assert error_code(read, batch) in (None, 2)


@given(body=st.binary(max_size=60), count=st.integers(-1, 5))
@settings(deadline=None, max_examples=500)
def test_garbage_records_raise_a_corrupt_message_or_nothing(body: bytes, count: int) -> None:
    batch = build_batch([])[:61] + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, count)
    for read in (lambda b: list(iter_records(b)), max_timestamp_record):
        assert error_code(read, batch) in (None, 2)


@pytest.mark.parametrize("body", [b"\xff" * 20, b"\xff" * 9 + b"\x7f", b"\x10" + b"\x00" + b"\xff" * 30])
def test_a_number_that_is_too_long_is_a_corrupt_message(body: bytes) -> None:
    batch = build_batch([])[:61] + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, 1)
    with pytest.raises(PeerError):
        list(iter_records(batch))


def test_bytes_after_the_last_record_are_a_corrupt_message() -> None:
    batch = sample() + b"\x00"
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    with pytest.raises(PeerError, match="1 bytes after the last of 30 records"):
        list(iter_records(batch))


def test_only_format_two_is_decoded() -> None:
    batch = sample()
    batch[16] = 1
    with pytest.raises(PeerError, match="format 1"):
        list(iter_records(batch))


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 8192, 8193])
def test_a_plain_batch_is_what_build_batch_makes_of_the_same_records(count):
    sizes = [0, 1, 63, 64, 127, 8191, 8192]
    pairs = [(bytes(sizes[at % 7]), None if at % 5 == 0 else bytes(sizes[at % 3])) for at in range(count)]
    records = [Record(at, NOW, key, value) for at, (key, value) in enumerate(pairs)]
    producer = {"producer_id": 7, "producer_epoch": 3, "transactional": True}
    assert build_plain_batch(pairs, NOW, **producer) == build_batch(records, **producer)
    assert build_plain_batch(pairs, NOW) == build_batch(records)

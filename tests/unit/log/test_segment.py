import contextlib
import errno
import os
import struct
from itertools import pairwise

import pytest
from harness import FaultyDisk, batch
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.files import OpenFiles
from headrace.log.segment import SCAN_BYTES, AstrayError, Segment, segment_name
from headrace.protocol.batch import STAMP, read_header

NOW = 1_700_000_000_000


class Written:
    """A segment with batches in it, and where each of them is."""

    def __init__(self, directory, base_offset, batches, interval=4096):
        self.disk = FaultyDisk()
        self.files = OpenFiles(self.disk, 8)
        self.segment = Segment(str(directory), base_offset, self.files, NOW)
        self.places = []  # position, base offset, last offset, size
        self.interval = interval
        self.next_offset = base_offset
        for data in batches:
            self.add(data)

    def add(self, data, gap=0):
        segment = self.segment
        header = read_header(data)
        base = self.next_offset + gap
        STAMP.pack_into(data, 0, base, header.length, 0)
        self.disk.write(segment.file().fd, [data], segment.size)
        self.places.append((segment.size, base, base + header.last_offset_delta, len(data)))
        segment.appended(len(data), base + header.last_offset_delta, header.max_timestamp, self.interval)
        self.next_offset = base + header.record_count

    def again(self):
        """The same files, opened again, as after a clean stop."""
        self.segment.spill()
        self.files.close()
        self.segment = Segment(
            os.path.dirname(self.segment.path), self.segment.base_offset, self.files, NOW, self.segment.size
        )
        return self.segment


SIZES = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 50, 400, SCAN_BYTES, 9000])), min_size=1, max_size=12)


def test_a_segment_is_named_by_its_first_offset():
    assert segment_name(0) == "0" * 20
    assert segment_name(123) == "00000000000000000123"


@settings(max_examples=40, deadline=None)
@given(sizes=SIZES, base=st.sampled_from([0, 1000]), interval=st.sampled_from([0, 100, 4096]), reopen=st.booleans())
def test_every_offset_is_located_in_the_batch_that_holds_it(tmp_path_factory, sizes, base, interval, reopen):
    directory = tmp_path_factory.mktemp("segment")
    written = Written(directory, base, [batch(count, size=size) for count, size in sizes], interval)
    segment = written.again() if reopen else written.segment
    for position, first, last, size in written.places:
        for offset in range(first, last + 1):
            assert segment.locate(offset, segment.size) == (position, first, size)
            assert segment.locate(offset, position) is None  # not below the end that is asked for
            assert segment.locate(offset, position + 1) == (position, first, size)
    assert segment.locate(written.next_offset, segment.size) is None
    assert segment.locate(base - 5, segment.size) == (0, base, written.places[0][3])
    written.files.close()


def test_an_offset_that_compaction_removed_leads_to_the_next_batch(tmp_path):
    written = Written(tmp_path, 0, [batch(2)])
    written.add(batch(2), gap=10)
    position, first, _, size = written.places[1]
    for offset in (2, 11, 12, 13):
        assert written.segment.locate(offset, written.segment.size) == (position, first, size)


@pytest.mark.parametrize("length", [0, -12, -13, -(1 << 31), (1 << 31) - 1])
def test_bytes_that_are_no_batch_are_no_answer(tmp_path, length):
    """Also those that would lead nowhere, or back."""
    written = Written(tmp_path, 0, [batch(2)])
    written.disk.write(written.segment.file().fd, [struct.pack(">qi", 0, length) + bytes(500)], written.segment.size)
    with pytest.raises(AstrayError, match=r"\.log"):
        written.segment.locate(5, written.segment.size + 500)


def test_an_index_entry_is_made_after_each_interval_and_leads_to_its_batch(tmp_path):
    written = Written(tmp_path, 10, [batch(1, size=100) for _ in range(40)], interval=1000)
    index = written.segment.offsets
    places = {last - 10: position for position, _, last, _ in written.places}
    entries = [index.at(i) for i in range(len(index))]
    assert entries
    assert all(places[offset] == position for offset, position in entries)
    positions = [0, *(position for _, position in entries)]
    size = written.places[0][3]
    assert all(1000 < b - a <= 1000 + 2 * size for a, b in pairwise(positions))


def test_the_time_index_holds_the_largest_timestamp_so_far(tmp_path):
    stamps = [5, 3, 9, 9, 1, 20, 2, 2, 2, 30]
    written = Written(tmp_path, 0, [batch(1, size=200, timestamp=NOW + t) for t in stamps], interval=100)
    segment = written.segment
    assert segment.max_timestamp == NOW + 30
    assert segment.max_timestamp_offset == 9
    segment.spill()
    entries = [segment.times.at(i) for i in range(len(segment.times))]
    assert entries == [(NOW + 5, 0), (NOW + 9, 2), (NOW + 20, 5), (NOW + 30, 9)]
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (NOW + 30, 9)


def test_timestamps_are_the_same_after_the_segment_is_opened_again(tmp_path):
    written = Written(tmp_path, 50, [batch(3, timestamp=NOW + t) for t in (4, 2, 8)])
    segment = written.again()
    assert segment.max_timestamp == NOW + 8
    assert segment.max_timestamp_offset == 58
    assert segment.rolling_timestamp() == NOW + 4


def test_a_segment_without_timestamps_has_none(tmp_path):
    written = Written(tmp_path, 0, [batch(1, timestamp=-1)])
    assert written.segment.max_timestamp == -1
    segment = written.again()
    assert segment.max_timestamp == -1
    assert len(segment.times) == 0
    assert Segment(str(tmp_path), 99, written.files, NOW).rolling_timestamp() == -1


def test_spilling_twice_writes_the_last_timestamp_once(tmp_path):
    written = Written(tmp_path, 0, [batch(1)])
    written.segment.spill()
    written.segment.spill()
    assert len(written.segment.times) == 1
    assert sorted(os.listdir(tmp_path)) == [segment_name(0) + suffix for suffix in (".index", ".log", ".timeindex")]


def test_a_segment_that_is_created_is_three_files(tmp_path):
    disk = FaultyDisk()
    Segment(str(tmp_path), 7, OpenFiles(disk, 8), NOW).create_files()
    assert sorted(os.listdir(tmp_path)) == [segment_name(7) + suffix for suffix in (".index", ".log", ".timeindex")]
    assert disk.open_count == 0


def test_rewinding_forgets_what_lies_above(tmp_path):
    written = Written(tmp_path, 0, [batch(1, size=100, timestamp=NOW + i) for i in range(10)], interval=150)
    segment = written.segment
    position = written.places[6][0]
    segment.offsets.truncate_entries(2)
    segment.times.truncate_entries(2)
    segment.rewind(position, 10)
    assert (segment.size, segment.reserved, segment.bytes_since_entry) == (position, position, 10)
    assert segment.max_timestamp == segment.times.last()[0] < NOW + 9
    segment.rewind(0, 0)
    assert segment.max_timestamp == -1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_an_index_that_cannot_be_written_now_does_not_hide_the_records(tmp_path, code):
    written = Written(tmp_path, 0, [batch(1, size=100) for _ in range(126)], interval=50)
    for operation in ("write", "open"):
        written.disk.fail(operation, code, path="index")
    for _ in range(10):
        data = batch(1, size=100, timestamp=NOW + 5)
        STAMP.pack_into(data, 0, written.next_offset, len(data) - 12, 0)
        written.disk.write(written.segment.file().fd, [data], written.segment.size)
        before = written.segment.size
        with contextlib.suppress(OSError):
            written.segment.appended(len(data), written.next_offset, NOW + 5, 50)
        written.next_offset += 1
        assert written.segment.size == before + len(data)
    assert written.segment.max_timestamp == NOW + 5
    written.disk.repair()
    written.segment.spill()
    assert written.again().max_timestamp == NOW + 5


def test_files_are_closed_when_a_segment_is_forgotten(tmp_path):
    written = Written(tmp_path, 0, [batch(1, size=100) for _ in range(10)], interval=50)
    written.segment.spill()
    assert written.disk.open_count == 3
    written.segment.forget_files()
    assert written.disk.open_count == 0
    assert written.segment.locate(3, written.segment.size) is not None

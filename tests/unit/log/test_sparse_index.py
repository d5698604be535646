import errno
import os
from bisect import bisect_right

import pytest
from harness import FaultyDisk
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.files import OpenFiles
from headrace.log import sparse_index
from headrace.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex


@pytest.fixture
def disk():
    return FaultyDisk()


@pytest.fixture
def files(disk):
    opened = OpenFiles(disk, 8)
    yield opened
    opened.close()


def made(files, path, entries, entry=OFFSET_ENTRY, written=0):
    index = SparseIndex(str(path), files, entry, written)
    for key, value in entries:
        index.append(key, value)
    return index


# Keys and values that grow strictly, as those of both indexes do.
ENTRIES = st.lists(st.tuples(st.integers(1, 9), st.integers(1, 900)), max_size=60).map(
    lambda steps: [
        (sum(key for key, _ in steps[: i + 1]), sum(value for _, value in steps[: i + 1])) for i in range(len(steps))
    ]
)


@settings(max_examples=40, deadline=None)
@given(
    entries=ENTRIES,
    spills=st.sets(st.integers(0, 20), max_size=3),
    spill_bytes=st.sampled_from([8, 64, 200]),
    block=st.sampled_from([1, 2, 7, 64]),
    near=st.sampled_from([2, 3, 16]),
    wanted=st.lists(st.integers(-5, 4000), max_size=12),
    hints=st.lists(st.integers(-2, 30), max_size=12),
)
def test_a_look_up_finds_the_last_entry_at_or_below_wherever_entries_lie(
    tmp_path_factory, entries, spills, spill_bytes, block, near, wanted, hints
):
    path = tmp_path_factory.getbasetemp() / "lookup.index"
    path.unlink(missing_ok=True)
    files = OpenFiles(FaultyDisk(), 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_index, "SPILL_BYTES", spill_bytes)
        patch.setattr(sparse_index, "_BLOCK_ENTRIES", block)
        patch.setattr(sparse_index, "_NEAR_ENTRIES", near)
        index = SparseIndex(str(path), files, OFFSET_ENTRY, 0)
        for at, (key, value) in enumerate(entries):
            index.append(key, value)
            if at in spills:
                index.spill()
        assert len(index) == len(entries)
        assert [index.at(i) for i in range(len(index))] == entries
        assert index.last() == (entries[-1] if entries else None)
        keys, values = [key for key, _ in entries], [value for _, value in entries]
        for key in [*wanted, *keys[:3], *keys[-3:]]:
            assert index.floor(key) == bisect_right(keys, key) - 1
            assert index.floor(key, field=1) == bisect_right(values, key) - 1
            for hint in hints:
                if hint < len(entries):
                    assert index.floor_near(key, hint) == bisect_right(values, key) - 1
    files.close()


@settings(max_examples=40, deadline=None)
@given(entries=ENTRIES, spill_at=st.integers(0, 12), keep=st.integers(0, 20))
def test_truncating_keeps_the_first_entries_and_appending_goes_on(tmp_path_factory, entries, spill_at, keep):
    path = tmp_path_factory.getbasetemp() / "cut.index"
    path.unlink(missing_ok=True)
    files = OpenFiles(FaultyDisk(), 4)
    index = made(files, path, entries[:spill_at])
    index.spill()
    for key, value in entries[spill_at:]:
        index.append(key, value)
    index.truncate_entries(keep)
    kept = entries[:keep]
    assert [index.at(i) for i in range(len(index))] == kept
    index.append(10_000, 500_000)
    index.spill()
    files.close()
    again = SparseIndex(str(path), files, OFFSET_ENTRY, os.path.getsize(path) // OFFSET_ENTRY.size)
    assert [again.at(i) for i in range(len(again))] == [*kept, (10_000, 500_000)]
    files.close()


def test_entries_have_kafkas_formats(files, tmp_path):
    made(files, tmp_path / "i", [(5, 4096)]).spill()
    assert (tmp_path / "i").read_bytes() == bytes.fromhex("00000005 00001000")
    made(files, tmp_path / "t", [(1 << 40, 7)], TIME_ENTRY).spill()
    assert (tmp_path / "t").read_bytes() == bytes.fromhex("0000010000000000 00000007")


def test_an_append_makes_no_system_call_until_there_is_enough_for_one_write(files, disk, tmp_path):
    path = tmp_path / "i"
    index = made(files, path, [(i, i) for i in range(sparse_index.SPILL_BYTES // 8 - 1)])
    assert not path.exists()
    index.append(1000, 1000)
    assert path.stat().st_size == sparse_index.SPILL_BYTES
    index.append(1001, 1001)
    assert path.stat().st_size == sparse_index.SPILL_BYTES


def test_an_index_without_entries_is_a_file_too(files, tmp_path):
    made(files, tmp_path / "i", []).spill()
    assert (tmp_path / "i").read_bytes() == b""


def test_a_look_up_in_a_large_index_reads_little_of_it(files, disk, tmp_path):
    index = made(files, tmp_path / "i", [(i * 3, i * 4096) for i in range(20_000)])
    index.spill()
    disk.bytes_read = 0
    assert index.floor(30_001) == 10_000
    assert disk.bytes_read < 2_000


def test_entries_stay_in_memory_while_the_disk_is_full(files, disk, tmp_path):
    path = tmp_path / "i"
    entries = [(i, i * 10) for i in range(300)]
    disk.fail("write", errno.ENOSPC, torn_bytes=20)
    index = made(files, path, entries[:200])
    assert [index.at(i) for i in range(200)] == entries[:200]
    assert index.floor(150) == 150
    disk.repair()
    for key, value in entries[200:]:
        index.append(key, value)
    index.spill()
    assert path.read_bytes() == b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries)


def test_a_disk_that_is_broken_is_not_taken_for_a_full_one(files, disk, tmp_path):
    disk.fail("write", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        made(files, tmp_path / "i", [(i, i) for i in range(200)])


def test_a_failed_spill_says_so_and_loses_nothing(files, disk, tmp_path):
    index = made(files, tmp_path / "i", [(1, 10), (2, 20)])
    disk.fail("write", errno.ENOSPC, times=1)
    with pytest.raises(OSError, match="space"):
        index.spill()
    assert [index.at(i) for i in range(len(index))] == [(1, 10), (2, 20)]
    index.spill()
    assert (tmp_path / "i").stat().st_size == 16


def test_half_an_entry_at_the_end_of_a_file_is_written_over(files, tmp_path):
    path = tmp_path / "i"
    path.write_bytes(OFFSET_ENTRY.pack(1, 10) + b"\xff\xff\xff")
    index = made(files, path, [(2, 20)], written=path.stat().st_size // 8)
    index.spill()
    assert path.read_bytes() == OFFSET_ENTRY.pack(1, 10) + OFFSET_ENTRY.pack(2, 20)

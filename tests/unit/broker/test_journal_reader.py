"""An internal topic read in slices: each record once, also if the segments change under the reader."""

import os

import pytest
from crc32c import crc32c

from headrace.broker import journal_reader
from headrace.broker.journal_reader import LogJournalReader
from headrace.coordinator.group_records import CommittedOffset, decode
from headrace.coordinator.journal import COMMIT
from headrace.coordinator.placing import OFFSETS_TOPIC, partition_for
from headrace.coordinator.transactions.markers import TransactionEnd
from headrace.core.errors import StorageError
from headrace.log.segment import Segment
from headrace.protocol.batch import CRC_END, HEADER_BYTES, LENGTH_PREFIX_BYTES

GROUP = "shop"
COUNT = 40
INDEX = partition_for(GROUP, 50)


def end_turn(node):
    node._end_of_turn()
    node.reactor.run_pending()


def commit(node, *offsets):
    """All of them in one batch."""
    entries = [("orders", 0, CommittedOffset(offset, commit_timestamp_ms=1)) for offset in offsets]
    node.groups.commit_offsets(GROUP, "", -1, None, entries, lambda codes: None, version=9)
    end_turn(node)


@pytest.fixture
def log(node):
    for offset in range(COUNT):
        commit(node, offset)
    return node.topics.partition(OFFSETS_TOPIC, INDEX).led


@pytest.fixture
def skips():
    return []


@pytest.fixture
def reader(log, skips, monkeypatch):
    monkeypatch.setattr(journal_reader, "SLICE_BYTES", log.active.size // 10)
    return LogJournalReader(log, lambda offset, error: skips.append(offset))


def committed(records):
    return [decode(record.key, record.value).value.offset for record in records]


def rest(reader):
    found = []
    while (records := reader.take()) is not None:
        found += records
    return found


def test_each_record_is_read_once_in_slices(reader, skips):
    first = reader.take()
    assert 1 < len(first) < COUNT / 5
    assert committed([*first, *rest(reader)]) == list(range(COUNT))
    assert reader.take() is None
    assert skips == []


def test_what_is_written_meanwhile_is_read_too(node, reader):
    assert committed(rest(reader)) == list(range(COUNT))
    commit(node, 77)
    assert committed(rest(reader)) == [77]


def test_the_place_is_found_again_when_segments_were_exchanged(log, reader):
    first = reader.take()
    (old,) = log.segments
    log.segments = [Segment(log.path, old.base_offset, log.files, old.created_ms, old.size)]
    assert committed([*first, *rest(reader)]) == list(range(COUNT))


def test_a_batch_that_is_longer_than_a_slice_is_read_whole(node, reader, monkeypatch):
    rest(reader)
    commit(node, *range(100))
    monkeypatch.setattr(journal_reader, "SLICE_BYTES", 100)
    assert committed(reader.take()) == list(range(100))
    assert reader.take() is None


def test_a_marker_is_a_record_without_key(node, reader):
    rest(reader)
    node.coordination.write_marker(TransactionEnd(7, 2, 0, True), OFFSETS_TOPIC, INDEX, lambda error: None)
    end_turn(node)
    ((key, value, offset, _, *producer, is_control, kind),) = rest(reader)
    assert (key, value, offset, producer, is_control, kind) == (b"", None, COUNT, [7, 2], True, COMMIT)


@pytest.mark.parametrize("at", [8, 16, 17, 61], ids=["length", "magic", "crc", "records"])
def test_a_damaged_batch_ends_it_and_is_named(log, reader, at):
    """What stands before it in the same slice does not help: the rest may depend on what is gone."""
    assert len(reader.take()) < COUNT // 2
    position = log.active.locate(COUNT // 2, log.active.size)[0]
    with open(log.active.log_path, "r+b") as file:
        file.seek(position + at)
        byte = file.read(1)[0]
        file.seek(position + at)
        file.write(bytes([byte ^ 0xFF]))
    with pytest.raises(StorageError, match=f"{os.path.basename(log.active.log_path)}: no whole batch .* {position} of"):
        rest(reader)


def test_a_batch_whose_records_make_no_sense_is_skipped_and_named(log, reader, skips):
    """Its checksum is right: somebody has written it so."""
    with open(log.active.log_path, "r+b") as file:
        data = bytearray(file.read())
        at = [0]
        for _ in range(4):
            at.append(at[-1] + LENGTH_PREFIX_BYTES + int.from_bytes(data[at[-1] + 8 : at[-1] + 12]))
        batch = memoryview(data)[at[3] : at[4]]
        batch[HEADER_BYTES] = 0x7F  # the length of its record: -64
        batch[CRC_END - 4 : CRC_END] = crc32c(bytes(batch[CRC_END:])).to_bytes(4)
        file.seek(0)
        file.write(data)
    assert committed(rest(reader)) == [0, 1, 2, *range(4, COUNT)]
    assert skips == [3]

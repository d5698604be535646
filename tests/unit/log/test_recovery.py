"""Whatever a crash leaves of a log, it comes back as a prefix of what was written that holds all that was flushed."""

import os
import shutil
from pathlib import Path

import pytest
from harness import NOW_MS, Bench, batch, headers, offsets_of, payloads, read_all
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.log import segment as segment_module
from headrace.log.config import LogConfig
from headrace.log.partition_log import PartitionLog
from headrace.protocol.batch import HEADER_BYTES, read_header

SEGMENT_BYTES = 9_000
FLUSHED_BATCHES = 9
PRODUCERS = 3
KINDS = ("new", "checkpointed", "checkpointed, unindexed")


class Template:
    """A log as a crash left it: its directory, and what had been written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recovery_point = 0
        self.batches: list[bytes] = []  # with their offsets
        self.places: list[tuple[str, int, int]] = []  # file, start and end of each batch
        self.unsynced: list[str] = []  # files that a loss of power may take

    def copy(self, target: Path) -> Path:
        shutil.copytree(self.path, target)
        return target


def written(path: Path, *, checkpointed: bool, indexed: bool) -> Template:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_module, "UNINDEXED_BYTES_MAX", -1 if indexed else 16 << 10)
        return _written(path, checkpointed)


def _written(path: Path, checkpointed: bool) -> Template:
    template = Template(path)
    bench = Bench(path)
    log = bench.create(segment_bytes=SEGMENT_BYTES)
    sequences = [0] * PRODUCERS
    for number in range(20):
        count, producer = 1 + number % 3, number % (PRODUCERS + 1)
        known = producer < PRODUCERS
        data = batch(
            count,
            size=700 + 200 * (number % 4),
            timestamp=NOW_MS + (number * 7) % 11,
            producer=producer if known else -1,
            sequence=sequences[producer] if known else -1,
        )
        if known:
            sequences[producer] += count
        bench.append(log, data)
        if checkpointed and number == FLUSHED_BATCHES - 1:
            bench.housekeeping.checkpoint()
            bench.housekeeping.checkpoint()
            template.recovery_point = log.end_offset
    for segment in log.segments:
        at = 0
        for header, data in headers(Path(segment.log_path).read_bytes()):
            template.batches.append(data)
            template.places.append((segment.log_path.removeprefix(f"{path}/"), at, at + header.size))
            at += header.size
    bench.crash()
    template.unsynced = sorted(name.removeprefix(f"{path}/") for name in bench.disk.unsynced)
    assert len(log.segments) >= 3
    return template


@pytest.fixture(scope="module")
def templates(tmp_path_factory):
    root = tmp_path_factory.mktemp("templates")
    return {
        kind: written(root / kind, checkpointed="checkpointed" in kind, indexed="unindexed" not in kind)
        for kind in KINDS
    }


def check_indexes(log: PartitionLog) -> None:
    """Every entry leads where it says, and both fields grow."""
    for segment in log.segments:
        found = list(headers(Path(segment.log_path).read_bytes())) if segment.size else []
        position, places, largest = 0, {}, {}
        timestamp = -1
        for header, _ in found:
            places[header.last_offset - segment.base_offset] = position
            timestamp = max(timestamp, header.max_timestamp)
            largest[header.last_offset - segment.base_offset] = timestamp
            position += header.size
        assert position == segment.size == segment.reserved
        offsets = [segment.offsets.at(i) for i in range(len(segment.offsets))]
        times = [segment.times.at(i) for i in range(len(segment.times))]
        for entries in (offsets, times):
            assert entries == sorted(set(entries))
            assert [value for _, value in entries] == sorted({value for _, value in entries})
        assert all(places[offset] == at for offset, at in offsets)
        assert all(largest[offset] == stamp for stamp, offset in times)
        assert segment.max_timestamp == timestamp
        for suffix, size in ((".index", 8), (".timeindex", 12)):
            if os.path.exists(segment.path + suffix):
                assert os.path.getsize(segment.path + suffix) % size == 0


def expected_producers(batches: list[bytes]) -> dict[int, tuple[int, int]]:
    """Last sequence and last offset of each producer."""
    last = {}
    for data in batches:
        header = read_header(data)
        if header.producer_id >= 0:
            last[header.producer_id] = header.base_sequence + header.last_offset_delta, header.last_offset
    return last


def check_producers(log: PartitionLog, batches: list[bytes]) -> None:
    expected = expected_producers(batches)
    assert len(log.producers) == len(expected)
    for producer, last in expected.items():
        span = log.producers.get(producer).batches[-1]
        assert (span.last_sequence, span.last_offset) == last


def check(bench: Bench, batches: list[bytes]) -> None:
    """The log holds exactly these, everything fits together, and it goes on from there."""
    log = bench.log
    found = read_all(log)
    assert [data for _, data in found] == batches
    end = sum(read_header(data).record_count for data in batches)
    assert offsets_of(log) == list(range(end))
    assert (log.end_offset, log.next_offset, log.high_watermark) == (end, end, end)
    check_indexes(log)
    check_producers(log, batches)
    for timestamp in (NOW_MS, NOW_MS + 5, NOW_MS + 10):
        first = next((h for h, _ in found if h.max_timestamp >= timestamp), None)
        at = log.offset_for_time(timestamp)
        assert (at and at[0]) == (first and first.base_offset)
    for producer, (sequence, offset) in expected_producers(batches).items():
        again = next(data for data in batches if read_header(data).last_offset == offset)
        assert bench.stage(log, _unstamped(again))[0] == read_header(again).base_offset
        more = batch(2, producer=producer, sequence=sequence + 1)
        assert bench.append(log, more) == [end]
        end += 2


def _unstamped(data: bytes) -> bytes:
    return bytes(8) + data[8:]


def recovered_once(template: Template, directory: Path, batches_min: int) -> None:
    """Recovers, checks, crashes, and finds the same and what was appended since."""
    bench = Bench(directory)
    count = len(read_all(bench.log))
    assert count >= batches_min
    check(bench, template.batches[:count])
    more = payloads(read_all(bench.log))
    bench.crash()
    bench.start()
    assert payloads(read_all(bench.log)) == more
    check_indexes(bench.log)
    bench.crash()


# Where, as a part of what lies above the recovery point.
WHERE = st.floats(0, 1, exclude_max=True)


def place_of(template: Template, where: float) -> tuple[int, int]:
    """The number of a batch above the recovery point, and a byte in it."""
    first = FLUSHED_BATCHES if template.recovery_point else 0
    tail = sum(len(data) for data in template.batches[first:])
    byte = int(where * tail)
    for number in range(first, len(template.batches)):
        if byte < len(template.batches[number]):
            return number, byte
        byte -= len(template.batches[number])
    raise AssertionError(where)


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(KINDS), where=WHERE, later_segments_survive=st.booleans())
@example(kind="checkpointed", where=0.0, later_segments_survive=False)
@example(kind="checkpointed", where=0.0, later_segments_survive=True)
@example(kind="new", where=0.0, later_segments_survive=False)
def test_a_log_cut_anywhere_recovers_to_all_that_lies_below_the_cut(
    templates, tmp_path_factory, kind, where, later_segments_survive
):
    template = templates[kind]
    directory = template.copy(tmp_path_factory.mktemp("cut") / "d")
    number, byte = place_of(template, where)
    name, start, _ = template.places[number]
    os.truncate(directory / name, start + byte)
    if not later_segments_survive:
        for other in sorted({place[0] for place in template.places}):
            if other > name:
                (directory / other).unlink()
    bench = Bench(directory)
    check(bench, template.batches[:number])
    bench.crash()


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_cut_next_to_each_boundary_recovers(templates, tmp_path, kind):
    template = templates[kind]
    first = FLUSHED_BATCHES if template.recovery_point else 0
    for number in range(first, len(template.batches), 3):
        name, start, end = template.places[number]
        whole = os.path.getsize(template.path / name) == end
        cuts = {start + 1: number, start + HEADER_BYTES: number, end - 1: number}
        cuts[end] = len(template.batches) if whole else number + 1
        for cut, kept in cuts.items():
            directory = template.copy(tmp_path / f"{number}-{cut}")
            os.truncate(directory / name, cut)
            bench = Bench(directory)
            assert [data for _, data in read_all(bench.log)] == template.batches[:kept]
            bench.crash()


@settings(max_examples=80, deadline=None)
@given(kind=st.sampled_from(KINDS), where=WHERE, bit=st.integers(0, 7))
@example(kind="checkpointed", where=0.0, bit=4)
@example(kind="new", where=0.0, bit=0)
def test_one_flipped_bit_above_the_recovery_point_cuts_the_log_there(templates, tmp_path_factory, kind, where, bit):
    template = templates[kind]
    directory = template.copy(tmp_path_factory.mktemp("flip") / "d")
    number, byte = place_of(template, where)
    if 12 <= byte < 16:
        return  # the leader epoch: outside the CRC, and nothing can tell
    name, start, _ = template.places[number]
    data = bytearray((directory / name).read_bytes())
    data[start + byte] ^= 1 << bit
    (directory / name).write_bytes(data)
    bench = Bench(directory)
    check(bench, template.batches[:number])
    bench.crash()


@pytest.mark.parametrize("kind", KINDS)
def test_a_flip_in_each_byte_of_a_header_is_found(templates, tmp_path, kind):
    template = templates[kind]
    number = len(template.batches) - 3
    name, start, _ = template.places[number]
    for byte in [*range(12), *range(16, HEADER_BYTES)]:
        directory = template.copy(tmp_path / str(byte))
        data = bytearray((directory / name).read_bytes())
        data[start + byte] ^= 0x11
        (directory / name).write_bytes(data)
        bench = Bench(directory)
        assert [data for _, data in read_all(bench.log)] == template.batches[:number]
        assert bench.log.end_offset == read_header(template.batches[number]).base_offset
        bench.crash()


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    where=WHERE,
    size=st.integers(1, 3000),
    fill=st.sampled_from([0, 0xFF, 2]),
    junk=st.binary(max_size=80),
)
def test_pages_that_never_reached_the_disk_cut_the_log_there(
    templates, tmp_path_factory, kind, where, size, fill, junk
):
    template = templates[kind]
    directory = template.copy(tmp_path_factory.mktemp("pages") / "d")
    number, byte = place_of(template, where)
    name, start, _ = template.places[number]
    data = bytearray((directory / name).read_bytes())
    end = min(start + byte + size, len(data))
    data[start + byte : end] = bytes([fill]) * (end - start - byte)
    (directory / name).write_bytes(data + junk)
    recovered_once(template, directory, FLUSHED_BATCHES if template.recovery_point else 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("junk", [b"\0", bytes(26), bytes(5000), b"\xff" * 61, bytes(range(256))], ids=len)
def test_bytes_behind_the_last_batch_are_cut(templates, tmp_path, kind, junk):
    template = templates[kind]
    directory = template.copy(tmp_path / "d")
    name, _, end = template.places[-1]
    with open(directory / name, "ab") as file:
        file.write(junk)
    bench = Bench(directory)
    check(bench, template.batches)
    bench.crash()
    assert os.path.getsize(directory / name) >= end


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", ["missing", "empty", "zeros", "half", "odd"])
def test_what_goes_with_the_records_and_did_not_reach_the_disk_hides_none_of_them(templates, tmp_path, kind, loss):
    """A loss of power: indexes and snapshots that were written, but not flushed, are gone or not what they were."""
    template = templates[kind]
    directory = template.copy(tmp_path / "d")
    for name in template.unsynced:
        if name.endswith(("index", ".snapshot")):
            data = (directory / name).read_bytes()
            if loss == "missing":
                (directory / name).unlink()
                continue
            kept = {"empty": 0, "zeros": 0, "half": len(data) // 2, "odd": max(0, len(data) - 3)}[loss]
            (directory / name).write_bytes(data[:kept] + bytes(len(data) if loss == "zeros" else 0))
    bench = Bench(directory)
    assert [data for _, data in read_all(bench.log)] == template.batches
    assert [data for _, data in read_all(bench.log, 1000)] == template.batches
    for offset in range(bench.log.end_offset):
        found = bench.log.read(offset, 1 << 20, whole_first=True, copy=True)
        header = next(headers(bytes(found if isinstance(found, (bytes, memoryview)) else _close(found))))[0]
        assert header.base_offset <= offset <= header.last_offset
    stamps = [read_header(data).max_timestamp for data in template.batches]
    for timestamp in range(NOW_MS, NOW_MS + 12):
        first = next((data for data, stamp in zip(template.batches, stamps, strict=True) if stamp >= timestamp), None)
        found = bench.log.offset_for_time(timestamp)
        assert (found and found[0]) == (first and read_header(first).base_offset)
    check_producers(bench.log, template.batches)
    # Nor does retention take a segment whose time is not known for one that is old.
    bench.log.reconfigure(LogConfig(retention_ms=3_600_000))
    assert bench.housekeeping.delete_expired() == 0
    bench.crash()


def _close(found):
    data = os.pread(found.file.fd, found.size, found.position)
    found.close()
    return data


def test_left_overs_of_a_deletion_are_removed(templates, tmp_path):
    directory = templates["checkpointed"].copy(tmp_path / "d")
    for name in ("00000000000000000000.log.deleted", "x.index.deleted", "a.swap", "b.cleaned", "c.tmp"):
        (directory / "t-0" / name).write_bytes(b"old")
    bench = Bench(directory)
    check(bench, templates["checkpointed"].batches)
    assert not [name for name in os.listdir(directory / "t-0") if not name[0].isdigit() and "." in name[-8:]]
    bench.crash()


# ── how much is read ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("segment_bytes", [1 << 20, 20_000])
@pytest.mark.parametrize("tail", [0, 1, 20])
@pytest.mark.parametrize("torn", [0, 10, 40, 300])
def test_recovery_reads_only_what_lies_above_the_recovery_point(tmp_path, segment_bytes, tail, torn):
    bench = Bench(tmp_path)
    log = bench.create(segment_bytes=segment_bytes)
    sequence = iter(range(1000))
    bench.append(log, *[batch(size=1000, producer=1, sequence=next(sequence)) for _ in range(300)])
    bench.housekeeping.checkpoint()
    bench.housekeeping.checkpoint()
    before = log.size_bytes
    bench.append(log, *[batch(size=1000, producer=1, sequence=next(sequence)) for _ in range(tail)])
    tail_bytes = log.size_bytes - before
    with open(log.active.log_path, "ab") as file:
        file.write((log.end_offset.to_bytes(8, "big") + batch(size=1000)[8:])[:torn])
    log = bench.restart(clean=False)
    assert log.end_offset == 300 + tail
    assert bench.store.recovered_bytes == tail_bytes + torn
    assert bench.disk.bytes_read <= 2 * tail_bytes + 25_000
    assert log.producers.get(1).batches[-1].last_sequence == 299 + tail
    bench.crash()


def test_recovery_does_not_read_more_of_a_longer_log_after_many_rolls(tmp_path):
    costs = []
    for count in (40, 200):
        bench = Bench(tmp_path / str(count))
        log = bench.create(segment_bytes=4000)
        bench.append(log, *[batch(size=300, producer=1, sequence=i) for i in range(count)])
        bench.housekeeping.checkpoint()
        bench.housekeeping.checkpoint()
        bench.append(log, *[batch(size=300, producer=1, sequence=count + i) for i in range(60)])
        assert len(log.segments) > 5
        bench.restart(clean=False)
        costs.append(bench.disk.bytes_read)
        bench.crash()
    assert costs[1] < costs[0] + 15_000

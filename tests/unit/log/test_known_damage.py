"""What is kept of damage: copies of what is cut, the state that was made again, what is known of a segment."""

import errno
import os

import pytest
from harness import NOW_MS, Answer, Bench, batch, headers, offsets_of, run_bytes

from headrace.core.errors import PeerError
from headrace.log import detour
from headrace.log.config import LogConfig
from headrace.log.survey import Damage, Surveyor
from headrace.protocol.error_codes import CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR
from headrace.protocol.records import Record, build_batch

COUNT = 60


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path / "a")
    yield made
    made.crash()


def filled(bench, count=COUNT, **config):
    log = bench.create(index_interval_bytes=400, **config)
    bench.append(log, *[batch(2, size=100, timestamp=NOW_MS + 2 * i, step_ms=1) for i in range(count)])
    return log


def positions(segment):
    with open(segment.log_path, "rb") as file:
        data = file.read()
    return [found[1] for found in Surveyor(lambda n, at: data[at : at + n], len(data), segment.base_offset).run()]


def overwrite(path, position, data):
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def names(log, suffix):
    return sorted(name for name in os.listdir(log.path) if name.endswith(suffix))


def refused(action, code=CORRUPT_MESSAGE):
    with pytest.raises(PeerError) as error:
        action()
    assert error.value.code == code
    return error.value.message


# ── starts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("damage", ["missing", "garbage"])
def test_producers_that_were_made_again_from_the_log_survive_the_next_clean_stop(bench, damage):
    log = bench.create()
    data = build_batch(
        [Record(0, NOW_MS, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.appender.stage(memoryview(data), 0, len(data), NOW_MS, Answer(), transactional=True)
    bench.writer.end_of_turn()
    bench.stop()
    (snapshot,) = names(log, ".snapshot")
    if damage == "missing":
        os.unlink(os.path.join(log.path, snapshot))
    else:
        overwrite(os.path.join(log.path, snapshot), 0, b"\xff" * 20)
    bench.start()
    assert bench.log.open_transactions == {7: 0}
    assert bench.restart(clean=True).open_transactions == {7: 0}
    assert names(bench.log, ".snapshot") == [snapshot]


def flushed_with_a_damaged_end(bench):
    log = filled(bench)
    bench.stop()
    at = positions(log.active)[-1]
    with open(log.active.log_path, "rb") as file:
        file.seek(at)
        data = bytearray(file.read())
    data[7] ^= 0x40
    overwrite(log.active.log_path, at, data)
    os.unlink(os.path.join(log.directory.path, ".kafka_cleanshutdown"))
    return log, at, bytes(data)


def test_a_flushed_end_whose_base_offset_was_damaged_is_kept_beside_the_log(bench):
    log, _, data = flushed_with_a_damaged_end(bench)
    bench.start()
    (copy,) = names(log, ".damaged")
    with open(os.path.join(log.path, copy), "rb") as file:
        assert file.read() == data
    assert copy in bench.disk.synced
    (entry,) = bench.log.directory.damage.entries
    assert (entry.first_offset, entry.next_offset) == (2 * COUNT - 2, 2 * COUNT)
    assert copy in entry.why
    assert bench.log.end_offset == 2 * COUNT


def test_a_flushed_end_is_not_cut_where_there_is_no_room_for_a_copy(bench):
    log, at, data = flushed_with_a_damaged_end(bench)
    bench.disk.fail("write", errno.ENOSPC)
    bench.start()
    bench.disk.repair()
    assert names(log, ".damaged") == []
    with open(log.active.log_path, "rb") as file:
        assert file.read()[at:] == data
    log = bench.log
    assert log.directory.online
    refused(lambda: log.read(2 * COUNT - 1, 1 << 20, whole_first=True))
    assert bench.append(log, batch()) == [2 * COUNT]
    assert run_bytes(log.read(2 * COUNT, 1 << 20, whole_first=True))


def test_a_log_that_ends_too_early_goes_on_though_there_is_no_room_to_fill_the_gap(bench):
    log = filled(bench)
    bench.stop()
    os.truncate(log.active.log_path, positions(log.active)[-1])
    bench.disk.fail("write", errno.ENOSPC)
    bench.start()
    bench.disk.repair()
    log = bench.log
    assert (log.directory.online, log.end_offset) == (True, 2 * COUNT)
    assert bench.append(log, batch()) == [2 * COUNT]
    assert bench.restart(clean=True).end_offset == 2 * COUNT + 1


def test_an_index_that_cannot_be_written_is_kept_in_memory(bench):
    log = filled(bench)
    bench.append(log, *[batch(size=4000) for _ in range(10)])
    end = log.end_offset
    bench.stop()
    for suffix in (".index", ".timeindex"):
        overwrite(log.active.path + suffix, 0, b"\x55" * 16)
    bench.disk.fail("write", errno.ENOSPC)
    bench.start()
    log = bench.log
    assert log.directory.online
    assert offsets_of(log) == list(range(end))
    assert log.offset_for_time(NOW_MS + 61)[0] == 61
    assert len(log.active.offsets)
    bench.disk.repair()
    log.reconfigure(LogConfig(index_interval_bytes=400))
    bench.append(log, *[batch(size=4000) for _ in range(200)])
    assert bench.restart(clean=True).end_offset == end + 200
    assert bench.store.recovered_bytes == 0
    assert offsets_of(bench.log) == list(range(end + 200))


def test_a_start_and_a_survey_agree_on_a_gap_before_a_damaged_batch(bench):
    """Compaction left a gap; the batch behind the one that follows the gap has a damaged header."""
    log = bench.create()
    bench.append(log, *[batch() for _ in range(6)])
    bench.stop()
    at = positions(log.active)
    with open(log.active.log_path, "rb") as file:
        data = bytearray(file.read())
    data[at[4]] = 0x7F  # its base offset
    with open(log.active.log_path, "wb") as file:
        file.write(data[: at[2]] + data[at[3] :])
    os.unlink(os.path.join(log.directory.path, ".kafka_cleanshutdown"))
    for name in names(log, "index"):
        os.unlink(os.path.join(log.path, name))
    bench.start()
    expected = [(at[4] - at[3] + at[2], 4, 5)]
    found = [(each.position, each.first_offset, each.next_offset) for each in bench.log.directory.damage.entries]
    assert found == expected
    detour.survey_now(bench.log, bench.log.active)
    assert [each[:1] + each[2:4] for each in bench.log.active.damages] == expected


def test_an_index_that_kafka_made_at_its_full_size_is_cut_at_its_zeros(bench):
    log = filled(bench)
    bench.append(log, *[batch(size=4000) for _ in range(10)])
    end = log.end_offset
    bench.stop()
    os.unlink(os.path.join(log.directory.path, ".kafka_cleanshutdown"))
    sizes = {}
    for suffix in (".index", ".timeindex"):
        path = log.active.path + suffix
        sizes[path] = os.path.getsize(path)
        os.truncate(path, 24 * 1000)
    bench.start()
    assert bench.store.recovered_bytes < 5000, "the index still leads to the recovery point"
    assert {path: os.path.getsize(path) for path in sizes} == sizes
    assert offsets_of(bench.log) == list(range(end))


def test_a_log_that_was_moved_to_another_directory_is_not_missing(tmp_path):
    bench = Bench(tmp_path / "a", tmp_path / "b")
    log = bench.create()
    bench.append(log, batch())
    bench.stop()
    os.rename(log.path, os.path.join(bench.paths[1], "t-0"))
    bench.start()
    assert [entry for directory in bench.store.directories for entry in directory.damage.entries] == []
    bench.store.delete(bench.log)
    assert bench.create().end_offset == 0
    bench.crash()


# ── while a log is open ──────────────────────────────────────────────────────────────────────────────────────────────


def test_one_damage_that_was_found_does_not_stand_for_a_survey(bench):
    filled(bench)
    log = bench.restart(clean=True)
    at = positions(log.active)
    overwrite(log.active.log_path, at[10] + 100, b"\xff\xfe")
    overwrite(log.active.log_path, at[40], (5000).to_bytes(8, "big"))
    detour.add_damages(log, log.active, [Damage(at[10], at[11], 20, 22, "its CRC does not match")])
    assert not log.active.surveyed
    run = run_bytes(log.read(60, 1 << 20, whole_first=True))
    assert [header.base_offset for header, _ in headers(run)] == list(range(60, 80, 2))
    refused(lambda: log.read(80, 1 << 20, whole_first=True))


def test_a_look_up_behind_damage_reads_no_more_than_the_index_leaves(bench):
    filled(bench, 600)
    log = bench.restart(clean=True, index_interval_bytes=400)
    overwrite(log.active.log_path, positions(log.active)[10] + 8, b"\xff\xff")
    detour.survey_now(log, log.active)
    seen = []
    whole = detour.Surveyor

    class Counting(whole):
        def _look(self, position, offset):
            seen.append(position)
            return super()._look(position, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(detour, "Surveyor", Counting)
        assert detour.locate(log, 0, 1100)[1] == 1100
    assert 0 < len(seen) < 8


def test_a_long_search_behind_damage_is_handed_to_the_thread(bench, monkeypatch):
    filled(bench, 600)
    log = bench.restart(clean=True, index_interval_bytes=400)
    overwrite(log.active.log_path, positions(log.active)[10] + 8, b"\xff\xff")
    detour.survey_now(log, log.active)
    monkeypatch.setattr(detour, "AT_ONCE_BYTES_MAX", 4000)
    log.active.offsets.truncate_entries(0)
    bench.flushers.held = True
    refused(lambda: detour.locate(log, 0, 1100), KAFKA_STORAGE_ERROR)
    assert len(bench.flushers.jobs) == 1
    bench.flushers.held = False
    bench.flushers.run()
    assert detour.locate(log, 0, 1100)[1] == 1100


def test_known_damage_is_refused_without_another_survey(bench, monkeypatch):
    filled(bench)
    log = bench.restart(clean=True)
    at = positions(log.active)
    overwrite(log.active.log_path, at[30] + 8, b"\xff\xff\xff\xff")
    refused(lambda: log.offset_for_time(NOW_MS + 60))
    surveys = []
    monkeypatch.setattr(detour, "_survey", lambda *args: surveys.append(args))
    assert f"byte {at[30]}" in detour.damaged_at(log, log.active, at[30]).message
    detour.suspect(log, log.active)
    refused(lambda: log.offset_for_time(NOW_MS + 60))
    refused(lambda: log.read(60, 1 << 20, whole_first=True))
    assert surveys == []
    assert len(log.active.damages) == 1


def test_a_look_up_by_time_finds_what_lies_behind_damage(bench):
    log = filled(bench, segment_bytes=4000)
    sealed = log.segments[0]
    log = bench.restart(clean=True, segment_bytes=4000)
    at = positions(sealed)
    assert len(at) > 6
    overwrite(sealed.log_path, at[2] + 8, b"\xff\xff\xff\xff")
    os.truncate(sealed.path + ".timeindex", 0)
    assert log.offset_for_time(NOW_MS + 9)[0] == 9
    assert log.offset_for_time(NOW_MS + 7)[0] == 7
    assert log.offset_for_time(NOW_MS + 3)[0] == 3
    for time in (4, 5):
        refused(lambda time=time: log.offset_for_time(NOW_MS + time))
    assert log.offset_for_time(NOW_MS + 2 * COUNT - 1)[0] == 2 * COUNT - 1


def test_retention_takes_the_age_of_the_file_where_the_newest_record_is_not_known(bench):
    filled(bench, segment_bytes=4000)
    log = bench.restart(clean=True, segment_bytes=4000)
    sealed = log.segments[0]
    overwrite(sealed.log_path, positions(sealed)[2] + 8, b"\xff\xff\xff\xff")
    os.truncate(sealed.path + ".timeindex", 0)
    assert not sealed.timestamp_is_certain
    sealed.created_ms = NOW_MS + 10**9
    assert bench.housekeeping._timestamp(sealed) == NOW_MS + 10**9


def test_a_reader_that_asks_again_does_not_search_a_large_segment_on_the_loop(bench, monkeypatch):
    filled(bench)
    log = bench.restart(clean=True)
    at = positions(log.active)
    with open(log.active.log_path, "r+b") as file:
        file.seek(at[10] + 100)
        file.write(b"\xff" * (log.active.size - at[10] - 100))
    monkeypatch.setattr(detour, "AT_ONCE_BYTES_MAX", 100)
    monkeypatch.setattr(detour, "READS_MAX", 0)
    bench.flushers.held = True
    refused(lambda: detour.problem_at(log, 0, at[10], 20), KAFKA_STORAGE_ERROR)
    assert len(bench.flushers.jobs) == 1
    bench.flushers.held = False
    bench.flushers.run()
    refused(lambda: log.read(20, 1 << 20, whole_first=True))

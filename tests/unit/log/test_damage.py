"""Damage that is met while a log is open: by readers, by the scrub, by look-ups by time."""

import os
import struct

import pytest
from harness import NOW_MS, Bench, batch, headers, offsets_of, run_bytes

from headrace.core.errors import PeerError
from headrace.log import detour
from headrace.log.clean_notes import CLEAN_NOTES_FILE
from headrace.log.scrub import Scrub, ScrubSettings, budget
from headrace.log.survey import Damage, Surveyor, filler, restored
from headrace.protocol.error_codes import CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR

COUNT = 60


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path / "a")
    log = made.create(index_interval_bytes=400)
    made.append(log, *[batch(2, size=100, timestamp=NOW_MS + 2 * i, step_ms=1) for i in range(COUNT)])
    yield made
    made.crash()


def positions(log):
    with open(log.active.log_path, "rb") as file:
        data = file.read()
    return [found[1] for found in Surveyor(lambda n, at: data[at : at + n], len(data), 0).run()]


def overwrite(path, position, data):
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def refused(log, offset):
    """As a client that asks again for what it could not read."""
    with pytest.raises(PeerError) as error:
        read_thrice(log, offset)
    assert error.value.code == CORRUPT_MESSAGE
    return error.value.message


def read_thrice(log, offset):
    for _ in range(3):
        assert run_bytes(log.read(offset, 1 << 20, whole_first=True)), "an empty answer"


def test_a_damaged_batch_is_refused_and_those_around_it_are_read(bench):
    log = bench.restart(clean=True)
    at = positions(log)[20]
    overwrite(log.active.log_path, at + 100, b"\xff\xfe")
    assert f"byte {at}" in refused(log, 40)
    (entry,) = log.directory.damage.entries
    assert (entry.first_offset, entry.next_offset, entry.path) == (40, 42, log.active.log_path)
    before = run_bytes(log.read(0, 1 << 20, whole_first=True))
    behind = run_bytes(log.read(42, 1 << 20, whole_first=True))
    assert len(before) == at
    assert [header.base_offset for header, _ in headers(behind)] == list(range(42, 2 * COUNT, 2))


def test_an_index_that_turned_to_garbage_is_rebuilt_on_the_spot(bench):
    log = bench.restart(clean=True, index_interval_bytes=400)
    path = log.active.path + ".index"
    before = os.path.getsize(path)
    overwrite(path, 0, struct.pack(">ii", 0, 5001) * (before // 8))
    bench.files.close()
    log = bench.log
    for offset in (0, 50, 90, 119):
        assert run_bytes(log.read(offset, 1 << 20, whole_first=True))
    assert log.directory.damage.entries == []
    assert os.path.getsize(path) == before
    assert offsets_of(log) == list(range(2 * COUNT))


def test_readers_of_a_large_segment_wait_while_its_index_is_rebuilt_on_a_thread(bench, monkeypatch):
    monkeypatch.setattr(detour, "AT_ONCE_BYTES_MAX", 100)
    log = bench.restart(clean=True)
    path = log.active.path + ".index"
    overwrite(path, 0, struct.pack(">ii", 0, 5001) * (os.path.getsize(path) // 8))
    bench.flushers.held = True
    for _ in range(2):
        with pytest.raises(PeerError) as error:
            log.read(90, 1 << 20, whole_first=True)
        assert error.value.code == KAFKA_STORAGE_ERROR
    assert len(bench.flushers.jobs) == 1
    bench.append(log, batch(2, size=100))
    bench.flushers.held = False
    bench.flushers.run()
    assert run_bytes(log.read(90, 1 << 20, whole_first=True))
    assert offsets_of(log) == list(range(2 * COUNT + 2))


def test_a_file_that_became_shorter_is_no_empty_answer(bench):
    log = bench.restart(clean=True)
    os.truncate(log.active.log_path, positions(log)[30] + 50)
    refused(log, 80)
    refused(log, 60)


def test_a_damaged_base_offset_leads_nobody_past_the_records_behind_it(bench):
    log = bench.restart(clean=True)
    overwrite(log.active.log_path, positions(log)[10], (5000).to_bytes(8, "big"))
    first = run_bytes(log.read(0, 1 << 20, whole_first=True))
    assert [header.last_offset for header, _ in headers(first)] == list(range(1, 20, 2))
    refused(log, 20)
    assert run_bytes(log.read(22, 1 << 20, whole_first=True))


def test_a_look_up_by_time_does_not_believe_a_garbage_time_index(bench):
    log = bench.restart(clean=True)
    path = log.active.path + ".timeindex"
    overwrite(path, 0, b"\x11" * os.path.getsize(path))
    assert log.offset_for_time(NOW_MS + 61)[:2] == (61, NOW_MS + 61)
    assert log.max_timestamp()[:2] == (2 * COUNT - 1, NOW_MS + 2 * COUNT - 1)
    assert log.active.max_timestamp == NOW_MS + 2 * COUNT - 1


def test_a_look_up_by_time_that_meets_damage_says_so(bench):
    log = bench.restart(clean=True)
    overwrite(log.active.log_path, positions(log)[30] + 8, b"\xff\xff\xff\xff")
    with pytest.raises(PeerError) as error:
        log.offset_for_time(NOW_MS + 60)
    assert error.value.code == CORRUPT_MESSAGE


def scrub_of(bench, rate):
    later = []
    scrub = Scrub(bench.store, bench.flushers.submit, lambda s, do: later.append((s, do)), ScrubSettings(rate))
    return scrub, later


def test_the_scrub_reads_everything_within_its_budget_and_finds_what_no_reader_met(bench):
    log = bench.restart(clean=True)
    overwrite(log.active.log_path, positions(log)[40] + 150, b"\xff\xfe")
    scrub, later = scrub_of(bench, 1 << 20)
    scrub.start()
    waited = 0.0
    while not scrub.passes:
        seconds, do = later.pop()
        waited += seconds
        do()
    assert scrub.bytes == log.active.size
    assert waited >= COUNT * 4096 / (1 << 20) * 0.9
    assert [(each.first_offset, each.next_offset) for each in log.directory.damage.entries] == [(80, 82)]
    refused(log, 80)


def test_the_scrub_can_be_off_and_is_by_itself_on_one_core(bench, monkeypatch):
    scrub, later = scrub_of(bench, 0)
    scrub.start()
    assert later == []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert budget(-1) == 0
    assert budget(5) == 5
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert budget(-1) > 0


def test_a_note_that_somebody_else_made_stale_is_not_believed(bench):
    log = bench.log
    path = log.directory.path
    bench.stop()
    points = os.path.join(path, "recovery-point-offset-checkpoint")
    with open(points) as file:
        text = file.read()
    with open(points, "w") as file:
        file.write(text.replace("t 0 120", "t 0  120"))  # the same to Kafka, but not what we wrote
    os.unlink(os.path.join(path, "t-0", "0" * 20 + ".index"))
    bench.start()
    assert os.path.exists(os.path.join(path, CLEAN_NOTES_FILE)) is False
    assert offsets_of(bench.log) == list(range(2 * COUNT))
    assert bench.store.recovered_bytes == 0


def test_a_filler_takes_the_place_of_offsets_and_a_header_is_restored():
    data = filler(10, 20, 3)
    (found,) = list(Surveyor(lambda n, at: data[at : at + n], len(data), 10, 20).run())
    assert (found[0].base_offset, found[0].last_offset, found[0].record_count) == (10, 19, 0)
    good = bytes(batch(3))
    broken = (77).to_bytes(8, "big") + b"\0\0\0\1" + good[12:]
    (damage,) = list(Surveyor(lambda n, at: broken[at : at + n], len(broken), 0, 3).run())
    assert isinstance(damage, Damage)
    assert damage.restorable
    assert restored(broken, damage)[:8] == bytes(8)
    assert restored(broken, damage)[8:12] == good[8:12]

"""For any history of a log, compaction changes no answer: not at once, not twice, not when it is cut short anywhere."""

import contextlib
import json
import os
import shutil

import pytest
from compaction_harness import EAGER, Cleaner, batches, committed, end_transaction, keyed, put, seal, table
from harness import Bench, headers, run_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_recovery import check_indexes

from headrace.core.files import Disk
from headrace.log.compaction import plan as compaction_plan
from headrace.log.compaction.compactor import CompactionSettings
from headrace.log.compaction.requests import to_plain
from headrace.log.compaction.worker import CompactionWorker
from headrace.log.config import LogConfig
from headrace.protocol.records import iter_records

KEYS = st.sampled_from(
    [b"", b"a", b"b", b"c", b"0123456789abcdef", b"a key of more than sixteen bytes", b"another of them"]
)
VALUES = st.one_of(st.none(), st.binary(max_size=12), st.just(b"v" * 150))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
CODECS = st.sampled_from([0, 0, 1, 2, 3, 4])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), PAIRS, CODECS, st.integers(0, 5)),
        st.tuples(st.just("idempotent"), PAIRS, CODECS, st.integers(0, 1)),
        st.tuples(st.just("transactional"), PAIRS, CODECS, st.integers(2, 4)),
        st.tuples(st.just("end"), st.booleans(), st.integers(2, 4)),
        st.tuples(st.just("seal")),
        st.tuples(st.just("wait"), st.integers(1, 2000)),
        st.tuples(st.just("compact")),
    ),
    min_size=3,
    max_size=30,
)
CONFIG = {**EAGER, "segment_bytes": 900, "delete_retention_ms": 1500, "index_interval_bytes": 100}


class History:
    """Plays the steps, and knows what the log must say."""

    def __init__(self, directory) -> None:
        self.bench = Bench(directory)
        self.log = self.bench.create(**CONFIG)
        self.sequences: dict[int, int] = {}
        self.open: set[int] = set()
        self.cleaner = Cleaner(self.bench)

    def play(self, steps) -> None:
        for step in steps:
            getattr(self, "_" + step[0])(*step[1:])
        for producer in sorted(self.open):
            self._end(producer % 2 == 0, producer)
        seal(self.bench, self.log)

    def _plain(self, pairs, codec, step_ms) -> None:
        now_ms = self.bench.clock.now_ms()
        put(self.bench, self.log, keyed(pairs, codec=codec, timestamp=now_ms, step_ms=step_ms))

    def _idempotent(self, pairs, codec, producer, transactional=False) -> None:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(pairs)
        data = keyed(pairs, codec=codec, producer=producer, sequence=sequence, transactional=transactional)
        put(self.bench, self.log, data)

    def _transactional(self, pairs, codec, producer) -> None:
        self._idempotent(pairs, codec, producer, transactional=True)
        self.open.add(producer)

    def _end(self, commit, producer) -> None:
        if producer in self.open:
            end_transaction(self.bench, self.log, producer, commit=commit)
            self.open.discard(producer)

    def _seal(self) -> None:
        seal(self.bench, self.log)

    def _wait(self, ms) -> None:
        self.bench.clock.advance(ms)

    def _compact(self) -> None:
        before = table(self.log)
        self.cleaner.tick()
        assert table(self.log) == before


def check(log) -> None:
    """Everything fits together, however it is read."""
    found = batches(log)
    bases = [header.base_offset for header, _ in found]
    assert bases == sorted(set(bases))
    assert batches(log, 300) == found
    for header, data in found:
        for record in iter_records(data):
            assert header.base_offset <= record.offset <= header.last_offset
    for offset in range(log.start_offset, log.end_offset):
        first = next((h for h, _ in found if h.last_offset >= offset), None)
        at = next(headers(run_bytes(log.read(offset, 200, whole_first=True, copy=True))), None)
        assert (at and at[0]) == first
    check_indexes(log)
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        end = [header for header, _ in found if header.base_offset < following.base_offset][-1].last_offset
        assert end + 1 == following.base_offset > segment.base_offset


@settings(max_examples=80, deadline=None)
@given(steps=STEPS)
def test_compaction_changes_no_value_no_offset_and_no_order(tmp_path_factory, steps):
    history = History(tmp_path_factory.mktemp("log") / "d")
    history.play(steps)
    bench, log = history.bench, history.log
    before, expected = committed(log), table(log)
    producers = log.producers.encode_snapshot()
    history.cleaner.tick()
    after = committed(log)
    assert table(log) == expected
    assert [record for record in before if record in after] == after, "survivors are what and where they were"
    last = {record.key: record.offset for record in before}
    assert {record.offset for record in after} <= set(last.values()), "of each key the last one"
    assert {record.offset for record in before if record.value is not None and last[record.key] == record.offset} <= {
        record.offset for record in after
    }
    check(log)
    files = contents(log)
    assert history.cleaner.tick() == 0
    assert contents(log) == files
    for clean in (False, True):
        log = bench.restart(clean=clean, **CONFIG)
        assert committed(log) == after
        assert log.producers.encode_snapshot() == producers
        check(log)
    # With nothing to go by but the segments, the same is found.
    bench.crash()
    for name in os.listdir(log.path):
        if not name.endswith(".log"):
            os.unlink(os.path.join(log.path, name))
    for name in ("recovery-point-offset-checkpoint", "cleaner-offset-checkpoint", ".kafka_cleanshutdown"):
        if os.path.exists(os.path.join(bench.paths[0], name)):
            os.unlink(os.path.join(bench.paths[0], name))
    bench.start()
    assert table(bench.log) == expected
    assert committed(bench.log) == after
    bench.crash()


def contents(log):
    return {
        name: open(os.path.join(log.path, name), "rb").read()
        for name in sorted(os.listdir(log.path))
        if name.endswith((".log", "index"))
    }


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_a_small_map_comes_to_the_same_end(tmp_path_factory, monkeypatch, steps):
    history = History(tmp_path_factory.mktemp("log") / "d")
    history.play(steps)
    expected = table(history.log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction_plan, "KEYS_MIN", 1)
        Cleaner(history.bench, CompactionSettings(dedupe_bytes=0)).tick()
    assert table(history.log) == expected
    check(history.log)
    history.bench.crash()


class Killed(BaseException):
    """The process is gone."""


class DyingDisk(Disk):
    """Dies at the n-th step that changes something."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def _step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise Killed

    def open(self, path: str, flags: int = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC) -> int:
        if flags & os.O_TRUNC:
            self._step()
        return super().open(path, flags)

    def write(self, fd, pieces, at) -> None:
        self._step()
        super().write(fd, pieces, at)

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        if os.path.exists(path):
            self._step()
        super().unlink(path)


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("indexed", [False, True])
def test_a_crash_at_any_step_of_a_compaction_loses_nothing(tmp_path, monkeypatch, transactional, indexed):
    if not indexed:
        monkeypatch.setattr("headrace.log.segment.UNINDEXED_BYTES_MAX", 16 << 10)
    history = History(tmp_path / "template")
    pairs = [(b"a", b"1" * 100), (b"b", b"2" * 100), (b"c", None)]
    for number in range(12):
        history._plain(
            [(key, value and value + b"%d" % number) for key, value in pairs][: 1 + number % 3], number % 5, 1
        )
        if transactional:
            history._transactional([(b"t%d" % (number % 4), b"x" * 60)], 0, 2)
            history._end(number % 2 == 0, 2)
    seal(history.bench, history.log)
    history.bench.housekeeping.checkpoint()
    expected = table(history.log)
    history.bench.crash()
    survived = 0
    while True:
        directory = tmp_path / f"d{survived}"
        shutil.copytree(tmp_path / "template", directory)
        bench = Bench(directory)
        bench.log.reconfigure(LogConfig(**CONFIG))
        disk = DyingDisk(survived)
        bench.disk.rename = disk.rename  # type: ignore[method-assign]
        bench.disk.unlink = disk.unlink  # type: ignore[method-assign]
        with contextlib.suppress(Killed):
            assert Cleaner(bench, disk=disk).tick() == 1
        del bench.disk.rename, bench.disk.unlink
        finished = disk.steps >= 0
        bench.crash()
        recovered_in_spite_of_crashes(bench, expected, dies_after=(0, 1, 2, 5)[survived % 4])
        if finished:
            break
        survived += 1
    assert survived > 20


def recovered_in_spite_of_crashes(bench: Bench, expected, dies_after: int) -> None:
    """Also a start that is cut short after so many steps is made good by the next."""
    disk = DyingDisk(dies_after)
    bench.disk.unlink, bench.disk.rename = disk.unlink, disk.rename  # type: ignore[method-assign]
    with contextlib.suppress(Killed):
        bench.start()
    del bench.disk.unlink, bench.disk.rename
    bench.crash()
    bench.start()
    log = bench.log
    log.reconfigure(LogConfig(**CONFIG))
    assert table(log) == expected
    assert not [name for name in os.listdir(log.path) if name.endswith((".cleaned", ".swap"))]
    check(log)
    Cleaner(bench).tick()
    assert table(log) == expected
    check(log)
    bench.crash()


def test_a_request_survives_json(tmp_path):
    history = History(tmp_path / "d")
    history._transactional([(b"a", b"1")], 0, 2)
    history._end(False, 2)
    history._plain([(b"a", b"2")], 0, 0)
    seal(history.bench, history.log)
    history.cleaner.tick()
    for request in history.cleaner.requests:
        plain = json.loads(json.dumps(to_plain(request)))
        assert CompactionWorker(Disk()).answer(plain)["kind"] in ("MapAnswer", "CompactionRefused")
    history.bench.crash()

"""A process killed at any step of any change leaves a catalog that opens, agrees with itself, and goes on.

Every change is run with a disk that dies at its first step, its second, and so on to its last, before and after
the step's effect; then the catalog is opened as a new process would, and looked at from all sides.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_disk import CrashDisk, Killed
from hypothesis import given, settings
from hypothesis import strategies as st
from waits import eventually

from headrace.core.clock import ManualClock
from headrace.core.errors import OperatorError
from headrace.tables.catalog import PipelineCatalog
from headrace.tables.version_code import VersionCode

Change = Callable[[PipelineCatalog], object]
OLD = VersionCode(main=b"two", modules={"gone.py": b"g", "pack/part.py": b"a"})
NEW = VersionCode(main=b"two b", modules={"pack/part.py": b"b", "pack/more/new.py": b"n"})


def prepared(tables: Path) -> None:
    """Version 1 retired, 2 live, 3 building with another table and without an old one."""
    catalog = PipelineCatalog.open(tables, "shop", clock=ManualClock())
    catalog.create_first("one", ["orders", "old"])
    catalog.cut_over(catalog.begin_version(OLD, ["orders", "old"]).number)
    catalog.begin_version("three", ["orders", "new"])
    for number in (1, 2, 3):
        Path(catalog.layout.table_dir(number, "orders"), "_delta_log").mkdir(parents=True)


def check_consistent(tables: Path) -> PipelineCatalog:
    """Everything that must hold of a catalog that was just opened."""
    catalog = PipelineCatalog.open(tables, "shop")
    layout, live = catalog.layout, catalog.live
    assert catalog.warnings == ()
    names = set(os.listdir(layout.root)) if os.path.isdir(layout.root) else set()
    kept = {f"v{each.number}" for each in catalog.versions if each.state != "discarded"}
    assert {name for name in names if name.startswith("v")} == kept
    assert not {name for name in names if name.startswith(".") and not name.endswith(".tmp")}
    assert [each.state for each in catalog.versions].count("live") == (live is not None)
    links = {name for name in os.listdir(tables) if os.path.islink(tables / name)} if tables.exists() else set()
    assert links - {name for name in links if name.endswith(".tmp")} == set(live.tables if live else ())
    if live is not None:
        assert os.readlink(layout.live_link) == f"v{live.number}"
        assert catalog.intervals[-1].version == live.number
        assert catalog.intervals[-1].until is None
    for earlier, later in zip(catalog.intervals, catalog.intervals[1:], strict=False):
        assert earlier.until == later.since
    assert all(each.until is None or each.since <= each.until for each in catalog.intervals)
    again = PipelineCatalog.open(tables, "shop")
    assert (again.versions, again.intervals) == (catalog.versions, catalog.intervals)
    return catalog


CHANGES: dict[str, tuple[Change, set[int | None]]] = {
    # What to do, and which versions may be live after a crash in it.
    "cut over": (lambda catalog: catalog.cut_over(3), {2, 3}),
    "roll back": (lambda catalog: catalog.roll_back(), {1, 2}),
    "discard": (lambda catalog: catalog.discard(1), {2}),
    "begin": (lambda catalog: catalog.begin_version("four", ["orders"]), {2}),
    "declare modules": (lambda catalog: catalog.declare(2, code=NEW), {2}),
    "declare": (lambda catalog: catalog.declare(2, tables=["orders", "old", "more"], code="two b"), {2}),
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_killed_at_any_step_leaves_old_or_new_and_can_be_done_again(
    tmp_path: Path, change: str, after: bool
) -> None:
    do, live_allowed = CHANGES[change]
    base = tmp_path / "base"
    prepared(base)
    steps, killed = 0, True
    lives = set()
    while killed:
        tables = tmp_path / f"step{steps}"
        shutil.copytree(base, tables, symlinks=True)
        catalog = PipelineCatalog.open(tables, "shop", disk=CrashDisk(-1))
        before = catalog.history
        disk = CrashDisk(steps, after=after)
        catalog._disk = disk
        try:
            do(catalog)
            killed = False
        except Killed:
            pass
        found = check_consistent(tables)
        assert found.live is not None
        lives.add(found.live.number)
        code = found.code(2)
        assert code in (OLD, NEW) or not code.whole or change == "declare"
        moved = found.live != before.live and found.live.number != 2
        assert len(found.intervals) == len(before.intervals) + moved  # nothing is noted that did not happen
        assert moved or found.intervals == before.intervals
        # The versions that the change is not about are as they were.
        assert all(found.version(each.number).tables == each.tables for each in before.versions if each.number != 2)
        if not (change == "roll back" and found.live.number == 1):  # there, doing it again would go further back
            do(found)
            check_consistent(tables)
        shutil.rmtree(tables)
        steps += 1
    assert steps > 4
    assert lives == live_allowed


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_the_first_version_killed_at_any_step_can_be_made_again(tmp_path: Path, after: bool) -> None:
    step, killed = 0, True
    while killed:
        tables = tmp_path / f"step{step}"
        try:
            PipelineCatalog.open(tables, "shop", disk=CrashDisk(step, after=after)).create_first("one", ["orders"])
            killed = False
        except Killed:
            pass
        catalog = check_consistent(tables)
        if catalog.live is None:
            assert all(each.state == "discarded" for each in catalog.versions)  # nobody was ever told of them
            catalog.create_first("one", ["orders"])
            check_consistent(tables)
        step += 1
    assert step > 8


def test_the_time_of_a_cut_over_survives_a_crash_before_it_was_written_down(tmp_path: Path) -> None:
    prepared(tmp_path)
    clock = ManualClock()
    clock.advance(77_777)
    for step in range(100):
        catalog = PipelineCatalog.open(tmp_path, "shop", clock=clock)
        catalog._disk = CrashDisk(step)
        try:
            catalog.cut_over(3)
        except Killed:
            found = PipelineCatalog.open(tmp_path, "shop")
            if found.live is not None and found.live.number == 3:
                break
    assert found.intervals[-1].since.timestamp() * 1000 == clock.now_ms()
    assert found.version(3).before == 2


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "cut over", "roll back", "discard", "declare"]),
        st.integers(0, 25),  # the step at which the process dies; beyond the last, it lives
        st.booleans(),
        st.integers(1, 5),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(operations=OPERATIONS)
def test_any_sequence_of_changes_and_crashes_stays_consistent(
    operations: list[tuple[str, int, bool, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    tables = tmp_path_factory.mktemp("tables")
    PipelineCatalog.open(tables, "shop").create_first("one", ["t1"])
    for name, step, after, number in operations:
        catalog = PipelineCatalog.open(tables, "shop", disk=CrashDisk(-1))
        before = catalog.history
        catalog._disk = CrashDisk(step, after=after)
        try:
            match name:
                case "begin":
                    catalog.begin_version("code", [f"t{number}", "t1"])
                case "cut over":
                    catalog.cut_over(number)
                case "roll back":
                    catalog.roll_back()
                case "discard":
                    catalog.discard(number)
                case "declare":
                    catalog.declare(number, tables=["t1", "t9"])
        except (Killed, OperatorError):
            pass
        found = check_consistent(tables)
        assert found.history.intervals[: len(before.intervals) - 1] == before.intervals[:-1]
        assert len(found.versions) >= len(before.versions)
    shutil.rmtree(tables)


def test_real_processes_killed_at_random_leave_a_catalog_that_opens(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from headrace.tables.catalog import PipelineCatalog\n"
        "catalog = PipelineCatalog.open(sys.argv[1], 'shop')\n"
        "catalog.live or catalog.create_first('one', ['orders'])\n"
        "print('go', flush=True)\n"
        "while True:\n"
        "    old = catalog.live.number\n"
        "    catalog.cut_over(catalog.begin_version('next', ['orders', 'clicks']).number)\n"
        "    catalog.discard(old)\n"
    )
    for delay in (0.01, 0.04, 0.09):
        process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"go\n"
        threading.Event().wait(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        assert check_consistent(tmp_path).live is not None


def test_readers_never_see_a_mix_while_others_cut_over(tmp_path: Path) -> None:
    """Two tables of one version carry its number; whoever resolves both sees the same number twice."""
    catalog = PipelineCatalog.open(tmp_path, "shop")
    catalog.create_first("one", ["a", "b"])
    catalog.begin_version("two", ["a", "b"])
    for number in (1, 2):
        for table in ("a", "b"):
            Path(catalog.layout.table_dir(number, table), "_delta_log").mkdir(parents=True)
    from headrace.tables.resolving import Resolver

    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            catalog.cut_over(2)
            catalog.cut_over(1)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        seen = []

        def both_seen() -> bool:
            resolver = Resolver(tmp_path)
            versions = {resolver.resolve("a").version, resolver.resolve("b").version}
            assert len(versions) == 1
            seen.extend(versions)
            return len(seen) >= 60 and set(seen) == {1, 2}

        eventually(both_seen, "both versions are seen, many times", poll_s=0)
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_removal_killed_at_any_step_has_not_begun_or_can_be_completed(tmp_path: Path, after: bool) -> None:
    prepared(tmp_path / "base")
    steps, killed, lives = 0, True, []
    while killed:
        tables = tmp_path / f"step{steps}"
        shutil.copytree(tmp_path / "base", tables, symlinks=True)
        catalog = PipelineCatalog.open(tables, "shop", disk=CrashDisk(-1))
        catalog._disk = CrashDisk(steps, after=after)
        try:
            catalog.remove()
            killed = False
        except Killed:
            pass
        found = check_consistent(tables)
        lives.append(found.live.number if found.live is not None else None)
        if found.live is None:
            assert all(each.state == "discarded" for each in found.versions)
        found.remove()
        assert os.listdir(tables) == [".headrace"]
        assert PipelineCatalog.open(tables, "shop").versions == ()
        steps += 1
    assert lives == sorted(lives, key=lambda live: live is None)  # live up to one step, gone from then on
    assert set(lives) == {2, None}

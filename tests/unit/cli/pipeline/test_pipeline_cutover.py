"""`headrace pipeline cutover`: a version that has not caught up does not become live by accident. No Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import headrace as command
from headrace.streaming.launching import exclusive, is_kept_running
from headrace.streaming.operation import LiveWatch
from headrace.streaming.progress import NodeProgress, RunProgress, RunStatus
from headrace.tables.catalog import PipelineCatalog, pipelines


@pytest.fixture
def catalog(tmp_path: Path) -> PipelineCatalog:
    catalog = PipelineCatalog.open(tmp_path, "shop")
    catalog.create_first("# one\n", ["orders"])
    catalog.begin_version("# two\n", ["orders"])
    return catalog


def cutover(catalog: PipelineCatalog, *words: str, answer: str = "") -> tuple[int, str]:
    given = ["pipeline", "cutover", "shop", *words, "--tables", catalog.layout.tables_dir]
    ended = CliRunner().invoke(command, given, input=answer)
    catalog.refresh()
    return ended.exit_code, ended.output


def ran(catalog: PipelineCatalog, status: RunStatus, node: NodeProgress, *, caught_up: bool = False) -> None:
    run = RunProgress(pipeline="shop", version=2, status=status, caught_up=caught_up, nodes={node.name: node})
    run.write(catalog.layout.run_file(2))


def live(catalog: PipelineCatalog) -> int | None:
    return catalog.live.number if catalog.live is not None else None


def test_what_has_not_caught_up_is_refused_whatever_yes_says(catalog: PipelineCatalog) -> None:
    code, said = cutover(catalog, "-y")
    assert code != 0
    assert "version 2 has not caught up with the log (it never ran)" in said
    assert "--force" in said
    ran(catalog, "stopped", NodeProgress(name="orders", lag=1_200))
    assert "(behind: orders 1,200)" in cutover(catalog, "-y")[1]
    ran(catalog, "failed", NodeProgress(name="orders", status="failed"))
    assert "(orders failed)" in cutover(catalog, "-y")[1]
    assert live(catalog) == 1


def test_force_makes_it_live_and_asks_unless_yes_is_given(catalog: PipelineCatalog) -> None:
    assert cutover(catalog, "--force", answer="n\n")[0] != 0
    assert live(catalog) == 1
    code, said = cutover(catalog, "--force", "-y")
    assert (code, live(catalog)) == (0, 2), said


@pytest.mark.parametrize(("status", "caught_up"), [("finished", False), ("running", True)])
def test_a_version_that_has_caught_up_becomes_live_without_a_question(
    catalog: PipelineCatalog, status: RunStatus, caught_up: bool
) -> None:
    ran(catalog, status, NodeProgress(name="orders", lag=0), caught_up=caught_up)
    code, said = cutover(catalog)
    assert (code, live(catalog)) == (0, 2), said


@contextmanager
def running(catalog: PipelineCatalog, version: int) -> Iterator[LiveWatch]:
    """A run of a version: its lock is held until its watch says that it ends."""
    watch, begun, ended = LiveWatch(catalog, version), threading.Event(), threading.Event()

    def run() -> None:
        with exclusive(catalog, version):
            while watch() is None and not ended.wait(0.01):
                begun.set()

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    try:
        yield watch
    finally:
        ended.set()
        thread.join()


def test_the_old_run_is_stopped_and_that_is_said(catalog: PipelineCatalog) -> None:
    ran(catalog, "finished", NodeProgress(name="orders", lag=0))
    with running(catalog, 1) as watch:
        code, said = cutover(catalog)
        assert (code, watch()) == (0, "version 2 is live now")
    assert "version 1 was stopped; after a rollback, run it again" in said
    assert "version 2 does not run; it catches up when it does: headrace pipeline run shop" in said


def test_the_old_run_goes_on_if_that_is_wanted_until_the_next_cut_over(catalog: PipelineCatalog) -> None:
    ran(catalog, "finished", NodeProgress(name="orders", lag=0))
    with running(catalog, 1) as watch:
        said = cutover(catalog, "--keep-running")[1]
        assert "version 1 goes on running beside it" in said
        assert "headrace pipeline stop shop --version 1" in said
        assert watch() is None
        assert is_kept_running(catalog, 1)
        words = ["pipeline", "rollback", "shop", "--tables", catalog.layout.tables_dir]
        said = CliRunner().invoke(command, words).output
        assert "version 1 is live" in said
        assert "version 1 does not run" not in said
        assert watch() is None
        assert "version 1 was stopped" in cutover(catalog)[1]


def remove(catalog: PipelineCatalog, *words: str, answer: str = "") -> tuple[int, str]:
    given = ["pipeline", "remove", "shop", *words, "--tables", catalog.layout.tables_dir]
    ended = CliRunner().invoke(command, given, input=answer)
    return ended.exit_code, ended.output


def test_a_pipeline_is_removed_for_good_after_a_question(catalog: PipelineCatalog) -> None:
    tables = Path(catalog.layout.tables_dir)
    code, said = remove(catalog, answer="n\n")
    assert code == 1
    assert "Remove shop for good: 2 versions, tables orders?" in said
    assert live(catalog) == 1
    with running(catalog, 1):
        assert "shop: version 1 is running; stop it first: headrace pipeline stop shop" in remove(catalog, "-y")[1]
    assert remove(catalog, "-y") == (0, "shop: removed\n")
    assert pipelines(tables) == ()
    assert [path.name for path in tables.iterdir()] == [".headrace"]
    assert PipelineCatalog.open(tables, "shop").create_first("# again\n", ["orders"]).number == 1

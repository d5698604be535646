"""`headrace pipeline cutover`: a version that has not caught up does not become live by accident. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import headrace as command
from headrace.streaming.progress import NodeProgress, RunProgress, RunStatus
from headrace.tables.catalog import Catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    catalog = Catalog.open(tmp_path, "shop")
    catalog.create_first("# one\n", ["orders"])
    catalog.begin_version("# two\n", ["orders"])
    return catalog


def cutover(catalog: Catalog, *words: str, answer: str = "") -> tuple[int, str]:
    given = ["pipeline", "cutover", "shop", *words, "--tables", catalog.layout.tables_dir]
    ended = CliRunner().invoke(command, given, input=answer)
    catalog.refresh()
    return ended.exit_code, ended.output


def ran(catalog: Catalog, status: RunStatus, node: NodeProgress, *, caught_up: bool = False) -> None:
    run = RunProgress(pipeline="shop", version=2, status=status, caught_up=caught_up, nodes={node.name: node})
    run.write(catalog.layout.run_file(2))


def live(catalog: Catalog) -> int | None:
    return catalog.live.number if catalog.live is not None else None


def test_what_has_not_caught_up_is_refused_whatever_yes_says(catalog: Catalog) -> None:
    code, said = cutover(catalog, "-y")
    assert code != 0
    assert "version 2 has not caught up with the log (it never ran)" in said
    assert "--force" in said
    ran(catalog, "stopped", NodeProgress(name="orders", lag=1_200))
    assert "(behind: orders 1,200)" in cutover(catalog, "-y")[1]
    ran(catalog, "failed", NodeProgress(name="orders", status="failed"))
    assert "(orders failed)" in cutover(catalog, "-y")[1]
    assert live(catalog) == 1


def test_force_makes_it_live_and_asks_unless_yes_is_given(catalog: Catalog) -> None:
    assert cutover(catalog, "--force", answer="n\n")[0] != 0
    assert live(catalog) == 1
    code, said = cutover(catalog, "--force", "-y")
    assert (code, live(catalog)) == (0, 2), said


@pytest.mark.parametrize(("status", "caught_up"), [("finished", False), ("running", True)])
def test_a_version_that_has_caught_up_becomes_live_without_a_question(
    catalog: Catalog, status: RunStatus, caught_up: bool
) -> None:
    ran(catalog, status, NodeProgress(name="orders", lag=0), caught_up=caught_up)
    code, said = cutover(catalog)
    assert (code, live(catalog)) == (0, 2), said

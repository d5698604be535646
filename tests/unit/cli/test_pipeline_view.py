"""How a run looks: plain lines in a pipe, a table on a terminal."""

from __future__ import annotations

import io

import pytest

from headrace.cli.pipeline_view import LineView, node_line, progress_table, view_of
from headrace.streaming.progress import NodeProgress, RunProgress


def progress(**node: object) -> RunProgress:
    clean = NodeProgress(name="clean", **node)  # type: ignore[arg-type]
    return RunProgress(pipeline="shop", version=2, replay=True, nodes={"clean": clean})


def test_a_line_says_what_a_person_asks_first() -> None:
    node = NodeProgress(
        name="clean", status="running", batch=3, rows_in=12_000, input_rate=900.0, rows_rate=1500.4, lag=40,
        batch_ms=850, expectations={"positive": {"action": "quarantine", "failed": 2}},
    )  # fmt: skip
    assert node_line(node) == (
        "clean: running; batch 3, 12,000 in, 900/s in, 1,500 rows/s; lag 40; last batch 850 ms; positive: 2 quarantine"
    )


def test_lines_come_at_changes_and_not_at_every_look(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView(replay=True)
    run = progress(status="starting")
    view.show(run)
    view.show(run)
    run.nodes["clean"].status = "running"
    run.nodes["clean"].batch = 0
    view.show(run)
    run.nodes["clean"].batch = 1
    view.show(run)
    run.caught_up = True
    view.show(run)
    view.show(run)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(";")[0] for line in lines[:2]] == ["clean: starting", "clean: running"]
    assert len(lines) == 3
    assert lines[2].startswith("shop version 2 has caught up")


def test_the_table_of_a_terminal_has_every_node_and_its_message() -> None:
    from rich.console import Console

    run = progress(status="failed", batch=1, lag=3, lag_unit="versions", message="batch 1: [red] brackets stay")
    out = io.StringIO()
    Console(file=out, width=160).print(progress_table(run))
    text = out.getvalue()
    assert "shop version 2, replaying" in text
    assert "3 versions" in text
    assert "batch 1: [red] brackets stay" in text


def test_what_is_no_terminal_gets_lines() -> None:
    with view_of(io.StringIO(), replay=False) as view:
        assert isinstance(view, LineView)

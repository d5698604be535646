"""How a run looks: plain lines in a pipe, a table on a terminal."""

from __future__ import annotations

import io

import pytest
from click import unstyle

from headrace.cli.columns import width_of
from headrace.cli.pipeline import view as pipeline_view
from headrace.cli.pipeline.screen import final_lines, screen_lines
from headrace.cli.pipeline.view import LineView, node_line, view_of
from headrace.streaming.progress import NodeProgress, RunProgress


def progress(**node: object) -> RunProgress:
    clean = NodeProgress(name="clean", **node)  # type: ignore[arg-type]
    return RunProgress(pipeline="shop", version=2, replay=True, nodes={"clean": clean})


def test_a_line_says_what_a_person_asks_first() -> None:
    node = NodeProgress(
        name="clean", status="running", batch=3, rows_in=12_000, input_rate=900.0, rows_rate=1500.4, lag=40,
        batch_ms=850, late=7, unparsed=6, extra={"coupon": 12},
        expectations={"positive": {"action": "quarantine", "failed": 2}, "can be parsed": {"action": "quarantine",
                                                                                           "failed": 6}},
    )  # fmt: skip
    assert node_line(node) == (
        "clean: running; batch 3, 12,000 rows in, 900 rows/s in, 1,500 rows/s done; lag 40 rows; last batch 850 ms; "
        "positive: 2 quarantined, 6 could not be parsed, 7 late, unknown fields: coupon (12)"
    )


def test_why_a_node_failed_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    view = LineView(replay=False)
    run = progress(status="failed", message="division by zero")
    view.failed("clean: division by zero")
    view.show(run)
    said = capsys.readouterr()
    assert said.err == "headrace: clean: division by zero\n"
    assert said.out == "clean: failed\n"


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


MESSAGE = "batch 3 (orders offsets 0:120-240): /home/me/rules.py:17: ZeroDivisionError: division by zero; correct it"


def shop(nodes: int = 3) -> RunProgress:
    found = [
        NodeProgress(
            name="clean_orders", status="running", batch=12, rows_in=1_234_567, input_rate=15_000.0, rows_rate=18_000.0,
            lag=123_456, batch_ms=2_850, expectations={"positive": {"action": "quarantine", "failed": 12}},
        ),
        *(NodeProgress(name=f"table_{number}", status="running", batch=number) for number in range(nodes - 2)),
        NodeProgress(name="a_table_with_a_long_name", status="failed", batch=3, lag=1,
                     message=MESSAGE),
    ]  # fmt: skip
    found[0].reads_topics = True
    return RunProgress(pipeline="shop", version=2, replay=True, status="running", nodes={n.name: n for n in found})


def plain(lines: list[str]) -> list[str]:
    return [unstyle(line) for line in lines]


def test_a_terminal_of_eighty_columns_has_every_figure() -> None:
    lines = plain(
        screen_lines(
            shop(), width=80, height=24, said=["said", f"a_table_with_a_long_name stopped: {MESSAGE}"], foot="foot"
        )
    )
    assert lines[0] == "shop version 2, replaying: 91%, 123,456 records to go, about 7 s"
    assert lines[2].split() == ["node", "state", "batch", "rows/s", "in", "rows/s", "lag", "last", "batch"]
    assert lines[3].split() == ["clean_orders", "running", "12", "15,000", "18,000", "123,456", "2850", "ms"]
    assert lines[4] == "  positive: 12 quarantined"
    assert lines[6].split()[:3] == ["a_table_with_a_long_name", "failed", "3"]
    assert " ".join(" ".join(lines[7:9]).split()) == MESSAGE
    assert (len(lines), lines[-1]) == (24, "foot")
    assert "said" in lines
    assert "stopped" not in "".join(lines), "why it stopped stands with the node, once"


@pytest.mark.parametrize("width", [10, 30, 44, 60, 80, 200])
@pytest.mark.parametrize("height", [3, 8, 12, 24, 60])
@pytest.mark.parametrize("nodes", [2, 3, 40])
def test_whatever_the_size_all_fits_and_why_a_node_stopped_is_seen_whole(width: int, height: int, nodes: int) -> None:
    lines = plain(screen_lines(shop(nodes), width=width, height=height, said=["said"] * 9, foot="Ctrl-C stops it"))
    assert len(lines) == height
    assert max(map(width_of, lines)) <= width
    if width >= 44 and height >= 12:
        assert MESSAGE.replace(" ", "") in "".join(lines).replace(" ", "")
    if height == 24 and width >= 44:
        assert any("more" in line for line in lines) == (nodes == 40)


def test_a_narrow_terminal_keeps_state_rate_and_lag() -> None:
    header = plain(screen_lines(shop(), width=36, height=24))[3]
    assert header.split() == ["node", "state", "rows/s", "lag"]


def test_brackets_and_escapes_in_a_message_stay_text() -> None:
    run = progress(status="failed", message="[red] \x1b[2J stays")
    assert "  [red] \\x1b[2J stays" in plain(screen_lines(run, width=80, height=10))


def test_what_stays_behind_has_a_line_a_node_and_leaves_the_messages_to_the_end() -> None:
    lines = plain(final_lines(shop(), 80))
    assert [line.split()[0] for line in lines] == ["node", "clean_orders", "positive:", "table_0",
                                                   "a_table_with_a_long_name"]  # fmt: skip


def test_how_far_a_replay_is_comes_as_a_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(pipeline_view.time, "monotonic", lambda: now[0])
    view = LineView(replay=True)
    view.show(shop())
    now[0] = 6.0
    view.show(shop())
    assert "shop version 2: replaying: 91%, 123,456 records to go, about 7 s" in capsys.readouterr().out
    now[0] = 12.0
    view.show(shop())  # nothing has moved
    assert "replaying" not in capsys.readouterr().out
    refreshed = shop()  # of which no node reads a topic
    for node in refreshed.nodes.values():
        node.reads_topics = False
    view.show(refreshed)
    assert "rows to go" in capsys.readouterr().out


def test_what_is_no_terminal_gets_lines() -> None:
    with view_of(io.StringIO(), progress()) as view:
        assert isinstance(view, LineView)

"""Percentiles, places in a topic, the lag view, the progress line, and finding what was meant."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner

from headrace.cli.bench.percentiles import percentile, summary
from headrace.cli.group.watch import LagRow, changes, left_text, rows_of
from headrace.cli.lazy_group import CommandEntry, LazyGroup
from headrace.cli.main import COMMANDS, headrace
from headrace.cli.names import missing_name
from headrace.cli.progress import Progress, bar
from headrace.cli.reaching import reach_of
from headrace.client.group_admin import Position
from headrace.client.moments import Moment, parse_moment
from headrace.core.errors import OperatorError

NOW = datetime(2026, 10, 5, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(number) for number in range(1, 1001)]
    random.Random(1).shuffle(values)
    assert summary(values) == {"p50": 500.0, "p95": 950.0, "p99": 990.0, "p99.9": 999.0, "max": 1000.0}
    assert summary([7.0])["p99.9"] == 7.0
    assert summary([]) == {}
    assert percentile([1.0, 2.0], 50) == 1.0


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("beginning", Moment("beginning")),
        ("EARLIEST", Moment("beginning")),
        ("end", Moment("end")),
        ("latest", Moment("end")),
        ("17", Moment("offset", 17)),
        ("-5", Moment("last", 5)),
        ("10 minutes ago", Moment("time", NOW_MS - 600_000)),
        ("90s", Moment("time", NOW_MS - 90_000)),
        ("2026-10-05T11:00:00Z", Moment("time", NOW_MS - 3_600_000)),
        ("2026-10-05", Moment("time", NOW_MS - 12 * 3_600_000)),
    ],
)
def test_a_place_in_a_topic_is_read_as_it_is_written(text: str, moment: Moment) -> None:
    assert parse_moment(text, NOW) == moment


@pytest.mark.parametrize("text", ["", "soon", "--5", "5.5", "2026-13-01"])
def test_what_is_no_place_is_refused_with_examples(text: str) -> None:
    with pytest.raises(OperatorError, match="not a place in a topic; write beginning, end, an offset"):
        parse_moment(text, NOW)


def position(topic: str, partition: int, committed: int | None, end: int | None) -> Position:
    lag = None if committed is None or end is None else end - committed
    return Position(topic, partition, committed, end, lag, None, None)


def test_the_lag_view_sums_by_topic_and_leaves_out_what_is_unknown() -> None:
    found = {
        "g": [position("a", 0, 5, 10), position("a", 1, 10, 10), position("a", 2, None, 7), position("b", 0, 0, 1)]
    }
    assert rows_of(found) == [LagRow("g", "a", 2, 5, 15, 20), LagRow("g", "b", 1, 1, 0, 1)]


def test_rates_and_the_time_left_come_from_the_last_look() -> None:
    before = {("g", "a"): LagRow("g", "a", 1, 100, 0, 100)}
    (faster,) = changes([LagRow("g", "a", 1, 80, 40, 120)], before, 2.0)
    assert (faster.read_rate, faster.write_rate, faster.seconds_left) == (20.0, 10.0, 8.0)
    (slower,) = changes([LagRow("g", "a", 1, 120, 10, 130)], before, 2.0)
    assert (slower.seconds_left, left_text(slower)) == (None, "never")
    (first,) = changes([LagRow("g", "a", 1, 1, 0, 1)], {}, 0.0)
    assert (first.read_rate, left_text(first)) == (None, "")
    (done,) = changes([LagRow("g", "a", 1, 0, 130, 130)], before, 2.0)
    assert left_text(done) == "now"


def test_the_bar_is_full_at_the_end_and_absent_when_the_end_is_unknown() -> None:
    assert bar(0, 10) == "[" + "-" * 24 + "]   0%  "
    assert bar(20, 10) == "[" + "#" * 24 + "] 100%  "
    assert bar(5, None) == ""


def test_progress_is_shown_on_a_terminal_only_and_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(10) as progress:
        progress.update(5, "5 records")
    assert capsys.readouterr().err == ""
    with Progress(10, shown=True) as progress:
        progress.update(5, "5 records")
        progress.update(6, "too soon")
    err = capsys.readouterr().err
    assert err == "\r\x1b[K[############------------]  50%  5 records\r\x1b[K"


def test_a_missing_name_is_met_with_the_nearest_or_a_remedy() -> None:
    assert str(missing_name("topic", "ordrs", ["orders", "users"], "x")) == (
        "topic ordrs does not exist; did you mean orders?"
    )
    assert str(missing_name("topic", "zzz", ["orders"], "make it")) == "topic zzz does not exist; make it"


def test_settings_of_the_client_are_pairs() -> None:
    assert reach_of("h:1", None, ("a=b=c",)).properties == {"a": "b=c"}
    with pytest.raises(click.UsageError, match="write KEY=VALUE"):
        reach_of("h:1", None, ("nonsense",))


# ── the tree of commands ─────────────────────────────────────────────────────────────────────────────────────────────


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, f"{name} is listed and cannot be loaded"
        found.append(((*path, name), command))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


TREE = commands(headrace)
OURS = ("topic", "group", "config", "cluster", "api-versions", "produce", "consume", "bench", "completion", "top")


def test_the_table_of_commands_says_what_the_commands_say() -> None:
    for group in [headrace, *(command for _, command in TREE if isinstance(command, LazyGroup))]:
        assert isinstance(group, LazyGroup)
        for name, place in group.places.items():
            command = group.get_command(click.Context(group), name)
            assert command is not None
            assert command.name == name
            if place in COMMANDS.values() and name not in OURS:
                continue  # its own file words it as it likes
            assert command.short_help == place.help, name


@pytest.mark.parametrize(
    ("path", "command"),
    [(path, command) for path, command in TREE if path[0] in OURS and not isinstance(command, click.Group)],
)
def test_every_help_text_has_an_example(path: tuple[str, ...], command: click.Command) -> None:
    text = " ".join(CliRunner().invoke(headrace, [*path, "--help"]).output.split())
    assert "Example" in text, path
    assert f"headrace {' '.join(path)}" in text.split("Example", 1)[1]
    names = [option for parameter in command.params for option in parameter.opts]
    if path[0] not in ("completion",):
        assert {"--bootstrap", "--json", "--debug"} <= set(names)


def test_a_wrong_command_is_one_line_with_what_was_meant() -> None:
    result = CliRunner().invoke(headrace, ["tpic"])
    assert (result.exit_code, result.output) == (
        2,
        "headrace: no such command 'tpic'; did you mean topic? (see headrace --help)\n",
    )
    result = CliRunner().invoke(headrace, ["topic", "remove"])
    assert result.exit_code == 2
    assert "no such command 'remove'" in result.output
    result = CliRunner().invoke(headrace, ["topic", "list", "--jsn"])
    assert result.exit_code == 2
    assert "--json" in result.output
    assert result.output.count("\n") == 1


def test_a_lazy_group_imports_a_command_only_when_it_is_run() -> None:
    group = LazyGroup("g", places={"broken": CommandEntry("headrace.no_such_module:x", "What it would do.")})
    assert "What it would do." in CliRunner().invoke(group, ["--help"]).output
    with pytest.raises(ModuleNotFoundError):
        group.get_command(click.Context(group), "broken")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_how_to_complete(shell: str) -> None:
    result = CliRunner().invoke(headrace, ["completion", shell])
    assert result.exit_code == 0
    assert f"_HEADRACE_COMPLETE={shell}_complete" in result.output

"""How a running pipeline looks: a table that renews itself on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import click

if TYPE_CHECKING:
    from rich.table import Table

    from headrace.streaming.progress import NodeProgress, RunProgress

LINE_EVERY_S = 5.0
MESSAGES_SHOWN_MAX = 8
_COLORS = {"running": "green", "finished": "green", "restarting": "yellow", "failed": "red", "stopped": "dim"}


class View(Protocol):
    def say(self, line: str) -> None: ...
    def show(self, progress: "RunProgress") -> None: ...


@contextmanager
def view_of(stream: TextIO, *, replay: bool) -> Iterator[View]:
    if not stream.isatty():
        yield LineView(replay=replay)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream)
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        yield LiveView(live)


class LineView:
    """A line a node every few seconds while something happens, and one at each change of its state."""

    def __init__(self, *, replay: bool) -> None:
        self._replay = replay
        self._said: dict[str, tuple[Any, ...]] = {}
        self._said_at: dict[str, float] = {}
        self._caught_up = False

    def say(self, line: str) -> None:
        click.echo(line)

    def show(self, progress: "RunProgress") -> None:
        now = time.monotonic()
        for node in progress.nodes.values():
            state = (node.status, node.restarts)
            moved = (*state, node.batch, node.lag)
            before = self._said.get(node.name)
            if before == moved:
                continue
            if before is None or before[:2] != state or now - self._said_at[node.name] >= LINE_EVERY_S:
                self._said[node.name] = moved
                self._said_at[node.name] = now
                click.echo(node_line(node))
        if self._replay and progress.caught_up and not self._caught_up:
            self._caught_up = True
            click.echo(caught_up_line(progress))


class LiveView:
    def __init__(self, live: Any) -> None:
        self._live = live
        self._messages: list[str] = []

    def say(self, line: str) -> None:
        self._live.console.print(line, markup=False, highlight=False)

    def show(self, progress: "RunProgress") -> None:
        self._live.update(progress_table(progress))


def progress_table(progress: "RunProgress") -> "Table":
    from rich.table import Table
    from rich.text import Text

    title = f"{progress.pipeline} version {progress.version}"
    if progress.replay:
        title += ", caught up" if progress.caught_up else ", replaying"
    table = Table(title=title, title_justify="left", expand=False, box=None, pad_edge=False)
    for name, justify in (
        ("node", "left"), ("state", "left"), ("batch", "right"), ("in/s", "right"), ("rows/s", "right"),
        ("rows", "right"), ("lag", "right"), ("last batch", "right"), ("expectations", "left"),
    ):  # fmt: skip
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for node in progress.nodes.values():
        table.add_row(
            node.name,
            Text(node.status, style=_COLORS.get(node.status, "")),
            _number(node.batch),
            f"{node.input_rate:,.0f}",
            f"{node.rows_rate:,.0f}",
            f"{node.rows_in:,}",
            _lag(node),
            f"{node.batch_ms:,} ms" if node.batch_ms is not None else "",
            Text(expectations_text(node)),
        )
        if node.message:
            table.add_row("", Text(node.message, style="yellow", overflow="fold"))
    return table


def node_line(node: "NodeProgress") -> str:
    parts = [f"{node.name}: {node.status}"]
    if node.batch is not None:
        parts.append(
            f"batch {node.batch}, {node.rows_in:,} in, {node.input_rate:,.0f}/s in, {node.rows_rate:,.0f} rows/s"
        )
    if node.lag is not None:
        parts.append(f"lag {_lag(node)}")
    if node.batch_ms is not None:
        parts.append(f"last batch {node.batch_ms:,} ms")
    if text := expectations_text(node):
        parts.append(text)
    if node.message:
        parts.append(node.message)
    return "; ".join(parts)


def expectations_text(node: "NodeProgress") -> str:
    return ", ".join(f"{name}: {each['failed']:,} {each['action']}" for name, each in node.expectations.items())


def caught_up_line(progress: "RunProgress") -> str:
    name = progress.pipeline
    return (
        f"{name} version {progress.version} has caught up; compare it with: headrace pipeline compare {name}, "
        f"make it live with: headrace pipeline cutover {name}"
    )


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _lag(node: "NodeProgress") -> str:
    return "" if node.lag is None else f"{node.lag:,}{'' if node.lag_unit == 'records' else ' versions'}"

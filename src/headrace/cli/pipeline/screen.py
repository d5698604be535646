"""A running pipeline as the lines of a terminal of a given size. It only decides what stands where; it draws nothing.

Each node has a line, and below it, over the whole width, what it expects of its rows and why it stopped. Where room is
short, columns go before figures are cut, and what is well goes before what is not: why a node stopped is seen whole.
"""

import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from headrace.cli.columns import GAP, cell, cut, width_of
from headrace.streaming.progress import CAN_BE_PARSED

if TYPE_CHECKING:
    from headrace.streaming.progress import NodeProgress, RunProgress

INDENT = "  "
NODE_WIDTH_MIN = 8
NODE_WIDTH_WANTED = 24
WRAP_WIDTH_MIN = 20
SAID_MAX = 6
SECONDS_FROM_MS = 10_000
FIELDS_SHOWN_MAX = 5
_DONE = {"warn": "failed", "drop": "dropped", "quarantine": "quarantined", "fail": "failed"}
_COLORS = {"running": "green", "finished": "green", "restarting": "yellow", "failed": "red"}


class ScreenColumn(NamedTuple):
    name: str
    text: "Callable[[NodeProgress], str]"
    needed: int  # the lowest goes first when it gets narrow; 0 and 1 also for a name that would be cut


def expectations_text(node: "NodeProgress") -> str:
    """Failed expectations, and what else was odd: `positive: 2 quarantined, 6 could not be parsed, 7 late`."""
    counts = [
        f"{name}: {each['failed']:,} {_DONE.get(each['action'], each['action'])}"
        for name, each in node.expectations.items()
        if name != CAN_BE_PARSED
    ]
    if node.unparsed:
        counts.append(f"{node.unparsed:,} could not be parsed")
    if node.late:
        counts.append(f"{node.late:,} late")
    if node.extra:
        fields = [f"{name} ({count:,})" for name, count in list(node.extra.items())[:FIELDS_SHOWN_MAX]]
        more = len(node.extra) - len(fields)
        counts.append(f"unknown fields: {', '.join(fields)}{f' and {more} more' if more else ''}")
    return ", ".join(counts)


def lag_text(node: "NodeProgress") -> str:
    if node.lag is None:
        return ""
    return f"{node.lag:,}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _time(ms: int | None) -> str:
    if ms is None:
        return ""
    return f"{ms} ms" if ms < SECONDS_FROM_MS else f"{ms / 1000:,.1f} s"


_COLUMNS = (
    ScreenColumn("batch", lambda node: _number(node.batch), 1),
    ScreenColumn("rows/s in", lambda node: _number(node.input_rate), 3),
    ScreenColumn("rows/s", lambda node: _number(node.rows_rate), 5),
    ScreenColumn("rows", lambda node: _number(node.rows_in), 0),
    ScreenColumn("lag", lag_text, 4),
    ScreenColumn("last batch", lambda node: _time(node.batch_ms), 2),
)


def screen_lines(
    progress: "RunProgress", *, width: int, height: int, said: Sequence[str] = (), foot: str = ""
) -> list[str]:
    """At most `height` lines of at most `width` columns."""
    head = wrapped(title(progress), width, style={"bold": True})
    if progress.replay and progress.caught_up:
        head += wrapped(caught_up_text(progress), width)
    nodes = list(progress.nodes.values())
    if nodes:
        head += ["", *_table(nodes, width)[:1]]
    tail = [click.style(cut(foot, width), dim=True)] if foot else []
    blocks = _blocks(nodes, width, max(1, height - len(head) - len(tail)))
    room = height - len(head) - len(blocks) - len(tail)
    known = tuple(node.message for node in nodes if node.message)  # stands with its node already
    news = [line for each in said[-SAID_MAX:] if not each.endswith(known) for line in wrapped(each, width)]
    if news and room >= 2:
        blocks += ["", *news[-(room - 1) :]]
    filling = [""] * (height - len(head) - len(blocks) - len(tail)) if foot else []
    return [*head, *blocks, *filling, *tail][:height]


def final_lines(progress: "RunProgress", width: int) -> list[str]:
    """What stays on the terminal when the view is gone; why nodes failed is said after it."""
    lines = _table(list(progress.nodes.values()), width)
    for index, node in reversed(list(enumerate(progress.nodes.values()))):
        lines[index + 2 : index + 2] = _expected(node, width)
    return lines


def _blocks(nodes: "list[NodeProgress]", width: int, room: int) -> list[str]:
    """A line a node with what belongs to it. What is least needed is left out until it fits."""
    table = _table(nodes, width)[1:] if nodes else []
    messages = [wrapped(node.message, width, INDENT, {"fg": _COLORS.get(node.status, "yellow")}) for node in nodes]
    expected = [_expected(node, width) for node in nodes]
    shorter: list[list[list[str]]] = [expected, [each[:1] for each in expected], [[] for _ in nodes]]
    for kept in shorter:
        lines = []
        for row, expectations, message in zip(table, kept, messages, strict=True):
            lines += [row, *expectations, *message]
        if len(lines) <= room:
            return lines
    # Nodes that are well make room for those that are not; how many are not shown is said.
    order = sorted(range(len(nodes)), key=lambda at: (nodes[at].status != "failed", not messages[at], at))
    shown: list[int] = []
    spare = room - 1
    for index in order:
        if 1 + len(messages[index]) <= spare or not shown:
            spare -= 1 + len(messages[index])
            shown.append(index)
    lines = [line for index in sorted(shown) for line in (table[index], *messages[index])]
    left = len(nodes) - len(shown)
    more = [click.style(f"… and {left} more; a taller terminal shows them", dim=True)] if left else []
    return [*lines[: room - len(more)], *(cut(line, width) for line in more)]


def _expected(node: "NodeProgress", width: int) -> list[str]:
    failed = any(each["failed"] for each in node.expectations.values())
    return wrapped(expectations_text(node), width, INDENT, {"dim": not failed})


def _table(nodes: "list[NodeProgress]", width: int) -> list[str]:
    """Names of columns, then one line per node."""
    rows = [[cell(node.name), node.status, *(column.text(node) for column in _COLUMNS)] for node in nodes]
    names = ["node", "state", *(column.name for column in _COLUMNS)]
    widths = [max(map(width_of, column)) for column in zip(names, *rows, strict=True)]
    shown = list(range(len(names)))
    dropped = sorted(range(2, len(names)), key=lambda index: _COLUMNS[index - 2].needed)

    def spare() -> int:
        return width - sum(widths[index] for index in shown[1:]) - len(GAP) * (len(shown) - 1)

    while dropped:
        wanted = NODE_WIDTH_WANTED if _COLUMNS[dropped[0] - 2].needed < 2 else NODE_WIDTH_MIN
        if spare() >= min(widths[0], wanted):
            break
        shown.remove(dropped.pop(0))
    widths[0] = max(1, min(widths[0], spare()))
    lines = [click.style(cut(_line(names, widths, shown), width), bold=True)]
    for node, row in zip(nodes, rows, strict=True):
        line = cut(_line(row, widths, shown), width)
        color = _COLORS.get(node.status)
        lines.append(line.replace(node.status, click.style(node.status, fg=color), 1) if color else line)
    return lines


def _line(row: list[str], widths: list[int], shown: list[int]) -> str:
    cells = []
    for index in shown:
        text = cut(row[index], widths[index])
        space = " " * (widths[index] - width_of(text))
        cells.append(text + space if index < 2 else space + text)
    return GAP.join(cells).rstrip()


def wrapped(text: str, width: int, indent: str = "", style: "dict[str, object] | None" = None) -> list[str]:
    """Whole, over as many lines as it takes."""
    room = max(width - len(indent), min(width, WRAP_WIDTH_MIN))
    pieces = textwrap.wrap(cell(text), room, break_on_hyphens=False)
    lines = [cut(indent + piece, width) for piece in pieces]
    return [click.style(line, **style) for line in lines] if style else lines  # type: ignore[arg-type]


def title(progress: "RunProgress") -> str:
    name = f"{progress.pipeline} version {progress.version}"
    if not progress.replay:
        return f"{name}, {progress.status}"
    return f"{name}, caught up" if progress.caught_up else f"{name}, {replay_text(progress)}"


def replay_text(progress: "RunProgress") -> str:
    """How far a replay has come, by the nodes that read topics; where none does, as in a refresh, by all."""
    known = [node for node in progress.nodes.values() if node.lag is not None]
    reading = [node for node in known if node.reads_topics] or known
    behind = sum(node.lag or 0 for node in reading)
    done = sum(node.rows_in for node in reading)
    if not reading or not done:
        return "replaying"
    what = "records" if reading[0].reads_topics else "rows"
    text = f"replaying: {done / (done + behind):.0%}, {behind:,} {what} to go"
    # The slowest decides; what is written meanwhile comes on top of it, so this is a guess.
    seconds = max((node.lag / node.rows_rate for node in reading if node.lag and node.rows_rate), default=None)
    return text if seconds is None or not behind else f"{text}, about {duration(seconds)}"


def duration(seconds: float) -> str:
    whole = max(1, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, hours = whole // 60, whole // 3600
    return f"{minutes} min" if hours == 0 else f"{hours} h {minutes % 60} min"


def caught_up_text(progress: "RunProgress") -> str:
    name = progress.pipeline
    return (
        f"{name} version {progress.version} has caught up; compare it with: headrace pipeline compare {name}, "
        f"make it live with: headrace pipeline cutover {name}"
    )

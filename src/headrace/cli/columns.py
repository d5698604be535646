"""Rows on the screen: columns that fit a terminal, or plain text for a pipe.

On a terminal long cells are cut with `…`; where even that leaves no room, each row becomes a small list of its own.
Into a pipe nothing is cut and nothing is coloured.
"""

import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence

import click

GAP = "  "
CELL_WIDTH_MIN = 8
NULL = "null"


def width_of(text: str) -> int:
    """Columns on a terminal: wide letters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def cut(text: str, width: int) -> str:
    if width_of(text) <= width:
        return text
    kept, used = [], 1
    for letter in text:
        used += width_of(letter)
        if used > width:
            break
        kept.append(letter)
    return "".join(kept) + "…"


def cell(value: str | None) -> str:
    """One line, and nothing that moves the cursor."""
    if value is None:
        return NULL
    if value.isprintable():
        return value
    return "".join(letter if letter.isprintable() else _escaped(letter) for letter in value)


def _escaped(letter: str) -> str:
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(letter, f"\\x{ord(letter):02x}")


def lines(
    header: Sequence[str],
    rows: Iterable[Sequence[str | None]],
    *,
    right: Sequence[bool] = (),
    width_max: int | None = None,
) -> Iterable[str]:
    """`width_max` is None for a pipe."""
    names = [cell(name) for name in header]
    table = [[cell(value) for value in row] for row in rows]
    nulls = [[value is None for value in row] for row in rows] if isinstance(rows, list) else None
    sides = [*right, *[False] * (len(names) - len(right))]
    natural = [max(map(width_of, column)) for column in zip(names, *table, strict=True)]
    widths = natural if width_max is None else fitted(natural, width_max)
    if widths is None:
        yield from _stacked(names, table)
        return
    yield click.style(_line(names, widths, sides), bold=True)
    for number, row in enumerate(table):
        dim = nulls[number] if nulls else [False] * len(row)
        yield _line(row, widths, sides, dim)


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[bool], dim: Sequence[bool] = ()) -> str:
    cells = []
    for text, width, side, faint in zip(row, widths, right, dim or [False] * len(row), strict=True):
        short = cut(text, width)
        space = " " * (width - width_of(short))
        shown = click.style(short, dim=True) if faint else short
        cells.append(space + shown if side else shown + space)
    return GAP.join(cells).rstrip()


def fitted(natural: Sequence[int], width_max: int) -> list[int] | None:
    """Takes from the widest columns until all fit; None if they cannot."""
    widths = list(natural)
    spare = width_max - len(GAP) * (len(widths) - 1)
    if sum(min(width, CELL_WIDTH_MIN) for width in widths) > spare:
        return None
    over = sum(widths) - spare
    while over > 0:
        widest = max(widths)
        next_widest = max((width for width in widths if width < widest), default=0)
        group = [index for index, width in enumerate(widths) if width == widest]
        share = max(1, min(widest - max(next_widest, CELL_WIDTH_MIN), -(-over // len(group))))
        for index in group:
            take = min(share, over)
            widths[index] -= take
            over -= take
    return widths


def _stacked(names: Sequence[str], table: Sequence[Sequence[str]]) -> Iterable[str]:
    width = max(map(width_of, names))
    for number, row in enumerate(table, 1):
        yield click.style(f"row {number}", bold=True)
        for name, value in zip(names, row, strict=True):
            yield f"  {name}{' ' * (width - width_of(name))}{GAP}{value}"


def show(
    header: Sequence[str], rows: Sequence[Sequence[str | None]], *, right: Sequence[bool] = (), indent: str = ""
) -> None:
    """Prints; looks at the terminal's width only if there is a terminal."""
    terminal = sys.stdout.isatty()
    width_max = shutil.get_terminal_size().columns - len(indent) if terminal else None
    for line in lines(header, list(rows), right=right, width_max=width_max):
        click.echo(indent + line)

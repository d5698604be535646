"""Tables that change in place: the cursor stays on its row, and only cells that differ are drawn again."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text
from textual.widgets import DataTable

Rows = dict[str, list[Text]]


def columns(table: "DataTable[Any]", names: Sequence[str]) -> None:
    for name in names:
        table.add_column(name, key=name)


def fill(table: "DataTable[Any]", rows: Rows) -> None:
    held = [row.key.value for row in table.ordered_rows]
    if held == list(rows):
        keys = list(table.columns)
        for name, cells in rows.items():
            for key, cell, old in zip(keys, cells, table.get_row(name), strict=True):
                if cell != old or cell.style != old.style:
                    table.update_cell(name, key, cell, update_width=True)
        return
    at = held[table.cursor_row] if 0 <= table.cursor_row < len(held) else None
    top = table.scroll_y
    table.clear()
    for name, cells in rows.items():
        table.add_row(*cells, key=name)
    if at in rows:
        table.move_cursor(row=list(rows).index(at), animate=False, scroll=False)
        table.scroll_to(y=top, animate=False)

"""One line of progress on stderr, redrawn in place: only on a terminal, at most ten times a second."""

import shutil
import sys
import time
from typing import Self

import click

from headrace.cli.columns import cut

INTERVAL_S = 0.1
BAR_WIDTH = 24


class Progress:
    """`with Progress(total) as progress: progress.update(done, "12,000 records")`; silent where nobody looks."""

    def __init__(self, total: int | None = None, *, shown: bool | None = None) -> None:
        from headrace.cli.reaching import on_terminal

        self._total = total
        self._shown = on_terminal() if shown is None else shown
        self._next = 0.0
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    @property
    def is_due(self) -> bool:
        return self._shown and time.monotonic() >= self._next

    def update(self, done: int, text: str) -> None:
        if not self.is_due:
            return
        self._next = time.monotonic() + INTERVAL_S
        line = cut(f"{bar(done, self._total)}{text}", shutil.get_terminal_size().columns - 1)
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()
        self._drawn = True

    def say(self, text: str) -> None:
        """A line of its own, above what is drawn next."""
        from headrace.cli.reaching import decapitalized

        self.clear()
        click.echo(f"headrace: {decapitalized(text)}", err=True)

    def clear(self) -> None:
        """Makes room for what is printed next."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._drawn = False


def bar(done: int, total: int | None) -> str:
    if not total:
        return ""
    share = min(1.0, done / total)
    filled = round(share * BAR_WIDTH)
    return f"[{'#' * filled}{'-' * (BAR_WIDTH - filled)}] {share:4.0%}  "

"""How a running pipeline looks: a screen that renews itself on a terminal, plain lines elsewhere.

The screen is the terminal's second one, so that the first is as it was when the view ends, however it ends. Whatever
the user's own code prints meanwhile is shown there, and printed when the view is gone.
"""

import io
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, Protocol, TextIO

import click

from headrace.cli.pipeline.screen import (
    caught_up_text,
    duration,
    expectations_text,
    final_lines,
    replay_text,
    screen_lines,
)
from headrace.streaming.progress import counted

if TYPE_CHECKING:
    from headrace.streaming.progress import NodeProgress, RunProgress

LINE_EVERY_S = 5.0
DRAW_EVERY_S = 0.25
SAID_MAX = 50
PRINTED_LINES_MAX = 1_000
_OPEN = "\x1b[?1049h\x1b[?25l"  # the second screen, without a cursor
_CLOSE = "\x1b[?25h\x1b[?1049l"
_FOOT = "Ctrl-C stops it"
_FOOT_STOPPING = "stopping: the batch under way is ended; Ctrl-C again does not wait for it"


class View(Protocol):
    def say(self, line: str) -> None: ...
    def failed(self, line: str) -> None: ...
    def show(self, progress: "RunProgress") -> None: ...
    def stopping(self) -> None: ...


@contextmanager
def view_of(stream: TextIO, progress: "RunProgress") -> Iterator[View]:
    """`progress` is what there is to show before there is more."""
    if not stream.isatty():
        yield LineView(replay=progress.replay)
        return
    view = ScreenView(stream, progress)
    with view.drawn():
        yield view


class LineView:
    """A line a node every few seconds while something happens, and one at each change of its state."""

    def __init__(self, *, replay: bool) -> None:
        self._replay = replay
        self._said: dict[str, tuple[Any, ...]] = {}
        self._said_at: dict[str, float] = {}
        self._replay_said, self._replay_said_at = "", time.monotonic()
        self._caught_up = False

    def say(self, line: str) -> None:
        click.echo(line)

    def failed(self, line: str) -> None:
        click.echo(f"headrace: {line}", err=True)

    def stopping(self) -> None:
        """Nothing: it is called from within a signal, where a line may be half written."""

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
                click.echo(node_line(node, message=False))  # that was said when it happened
        if self._replay and not self._caught_up:
            self._show_replay(progress, now)

    def _show_replay(self, progress: "RunProgress", now: float) -> None:
        if progress.caught_up:
            self._caught_up = True
            click.echo(caught_up_text(progress))
        elif now - self._replay_said_at >= LINE_EVERY_S and (text := replay_text(progress)) != self._replay_said:
            self._replay_said, self._replay_said_at = text, now
            click.echo(f"{progress.pipeline} version {progress.version}: {text}")


class ScreenView:
    """Drawn by a thread of its own: a terminal that changes its size is drawn again while everybody else waits."""

    def __init__(self, stream: TextIO, progress: "RunProgress") -> None:
        self._stream = stream
        self._progress = progress
        self._said: deque[str] = deque(maxlen=SAID_MAX)
        self._printed: deque[str] = deque(maxlen=PRINTED_LINES_MAX)
        self._failed: list[str] = []
        self._begun_at = time.monotonic()
        self._ended = threading.Event()
        self._stopping = False
        self._drawn: tuple[str, ...] = ()

    def say(self, line: str) -> None:
        self._said.append(line)

    def failed(self, line: str) -> None:
        """It stands beside its node while the view is there, and stays behind it."""
        self._failed.append(line)

    def show(self, progress: "RunProgress") -> None:
        if not self._progress.nodes and progress.nodes:  # what was said of the start is over
            self._said = deque(self._printed, maxlen=SAID_MAX)
        self._progress = progress

    def stopping(self) -> None:
        self._stopping = True

    @contextmanager
    def drawn(self) -> Iterator[None]:
        thread = threading.Thread(target=self._draw_until_ended, name="pipeline-view", daemon=True)
        self._write(_OPEN)
        try:
            with redirect_stdout(_Printed(self._print)), redirect_stderr(_Printed(self._print)):
                thread.start()
                yield
        finally:
            self._ended.set()
            thread.join()
            self._write(_CLOSE)
            for line in self._printed:
                self._write(f"{line}\n")
            if self._progress.nodes:
                self._write("".join(f"{line}\n" for line in final_lines(self._progress, self._size().columns)))
            for line in self._failed:
                click.echo(f"headrace: {line}", err=True)

    def _print(self, line: str) -> None:
        self._printed.append(line)
        self._said.append(line)

    def _draw_until_ended(self) -> None:
        while not self._ended.is_set():
            self._draw()
            self._ended.wait(DRAW_EVERY_S)

    def _draw(self) -> None:
        size, said = self._size(), list(self._said)
        foot = _FOOT_STOPPING if self._stopping else f"{_FOOT}; {duration(time.monotonic() - self._begun_at)}"
        lines = screen_lines(self._progress, width=size.columns, height=size.lines, said=said, foot=foot)
        drawn = (*lines, f"{size}")
        if drawn != self._drawn:
            self._drawn = drawn
            # Each line is cleared behind its end, so that nothing flickers.
            self._write("\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")

    def _size(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except OSError:
            size = os.terminal_size((0, 0))
        return size if size.columns and size.lines else os.terminal_size((80, 24))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class _Printed(io.TextIOBase):
    """Takes what is printed, line by line."""

    def __init__(self, take: Any) -> None:
        self._take = take
        self._rest = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._take(line)
        return len(text)


def node_line(node: "NodeProgress", *, message: bool = True) -> str:
    parts = [f"{node.name}: {node.status}"]
    if node.batch is not None:
        rates = f"{node.input_rate:,.0f} rows/s in, {node.rows_rate:,.0f} rows/s done"
        parts.append(f"batch {node.batch}, {counted(node.rows_in, 'row')} in, {rates}")
    if node.lag is not None:
        parts.append(f"lag {counted(node.lag, 'row')}")
    if node.batch_ms is not None:
        parts.append(f"last batch {node.batch_ms:,} ms")
    if text := expectations_text(node):
        parts.append(text)
    if message and node.message:
        parts.append(node.message)
    return "; ".join(parts)

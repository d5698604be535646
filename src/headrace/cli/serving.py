"""What the commands that run a server have in common: signals, lines on the screen, the exit code.

Whatever goes wrong is one line on stderr that begins `headrace:`; a traceback is shown only with --debug. No command
line is read here, so that a server that needs none does not load what reads them.
"""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

from headrace import __version__
from headrace.cli.failing import one_line_errors

if TYPE_CHECKING:
    from headrace.broker.node import Node
    from headrace.core.settings.broker import BrokerSettings, GivenSetting

GARBAGE_THRESHOLD = 20_000
SWITCH_INTERVAL_S = 0.0005  # Python's own is ten times as long


class Stoppable(Protocol):
    """A server that runs in the foreground."""

    def stop(self) -> None:
        """From any thread, or a signal handler."""

    def hear(self, descriptor: int, heard: Callable[[int], None]) -> None:
        """Calls `heard` on the loop whenever the descriptor can be read."""


class ServerRun:
    def read(self, path: str) -> str:
        from headrace.core.properties import read_text

        return read_text(path, "a server.properties file")

    def serve(
        self,
        *,
        flags: "Sequence[GivenSetting]" = (),
        values: Mapping[str, Any] | None = None,
        properties: str = "",
        source: str = "",
    ) -> None:
        """Runs a broker until SIGINT or SIGTERM."""
        from headrace.core.settings.broker import BrokerSettings

        settings, warnings = BrokerSettings.from_sources(
            properties=properties, source=source, environ=os.environ, flags=flags, values=values
        )
        say_warnings(warnings)

        from headrace.broker.node import Node

        node = Node(settings)
        with stopped_by_signals(node):
            try:
                node.open()
                say_lines(*banner(node, settings))
                # What was made so far lives as long as the broker, and what comes makes few cycles: the collector
                # need not look at the one, nor often at the other.
                gc.freeze()
                gc.set_threshold(GARBAGE_THRESHOLD)
                # A thread that computes (removes many files, encodes checkpoints) keeps the loop waiting so long, each
                # time that the loop comes back from a system call.
                sys.setswitchinterval(SWITCH_INTERVAL_S)
                node.run()
            finally:
                node.close()
        say_lines("Headrace stopped cleanly")


def say_lines(*lines: str) -> None:
    # A server goes on when nobody reads its output any more.
    with suppress(OSError):
        print(*lines, sep="\n", flush=True)


def say_warnings(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"headrace: warning: {warning}", file=sys.stderr, flush=True)


def banner(node: "Node", settings: "BrokerSettings") -> Iterator[str]:
    """What a person wants to know first. Programs read `listens on HOST:PORT` from the first line."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    near = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)
    yield f"Headrace {__version__} listens on {host}:{node.port}"
    yield f"  data  {', '.join(os.path.abspath(path) for path in settings.log_dirs)}"
    yield f"  try   headrace top -b {near}:{node.port}, or any Kafka client with that bootstrap server"
    if node.metrics_port > 0:
        yield f"  see   http://{settings.metrics_host}:{node.metrics_port}/metrics and /health"
    yield "  stop  Ctrl-C"


@contextmanager
def stopped_by_signals(node: "Stoppable") -> Iterator[None]:
    """The first SIGINT or SIGTERM stops the node cleanly; a second SIGINT does not wait for that."""

    def stop(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        node.stop()

    # Python runs a handler between two steps of interpreted code, and a busy loop of compiled code has none: so a
    # signal also writes a byte that the loop reads, in a function that is never compiled.
    heard, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    node.hear(heard, lambda _: _drain(heard))
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    told_before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(told_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(heard)
        os.close(told)


def _drain(pipe: int) -> None:
    with suppress(BlockingIOError):
        os.read(pipe, 64)


@contextmanager
def run(log_level: str, log_format: str, debug: bool) -> Iterator[ServerRun]:
    """Turns every way to fail into one line and an exit code."""
    from headrace.core.telemetry import configure_logging

    configure_logging("debug" if debug else log_level, json=log_format == "json")
    stopped = "stopped before all was closed; the next start checks the last segments"
    with one_line_errors(debug, stopped=stopped):
        yield ServerRun()

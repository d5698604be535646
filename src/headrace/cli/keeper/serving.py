"""One keeper in the foreground, until a signal. It loads nothing that reads a command line: a keeper stays small."""

import gc
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.cli.serving import GARBAGE_THRESHOLD, say_lines, say_warnings, stopped_by_signals

if TYPE_CHECKING:
    from headrace.keeper.node import Node


def serve(path: str | None, values: Mapping[str, Any]) -> None:
    """Runs a keeper until SIGINT or SIGTERM."""
    from headrace.core.properties import read_text
    from headrace.keeper.node import Node
    from headrace.keeper.settings import KeeperSettings
    from headrace.keeper.zoo_cfg import read_properties

    given: dict[str, Any] = {}
    if path is not None:
        given, warnings = read_properties(read_text(path, "a zoo.cfg file"), path)
        say_warnings(warnings)
    node = Node(KeeperSettings(**{**given, **values}))
    with stopped_by_signals(node):
        try:
            gc.disable()  # what is read at a start holds no cycles, and looking for some would take most of the time
            node.open()
            gc.freeze()
            gc.set_threshold(GARBAGE_THRESHOLD)
            gc.enable()
            say_lines(*banner(node))
            node.run()
        finally:
            node.close()
    say_lines("The keeper stopped cleanly")


def banner(node: "Node") -> Iterator[str]:
    """Programs read `listens on HOST:PORT` from the first line."""
    settings = node.settings
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    yield f"Headrace {__version__} keeper listens on {host}:{node.port}"
    yield f"  data  {os.path.abspath(settings.data_dir)}"
    yield f"  try   any ZooKeeper client with {host}:{node.port} as its connect string"
    yield "  stop  Ctrl-C"

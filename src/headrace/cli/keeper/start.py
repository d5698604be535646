"""`headrace keeper [start] [ZOO.CFG]`: one durable node that ZooKeeper's clients use, in the foreground."""

import gc
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from headrace import __version__
from headrace.cli.running import GARBAGE_THRESHOLD, logging_options, run, say_lines, stopped_by_signals

if TYPE_CHECKING:
    from headrace.keeper.node import Node


@click.command(short_help="Start one keeper; `start` may be left out.")
@click.argument("file", metavar="[ZOO.CFG]", required=False, type=click.Path())
@click.option("--host", metavar="H", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", metavar="P", type=click.IntRange(0, 65535), help="Port; 0 picks a free one.  [default: 2181]")
@click.option("--data", metavar="DIR", type=click.Path(), help="Where the data is kept.  [default: ./keeper-data]")
@logging_options
def start(
    file: str | None,
    host: str | None,
    port: int | None,
    data: str | None,
    log_level: str,
    log_format: str,
    debug: bool,
) -> None:
    """Start one keeper in the foreground: coordination for every ZooKeeper client.

    ZOO.CFG is ZooKeeper's own configuration file; options win over it. An ensemble of several servers is Apache
    ZooKeeper's: clients change only the address.
    """
    values = {"host": host, "port": port, "data_dir": data}
    with run(log_level, log_format, debug):
        serve(file, {name: value for name, value in values.items() if value is not None})


def serve(path: str | None, values: Mapping[str, Any]) -> None:
    """Runs a keeper until SIGINT or SIGTERM."""
    from headrace.core.properties import read_text
    from headrace.keeper.node import Node
    from headrace.keeper.settings import KeeperSettings, read_properties

    given: dict[str, Any] = {}
    if path is not None:
        given, warnings = read_properties(read_text(path, "a zoo.cfg file"), path)
        for warning in warnings:
            click.echo(f"headrace: warning: {warning}", err=True)
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

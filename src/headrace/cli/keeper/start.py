"""`headrace keeper [start] [ZOO.CFG]`: one durable node that ZooKeeper's clients use, in the foreground."""

import click

from headrace.cli.keeper.serving import serve
from headrace.cli.running import logging_options
from headrace.cli.serving import run


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

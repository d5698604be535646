"""`headrace keeper watch`: changes below a node, one line each, as they happen."""

import json
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING

import click

from headrace.cli.keeper.reaching import Server, path_argument, server_options

if TYPE_CHECKING:
    from headrace.client.zookeeper.events import Changed, StateChanged

_CHANGES = {1: "created", 2: "deleted", 3: "changed", 4: "children"}


@click.command(short_help="What changes, as it changes.")
@path_argument
@click.option("--count", metavar="N", type=click.IntRange(1), help="Stop after this many changes.  [default: Ctrl-C]")
@server_options
def watch(path: str, count: int | None, server: Server, as_json: bool) -> None:
    """Changes of PATH and of all nodes below it, a line each, until Ctrl-C.

    When the connection breaks, changes until it is back are missed; stderr says so.

    \b
    Examples:
      headrace keeper watch /brokers
      headrace keeper watch /config --count 1 --json
    """
    from headrace.client.zookeeper.events import Changed
    from headrace.client.zookeeper.states import ENDED, State

    happened: SimpleQueue[Changed | StateChanged] = SimpleQueue()
    with server.client(on_state=happened.put) as client:
        client.watch(path, happened.put)
        click.echo(f"watching {path}", err=True)
        before = State.CONNECTED
        while count is None or count > 0:
            event = happened.get()
            if isinstance(event, Changed):
                click.echo(_line(event, as_json))
                count = None if count is None else count - 1
                continue
            if event.state is not before:
                click.echo(_said(event), err=True)
            before = event.state
            if event.state in ENDED:
                raise click.exceptions.Exit(1)


def _line(event: "Changed", as_json: bool) -> str:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    change = _CHANGES.get(event.kind, str(event.kind))
    if as_json:
        return json.dumps({"time": now, "change": change, "path": event.path, "zxid": event.zxid}, ensure_ascii=False)
    return f"{now}  {change:<8}  {event.path}"


def _said(event: "StateChanged") -> str:
    from headrace.client.zookeeper.states import State

    if event.state is State.CONNECTED:
        return "headrace: connected again; what changed meanwhile was not seen"
    if event.state is State.CONNECTING:
        return f"headrace: the connection broke ({event.reason}); trying again"
    return f"headrace: the session has ended ({event.reason}); start the command again"

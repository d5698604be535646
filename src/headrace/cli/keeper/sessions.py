"""`headrace keeper sessions`: who is connected, and which nodes go with each session."""

import re
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.keeper.reaching import Server, server_options
from headrace.cli.tabling import print_json

if TYPE_CHECKING:
    from headrace.client.zookeeper.connect_string import Address

WORD_S_MAX = 30.0
_CONNECTION = re.compile(r"/(\S+)\[\d\]\(.*?sid=(0x[0-9a-f]+).*?[,(]to=(\d+)")


@click.command(short_help="Who is connected, and what goes with them.")
@server_options
def sessions(server: Server, as_json: bool) -> None:
    """The sessions: from where they are connected, their time-outs, and their ephemeral nodes.

    Connections are known where the server answers the four-letter word `cons` (4lw.commands.whitelist); without it only
    sessions with ephemeral nodes are seen.

    \b
    Example:
      headrace keeper sessions -s zk1:2181 --json
    """
    from headrace.cli.keeper.found import walk
    from headrace.cli.keeper.tree import DEPTH_MAX

    found: dict[str, dict[str, Any]] = {}
    with server.client() as client:
        own = f"{client.session_id & ((1 << 64) - 1):#x}"
        complete = True
        for address in client.connect_string.servers:
            connections = _connections(address)
            complete = complete and connections is not None
            found |= connections or {}
        for node in walk(client, "/", DEPTH_MAX, whole=False):
            if node.stat.owner:
                id = f"{node.stat.owner & ((1 << 64) - 1):#x}"
                found.setdefault(id, _session(id, None, None))["ephemeral"].append(node.path)
    found.pop(own, None)
    rows = sorted(found.values(), key=lambda row: str(row["id"]))
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            where = f"{row['client']}, time-out {row['timeout_ms']} ms" if row["client"] else "not seen connected"
            click.echo(f"{row['id']}  {where}")
            for path in row["ephemeral"]:
                click.echo(f"    {path}")
    if not complete:
        click.echo(
            "headrace: only sessions with ephemeral nodes are seen; to see all, allow the word:"
            " 4lw.commands.whitelist=srvr,cons",
            err=True,
        )


def _session(id: str, client: str | None, timeout_ms: int | None) -> dict[str, Any]:
    return {"id": id, "client": client, "timeout_ms": timeout_ms, "ephemeral": []}


def _connections(address: "Address") -> dict[str, dict[str, Any]] | None:
    """None: the server does not say."""
    from headrace.client.zookeeper.words import ask_word

    try:
        said = ask_word(address, "cons", WORD_S_MAX)
    except OSError:
        return None
    if "not in the whitelist" in said:
        return None
    return {id: _session(id, client, int(timeout_ms)) for client, id, timeout_ms in _CONNECTION.findall(said)}

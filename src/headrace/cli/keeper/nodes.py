"""`headrace keeper get` and `set`: one node."""

import sys
from typing import TYPE_CHECKING

import click

from headrace.cli.keeper.reaching import Server, server_options, shown_path
from headrace.cli.tabling import print_json

if TYPE_CHECKING:
    from headrace.client.zookeeper.blocking import BlockingClient
    from headrace.protocol.zookeeper.stat import Stat

_path = click.argument("path", callback=shown_path)


@click.command(short_help="What is in a node.")
@_path
@server_options
def get(path: str, server: Server, as_json: bool) -> None:
    """The data of the node PATH, as it is; with --json also its stat and its ACL.

    \b
    Examples:
      headrace keeper get /controller
      headrace keeper get /brokers/ids/1 --json
    """
    from headrace.cli.keeper.found import Node, node_json

    with server.client() as client:
        found = client.get(path)
        if as_json:
            acl = client.acl(path).acl
            print_json(node_json(Node(path, found.stat, [], found.data, acl)))
            return
    data = found.data or b""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    if data and not data.endswith(b"\n") and sys.stdout.isatty():
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


@click.command("set", short_help="Write a node, and make it if need be.")
@_path
@click.argument("data")
@click.option("--version", metavar="N", type=int, help="Only if this is the node's version.  [default: any]")
@click.option("--create", is_flag=True, help="Make the node, and those above it, if it is not there.")
@server_options
def set_command(path: str, data: str, version: int | None, create: bool, server: Server, as_json: bool) -> None:
    """Write DATA to the node PATH; `-` is what comes on stdin.

    \b
    Examples:
      headrace keeper set /app/limit 20 --create
      headrace keeper set /app/config - < config.json
    """
    content = sys.stdin.buffer.read() if data == "-" else data.encode()
    with server.client() as client:
        stat = _written(client, path, content, -1 if version is None else version, create)
    if as_json:
        from headrace.cli.keeper.found import stat_json

        print_json({"path": path, **stat_json(stat)})
    else:
        click.echo(f"{path} has version {stat.version}")


def _written(client: "BlockingClient", path: str, content: bytes, version: int, create: bool) -> "Stat":
    from headrace.client.zookeeper.errors import ZooKeeperError
    from headrace.core.errors import OperatorError
    from headrace.protocol.zookeeper import codes

    try:
        return client.set(path, content, version)
    except ZooKeeperError as error:
        if error.code == codes.BAD_VERSION:
            found = client.exists(path)
            now = "gone" if found is None else f"at version {found.version}"
            raise OperatorError(f"{path} is {now}, not at {version}; read it again, then decide again") from None
        if error.code != codes.NO_NODE:
            raise
        if not create:
            raise OperatorError(f"{path} does not exist; add --create to make it") from None
    above = ""
    for name in path.strip("/").split("/")[:-1]:
        above += "/" + name
        _create(client, above, b"")
    _create(client, path, content)
    return client.get(path).stat


def _create(client: "BlockingClient", path: str, content: bytes) -> None:
    from headrace.client.zookeeper.errors import ZooKeeperError
    from headrace.protocol.zookeeper import codes

    try:
        client.create(path, content)
    except ZooKeeperError as error:
        if error.code != codes.NODE_EXISTS:
            raise

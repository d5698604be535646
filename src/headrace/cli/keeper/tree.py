"""`headrace keeper tree` and `dump`: all nodes below one."""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.keeper.reaching import Server, path_argument, server_options
from headrace.cli.tabling import bytes_text, print_json

if TYPE_CHECKING:
    from headrace.cli.keeper.found import Node

DEPTH_MAX = 1000


@click.command(short_help="The nodes, as a tree.")
@path_argument
@click.option(
    "--depth", metavar="N", type=click.IntRange(0), default=DEPTH_MAX, help="Levels below it.  [default: all]"
)
@server_options
def tree(path: str, depth: int, server: Server, as_json: bool) -> None:
    """The nodes below PATH, as a tree, with the sizes of their data.

    \b
    Examples:
      headrace keeper tree
      headrace keeper tree /brokers --depth 2 --json
    """
    from headrace.cli.keeper.found import walk

    with server.client() as client:
        nodes = {node.path: node for node in walk(client, path, depth, whole=False)}
    if as_json:
        print_json(_nested(nodes, path))
        return
    click.echo(_line(path, nodes[path]))
    for line in _branches(nodes, path, ""):
        click.echo(line)


def _nested(nodes: "dict[str, Node]", path: str) -> dict[str, Any]:
    from headrace.cli.keeper.found import stat_json

    node = nodes[path]
    below = [_nested(nodes, child) for child in _children(nodes, node)]
    return {"path": path, **stat_json(node.stat), "nodes": below}


def _children(nodes: "dict[str, Node]", node: "Node") -> list[str]:
    prefix = "/" if node.path == "/" else node.path + "/"
    return [prefix + name for name in node.names if prefix + name in nodes]


def _branches(nodes: "dict[str, Node]", path: str, indent: str) -> list[str]:
    lines = []
    below = _children(nodes, nodes[path])
    for child in below:
        last = child == below[-1]
        lines.append(f"{indent}{'└── ' if last else '├── '}{_line(child[child.rindex('/') + 1 :], nodes[child])}")
        lines += _branches(nodes, child, indent + ("    " if last else "│   "))
    return lines


def _line(name: str, node: "Node") -> str:
    from headrace.cli.keeper.found import kind_of

    size = bytes_text(node.stat.data_bytes) if node.stat.data_bytes else ""
    return "  ".join(part for part in (name, size, kind_of(node.stat)) if part)


@click.command(short_help="Every node with its data, stat and ACL.")
@path_argument
@server_options
def dump(path: str, server: Server, as_json: bool) -> None:
    """Every node below PATH with its data, stat and ACL: all that a keeper knows, for a person or a program.

    \b
    Examples:
      headrace keeper dump /config
      headrace keeper dump --json > nodes.json
    """
    from headrace.cli.keeper.found import data_text, kind_of, node_json, walk

    with server.client() as client:
        nodes = sorted(walk(client, path, DEPTH_MAX, whole=True))
    if as_json:
        print_json([node_json(node) for node in nodes])
        return
    for node in nodes:
        acl = ", ".join(f"{each.scheme}:{each.id}:{each.permissions}" for each in node.acl)
        facts = [f"version {node.stat.version}", f"zxid {node.stat.modified_zxid:#x}", kind_of(node.stat), f"acl {acl}"]
        click.echo(f"{node.path}  {'  '.join(fact for fact in facts if fact)}")
        for line in data_text(node.data).splitlines():
            click.echo(f"    {line}")

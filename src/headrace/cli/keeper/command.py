"""`headrace keeper …`: the table of its commands. What is none of them is what `start` takes."""

import os
from typing import Any

import click

from headrace.cli.lazy_group import CommandEntry, LazyGroup, unknown

SERVE, LOOK = "Serve", "Look into a keeper, or an Apache ZooKeeper"
COMMANDS = {
    "start": CommandEntry("headrace.cli.keeper.start:start", "Start one keeper; `start` may be left out.", SERVE),
    "tree": CommandEntry("headrace.cli.keeper.tree:tree", "The nodes, as a tree.", LOOK),
    "get": CommandEntry("headrace.cli.keeper.nodes:get", "What is in a node.", LOOK),
    "set": CommandEntry("headrace.cli.keeper.nodes:set_command", "Write a node, and make it if need be.", LOOK),
    "watch": CommandEntry("headrace.cli.keeper.watch:watch", "What changes, as it changes.", LOOK),
    "sessions": CommandEntry(
        "headrace.cli.keeper.sessions:sessions", "Who is connected, and what goes with them.", LOOK
    ),
    "dump": CommandEntry("headrace.cli.keeper.tree:dump", "Every node with its data, stat and ACL.", LOOK),
}


class _KeeperGroup(LazyGroup):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and not args:
            return super().parse_args(ctx, args)  # completion, which offers the commands
        first = args[0] if args else ""
        if first not in self.places and first not in ("-h", "--help"):
            if first.isidentifier() and not os.path.exists(first):
                raise click.UsageError(f"{first} is no file, and {unknown('command', first, list(self.places))}", ctx)
            args = ["start", *args]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["[COMMAND | [start] [OPTIONS] [ZOO.CFG]]"]


@click.group(cls=_KeeperGroup, places=COMMANDS, short_help="Start one keeper, for ZooKeeper's clients; look into one.")
def keeper(**_: Any) -> None:
    """Coordination for every ZooKeeper client: start one keeper, or look into one.

    `headrace keeper` and `headrace keeper zoo.cfg` start one in the foreground. A file whose name is that of a command
    is written with its directory: `./tree`.

    \b
    Examples:
      headrace keeper --port 2181 --data ./keeper-data
      headrace keeper tree /brokers
      headrace keeper watch /config -s zk1:2181,zk2:2181
    """

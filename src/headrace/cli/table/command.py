"""`headrace table`: Delta tables without a JVM. Each command imports what it needs when it runs."""

import os

import click

from headrace.cli.table.diff import diff
from headrace.cli.table.history import history
from headrace.cli.table.query import query
from headrace.cli.table.show import list_command, show_command
from headrace.cli.table.upkeep import optimize, restore, vacuum


@click.group()
@click.pass_context
def table(context: click.Context) -> None:
    """Tables: list, query, history, differences, upkeep.

    A table is named as its pipeline calls it (orders), as a quarantine (_quarantine/orders), or by the path of any
    Delta directory. Nothing here needs Spark or Java.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False


for command in (list_command, show_command, history, query, diff, restore, vacuum, optimize):
    table.add_command(command)

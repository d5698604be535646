"""`headrace pipeline`: declared pipelines on Spark. Each command imports what it needs when it runs."""

import click

from headrace.cli.pipeline.check import check
from headrace.cli.pipeline.compare import compare
from headrace.cli.pipeline.dev import dev
from headrace.cli.pipeline.run import redrive, replay, run
from headrace.cli.pipeline.status import status, stop
from headrace.cli.pipeline.versions import cutover, discard, remove, rollback


@click.group()
def pipeline() -> None:
    """Pipelines: from topics to Delta tables and topics, exactly once.

    A pipeline is a Python file of functions from DataFrame to DataFrame. Where a command takes PIPELINE, its name or
    its file will do; with only one pipeline in the directory of tables, neither is needed.
    """


for command in (check, dev, run, status, stop, replay, compare, cutover, rollback, redrive, discard, remove):
    pipeline.add_command(command)

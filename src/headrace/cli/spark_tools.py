"""`headrace pyspark` and `headrace spark-submit`: Spark's own tools with Delta and Kafka ready; they take our place."""

import os
from typing import TYPE_CHECKING

import click

from headrace.cli.failing import one_line_errors
from headrace.cli.tabling import debug_option

if TYPE_CHECKING:
    from headrace.streaming.spark_tools import Tool

# Everything behind the first word that is not ours belongs to the tool, also what looks like an option.
TOOL_SETTINGS = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": ["--help"]}
s3_option = click.option("--s3", is_flag=True, help="Reach s3:// too.")
arguments = click.argument("args", nargs=-1, type=click.UNPROCESSED)


@click.command(context_settings=TOOL_SETTINGS, short_help="A PySpark shell with Delta and Kafka ready.")
@s3_option
@debug_option
@arguments
def pyspark(s3: bool, debug: bool, args: tuple[str, ...]) -> None:
    """Starts the PySpark shell (`spark`, `sc`) with Delta and Kafka ready. ARGS are pyspark's own, such as --master
    local[4], --conf KEY=VALUE or --packages; `headrace pyspark -- --help` shows them all. PYSPARK_DRIVER_PYTHON=ipython
    makes it an IPython shell.

    \b
    Examples:
      headrace pyspark
      headrace pyspark --driver-memory 4g
    """
    _become("pyspark", args, s3, debug)


@click.command(
    "spark-submit", context_settings=TOOL_SETTINGS, short_help="Run a Spark program with Delta and Kafka ready."
)
@s3_option
@debug_option
@arguments
def spark_submit(s3: bool, debug: bool, args: tuple[str, ...]) -> None:
    """Runs a Spark program with Delta and Kafka ready. ARGS are spark-submit's own: options, the program, and what is
    for the program; `headrace spark-submit -- --help` shows them all.

    \b
    Example:
      headrace spark-submit --master spark://host:7077 report.py 2026-10-05
    """
    if not args:
        raise click.UsageError("no program was given; write headrace spark-submit [OPTIONS] PROGRAM.py [ARGS]")
    _become("spark-submit", args, s3, debug)


def _become(tool: "Tool", args: tuple[str, ...], s3: bool, debug: bool) -> None:
    with one_line_errors(debug):
        from headrace.streaming.spark_tools import tool_command

        command, environ = tool_command(tool, args, s3=s3, say=lambda line: click.echo(f"headrace: {line}", err=True))
        os.execve(command[0], command, environ)

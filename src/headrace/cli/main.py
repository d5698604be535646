"""The `headrace` command. Each command imports what it needs when it runs, so that `--help` is quick."""

import sys

import click

from headrace import __version__
from headrace.cli.broker import broker
from headrace.cli.doctor import doctor
from headrace.cli.pipeline import pipeline
from headrace.cli.table import table
from headrace.cli.up import up


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="headrace %(version)s")
def headrace() -> None:
    """Headrace: a commit log that every Kafka client takes for Kafka."""


headrace.add_command(up)
headrace.add_command(broker)
headrace.add_command(doctor)
headrace.add_command(table)
headrace.add_command(pipeline)


def main() -> None:
    """Ends with 0, with 1 for what the operator can mend, or with 2 for a wrong command line."""
    sys.exit(headrace(prog_name="headrace"))


if __name__ == "__main__":
    main()

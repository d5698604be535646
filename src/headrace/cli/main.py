"""The `headrace` command: the table of its commands, each imported only when it is run."""

import os
import sys

import click

from headrace import __version__
from headrace.cli.lazy_group import CommandEntry, RootGroup

SERVE, LOOK, RECORDS, DATA = "Brokers", "Topics and groups", "Records", "Pipelines and tables"
COMMANDS = {
    "up": CommandEntry("headrace.cli.up:up", "Start one broker, with nothing to configure.", SERVE),
    "broker": CommandEntry(
        "headrace.cli.broker:broker", "Start one broker from Kafka's own configuration file.", SERVE
    ),
    "keeper": CommandEntry(
        "headrace.cli.keeper.command:keeper", "Start one keeper, for ZooKeeper's clients; look into one.", SERVE
    ),
    "cluster": CommandEntry("headrace.cli.cluster:cluster", "The brokers, and what each of them holds.", SERVE),
    "api-versions": CommandEntry("headrace.cli.api_versions:api_versions", "Which requests a broker serves.", SERVE),
    "log": CommandEntry("headrace.cli.log:log", "Check and repair the files of a stopped broker.", SERVE),
    "doctor": CommandEntry("headrace.cli.doctor:doctor", "What is wrong on this machine, and how to fix it.", SERVE),
    "topic": CommandEntry(
        "headrace.cli.topic.command:topic", "List, create, describe, alter, delete, copy, tail.", LOOK
    ),
    "group": CommandEntry(
        "headrace.cli.group.command:group", "Consumer groups: list, describe, lag, reset, delete.", LOOK
    ),
    "config": CommandEntry("headrace.cli.config:config", "Settings of topics, brokers and groups.", LOOK),
    "top": CommandEntry("headrace.cli.top.command:top", "Everything at a glance, live on the whole screen.", LOOK),
    "produce": CommandEntry("headrace.cli.produce:produce", "Send lines, JSON or files to a topic.", RECORDS),
    "consume": CommandEntry(
        "headrace.cli.consume:consume", "Print, filter and follow the records of a topic.", RECORDS
    ),
    "bench": CommandEntry("headrace.cli.bench.command:bench", "How fast it is: produce, consume, latency.", RECORDS),
    "pipeline": CommandEntry("headrace.cli.pipeline.command:pipeline", "Run, replay and cut over pipelines.", DATA),
    "table": CommandEntry(
        "headrace.cli.table.command:table", "Query tables, follow their history, compare them.", DATA
    ),
    "pyspark": CommandEntry("headrace.cli.spark_tools:pyspark", "A PySpark shell with Delta and Kafka ready.", DATA),
    "spark-submit": CommandEntry(
        "headrace.cli.spark_tools:spark_submit", "Run a Spark program, with the same ready.", DATA
    ),
    "completion": CommandEntry("headrace.cli.completion:completion", "Completion of commands by the shell.", "Else"),
}


@click.group(cls=RootGroup, places=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="headrace %(version)s")
@click.pass_context
def headrace(context: click.Context) -> None:
    """Headrace: a commit log that every Kafka client takes for Kafka.

    \b
    Five minutes:
      headrace up                                  # a broker on 127.0.0.1:9092; then, in another terminal
      echo hello | headrace produce greetings --create
      headrace consume greetings --follow
      headrace top

    Exit codes: 0 done; 1 it failed, and a line on stderr says why and what to do; 2 a wrong command line; 3 what was
    asked for did not come about (too few records came, the lag is above --max); 130 stopped by Ctrl-C.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False  # for all commands below


def main() -> None:
    try:
        headrace(prog_name="headrace")
    except SystemExit as end:
        tool = sys.modules.get("headrace.cli.kafka.tool")  # if it was never loaded, nothing is stuck in it
        if tool is None or not tool.must_end_at_once():
            raise
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)


if __name__ == "__main__":
    main()

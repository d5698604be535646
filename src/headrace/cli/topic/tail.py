"""`headrace topic tail`: the last records of a topic, oldest first, and then those that come."""

import sys
from typing import TYPE_CHECKING

import click

from headrace.cli.names import complete_topic
from headrace.cli.reaching import broker_options, in_colour

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach
    from headrace.cli.records.view import ShownRecord

COUNT_DEFAULT = 10


@click.command(short_help="The last records, and those that come.")
@click.argument("name", metavar="TOPIC", shell_complete=complete_topic)
@click.option("--count", "-n", type=click.IntRange(0), default=COUNT_DEFAULT, show_default=True, metavar="N")
@click.option("--follow", "-f", is_flag=True, help="Follow new records until Ctrl-C.")
@click.option(
    "--format",
    "form",
    type=click.Choice(("pretty", "json", "raw")),
    help="[default: pretty on a terminal, raw into a pipe]",
)
@broker_options
def tail(name: str, count: int, follow: bool, form: str | None, reach: "Reach", as_json: bool) -> None:
    """The last N records of a topic, over all its partitions by their time.

    \b
    Examples:
      headrace topic tail orders
      headrace topic tail orders -n 3 --follow
    """
    from headrace.cli.consume import print_batches
    from headrace.cli.names import check_topics
    from headrace.cli.records.reading import ReadPlan, RecordReading
    from headrace.cli.records.view import format_for
    from headrace.client.group_admin import resolved
    from headrace.client.moments import Moment
    from headrace.client.offsets import leaders

    if as_json and form not in (None, "json"):
        raise click.UsageError("--json and --format exclude each other")
    terminal = sys.stdout.isatty()
    shape = format_for("json" if as_json else form or ("pretty" if terminal else "raw"), colours=in_colour())
    with reach.cluster() as cluster:
        check_topics(cluster, [name])
        places = sorted(leaders(cluster, [name]))
        ends = resolved(cluster, places, Moment("end"))
        starts = resolved(cluster, places, Moment("last", count))
    out = sys.stdout.buffer
    found: list[ShownRecord] = []
    try:
        if count:
            with RecordReading(reach, ReadPlan(topics=(name,), starts=starts, ends=ends)) as reading:
                for batch in reading.batches():
                    found += batch
        for record in last_of(found, count):
            out.write(shape(record))
        out.flush()
        if follow:
            with RecordReading(reach, ReadPlan(topics=(name,), starts=ends, follow=True)) as reading:
                print_batches(reading, shape)
    except KeyboardInterrupt:
        sys.exit(130)


def last_of(records: "list[ShownRecord]", count: int) -> "list[ShownRecord]":
    """By time; within a partition always by offset."""
    ordered = sorted(records, key=lambda record: (record.timestamp_ms or 0, record.partition, record.offset))
    kept = ordered[-count:] if count else []
    return sorted(kept, key=lambda record: (record.timestamp_ms or 0, record.partition, record.offset))

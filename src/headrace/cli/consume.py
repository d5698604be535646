"""`headrace consume`: prints the records of topics, for people, as JSON, or raw."""

import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from headrace.cli.names import complete_group, complete_topic
from headrace.cli.reaching import EXIT_SHORT, broker_options, in_colour
from headrace.client.moments import HELP, METAVAR

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach
    from headrace.cli.records.reading import ReadPlan, RecordReading
    from headrace.cli.records.view import ShownRecord
    from headrace.client.cluster import ClusterClient
    from headrace.client.offsets import PartitionName

FORMATS = ("pretty", "json", "raw")


@click.command(short_help="Print, filter and follow the records of a topic.")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topic)
@click.option(
    "--from",
    "start",
    metavar=METAVAR,
    help=f"Where to begin: beginning, end, {HELP}.  [default: beginning; with --follow the end]",
)
@click.option("--to", "stop", metavar="OFFSET|TIME", help="Where to end, exclusive.  [default: the present end]")
@click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Only this partition; may be given many times.",
)
@click.option("--follow", "-f", is_flag=True, help="Follow new records until Ctrl-C.")
@click.option("--limit", "-n", type=click.IntRange(1), metavar="N", help="Stop after N matching records.")
@click.option("--timeout", type=click.FloatRange(0), metavar="S", help="Stop after this long without a record.")
@click.option("--key", metavar="TEXT", help="Only records with this key.")
@click.option("--where", "expression", metavar="EXPR", help="Only records for which EXPR holds; see below.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="[default: pretty on a terminal, raw into a pipe]")
@click.option("--key-separator", metavar="TEXT", help="With raw: print the key as well, and this after it.")
@click.option(
    "--group",
    "-g",
    metavar="NAME",
    shell_complete=complete_group,
    help="Read as a member of this group, and commit what was printed.",
)
@click.option("--uncommitted", is_flag=True, help="Also records of transactions that are open or were aborted.")
@broker_options
def consume(
    topics: tuple[str, ...],
    start: str | None,
    stop: str | None,
    partitions: tuple[int, ...],
    follow: bool,
    limit: int | None,
    timeout: float | None,
    key: str | None,
    expression: str | None,
    form: str | None,
    key_separator: str | None,
    group: str | None,
    uncommitted: bool,
    reach: "Reach",
    as_json: bool,
) -> None:
    """Print the records of topics: all that there are, or with --follow those that come.

    With --follow a topic that does not exist yet is waited for, and then read from its beginning.

    \b
    --where takes an expression over topic, partition, offset, timestamp, key, value (JSON as what it
    holds), text (the value as text), headers and size:
      value.amount > 100 and (key == "alice" or headers.source ~ "^web")
      value.items[0].sku in ["a1", "a2"] and not value.test
      text contains "timeout"

    Ends with code 3 if --limit asked for more records than came.

    \b
    Examples:
      headrace consume orders --from '10 minutes ago' --follow
      headrace consume orders --from -5 --json | jq .value
      headrace consume orders --where 'value.amount > 100' --limit 10
    """
    from headrace.cli.records.view import format_for

    wanted = record_test(key, expression)
    if as_json and form not in (None, "json"):
        raise click.UsageError("--json and --format exclude each other")
    terminal = sys.stdout.isatty()
    name = "json" if as_json else form or ("pretty" if terminal else "raw")
    shape = format_for(name, colours=in_colour(), separator=key_separator)
    plan = _plan(
        reach,
        topics=topics,
        start=start,
        stop=stop,
        partitions=partitions,
        follow=follow,
        limit=limit,
        timeout=timeout,
        group=group,
        uncommitted=uncommitted,
        wanted=wanted,
    )
    from headrace.cli.records.reading import RecordReading

    with RecordReading(reach, plan) as reading:
        try:
            print_batches(reading, shape)
        except KeyboardInterrupt:
            sys.exit(130)  # how --follow is meant to end: no word about it
    if limit is not None and reading.count < limit:
        click.echo(f"headrace: only {reading.count:,} of {limit:,} records came", err=True)
        sys.exit(EXIT_SHORT)


def print_batches(reading: "RecordReading", shape: "Callable[[ShownRecord], bytes]") -> None:
    out = sys.stdout.buffer
    for batch in reading.batches():
        out.write(b"".join(map(shape, batch)))
        out.flush()


def record_test(key: str | None, expression: str | None) -> "Callable[[ShownRecord], bool] | None":
    from headrace.cli.records.filter import FilterError, parse_filter
    from headrace.cli.records.view import FilterView

    tests: list[Callable[[ShownRecord], bool]] = []
    if key is not None:
        data = key.encode()
        tests.append(lambda record: record.key == data)
    if expression is not None:
        try:
            holds = parse_filter(expression)
        except FilterError as error:
            raise click.UsageError(f"--where {error}") from error
        tests.append(lambda record: holds(FilterView(record)))
    if not tests:
        return None
    return tests[0] if len(tests) == 1 else lambda record: all(test(record) for test in tests)


def _plan(
    reach: "Reach",
    *,
    topics: tuple[str, ...],
    start: str | None,
    stop: str | None,
    partitions: tuple[int, ...],
    follow: bool,
    limit: int | None,
    timeout: float | None,
    group: str | None,
    uncommitted: bool,
    wanted: "Callable[[ShownRecord], bool] | None",
) -> "ReadPlan":
    from headrace.cli.names import chosen_topics
    from headrace.cli.records.reading import ReadPlan
    from headrace.client.group_admin import resolved
    from headrace.client.moments import parse_moment

    now = datetime.now(UTC)
    first = parse_moment(start or ("end" if follow else "beginning"), now)
    last = parse_moment(stop, now) if stop is not None else None
    if follow and stop is not None:
        raise click.UsageError("--follow has no end; leave out --to")
    with reach.cluster() as cluster:
        missing = _missing(cluster, topics) if follow else []
        names = chosen_topics(cluster, [name for name in topics if name not in missing])
        plan = ReadPlan(
            topics=(*names, *missing),
            missing=tuple(missing),
            follow=follow,
            limit=limit,
            quiet_s_max=timeout,
            uncommitted=uncommitted,
            wanted=wanted,
        )
        if group is not None:
            if partitions or stop is not None or first.kind not in ("beginning", "end"):
                raise click.UsageError(
                    "a group reads from where it is: with --group leave out --partition and --to, and give --from only "
                    "as beginning or end; `headrace group reset` moves a group"
                )
            reset = "latest" if start is not None and first.kind == "end" else "earliest"
            return replace(plan, group=group, group_from=reset)
        places = _places(cluster, names, partitions)
        starts = resolved(cluster, places, first)
        ends = None
        if not follow:
            ends = resolved(cluster, places, last or parse_moment("end", now))
        return replace(plan, partitions=partitions, starts=starts, ends=ends)


def _missing(cluster: "ClusterClient", names: tuple[str, ...]) -> list[str]:
    """Topics that do not exist yet, and are waited for: to follow one is to expect what is still to come."""
    from headrace.cli.names import is_pattern, near_name
    from headrace.client.topics import topic_names

    known = topic_names(cluster)
    missing = [name for name in dict.fromkeys(names) if name not in known and not is_pattern(name)]
    for name in missing:
        near = near_name(name, known)
        hint = f"did you mean {near}?" if near else f"`headrace topic create {name}` creates it"
        click.echo(f"headrace: topic {name} does not exist yet; waiting for it; {hint}", err=True)
    return missing


def _places(cluster: "ClusterClient", names: list[str], partitions: tuple[int, ...]) -> "list[PartitionName]":
    from headrace.cli.records.reading import no_partition
    from headrace.client.offsets import leaders

    known = sorted(leaders(cluster, names))
    for number in partitions:
        for name in names:
            if (name, number) not in known:
                raise no_partition(name, number, sum(topic == name for topic, _ in known))
    return [place for place in known if not partitions or place[1] in partitions]

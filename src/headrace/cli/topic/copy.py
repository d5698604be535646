"""`headrace topic copy`: records from one topic to another, in the same cluster or a different one."""

import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from headrace.cli.names import complete_topic
from headrace.cli.reaching import broker_options
from headrace.cli.tabling import bytes_text, print_json
from headrace.client.moments import HELP, METAVAR

if TYPE_CHECKING:
    from headrace.cli.produce_input import Outgoing
    from headrace.cli.reaching import Reach
    from headrace.cli.records.view import ShownRecord
    from headrace.client.cluster import ClusterClient
    from headrace.client.offsets import PartitionName

TOPIC_SOURCE = 1  # of a setting: the topic's own


@click.command(short_help="Copy records to another topic or cluster.")
@click.argument("source", shell_complete=complete_topic)
@click.argument("target", shell_complete=complete_topic)
@click.option(
    "--from", "start", metavar=METAVAR, default="beginning", help=f"Where to begin: {HELP}.  [default: beginning]"
)
@click.option("--limit", "-n", type=click.IntRange(1), metavar="N", help="At most N records.")
@click.option(
    "--where", "expression", metavar="EXPR", help="Only records for which EXPR holds; see `headrace consume --help`."
)
@click.option("--follow", "-f", is_flag=True, help="Follow new records until Ctrl-C.")
@click.option("--to-bootstrap", metavar="HOST:PORT", help="Another cluster.  [default: the same]")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Partitions of TARGET, if it is created.  [default: as SOURCE]",
)
@broker_options
def copy(
    source: str,
    target: str,
    start: str,
    limit: int | None,
    expression: str | None,
    follow: bool,
    to_bootstrap: str | None,
    partitions: int | None,
    reach: "Reach",
    as_json: bool,
) -> None:
    """Copy records with their keys, headers and times. TARGET is made if it does not exist, with SOURCE's settings.

    A record keeps its partition if both topics have as many; otherwise its key decides. Only committed records are
    copied. It ends at the end that SOURCE has now, and well only if every record is acknowledged.

    \b
    Examples:
      headrace topic copy orders orders-backup
      headrace topic copy orders orders --to-bootstrap kafka1:9092 --from '1 day ago'
    """
    from dataclasses import replace

    from headrace.cli.consume import record_test
    from headrace.cli.progress import Progress
    from headrace.cli.records.reading import ReadPlan, RecordReading
    from headrace.cli.sending import Sending
    from headrace.client.group_admin import resolved
    from headrace.client.moments import Moment, parse_moment

    if to_bootstrap in (None, reach.bootstrap) and source == target:
        raise click.UsageError("a topic cannot be copied onto itself; give another name, or --to-bootstrap")
    first = parse_moment(start, datetime.now(UTC))
    wanted = record_test(None, expression)
    there = reach if to_bootstrap is None else replace(reach, bootstrap=to_bootstrap)
    with reach.cluster() as cluster:
        places, settings = _source(cluster, source)
        with there.cluster() as other:
            count = _ready(other, target, partitions or len(places), settings)
        starts = resolved(cluster, places, first)
        ends = None if follow else resolved(cluster, places, Moment("end"))
    total = None if ends is None else sum(max(0, ends[place] - starts[place]) for place in places)
    plan = ReadPlan(topics=(source,), starts=starts, ends=ends, follow=follow, limit=limit, wanted=wanted)
    same = count == len(places)
    began = time.monotonic()
    stopped = False
    with (
        RecordReading(reach, plan) as reading,
        Progress(total) as progress,
        Sending(there, target, say=progress.say) as sending,
    ):
        try:
            for batch in reading.batches():
                for record in batch:
                    sending.send(outgoing(record, same_partitions=same))
                if progress.is_due:
                    progress.update(sending.account.acknowledged, f"{sending.account.acknowledged:,} records")
        except KeyboardInterrupt:
            stopped = True

        def waits() -> bool:
            progress.update(sending.account.acknowledged, "waiting for acknowledgements")
            return True

        sending.finish(waits)
    account, seconds = sending.account, time.monotonic() - began
    if as_json:
        content = {"source": source, "target": target, "records": account.acknowledged, "bytes": account.bytes}
        print_json(content | {"seconds": round(seconds, 3)})
    else:
        size = bytes_text(account.bytes)
        click.echo(f"{source} → {target}: {account.acknowledged:,} records, {size} in {seconds:.1f} s", err=True)
    if stopped:
        sys.exit(130)


def outgoing(record: "ShownRecord", *, same_partitions: bool) -> "Outgoing":
    from headrace.cli.produce_input import Outgoing

    return Outgoing(
        record.value,
        record.key,
        record.headers,
        record.partition if same_partitions else -1,
        max(0, record.timestamp_ms or 0),
        f"{record.topic}-{record.partition} offset {record.offset}",
    )


def _source(cluster: "ClusterClient", name: str) -> "tuple[list[PartitionName], Mapping[str, str]]":
    """The partitions, and the settings that are the topic's own."""
    from headrace.cli.names import check_topics
    from headrace.client.offsets import leaders
    from headrace.client.topic_admin import TOPIC
    from headrace.client.topics import describe_configs

    check_topics(cluster, [name])
    settings = describe_configs(cluster, TOPIC, name)
    own = {each.name: each.value for each in settings if each.source == TOPIC_SOURCE and each.value is not None}
    return sorted(leaders(cluster, [name])), own


def _ready(cluster: "ClusterClient", name: str, partitions: int, settings: Mapping[str, str]) -> int:
    """Makes the topic if need be; how many partitions it has."""
    from headrace.client.errors import KafkaError
    from headrace.client.offsets import leaders
    from headrace.client.topic_admin import create_topic
    from headrace.client.topics import topic_names
    from headrace.core.errors import OperatorError

    if name not in topic_names(cluster):
        try:
            create_topic(cluster, name, partitions=partitions, settings=settings)
        except KafkaError as error:
            raise OperatorError(f"topic {name} cannot be made: {str(error).rstrip('.')}") from error
        return partitions
    return len(leaders(cluster, [name]))

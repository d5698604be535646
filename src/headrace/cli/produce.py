"""`headrace produce`: sends lines, JSON lines, records or files to a topic, and says how many are acknowledged."""

import math
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from headrace.cli.names import complete_topic
from headrace.cli.reaching import broker_options
from headrace.cli.tabling import bytes_text, print_json

if TYPE_CHECKING:
    from headrace.cli.kafka.stop_signals import StopSignals
    from headrace.cli.produce_input import Outgoing
    from headrace.cli.progress import Progress
    from headrace.cli.reaching import Reach
    from headrace.cli.sending import Account, Sending

FORMATS = ("lines", "json", "records", "file")
COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


@click.command(short_help="Send lines, JSON or files to a topic.")
@click.argument("topic", shell_complete=complete_topic)
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(allow_dash=True))
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    default="lines",
    show_default=True,
    help="lines: each line is a value. json: each line must be JSON, and is a value. records: each line is a record as "
    "`consume --json` prints it. file: each file is one value.",
)
@click.option("--key", "-k", metavar="TEXT", help="The key of every record.")
@click.option("--key-separator", metavar="TEXT", help="With lines: the text between key and value.")
@click.option("--key-field", metavar="PATH", help="With json: the field that is the key, such as customer.id.")
@click.option(
    "--header",
    "-H",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    help="A header of every record; may be given many times.",
)
@click.option(
    "--partition", "-p", type=click.IntRange(0), metavar="N", help="Partition to write to.  [default: chosen by key]"
)
@click.option(
    "--empty-is-null", is_flag=True, help="Send an empty value as null: in a compacted topic it deletes the key."
)
@click.option("--compression", type=click.Choice(COMPRESSIONS), default="none", show_default=True)
@click.option("--acks", type=click.Choice(("all", "1", "0")), default="all", show_default=True)
@click.option(
    "--timeout",
    type=click.FloatRange(0.1),
    default=30.0,
    show_default=True,
    metavar="S",
    help="How long a record may wait for its acknowledgement.",
)
@click.option("--create", is_flag=True, help="Make the topic if it does not exist.")
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="With --create: partitions of the new topic.  [default: the broker's num.partitions]",
)
@broker_options
def produce(
    topic: str,
    files: tuple[str, ...],
    kind: str,
    key: str | None,
    key_separator: str | None,
    key_field: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    empty_is_null: bool,
    compression: str,
    acks: str,
    timeout: float,
    create: bool,
    partitions: int | None,
    reach: "Reach",
    as_json: bool,
) -> None:
    """Send records to a topic: from files, or from standard input.

    It ends well only when every record is acknowledged; otherwise it names the first line that is not.

    \b
    Examples:
      echo hello | headrace produce greetings --create --partitions 3
      headrace produce orders orders.jsonl --format json --key-field customer.id
      headrace produce users --key-separator : -H source=shell < users.txt
      headrace consume orders --json | headrace produce orders-again --format records
    """
    from headrace.cli.produce_input import InputFormat, records, total_bytes

    if key_separator is not None and (kind != "lines" or key is not None or not key_separator):
        raise click.UsageError("--key-separator is for --format lines, without --key, and must not be empty")
    if key_field is not None and kind != "json":
        raise click.UsageError("--key-field is for --format json")
    if partitions is not None and not create:
        raise click.UsageError("--partitions is for --create; `headrace topic alter` gives a topic more of them")
    form = InputFormat(
        kind=kind,
        key=None if key is None else key.encode(),
        key_separator=None if key_separator is None else key_separator.encode(),
        key_field=tuple(key_field.split(".")) if key_field else (),
        headers=_headers(headers),
        partition=-1 if partition is None else partition,
        empty_is_null=empty_is_null,
    )
    _check_topic(reach, topic, partition, create, partitions)
    from headrace.cli.kafka.stop_signals import StopSignals
    from headrace.cli.progress import Progress
    from headrace.cli.sending import Sending

    interactive = sys.stdin.isatty() and (not files or "-" in files)
    if interactive:
        click.echo("type one record per line; Ctrl-D ends", err=True)
    began = time.monotonic()
    settings = {"acks": acks, "compression.type": compression}
    with (
        Progress(total_bytes(files), shown=False if interactive else None) as progress,
        Sending(reach, topic, settings, wait_s=timeout, say=progress.say) as sending,
        StopSignals() as stops,
    ):

        def goes_on() -> bool:
            sending.look()
            return not stops.count

        _send_all(sending, records(form, files, goes_on), progress, stops)
        if stops.count:
            progress.say(f"stopped; {sending.account.so_far()}")
            sys.exit(stops.exit_code)
    _report(topic, sending.account, time.monotonic() - began, as_json)


def _send_all(sending: "Sending", source: "Iterable[Outgoing]", progress: "Progress", stops: "StopSignals") -> None:
    """Until the source is over, or the user stops it; a second signal does not wait for acknowledgements."""
    from headrace.cli.sending import PARTING_S

    began = time.monotonic()
    read_bytes = 0

    def show() -> None:
        if progress.is_due:
            progress.update(_done(sending, read_bytes), _progress_text(sending, began))

    for record in source:
        sending.send(record)
        read_bytes += len(record.value or b"") + 1
        show()
        if stops.count:
            break
    stops_before = stops.count
    end = time.monotonic() + (PARTING_S if stops_before else math.inf)

    def waits() -> bool:
        show()
        return stops.count == stops_before and time.monotonic() < end

    sending.finish(waits)


def _headers(texts: tuple[str, ...]) -> tuple[tuple[str, bytes | None], ...]:
    found: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--header {text!r}: write NAME=VALUE")
        found.append((name, value.encode()))
    return tuple(found)


def _check_topic(reach: "Reach", topic: str, partition: int | None, create: bool, partitions: int | None) -> None:
    from headrace.cli.names import missing_name
    from headrace.client.offsets import leaders
    from headrace.client.topic_admin import create_topic
    from headrace.client.topics import topic_names
    from headrace.core.errors import OperatorError

    with reach.cluster() as cluster:
        known = topic_names(cluster)
        if topic not in known:
            if not create:
                raise missing_name("topic", topic, known, "add --create to make it", " Or add --create to make it")
            create_topic(cluster, topic, partitions=partitions)
        if partition is None and partitions is None:
            return
        count = len(leaders(cluster, [topic]))
        if partition is not None and partition >= count:
            raise OperatorError(f"{topic} has no partition {partition}; it has {count}, counted from 0")
        if partitions is not None and partitions != count:
            click.echo(f"headrace: warning: {topic} exists already, with {count} partitions; it keeps them", err=True)


def _done(sending: "Sending", read_bytes: int) -> int:
    """How much of what was read is acknowledged: what has only been read is not done."""
    account = sending.account
    return read_bytes * account.acknowledged // max(1, account.handed_over)


def _progress_text(sending: "Sending", began: float) -> str:
    account = sending.account
    seconds = max(1e-3, time.monotonic() - began)
    return f"{account.acknowledged:,} records  {bytes_text(int(account.bytes / seconds))}/s"


def _report(topic: str, account: "Account", seconds: float, as_json: bool) -> None:
    if as_json:
        places = {
            str(partition): {"records": count, "first": first, "last": last}
            for partition, (count, first, last) in sorted(account.partitions.items())
        }
        print_json(
            {
                "topic": topic,
                "records": account.acknowledged,
                "bytes": account.bytes,
                "seconds": round(seconds, 3),
                "partitions": places,
            }
        )
        return
    count = account.acknowledged
    click.echo(
        f"{topic}: {count:,} record{'' if count == 1 else 's'}, {bytes_text(account.bytes)} in {seconds:.1f} s",
        err=True,
    )

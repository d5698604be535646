"""`headrace topic`: what topics there are, and making, changing, copying and deleting them."""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.lazy_group import CommandEntry, LazyGroup
from headrace.cli.names import complete_topic
from headrace.cli.reaching import broker_options, setting_pairs
from headrace.cli.tabling import ask, bytes_text, print_json, yes_option

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach
    from headrace.client.cluster import ClusterClient
    from headrace.client.topic_admin import Span, TopicSummary
    from headrace.client.topics import DescribedSetting, TopicFacts

NAMES_ASKED_MAX = 5  # that a question names one by one
COMMANDS = {
    "list": CommandEntry("headrace.cli.topic.command:list_command", "All topics, with their records and sizes."),
    "create": CommandEntry("headrace.cli.topic.command:create", "Make topics."),
    "describe": CommandEntry("headrace.cli.topic.command:describe", "A topic's settings and partitions."),
    "alter": CommandEntry("headrace.cli.topic.command:alter", "Add partitions, change settings."),
    "delete": CommandEntry("headrace.cli.topic.command:delete", "Delete topics and all their records."),
    "copy": CommandEntry("headrace.cli.topic.copy:copy", "Copy records to another topic or cluster."),
    "tail": CommandEntry("headrace.cli.topic.tail:tail", "The last records, and those that come."),
}


@click.group(cls=LazyGroup, places=COMMANDS, short_help="List, create, describe, alter, delete, copy, tail.")
def topic() -> None:
    """Topics: list, create, describe, alter, delete, copy, tail."""


@click.command("list", short_help=COMMANDS["list"].help)
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...", shell_complete=complete_topic)
@click.option("--internal", is_flag=True, help="Also the topics that brokers keep for themselves.")
@click.option("--names", is_flag=True, help="Only names, one per line.")
@broker_options
def list_command(
    patterns: tuple[str, ...],
    internal: bool,
    names: bool,
    reach: "Reach",
    as_json: bool,
) -> None:
    """All topics, or those that match a pattern.

    \b
    Examples:
      headrace topic list
      headrace topic list 'orders-*' --json
    """
    with reach.cluster() as cluster:
        from headrace.cli.names import chosen_topics
        from headrace.client.topic_admin import summaries

        wanted = chosen_topics(cluster, patterns) if patterns else None
        if names and not as_json:
            for each in cluster.metadata(None).topics:
                if (each.name in wanted) if wanted is not None else (internal or not each.is_internal):
                    click.echo(each.name)
            return
        found = [each for each in summaries(cluster, wanted) if wanted is not None or internal or not each.internal]
        if as_json:
            print_json([each._asdict() for each in found])
            return
        _print_summaries(found)


def _print_summaries(found: "list[TopicSummary]") -> None:
    from headrace.cli.columns import show

    if not found:
        click.echo("there are no topics yet; `headrace topic create NAME` makes one", err=True)
        return
    troubled = any(each.offline or each.under_replicated for each in found)
    header = ["topic", "partitions", "replicas", "records", "size", *(["state"] if troubled else [])]
    rows: list[list[str | None]] = []
    for each in found:
        size = None if each.size_bytes is None else bytes_text(each.size_bytes)
        row: list[str | None] = [each.name, str(each.partitions), str(each.replicas), f"{each.records:,}", size]
        if troubled:
            row.append(_state(each))
        rows.append(row)
    show(header, rows, right=[False, True, True, True, True])


def _state(summary: "TopicSummary") -> str:
    if summary.offline:
        return f"{summary.offline} without a leader"
    return f"{summary.under_replicated} under-replicated" if summary.under_replicated else "ok"


@click.command(short_help=COMMANDS["create"].help)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--partitions", "-p", type=click.IntRange(1), metavar="N", help="[default: the broker's num.partitions]")
@click.option("--replicas", "-r", type=click.IntRange(1, 32767), metavar="N", help="[default: the broker's]")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="A setting, such as retention.ms=3600000.")
@click.option("--if-not-exists", is_flag=True, help="No error if the topic exists; it stays as it is.")
@broker_options
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    reach: "Reach",
    as_json: bool,
) -> None:
    """Make one or several topics.

    \b
    Examples:
      headrace topic create orders --partitions 3
      headrace topic create users --set cleanup.policy=compact --if-not-exists
    """
    with reach.cluster() as cluster:
        from headrace.client.errors import KafkaError
        from headrace.client.topic_admin import create_topic
        from headrace.core.errors import OperatorError
        from headrace.protocol.error_codes import TOPIC_ALREADY_EXISTS

        given = setting_pairs(settings)
        made = []
        for name in names:
            try:
                create_topic(cluster, name, partitions=partitions, replicas=replicas, settings=given)
                made.append(name)
            except KafkaError as error:
                if error.code != TOPIC_ALREADY_EXISTS:
                    raise OperatorError(f"topic {name}: {str(error).rstrip('.')}") from error
                if not if_not_exists:
                    raise OperatorError(
                        f"topic {name} exists already; use `headrace topic alter {name}`, or add --if-not-exists"
                    ) from error
            if not as_json:
                click.echo(f"topic {name} " + ("made" if name in made else "exists already"))
        if as_json:
            print_json([{"topic": name, "created": name in made} for name in names])


@click.command(short_help=COMMANDS["describe"].help)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topic)
@click.option("--all-settings", is_flag=True, help="Also the settings that have their default.")
@broker_options
def describe(
    names: tuple[str, ...],
    all_settings: bool,
    reach: "Reach",
    as_json: bool,
) -> None:
    """A topic's settings, and where each of its partitions begins, ends and lies.

    \b
    Examples:
      headrace topic describe orders
      headrace topic describe 'orders-*' --json
    """
    with reach.cluster() as cluster:
        from headrace.cli.names import chosen_topics
        from headrace.client import topics as topic_facts

        topics = topic_facts.describe(cluster, chosen_topics(cluster, names))
        found = [_description(cluster, each, all_settings) for each in topics]
        if as_json:
            print_json(found)
            return
        for number, content in enumerate(found):
            if number:
                click.echo()
            _print_description(content)


def _description(cluster: "ClusterClient", topic: "TopicFacts", all_settings: bool) -> dict[str, Any]:
    from headrace.client.topic_admin import TOPIC, offset_spans, partition_sizes
    from headrace.client.topics import describe_configs, kafka_uuid

    leader_of = {(topic.name, each.number): each.leader for each in topic.partitions if each.leader is not None}
    spans = offset_spans(cluster, leader_of)
    sizes = partition_sizes(cluster)
    settings: list[DescribedSetting] = describe_configs(cluster, TOPIC, topic.name)
    partitions = []
    for each in topic.partitions:
        span: Span | None = spans.get((topic.name, each.number))
        partitions.append(
            {
                "partition": each.number,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "start": span.start if span else None,
                "end": span.end if span else None,
                "size_bytes": None if sizes is None else sizes.get((topic.name, each.number), 0),
            }
        )
    return {
        "topic": topic.name,
        "id": None if topic.id is None else kafka_uuid(topic.id),
        "records": sum(span.records for span in spans.values()),
        "size_bytes": None if sizes is None else sum(each["size_bytes"] or 0 for each in partitions),
        "settings": {each.name: each.value for each in settings if all_settings or not _is_default(each)},
        "partitions": partitions,
    }


def _is_default(setting: "DescribedSetting") -> bool:
    """Anything but the topic's own: the broker's settings are not what was asked about."""
    return setting.source != 1


def _print_description(content: dict[str, Any]) -> None:
    from headrace.cli.columns import show

    size = "" if content["size_bytes"] is None else f", {bytes_text(content['size_bytes'])}"
    click.echo(click.style(content["topic"], bold=True) + f"  {content['records']:,} records{size}")
    if content["id"]:
        click.echo(f"  id        {content['id']}")
    for number, (key, value) in enumerate(content["settings"].items()):
        click.echo(f"  {'settings' if number == 0 else '':<8}  {key}={value}")
    rows: list[list[str | None]] = [
        [
            str(each["partition"]),
            "none" if each["leader"] is None else str(each["leader"]),
            ",".join(map(str, each["replicas"])),
            ",".join(map(str, each["isr"])),
            None if each["start"] is None else f"{each['start']:,}",
            None if each["end"] is None else f"{each['end']:,}",
            None if each["size_bytes"] is None else bytes_text(each["size_bytes"]),
        ]
        for each in content["partitions"]
    ]
    header = ["partition", "leader", "replicas", "isr", "start", "end", "size"]
    show(header, rows, right=[True, True, False, False, True, True, True], indent="  ")


@click.command(short_help=COMMANDS["alter"].help)
@click.argument("name", shell_complete=complete_topic)
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(1),
    metavar="N",
    help="The new number of partitions; never fewer than now.",
)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Set a setting; may be given many times.")
@click.option("--unset", metavar="KEY", multiple=True, help="Set back to the default; may be given many times.")
@broker_options
def alter(
    name: str,
    partitions: int | None,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    reach: "Reach",
    as_json: bool,
) -> None:
    """Add partitions, or change settings.

    Records that are there stay in their partitions, so after partitions were added a key may go to another one.

    \b
    Examples:
      headrace topic alter orders --partitions 6
      headrace topic alter orders --set retention.ms=86400000 --unset cleanup.policy
    """
    if partitions is None and not settings and not unset:
        raise click.UsageError("nothing to change; give --partitions, --set or --unset")
    with reach.cluster() as cluster:
        from headrace.cli.names import check_topics
        from headrace.client.errors import KafkaError
        from headrace.client.topic_admin import TOPIC, add_partitions, change_settings
        from headrace.core.errors import OperatorError

        given = setting_pairs(settings)
        check_topics(cluster, [name])
        try:
            if given or unset:
                change_settings(cluster, TOPIC, name, given, unset)
            if partitions is not None:
                add_partitions(cluster, name, partitions)
        except KafkaError as error:
            raise OperatorError(f"topic {name}: {str(error).rstrip('.')}") from error
        if as_json:
            print_json({"topic": name, "partitions": partitions, "set": given, "unset": list(unset)})
        else:
            click.echo(f"topic {name} changed")


@click.command(short_help=COMMANDS["delete"].help)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topic)
@click.option("--if-exists", is_flag=True, help="No error if it does not exist.")
@yes_option
@broker_options
def delete(
    names: tuple[str, ...],
    if_exists: bool,
    yes: bool,
    reach: "Reach",
    as_json: bool,
) -> None:
    """Delete topics and all their records, after a question.

    \b
    Examples:
      headrace topic delete orders
      headrace topic delete 'test-*' --yes
    """
    with reach.cluster() as cluster:
        from headrace.cli.names import chosen_topics
        from headrace.client.topic_admin import delete_topics, summaries
        from headrace.core.errors import OperatorError

        wanted = chosen_topics(cluster, names, missing_ok=if_exists)
        if wanted and not yes:
            found = summaries(cluster, wanted)
            records = sum(each.records for each in found)
            named = ", ".join(wanted[:NAMES_ASKED_MAX])
            more = f" and {len(wanted) - NAMES_ASKED_MAX} more" if len(wanted) > NAMES_ASKED_MAX else ""
            what = "topic" if len(wanted) == 1 else f"{len(wanted)} topics"
            ask(f"Delete {what} {named}{more} with {records:,} records?", yes)
        results = delete_topics(cluster, wanted) if wanted else {}
        refused = {name: error for name, error in results.items() if error is not None}
        if as_json:
            print_json([{"topic": name, "deleted": name not in refused} for name in wanted])
        else:
            for name in wanted:
                if name not in refused:
                    click.echo(f"topic {name} deleted")
        if refused:
            raise OperatorError(
                "; ".join(f"topic {name} is not deleted: {str(error).rstrip('.')}" for name, error in refused.items())
            )

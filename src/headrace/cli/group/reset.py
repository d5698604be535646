"""`headrace group reset`: moves a group's offsets, after it has shown how far, and asked."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from headrace.cli.names import complete_group, complete_topic
from headrace.cli.reaching import broker_options
from headrace.cli.tabling import ask, print_json, yes_option
from headrace.client.moments import HELP, METAVAR

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach
    from headrace.client.cluster import ClusterClient
    from headrace.client.offsets import PartitionName


@click.command(short_help="Move a group's offsets: replay or skip.")
@click.argument("group", shell_complete=complete_group)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:N,N]",
    shell_complete=complete_topic,
    help="Which topic, or which of its partitions; may be given many times.",
)
@click.option("--all-topics", is_flag=True, help="Every topic that the group has committed offsets of.")
@click.option("--to", "target", metavar=METAVAR, help=f"Where to: beginning, end, {HELP}.")
@click.option("--by", "shift", type=int, metavar="N", help="Move by N records; back if N is negative.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@yes_option
@broker_options
def reset(
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    target: str | None,
    shift: int | None,
    dry_run: bool,
    yes: bool,
    reach: "Reach",
    as_json: bool,
) -> None:
    """Move a group's offsets, so that it reads again or skips. Its members must have left.

    A group that does not exist is made by this. What is outside a partition becomes its beginning or its end.

    \b
    Examples:
      headrace group reset billing --all-topics --to beginning --dry-run
      headrace group reset billing --topic orders --to '2 hours ago'
      headrace group reset billing --topic orders:0,1 --by -100 --yes
    """
    if (target is None) == (shift is None):
        raise click.UsageError("give either --to or --by")
    if bool(topics) == all_topics:
        raise click.UsageError("give either --topic or --all-topics")
    with reach.cluster() as cluster:
        from headrace.client.groups import committed_offsets
        from headrace.client.offset_commit import commit_offsets

        before = {place: held.offset for place, held in committed_offsets(cluster, group).items()}
        if all_topics and not before:
            from headrace.cli.names import chosen_groups
            from headrace.core.errors import OperatorError

            chosen_groups(cluster, [group])
            raise OperatorError(f"group {group} has committed no offsets; name topics with --topic")
        _check_empty(cluster, group)
        places = sorted(before) if all_topics else _places(cluster, topics)
        plan = _plan(cluster, group, places, before, target, shift)
        if not as_json:
            _print(plan, before)
        if not dry_run:
            count = len(plan)
            ask(f"Move the offsets of {group} in {count} partition{'' if count == 1 else 's'}?", yes)
            commit_offsets(cluster, group, plan)
        if as_json:
            rows = [
                {"topic": topic, "partition": number, "before": before.get((topic, number)), "after": offset}
                for (topic, number), offset in plan.items()
            ]
            print_json({"group": group, "done": not dry_run, "partitions": rows})
        elif not dry_run:
            click.echo(f"group {group} goes on from there")


def _check_empty(cluster: "ClusterClient", group: str) -> None:
    from headrace.client.errors import KafkaError
    from headrace.client.groups import describe_group
    from headrace.core.errors import OperatorError
    from headrace.protocol.error_codes import GROUP_ID_NOT_FOUND

    try:
        facts = describe_group(cluster, group)
    except KafkaError as error:
        if error.code == GROUP_ID_NOT_FOUND:
            return
        raise
    if facts.members or facts.state not in ("Empty", "Dead"):
        clients = ", ".join(sorted({member.client_id for member in facts.members})) or "its members"
        raise OperatorError(
            f"group {group} is {facts.state} with {len(facts.members)} member(s); stop {clients} first, then reset"
        )


def _places(cluster: "ClusterClient", topics: tuple[str, ...]) -> "list[PartitionName]":
    from headrace.cli.names import check_topics
    from headrace.client.offsets import leaders
    from headrace.core.errors import OperatorError

    places: set[PartitionName] = set()
    for text in topics:
        name, colon, numbers = text.partition(":")
        check_topics(cluster, [name])
        has = {number for topic, number in leaders(cluster, [name])}
        if not colon:
            places |= {(name, number) for number in has}
            continue
        for part in numbers.split(","):
            if not part.isdecimal() or int(part) not in has:
                raise OperatorError(f"--topic {text}: {name} has no partition {part!r}; it has {_numbers(has)}")
            places.add((name, int(part)))
    return sorted(places)


def _numbers(numbers: set[int]) -> str:
    return f"0 to {max(numbers)}" if numbers == set(range(len(numbers))) and len(numbers) > 1 else str(sorted(numbers))


def _plan(
    cluster: "ClusterClient",
    group: str,
    places: "list[PartitionName]",
    before: "dict[PartitionName, int]",
    target: str | None,
    shift: int | None,
) -> "dict[PartitionName, int]":
    from headrace.client.group_admin import clamped, resolved
    from headrace.client.moments import parse_moment
    from headrace.core.errors import OperatorError

    if target is not None:
        return resolved(cluster, places, parse_moment(target, datetime.now(UTC)))
    for topic, number in places:
        if (topic, number) not in before:
            raise OperatorError(f"group {group} has committed nothing in {topic}-{number}; use --to instead of --by")
    return clamped(cluster, {place: before[place] + (shift or 0) for place in places})


def _print(plan: "dict[PartitionName, int]", before: "dict[PartitionName, int]") -> None:
    from headrace.cli.columns import show

    rows: list[list[str | None]] = []
    for (topic, number), offset in plan.items():
        old = before.get((topic, number))
        change = "" if old is None else f"{offset - old:+,}" if offset != old else "0"
        rows.append([topic, str(number), None if old is None else f"{old:,}", f"{offset:,}", change])
    show(["topic", "partition", "now", "then", "change"], rows, right=[False, True, True, True, True])

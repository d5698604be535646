"""`headrace group`: consumer groups, how far behind they are, and moving or deleting their offsets."""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.lazy_group import CommandEntry, LazyGroup
from headrace.cli.names import complete_group
from headrace.cli.reaching import broker_options
from headrace.cli.tabling import ask, print_json, yes_option

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach
    from headrace.client.group_admin import Position
    from headrace.client.groups import GroupDetails

COMMANDS = {
    "list": CommandEntry("headrace.cli.group.command:list_command", "All groups, their states, members and lag."),
    "describe": CommandEntry("headrace.cli.group.command:describe", "A group's members and offsets."),
    "lag": CommandEntry("headrace.cli.group.lag:lag", "How far behind groups are; --watch to see it change."),
    "reset": CommandEntry("headrace.cli.group.reset:reset", "Move a group's offsets: replay or skip."),
    "delete": CommandEntry("headrace.cli.group.command:delete", "Delete groups and their offsets."),
}


@click.group(cls=LazyGroup, places=COMMANDS, short_help="Consumer groups: list, describe, lag, reset, delete.")
def group() -> None:
    """Consumer groups: list, describe, lag, reset, delete."""


@click.command("list", short_help=COMMANDS["list"].help)
@click.option("--names", is_flag=True, help="Only names, one per line.")
@broker_options
def list_command(names: bool, reach: "Reach", as_json: bool) -> None:
    """All groups.

    \b
    Examples:
      headrace group list
      headrace group list --json
    """
    with reach.cluster() as cluster:
        from headrace.client.errors import KafkaError
        from headrace.client.group_admin import group_lag
        from headrace.client.groups import list_groups

        listed = list_groups(cluster)
        if names and not as_json:
            for each in listed:
                click.echo(each.group)
            return
        found: list[dict[str, Any]] = []
        for each in listed:
            try:
                facts, places = group_lag(cluster, each.group)
            except KafkaError:  # it went away meanwhile
                continue
            found.append(
                {
                    "group": each.group,
                    "state": facts.state,
                    "protocol": each.type.lower(),
                    "members": len(facts.members),
                    "lag": total_lag(places),
                    "topics": sorted({place.topic for place in places}),
                }
            )
        if as_json:
            print_json(found)
            return
        _print_list(found)


def total_lag(places: "list[Position]") -> int | None:
    known = [place.lag for place in places if place.lag is not None]
    return sum(known) if known else None


def say_no_groups() -> None:
    click.echo("there are no groups yet; `headrace consume TOPIC --group NAME` makes one", err=True)


def _print_list(found: list[dict[str, Any]]) -> None:
    from headrace.cli.columns import show

    if not found:
        say_no_groups()
        return
    rows: list[list[str | None]] = [
        [
            each["group"],
            each["state"],
            each["protocol"],
            str(each["members"]),
            None if each["lag"] is None else f"{each['lag']:,}",
            ",".join(each["topics"]),
        ]
        for each in found
    ]
    show(["group", "state", "protocol", "members", "lag", "topics"], rows, right=[False, False, False, True, True])


@click.command(short_help=COMMANDS["describe"].help)
@click.argument("name", shell_complete=complete_group)
@broker_options
def describe(name: str, reach: "Reach", as_json: bool) -> None:
    """A group's state and members, and for each partition where it is and how far behind.

    \b
    Examples:
      headrace group describe billing
      headrace group describe billing --json
    """
    with reach.cluster() as cluster:
        from headrace.cli.names import chosen_groups
        from headrace.client.group_admin import group_lag

        (wanted,) = chosen_groups(cluster, [name])[:1]
        facts, places = group_lag(cluster, wanted)
        if as_json:
            print_json(description(facts, places))
        else:
            _print_description(facts, places)


def description(facts: "GroupDetails", places: "list[Position]") -> dict[str, Any]:
    return {
        "group": facts.group,
        "state": facts.state,
        "assignor": facts.assignor or None,
        "coordinator": facts.coordinator.id,
        "lag": total_lag(places),
        "members": [
            {
                "id": member.id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [f"{topic}-{number}" for topic, number in member.assignment],
            }
            for member in facts.members
        ],
        "partitions": [place._asdict() for place in places],
    }


def _print_description(facts: "GroupDetails", places: "list[Position]") -> None:
    from headrace.cli.columns import show

    lag = total_lag(places)
    behind = "" if lag is None else f", {lag:,} behind"
    count = len(facts.members)
    click.echo(
        click.style(facts.group, bold=True)
        + f"  {facts.state}, {count} member{'' if count == 1 else 's'}{behind}"
        + (f", assigned by {facts.assignor}" if facts.assignor else "")
    )
    if places:
        click.echo()
        show_positions(places)
    if facts.members:
        click.echo()
        rows: list[list[str | None]] = [
            [
                member.client_id,
                member.host.lstrip("/"),
                member.instance_id or "",
                " ".join(f"{topic}-{number}" for topic, number in member.assignment),
                member.id,
            ]
            for member in facts.members
        ]
        show(["client", "host", "instance", "partitions", "member"], rows, indent="  ")


def show_positions(places: "list[Position]") -> None:
    from headrace.cli.columns import show

    rows: list[list[str | None]] = [
        [
            place.topic,
            str(place.partition),
            *(None if number is None else f"{number:,}" for number in (place.committed, place.end, place.lag)),
            place.member or "",
        ]
        for place in places
    ]
    header = ["topic", "partition", "committed", "end", "lag", "client"]
    show(header, rows, right=[False, True, True, True, True], indent="  ")


@click.command(short_help=COMMANDS["delete"].help)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_group)
@click.option("--if-exists", is_flag=True, help="No error if it does not exist.")
@yes_option
@broker_options
def delete(names: tuple[str, ...], if_exists: bool, yes: bool, reach: "Reach", as_json: bool) -> None:
    """Delete groups and all offsets that they have committed, after a question. Their members must have left.

    \b
    Examples:
      headrace group delete billing
      headrace group delete 'test-*' --yes
    """
    with reach.cluster() as cluster:
        from headrace.cli.names import chosen_groups
        from headrace.client.errors import KafkaError
        from headrace.client.group_admin import delete_group
        from headrace.core.errors import OperatorError
        from headrace.protocol.error_codes import NON_EMPTY_GROUP

        wanted = chosen_groups(cluster, names, missing_ok=if_exists)
        if wanted and not yes:
            what = "group" if len(wanted) == 1 else f"{len(wanted)} groups"
            ask(f"Delete {what} {', '.join(wanted)} and the offsets committed?", yes)
        refused: dict[str, str] = {}
        for name in wanted:
            try:
                delete_group(cluster, name)
            except KafkaError as error:
                busy = error.code == NON_EMPTY_GROUP
                refused[name] = "its members must leave first" if busy else str(error).rstrip(".")
        if as_json:
            print_json([{"group": name, "deleted": name not in refused} for name in wanted])
        else:
            for name in wanted:
                if name not in refused:
                    click.echo(f"group {name} deleted")
        if refused:
            raise OperatorError("; ".join(f"group {name} is not deleted: {why}" for name, why in refused.items()))

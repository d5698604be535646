"""`headrace group lag`: how far behind groups are, once or again and again."""

import time
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.names import complete_group
from headrace.cli.reaching import EXIT_SHORT, broker_options
from headrace.cli.tabling import print_json

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach
    from headrace.client.cluster import ClusterClient
    from headrace.client.group_admin import Position


@click.command(short_help="How far behind groups are; --watch to see it change.")
@click.argument("names", nargs=-1, metavar="[GROUP]...", shell_complete=complete_group)
@click.option("--watch", "-w", is_flag=True, help="Again and again, until Ctrl-C.")
@click.option("--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, metavar="S", help="How often.")
@click.option("--max", "lag_max", type=click.IntRange(0), metavar="N", help="End with code 3 if any lag is above N.")
@broker_options
def lag(
    names: tuple[str, ...], watch: bool, interval: float, lag_max: int | None, reach: "Reach", as_json: bool
) -> None:
    """How far behind the groups are: all of them, or those named.

    With --watch the view is renewed in place; into a pipe, and with --json, each time adds lines (one JSON document a
    line). The change since the last time is shown as a rate.

    \b
    Examples:
      headrace group lag
      headrace group lag billing --watch
      headrace group lag billing --max 1000 || echo 'too slow'
    """
    with reach.cluster() as cluster:
        from headrace.cli.group.watch import LagWatch

        if not watch:
            found = _lags(cluster, names)
            if as_json:
                print_json([_content(group, places) for group, places in found.items()])
            else:
                _print(found)
            over = [
                group
                for group, places in found.items()
                if lag_max is not None and any((place.lag or 0) > lag_max for place in places)
            ]
            if over:
                click.echo(f"headrace: more than {lag_max:,} behind: {', '.join(over)}", err=True)
                raise SystemExit(EXIT_SHORT)
            return
        view = LagWatch(as_json=as_json)
        while True:
            view.show(_lags(cluster, names), time.time())
            time.sleep(interval)


def _lags(cluster: "ClusterClient", names: tuple[str, ...]) -> "dict[str, list[Position]]":
    from headrace.cli.names import chosen_groups
    from headrace.client.errors import KafkaError
    from headrace.client.group_admin import group_lag
    from headrace.client.groups import list_groups

    wanted = chosen_groups(cluster, names) if names else [each.group for each in list_groups(cluster)]
    found = {}
    for group in wanted:
        try:
            found[group] = group_lag(cluster, group)[1]
        except KafkaError:
            if group in names:
                raise
    return found


def _content(group: str, places: "list[Position]") -> dict[str, Any]:
    from headrace.cli.group.command import total_lag

    return {"group": group, "lag": total_lag(places), "partitions": [place._asdict() for place in places]}


def _print(found: "dict[str, list[Position]]") -> None:
    from headrace.cli.columns import show
    from headrace.cli.group.command import say_no_groups

    if not found:
        say_no_groups()
        return
    rows: list[list[str | None]] = [
        [
            group,
            place.topic,
            str(place.partition),
            *(None if number is None else f"{number:,}" for number in (place.committed, place.end, place.lag)),
        ]
        for group, places in found.items()
        for place in places
    ]
    show(["group", "topic", "partition", "committed", "end", "lag"], rows, right=[False, False, True, True, True, True])

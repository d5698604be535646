"""`headrace cluster`: the brokers, and what each of them holds."""

from typing import TYPE_CHECKING

import click

from headrace.cli.reaching import broker_options
from headrace.cli.tabling import bytes_text, print_json

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach


@click.command(short_help="The brokers, and what each of them holds.")
@broker_options
def cluster(reach: "Reach", as_json: bool) -> None:
    """The cluster's id and its brokers: where they are, what they lead and how full they are.

    \b
    Examples:
      headrace cluster
      headrace cluster --bootstrap kafka1:9092 --json
    """
    from headrace.client.overview import overview

    with reach.cluster() as held:
        found = overview(held)
    if as_json:
        print_json(found)
        return
    from headrace.cli.columns import show

    click.echo(
        f"cluster {found['cluster_id'] or 'without an id'}: {len(found['brokers'])} broker(s), "
        f"{found['topics']:,} topics, {found['partitions']:,} partitions"
    )
    if found["offline_partitions"]:
        click.echo(click.style(f"{found['offline_partitions']:,} partitions have no leader", fg="red"))
    if found["under_replicated_partitions"]:
        text = f"{found['under_replicated_partitions']:,} partitions have fewer replicas in sync than they should"
        click.echo(click.style(text, fg="yellow"))
    rows: list[list[str | None]] = [
        [
            f"{each['id']}{' *' if each['controller'] else ''}",
            each["address"],
            each["rack"] or "",
            f"{each['leads']:,}",
            f"{each['replicas']:,}",
            None if each["size_bytes"] is None else bytes_text(each["size_bytes"]),
            " ".join(each["offline_directories"]) or "ok",
        ]
        for each in found["brokers"]
    ]
    header = ["broker", "address", "rack", "leads", "replicas", "size", "disks"]
    show(header, rows, right=[False, False, False, True, True, True, False])
    click.echo("* controller", err=True)

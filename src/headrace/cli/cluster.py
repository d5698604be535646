"""`headrace cluster`: the brokers, and what each of them holds."""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.reaching import broker_options
from headrace.cli.tabling import bytes_text, print_json

if TYPE_CHECKING:
    from headrace.cli.kafka.cluster import Cluster
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


def overview(cluster: "Cluster") -> dict[str, Any]:
    from headrace.cli.kafka.tool import ToolError
    from headrace.cli.topic_requests import DESCRIBE_LOG_DIRS

    answer = cluster.metadata(None)
    partitions = [each for topic in answer.topics for each in topic.partitions]
    brokers = []
    nodes = cluster.nodes()
    for node_id, node in sorted(nodes.items()):
        size: int | None = None
        offline: list[str] = []
        try:
            directories = cluster.at(node_id).call(DESCRIBE_LOG_DIRS, {"topics": None}).results
            size = sum(each.partition_size for one in directories for topic in one.topics for each in topic.partitions)
            offline = [f"{one.log_dir} offline" for one in directories if one.error_code]
        except ToolError:
            pass  # it may not be asked, or it does not answer; the rest is still worth showing
        brokers.append(
            {
                "id": node_id,
                "address": f"{node.host}:{node.port}",
                "rack": node.rack,
                "controller": node_id == cluster.controller_id,
                "leads": sum(each.leader_id == node_id for each in partitions),
                "replicas": sum(node_id in each.replica_nodes for each in partitions),
                "size_bytes": size,
                "offline_directories": offline,
            }
        )
    return {
        "cluster_id": getattr(answer, "cluster_id", None),
        "controller": cluster.controller_id,
        "topics": len(answer.topics),
        "partitions": len(partitions),
        "offline_partitions": sum(each.leader_id < 0 for each in partitions),
        "under_replicated_partitions": sum(len(each.isr_nodes) < len(each.replica_nodes) for each in partitions),
        "brokers": brokers,
    }

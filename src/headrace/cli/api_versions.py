"""`headrace api-versions`: which requests a broker serves, and in which versions."""

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.reaching import broker_options
from headrace.cli.tabling import print_json

if TYPE_CHECKING:
    from headrace.cli.reaching import Reach
    from headrace.client.wire import BrokerConnection


@click.command(short_help="Which requests a broker serves.")
@click.option(
    "--broker", "broker_id", type=int, metavar="ID", help="Id of the broker to ask.  [default: the one that answers]"
)
@broker_options
def api_versions(broker_id: int | None, reach: "Reach", as_json: bool) -> None:
    """Which requests a broker serves, in which versions, and which of them Headrace's own tools would speak.

    \b
    Examples:
      headrace api-versions
      headrace api-versions --json --bootstrap kafka1:9092
    """
    with reach.cluster() as cluster:
        found = rows_of(cluster.any if broker_id is None else cluster.at(broker_id))
    if as_json:
        print_json(found)
        return
    from headrace.cli.columns import show

    rows: list[list[str | None]] = [
        [
            str(each["key"]),
            each["name"],
            f"{each['min']} to {each['max']}",
            "" if (use := each["spoken"]) is None else str(use),
        ]
        for each in found
    ]
    show(["key", "request", "versions", "spoken"], rows, right=[True, False, False, True])


def rows_of(connection: "BrokerConnection") -> list[dict[str, Any]]:
    from headrace.protocol.messages import api_name, known_versions

    found = []
    for key, (lowest, highest) in sorted(connection.versions.items()):
        name, ours = api_name(key), known_versions(key)
        spoken = min(ours[1], highest) if ours is not None and max(ours[0], lowest) <= min(ours[1], highest) else None
        title = "".join(part.capitalize() for part in name.split("_")) if name else f"API {key}"
        found.append({"key": key, "name": title, "min": lowest, "max": highest, "spoken": spoken})
    return found

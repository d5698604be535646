"""`kafka-broker-api-versions.sh`: which requests each broker serves, and in which versions."""

from typing import Any

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import Option
from headrace.cli.kafka.tool import require
from headrace.client.errors import ClientError

NAME = "kafka-broker-api-versions.sh"
ABOUT = "This tool helps to retrieve broker version information."
OPTIONS = (
    Option(
        name="bootstrap-server",
        value="server(s) to use for bootstrapping",
        help="REQUIRED: The brokers, host:port each.",
    ),
    Option(name="command-config", value="command config property file", help="A file of settings for the client."),
)
# What a client of Kafka 4.3 knows of and a broker may still not serve; the requests between brokers are left out.
_CLIENT_APIS = (
    *(*range(4), *range(8, 52), 55, 57, 60, 61, 64, 65, 66, 68, 69, 71, 72),
    *(*range(74, 82), *range(83, 93)),
)


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    require(given, "bootstrap-server")
    from headrace.client.cluster import ClusterClient

    with ClusterClient(given.one("bootstrap-server"), tool.client_properties(given)) as cluster:
        for node in cluster.nodes().values():
            where = f"{node.host}:{node.port} (id: {node.id} rack: {node.rack or 'null'} isFenced: false)"
            try:
                print(f"{where} -> {table(cluster.at(node.id))}")
            except ClientError as error:
                print(f"{where} -> ERROR: {error}")
    return 0


def table(connection: Any) -> str:
    """One line for each request, in the order of their numbers."""
    lines = [_line(key, connection.versions.get(key)) for key in sorted({*_CLIENT_APIS, *connection.versions})]
    return "(\n\t" + ",\n\t".join(lines) + "\n)"


def _line(key: int, served: tuple[int, int] | None) -> str:
    from headrace.protocol.messages import api_name, known_versions

    name = api_name(key)
    title = "UNKNOWN" if name is None else "".join(part.capitalize() for part in name.split("_"))
    if served is None:
        return f"{title}({key}): UNSUPPORTED"
    lowest, highest = served
    span = str(lowest) if lowest == highest else f"{lowest} to {highest}"
    known = known_versions(key)
    if known is None:
        return f"{title}({key}): {span}"
    if known[1] < lowest:
        use = "unusable: node too new"
    elif highest < known[0]:
        use = "unusable: node too old"
    else:
        use = f"usable: {min(known[1], highest)}"
    return f"{title}({key}): {span} [{use}]"


if __name__ == "__main__":
    main()

"""`kafka-log-dirs.sh`: where partitions lie on the brokers' disks, and how large they are."""

import json
from typing import Any

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import Option
from headrace.cli.kafka.tool import ToolError, require
from headrace.protocol.api_keys import DESCRIBE_LOG_DIRS

NAME = "kafka-log-dirs.sh"
ABOUT = "This tool helps to query log directory usage on the specified brokers."
OPTIONS = (
    Option(
        name="bootstrap-server",
        value="The server(s) to use for bootstrapping",
        help="REQUIRED: The brokers, host:port each.",
    ),
    Option(name="command-config", value="Admin client property file", help="A file of settings for the client."),
    Option(name="describe", help="REQUIRED: Show the log directories."),
    Option(
        name="topic-list", value="Topic list", default="", help='The topics, "topic1,topic2"; all, if it is not given.'
    ),
    Option(
        name="broker-list", value="Broker list", default="", help='The brokers\' ids, "0,1,2"; all, if it is not given.'
    ),
)


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    require(given, "bootstrap-server", "describe")
    topics = set(filter(None, given.one("topic-list").split(",")))
    try:
        wanted = [int(part) for part in given.one("broker-list").split(",") if part]
    except ValueError:
        raise ToolError(f"--broker-list {given.one('broker-list')}: must be ids of brokers, like 0,1,2") from None
    from headrace.client.cluster import ClusterClient

    properties = tool.client_properties(given)
    with ClusterClient(given.one("bootstrap-server"), {"client.id": "log-dirs-tool", **properties}) as cluster:
        live = sorted(cluster.nodes())
        missing = [str(node) for node in wanted if node not in live]
        if missing:
            raise ToolError(
                f"ERROR: The given brokers do not exist from --broker-list: {','.join(missing)}. Current existent "
                f"brokers: {','.join(map(str, live))}"
            )
        asked = sorted(set(wanted)) or live
        print("Querying brokers for log directories information")
        brokers = [{"broker": node, "logDirs": _directories(cluster.at(node), topics)} for node in asked]
    print(f"Received log directory information from brokers {','.join(map(str, asked))}")
    print(json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":")))
    return 0


def _directories(connection: Any, topics: set[str]) -> list[dict[str, object]]:
    from headrace.client.errors import KafkaError, check

    answer = connection.call(DESCRIBE_LOG_DIRS, {"topics": None})
    check(getattr(answer, "error_code", 0))
    return [
        {
            "partitions": [
                {
                    "partition": f"{topic.name}-{each.partition_index}",
                    "size": each.partition_size,
                    "offsetLag": each.offset_lag,
                    "isFuture": each.is_future_key,
                }
                for topic in directory.topics
                if not topics or topic.name in topics
                for each in topic.partitions
            ],
            "error": KafkaError(directory.error_code).java.partition(":")[0] if directory.error_code else None,
            "logDir": directory.log_dir,
        }
        for directory in answer.results
    ]


if __name__ == "__main__":
    main()

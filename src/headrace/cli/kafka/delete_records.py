"""`kafka-delete-records.sh`: forgets the records of partitions before given offsets."""

import json
from typing import TYPE_CHECKING, Any

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import Option
from headrace.cli.kafka.tool import ToolError, require
from headrace.protocol.api_keys import DELETE_RECORDS

if TYPE_CHECKING:
    from headrace.client.offsets import PartitionName

NAME = "kafka-delete-records.sh"
ABOUT = "This tool helps to delete records of the given partitions down to the specified offset."
OPTIONS = (
    Option(
        name="bootstrap-server",
        value="server(s) to use for bootstrapping",
        help="REQUIRED: The brokers, host:port each.",
    ),
    Option(
        name="offset-json-file",
        value="Offset json file path",
        help='REQUIRED: A file that says up to which offsets:\n{"partitions":\n  [{"topic": "foo", "partition": 1, '
        '"offset": 1}],\n "version":1\n}',
    ),
    Option(name="command-config", value="command config property file path", help="A file of settings for the client."),
)
_TIMEOUT_MS = 30_000


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    require(given, "bootstrap-server", "offset-json-file")
    wanted = read_offsets(given.one("offset-json-file"))
    from headrace.client.cluster import ClusterClient

    with ClusterClient(given.one("bootstrap-server"), tool.client_properties(given)) as cluster:
        print("Executing records delete operation")
        results = _delete(cluster, wanted)
    print("Records delete operation completed:")
    for (topic, number), result in sorted(results.items()):
        said = f"low_watermark: {result}" if isinstance(result, int) else f"error: {result}"
        print(f"partition: {topic}-{number}\t{said}")
    return 0 if all(isinstance(result, int) for result in results.values()) else 1


def read_offsets(path: str) -> "dict[PartitionName, int]":
    try:
        with open(path) as file:
            held = json.load(file)
    except OSError as error:
        raise ToolError(f"{path}: {(error.strerror or str(error)).lower()}; give the path of a JSON file") from error
    except ValueError as error:
        raise ToolError("The input string is not a valid JSON") from error
    if not isinstance(held, dict) or "partitions" not in held:
        raise ToolError("Missing partitions field")
    if held.get("version", 1) != 1:
        raise ToolError(f"Not supported version field value {held['version']}")
    found: dict[PartitionName, int] = {}
    twice = []
    for each in held["partitions"]:
        try:
            place, offset = (str(each["topic"]), int(each["partition"])), int(each["offset"])
        except (KeyError, TypeError, ValueError):
            raise ToolError(f"{path}: {json.dumps(each)} must hold topic, partition and offset") from None
        if place in found:
            twice.append(f"{place[0]}-{place[1]}")
        found[place] = offset
    if twice:
        raise ToolError(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    return found


def _delete(cluster: Any, wanted: "dict[PartitionName, int]") -> "dict[PartitionName, int | str]":
    """The new first offset of each partition, or why it was refused."""
    from headrace.client.errors import KafkaError
    from headrace.client.offsets import leaders

    known = leaders(cluster, (topic for topic, _ in wanted))
    results: dict[PartitionName, int | str] = {place: KafkaError(3).java for place in wanted if place not in known}
    by_node: dict[int, dict[str, list[dict[str, int]]]] = {}
    for (topic, number), offset in wanted.items():
        if (topic, number) in known:
            partitions = by_node.setdefault(known[topic, number], {}).setdefault(topic, [])
            partitions.append({"partition_index": number, "offset": offset})
    for node, topics in by_node.items():
        body = {"topics": [{"name": name, "partitions": each} for name, each in topics.items()], "timeout": _TIMEOUT_MS}
        for topic in cluster.at(node).call(DELETE_RECORDS, body).topics:
            for each in topic.partitions:
                code = each.error_code
                results[topic.name, each.partition_index] = KafkaError(code).java if code else each.low_watermark
    return results


if __name__ == "__main__":
    main()

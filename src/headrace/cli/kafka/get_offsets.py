"""`kafka-get-offsets.sh`: the earliest or latest offsets of partitions, or those of a time."""

import re
import sys
from collections.abc import Callable

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import ToolError, UsageError, require

NAME = "kafka-get-offsets.sh"
ABOUT = "An interactive shell for getting topic-partition offsets."
TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_CHOICES = " / ".join(f"{number} or {name}" for name, number in TIMES.items())
OPTIONS = (
    Option(
        name="bootstrap-server",
        also=("broker-list",),
        value="HOST1:PORT1,...,HOST3:PORT3",
        help="REQUIRED: The brokers.",
    ),
    Option(
        name="topic-partitions",
        value="topic1:1,topic2:0-3,topic3,topic4:5-,topic5:-3",
        help="Which partitions: a regular expression for the topic (any, if it is left out), and behind a colon a "
        "number, or a range `FROM-TO` without its end; either side may be left out.",
    ),
    Option(name="topic", value="topic", help="The topics, as a regular expression; all, if it is not given."),
    Option(name="partitions", value="partition ids", help="Numbers of partitions, 0,1,2; all, if it is not given."),
    Option(
        name="time",
        value=f"<timestamp> / {_CHOICES}",
        default="latest",
        help="Which offset: the first at or after a time in ms, or one of these.",
    ),
    Option(name="command-config", value="config file", help="A file of settings for the client."),
    Option(name="exclude-internal-topics", help="Leave out Kafka's internal topics."),
)
_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")

Filter = Callable[[str, int], bool]


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    require(given, "bootstrap-server")
    if given.has("topic-partitions") and (given.has("topic") or given.has("partitions")):
        raise UsageError("Error occurred: --topic-partitions cannot be used with --topic or --partitions")
    when = parse_time(given.one("time"))
    allowed = rule_filter(given.one("topic-partitions")) if given.has("topic-partitions") else plain_filter(given)
    from headrace.client.cluster import ClusterClient
    from headrace.client.offsets import NO_OFFSET, offsets_at
    from headrace.client.topics import INTERNAL_TOPICS

    properties = tool.client_properties(given)
    with ClusterClient(given.one("bootstrap-server"), {"client.id": "GetOffsetShell", **properties}) as cluster:
        topics = cluster.metadata(None).topics
        hidden = INTERNAL_TOPICS if given.has("exclude-internal-topics") else frozenset()
        leader_of = {
            (topic.name, each.partition_index): each.leader_id
            for topic in topics
            for each in topic.partitions
            if topic.name not in hidden and allowed(topic.name, each.partition_index)
        }
        if not leader_of:
            raise ToolError("Error occurred: Could not match any topic-partitions with the specified filters")
        live = {place: node for place, node in leader_of.items() if node >= 0}
        found = offsets_at(cluster, dict.fromkeys(leader_of, when), leader_of=live)
    for topic, number in sorted(leader_of, key=lambda place: f"{place[0]}-{place[1]}"):
        answer = found[topic, number]
        if answer.error is not None:
            why = answer.error.java
            print(f"Skip getting offsets for topic-partition {topic}-{number} due to error: {why}", file=sys.stderr)
        elif answer.offset != NO_OFFSET:
            print(f"{topic}:{number}:{answer.offset}")
    return 0


def parse_time(text: str) -> int:
    if text in TIMES:
        return TIMES[text]
    try:
        return int(text)
    except ValueError:
        raise UsageError(
            f"Error occurred: Malformed time argument {text}. Please use {_CHOICES}, or a specified long format "
            "timestamp"
        ) from None


def plain_filter(given: GivenOptions) -> Filter:
    from headrace.client.topics import topic_filter

    pattern = topic_filter(given.one("topic") or ".*")
    text = given.one("partitions") or ""
    try:
        numbers = {int(part) for part in text.split(",")} if text else set()
    except ValueError:
        raise UsageError(
            "Error occurred: --partitions expects a comma separated list of numeric partition ids, but received: "
            f"{text}"
        ) from None
    return lambda topic, number: (not numbers or number in numbers) and pattern.fullmatch(topic) is not None


def rule_filter(text: str) -> Filter:
    rules = [_rule(part) for part in text.split(",")]
    return lambda topic, number: any(rule(topic, number) for rule in rules)


def _rule(text: str) -> Filter:
    from headrace.client.topics import topic_filter

    match = _RULE.fullmatch(text)
    if match is None:
        raise UsageError(f"Error occurred: Invalid rule specification: {text}")
    name, one, lowest, end = match.groups()
    pattern = topic_filter(name or ".*", "--topic-partitions")
    first = int(one or lowest or 0)
    last = first + 1 if one else int(end) if end else sys.maxsize
    return lambda topic, number: first <= number < last and pattern.fullmatch(topic) is not None


if __name__ == "__main__":
    main()

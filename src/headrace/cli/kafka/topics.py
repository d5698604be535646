"""`kafka-topics.sh`: creates, lists, describes, alters and deletes topics."""

from collections.abc import Sequence

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import ToolError, UsageError, forbid, require
from headrace.cli.kafka.zookeeper import OPTION as ZOOKEEPER
from headrace.cli.kafka.zookeeper import bootstrap_of
from headrace.client.errors import ClientError

NAME = "kafka-topics.sh"
ABOUT = "This tool helps to create, delete, describe, or change a topic."
ACTIONS = ("create", "list", "alter", "describe", "delete")
REPORTS = (
    "under-replicated-partitions",
    "unavailable-partitions",
    "under-min-isr-partitions",
    "at-min-isr-partitions",
)
OPTIONS = (
    Option(name="bootstrap-server", value="server to connect to", help="REQUIRED: The brokers, host:port each."),
    ZOOKEEPER,
    Option(name="command-config", value="command config property file", help="A file of settings for the client."),
    Option(name="list", help="Show the names of all topics."),
    Option(name="create", help="Make a new topic."),
    Option(name="delete", help="Remove a topic."),
    Option(name="alter", help="Give a topic more partitions. (Settings are changed with kafka-configs.sh.)"),
    Option(name="describe", help="Show a topic's partitions and settings."),
    Option(
        name="topic",
        value="topic",
        help="The topic to work on. A regular expression, except with --create; a comma stands for `or`.",
    ),
    Option(name="topic-id", value="topic-id", help="The id of the topic to describe."),
    Option(name="config", value="name=value", help="A setting of the topic that is created; may stand many times."),
    Option(name="delete-config", value="name", help="No longer supported; use kafka-configs.sh."),
    Option(
        name="partitions",
        value="# of partitions",
        kind=int,
        help="How many partitions to create, or to have after --alter. More of them move keys to other partitions.",
    ),
    Option(
        name="replication-factor",
        value="replication factor",
        kind=int,
        help="How many brokers hold each partition of the new topic.",
    ),
    Option(
        name="replica-assignment",
        value="broker_id_for_part1_replica1 : broker_id_for_part1_replica2 , broker_id_for_part2_replica1 : ...",
        help="Which brokers hold which partition, for --create and --alter.",
    ),
    Option(name="under-replicated-partitions", help="With --describe: only partitions that miss replicas."),
    Option(name="unavailable-partitions", help="With --describe: only partitions without a live leader."),
    Option(name="under-min-isr-partitions", help="With --describe: only those with fewer than min.insync.replicas."),
    Option(name="at-min-isr-partitions", help="With --describe: only those with exactly min.insync.replicas."),
    Option(name="topics-with-overrides", help="With --describe: only topics with settings of their own."),
    Option(name="if-exists", help="With --alter, --delete, --describe: no error if there is no such topic."),
    Option(name="if-not-exists", help="With --create: no error if there is such a topic already."),
    Option(name="exclude-internal", help="With --list and --describe: leave out Kafka's internal topics."),
    Option(
        name="partition-size-limit-per-response",
        value="maximum number of partitions per response",
        kind=int,
        help="How many partitions the broker may put into one answer to --describe.",
    ),
    Option(name="force", help="Ask no questions; accepted as older versions did, no question is asked."),
    Option(name="disable-rack-aware", help="Accepted as older versions did; placing is the broker's own affair."),
)


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    _check(given)
    bootstrap = bootstrap_of(given)
    from headrace.cli.kafka import topic_actions
    from headrace.client.cluster import ClusterClient

    with ClusterClient(bootstrap, tool.client_properties(given)) as cluster:
        actions = {
            "create": topic_actions.create,
            "list": topic_actions.list_topics,
            "alter": topic_actions.alter,
            "describe": topic_actions.describe,
            "delete": topic_actions.delete,
        }
        action = next(name for name in ACTIONS if given.has(name))
        try:
            actions[action](cluster, given)
        except (ToolError, ClientError) as error:
            raise ToolError(f"Error while executing topic command : {error}", on_stdout=True) from error
    return 0


def _check(given: GivenOptions) -> None:
    if sum(given.has(action) for action in ACTIONS) != 1:
        raise UsageError("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    if not given.has("bootstrap-server") and not given.has("zookeeper"):
        raise UsageError("--bootstrap-server must be specified")
    if given.has("describe") and given.has("if-exists") and not given.has("topic") and not given.has("topic-id"):
        raise UsageError("--topic or --topic-id is required to describe a topic")
    if not given.has("list") and not given.has("describe"):
        require(given, "topic")
    if given.has("alter"):
        if given.has("config"):
            raise UsageError(
                'Option combination "[bootstrap-server],[config]" can\'t be used with option "[alter]" '
                "(To alter topic configurations, the kafka-configs tool can be used.)"
            )
        require(given, "partitions")
    _allow_only_with(given, "config", "alter", "create")
    _allow_only_with(given, "partitions", "alter", "create")
    _allow_only_with(given, "replication-factor", "create")
    _allow_only_with(given, "replica-assignment", "alter", "create")
    if given.has("create"):
        forbid(given, "replica-assignment", "partitions", "replication-factor")
    for report in REPORTS:
        _allow_only_with(given, report, "describe")
        forbid(given, report, "topics-with-overrides")
    _allow_only_with(given, "topics-with-overrides", "describe")
    _allow_only_with(given, "if-exists", "alter", "delete", "describe")
    _allow_only_with(given, "if-not-exists", "create")
    _allow_only_with(given, "exclude-internal", "list", "describe")


def _allow_only_with(given: GivenOptions, name: str, *actions: str) -> None:
    others: Sequence[str] = [action for action in ACTIONS if action not in actions]
    forbid(given, name, *others)


if __name__ == "__main__":
    main()

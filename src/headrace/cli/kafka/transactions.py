"""`kafka-transactions.sh`: looks at transactions and producers, and ends transactions that hang."""

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import UsageError, require

NAME = "kafka-transactions.sh"
ABOUT = (
    "This tool is used to analyze the transactional state of producers in the cluster. It can be used to detect and "
    "recover from hanging transactions.\n"
    "Usage: kafka-transactions.sh --bootstrap-server host:port COMMAND [options], where COMMAND is one of list, "
    "describe, describe-producers, abort, find-hanging, forceTerminateTransaction"
)
OPTIONS = (
    Option(name="bootstrap-server", value="host:port", help="REQUIRED: The brokers, host:port each."),
    Option(name="command-config", value="FILE", help="A file of settings for the client."),
    Option(name="duration-filter", value="ms", kind=int, help="list: only transactions that last longer than that."),
    Option(name="transactional-id-pattern", value="regex", help="list: only ids that match a regular expression."),
    Option(name="transactional-id", value="id", help="describe: the transactional id."),
    Option(name="transactionalId", value="id", help="forceTerminateTransaction: the transactional id."),
    Option(name="topic", value="topic", help="describe-producers, abort, find-hanging: the topic."),
    Option(name="partition", value="number", kind=int, help="describe-producers, abort, find-hanging: the partition."),
    Option(name="broker-id", value="id", kind=int, help="describe-producers, find-hanging: ask this replica."),
    Option(name="start-offset", value="offset", kind=int, help="abort: where the transaction begins."),
    Option(name="producer-id", value="id", kind=int, help="abort, before Kafka 3.0: the producer."),
    Option(name="producer-epoch", value="epoch", kind=int, help="abort, before Kafka 3.0: its epoch."),
    Option(name="coordinator-epoch", value="epoch", kind=int, help="abort, before Kafka 3.0: the coordinator's epoch."),
    Option(
        name="max-transaction-timeout",
        value="minutes",
        kind=int,
        default=15,
        help="find-hanging: transactions younger than that do not count.",
    ),
)
COMMANDS: tool.Commands = {
    "list": (frozenset({"duration-filter", "transactional-id-pattern"}), ()),
    "describe": (frozenset({"transactional-id"}), ("transactional-id",)),
    "describe-producers": (frozenset({"topic", "partition", "broker-id"}), ("topic", "partition")),
    "abort": (
        frozenset({"topic", "partition", "start-offset", "producer-id", "producer-epoch", "coordinator-epoch"}),
        ("topic", "partition"),
    ),
    "find-hanging": (frozenset({"broker-id", "max-transaction-timeout", "topic", "partition"}), ()),
    "forceTerminateTransaction": (frozenset({"transactionalId"}), ("transactionalId",)),
}


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    command = _check(given)
    from headrace.cli.kafka import transaction_actions
    from headrace.client.cluster import ClusterClient

    actions = {
        "list": transaction_actions.list_them,
        "describe": transaction_actions.describe,
        "describe-producers": transaction_actions.describe_producers,
        "abort": transaction_actions.abort,
        "find-hanging": transaction_actions.find_hanging,
        "forceTerminateTransaction": transaction_actions.force_terminate,
    }
    with ClusterClient(given.one("bootstrap-server"), tool.client_properties(given)) as cluster:
        actions[command](cluster, given)
    return 0


def _check(given: GivenOptions) -> str:
    command = tool.command_of(given, COMMANDS, always=("bootstrap-server", "command-config"))
    require(given, "bootstrap-server")
    if command == "find-hanging":
        if not given.has("topic") and not given.has("broker-id"):
            raise UsageError(
                "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"
            )
        if given.has("partition") and not given.has("topic"):
            raise UsageError("The --partition argument requires --topic to be provided")
    if command == "abort" and not given.has("start-offset"):
        if not given.has("producer-id"):
            raise UsageError(
                "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) "
                "or with --producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
            )
        for name in ("producer-epoch", "coordinator-epoch"):
            if not given.has(name):
                raise UsageError(f"Missing required argument --{name}")
    return command


if __name__ == "__main__":
    main()

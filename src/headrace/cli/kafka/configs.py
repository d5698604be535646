"""`kafka-configs.sh`: shows and changes the settings of topics, brokers, groups, clients, users and addresses."""

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import ToolError, UsageError, forbid
from headrace.cli.kafka.zookeeper import OPTION as ZOOKEEPER
from headrace.cli.kafka.zookeeper import bootstrap_of

NAME = "kafka-configs.sh"
ABOUT = (
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, client-metrics or "
    "group"
)
TOPICS, BROKERS, LOGGERS, GROUPS, METRICS = "topics", "brokers", "broker-loggers", "groups", "client-metrics"
USERS, CLIENTS, IPS = "users", "clients", "ips"
TYPES = (TOPICS, CLIENTS, USERS, BROKERS, IPS, METRICS, GROUPS, LOGGERS)
# The short flags: what they name.
FLAGS = {
    "topic": TOPICS,
    "client": CLIENTS,
    "user": USERS,
    "broker": BROKERS,
    "broker-logger": LOGGERS,
    "ip": IPS,
    "client-metrics": METRICS,
    "group": GROUPS,
}
DEFAULTS = {"client-defaults": CLIENTS, "user-defaults": USERS, "broker-defaults": BROKERS, "ip-defaults": IPS}
WITH_DEFAULTS = (USERS, CLIENTS, BROKERS, IPS)
OPTIONS = (
    Option(name="bootstrap-server", value="server to connect to", help="The brokers, host:port each."),
    Option(name="bootstrap-controller", value="controller to connect to", help="The controllers, host:port each."),
    ZOOKEEPER,
    Option(name="command-config", value="command config property file", help="A file of settings for the client."),
    Option(name="alter", help="Change settings."),
    Option(name="describe", help="Show settings that were changed."),
    Option(name="all", help="With --describe: show those that were not changed as well."),
    Option(name="entity-type", value="", help=f"Of what: {', '.join(TYPES)}."),
    Option(name="entity-name", value="", help="Of which: a topic, client, user, broker, address, metric or group."),
    Option(name="entity-default", help="Of all clients, users, brokers or addresses that have none of their own."),
    Option(name="add-config", value="", help="Settings to make: 'k1=v1,k2=[v1,v2,v2],k3=v3'."),
    Option(name="add-config-file", value="", help="A .properties file of settings to make."),
    Option(name="delete-config", value="", help="Settings to remove: 'k1,k2'."),
    Option(name="topic", value="", help="The topic."),
    Option(name="client", value="", help="The client's id."),
    Option(name="client-defaults", help="All clients."),
    Option(name="user", value="", help="The user."),
    Option(name="user-defaults", help="All users."),
    Option(name="broker", value="", help="The broker's id."),
    Option(name="broker-defaults", help="All brokers."),
    Option(name="broker-logger", value="", help="The id of the broker whose log levels are meant."),
    Option(name="ip", value="", help="The address."),
    Option(name="ip-defaults", help="All addresses."),
    Option(name="group", value="", help="The group."),
    Option(name="client-metrics", value="", help="The subscription to clients' metrics."),
    Option(name="force", help="Accepted as older versions did; no question is asked."),
)


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    types, names = entities(given)
    _check(given, types, names)
    bootstrap = given.one("bootstrap-controller") or bootstrap_of(given)
    from headrace.cli.kafka import config_actions
    from headrace.client.cluster import ClusterClient

    if given.has("alter") and len(types) != len(names):
        raise ToolError("An entity name must be specified for every entity type")
    with ClusterClient(bootstrap, tool.client_properties(given)) as cluster:
        if given.has("alter"):
            config_actions.alter(cluster, given, types, names)
        else:
            config_actions.describe(cluster, types, names, everything=given.has("all"))
    return 0


def entities(given: GivenOptions) -> tuple[list[str], list[str]]:
    """The types, and the names in the same order; an empty name stands for the default of its type."""
    types = [*given.all("entity-type")]
    waiting = iter(given.all("entity-name"))
    names = [
        next(waiting) if flag == "entity-name" else ""
        for flag in given.order
        if flag.startswith("entity-") and flag != "entity-type"
    ]
    for flag, kind in FLAGS.items():
        if given.has(flag):
            types.append(kind)
            names.append(given.one(flag))
    for flag, kind in DEFAULTS.items():
        if given.has(flag):
            types.append(kind)
            names.append("")
    return types, names


def _check(given: GivenOptions, types: list[str], names: list[str]) -> None:
    if given.has("alter") == given.has("describe"):
        raise UsageError("Command must include exactly one action: --describe, --alter")
    forbid(given, "describe", "add-config", "delete-config")
    if not any(given.has(name) for name in ("bootstrap-server", "bootstrap-controller", "zookeeper")):
        raise UsageError("Either --bootstrap-server or --bootstrap-controller must be specified.")
    if given.has("bootstrap-server") and given.has("bootstrap-controller"):
        raise UsageError("Only one of --bootstrap-server or --bootstrap-controller can be specified")
    twice = sorted({kind for kind in types if types.count(kind) > 1})
    if twice:
        raise UsageError(f"Duplicate entity type(s) specified: {','.join(twice)}")
    for kind in types:
        if kind not in TYPES:
            raise UsageError(f"Invalid entity type {kind}, the entity type must be one of {', '.join(TYPES)}")
    if not types:
        raise UsageError("At least one entity type must be specified")
    if len(types) > 1 and set(types) != {USERS, CLIENTS}:
        raise UsageError("Only 'users' and 'clients' entity types may be specified together")
    long = given.has("entity-name") or given.has("entity-type") or given.has("entity-default")
    if long and any(given.has(flag) for flag in (*FLAGS, *DEFAULTS)):
        raise UsageError("--entity-{type,name,default} should not be used in conjunction with specific entity flags")
    if types[0] in (BROKERS, LOGGERS):
        for name in filter(None, names):
            if not name.isdigit():
                raise UsageError(f"The entity name for {types[0]} must be a valid integer broker id, but it is: {name}")
    if given.has("alter"):
        _check_alter(given, types, names)
    elif types[0] not in WITH_DEFAULTS and given.has("entity-default"):
        raise UsageError(f"--entity-default must not be specified with --describe of {','.join(types)}")
    elif LOGGERS in types and not any(names):
        raise UsageError(f"An entity name must be specified with --describe of {','.join(types)}")


def _check_alter(given: GivenOptions, types: list[str], names: list[str]) -> None:
    if types[0] in WITH_DEFAULTS and not names:
        raise UsageError(
            "An entity-name or default entity must be specified with --alter of users, clients, brokers or ips"
        )
    if types[0] not in WITH_DEFAULTS and not any(names):
        raise UsageError(f"An entity name must be specified with --alter of {','.join(types)}")
    if given.has("add-config") and given.has("add-config-file"):
        raise UsageError("Only one of --add-config or --add-config-file must be specified")
    if not any(given.has(name) for name in ("add-config", "add-config-file", "delete-config")):
        raise UsageError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )


if __name__ == "__main__":
    main()

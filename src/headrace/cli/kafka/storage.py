"""`kafka-storage.sh COMMAND`: formats and describes log directories, and makes ids.

A Headrace broker formats a new directory itself, so `format` is only needed to choose the cluster id.
"""

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import UsageError

NAME = "kafka-storage.sh"
ABOUT = (
    "The Kafka storage tool. A broker formats new log directories itself; format them before its first start only to "
    "choose the cluster id.\n"
    "Usage: kafka-storage.sh COMMAND [options], where COMMAND is one of info, format, version-mapping, "
    "feature-dependencies, random-uuid"
)
OPTIONS = (
    Option(name="config", also=("c",), value="FILE", help="info, format: the server.properties of the broker."),
    Option(name="cluster-id", also=("t",), value="id", help="format: the cluster id."),
    Option(name="ignore-formatted", also=("g",), help="format: leave directories alone that have this cluster id."),
    Option(name="standalone", also=("s",), help="format: accepted, and without effect: a broker is always alone."),
    Option(
        name="no-initial-controllers",
        also=("N",),
        help="format: accepted, and without effect: there are no controllers.",
    ),
    Option(name="initial-controllers", also=("I",), value="voters", help="format: has no effect; a warning says so."),
    Option(name="add-scram", also=("S",), value="credential", help="format: has no effect; a warning says so."),
    Option(
        name="release-version",
        also=("r",),
        value="version",
        help="format: accepted, and without effect, as there is no KRaft.",
    ),
    Option(
        name="feature",
        also=("f",),
        value="feature=level",
        help="feature-dependencies: the feature to look up. format: accepted, and without effect.",
    ),
)
_FORMAT_ONLY = (
    *("cluster-id", "ignore-formatted", "standalone", "no-initial-controllers", "initial-controllers", "add-scram"),
    *("release-version", "feature"),
)
COMMANDS: tool.Commands = {
    "info": (frozenset({"config"}), ("config",)),
    "format": (frozenset({"config", *_FORMAT_ONLY}), ("config", "cluster-id")),
    "version-mapping": (frozenset({"release-version"}), ()),
    "feature-dependencies": (frozenset({"feature"}), ("feature",)),
    "random-uuid": (frozenset(), ()),
}


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    command = _check(given)
    from headrace.cli.kafka import storage_actions

    actions = {
        "info": storage_actions.info,
        "format": storage_actions.format_directories,
        "version-mapping": storage_actions.version_mapping,
        "feature-dependencies": storage_actions.feature_dependencies,
        "random-uuid": storage_actions.random_uuid,
    }
    return actions[command](given)


def _check(given: GivenOptions) -> str:
    command = tool.command_of(given, COMMANDS)
    if command == "format" and sum(given.has(name) for name in _FORMAT_ONLY[2:5]) > 1:
        raise UsageError("--standalone, --no-initial-controllers and --initial-controllers exclude each other")
    return command


if __name__ == "__main__":
    main()

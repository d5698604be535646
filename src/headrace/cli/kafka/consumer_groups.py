"""`kafka-consumer-groups.sh`: lists, describes, resets and deletes consumer groups."""

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import GivenOptions, Option
from headrace.cli.kafka.tool import UsageError, forbid, require

NAME = "kafka-consumer-groups.sh"
ABOUT = (
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset "
    "consumer group offsets."
)
ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
SCENARIOS = (
    "to-offset",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "shift-by",
    "from-file",
)
OPTIONS = (
    Option(
        name="bootstrap-server",
        value="server to connect to",
        help="REQUIRED, except with --validate-regex: the brokers, host:port each.",
    ),
    Option(name="group", value="consumer group", help="The group to work on; may stand many times."),
    Option(
        name="topic",
        value="topic",
        help="A topic whose offsets are reset or deleted, or some of its partitions: `topic1:0,1,2`. "
        "May stand many times.",
    ),
    Option(name="all-topics", help="With --reset-offsets: every topic that the group has committed offsets of."),
    Option(name="list", help="Show the names of all groups."),
    Option(name="describe", help="Show a group's offsets and how far behind it is."),
    Option(name="all-groups", help="Work on every group."),
    Option(name="delete", help="Forget groups and all their offsets: --group g1 --group g2."),
    Option(name="timeout", value="timeout (ms)", kind=int, default=30_000, help="How long to wait for an answer."),
    Option(name="command-config", value="command config property file", help="A file of settings for the client."),
    Option(
        name="reset-offsets",
        help="Move a group's offsets; its members must have left. Shows only what would be done (--dry-run), unless "
        "--execute is given; --export shows it as CSV. Where to: one of --to-datetime, --by-duration, --to-earliest, "
        "--to-latest, --shift-by, --from-file, --to-current, --to-offset. Which: --all-topics or --topic.",
    ),
    Option(name="delete-offsets", help="Forget a group's offsets of some topics."),
    Option(name="dry-run", help="With --reset-offsets: only show what would be done."),
    Option(name="execute", help="With --reset-offsets: do it."),
    Option(name="export", help="With --reset-offsets: show it as CSV, to be read by --from-file."),
    Option(name="to-offset", value="offset", kind=int, help="Reset to this offset."),
    Option(name="from-file", value="path to CSV file", help="Reset to the offsets in a CSV file."),
    Option(
        name="to-datetime", value="datetime", help="Reset to the first record at or after 'YYYY-MM-DDThh:mm:ss.sss'."
    ),
    Option(name="by-duration", value="duration", help="Reset to what was current so long ago: 'PnDTnHnMnS'."),
    Option(name="to-earliest", help="Reset to the oldest record."),
    Option(name="to-latest", help="Reset to the end."),
    Option(name="to-current", help="Reset to where the group is now."),
    Option(
        name="shift-by",
        value="number-of-offsets",
        kind=int,
        help="Move by so many records, forward or, with a minus, back.",
    ),
    Option(name="members", needs=("describe",), help="With --describe: the group's members."),
    Option(name="verbose", needs=("describe",), help="With --describe: more columns."),
    Option(name="offsets", needs=("describe",), help="With --describe: offsets and lag; what it shows by default."),
    Option(
        name="state",
        value="",
        value_optional=True,
        needs=("describe", "list"),
        help="With --describe: the group's state. With --list: groups with their states, or only those in some: "
        "`stable,empty`.",
    ),
    Option(
        name="type",
        value="",
        value_optional=True,
        needs=("list",),
        help="With --list: groups with their types, or only some: `classic,consumer`.",
    ),
    Option(
        name="validate-regex", value="regex", help="Say whether a regular expression can be used in a subscription."
    ),
    Option(name="new-consumer", help="Accepted as older versions did; there is no other."),
)


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    given = tool.read_options(OPTIONS, args, ABOUT)
    _check(given)
    if given.has("validate-regex"):
        from headrace.cli.kafka.group_actions import validate_regex

        return validate_regex(given.one("validate-regex"))
    from headrace.cli.kafka import group_actions
    from headrace.client.cluster import ClusterClient

    properties = tool.client_properties(given)
    if given.has("timeout"):
        properties |= {
            "request.timeout.ms": str(given.one("timeout")),
            "default.api.timeout.ms": str(given.one("timeout")),
        }
    actions = {
        "list": group_actions.list_them,
        "describe": group_actions.describe,
        "delete": group_actions.delete,
        "reset-offsets": group_actions.reset_offsets,
        "delete-offsets": group_actions.delete_offsets,
    }
    with ClusterClient(given.one("bootstrap-server"), properties) as cluster:
        return group_actions.guarded(actions[next(name for name in ACTIONS if given.has(name))], cluster, given)


def _check(given: GivenOptions) -> None:
    if not given.has("validate-regex"):
        require(given, "bootstrap-server")
    scope = given.has("group") or given.has("all-groups")
    for action in ("describe", "delete", "reset-offsets"):
        if given.has(action) and not scope:
            raise UsageError(f"Option [{action}] takes one of these options: [group], [all-groups]")
    if given.has("describe"):
        kinds = ("members", "offsets", "state")
        if sum(given.has(kind) for kind in kinds) > 1:
            named = ", ".join(f"[{kind}]" for kind in kinds)
            raise UsageError(f"Option [describe] takes at most one of these options: {named}")
        if given.one("state") is not None:
            raise UsageError("Option [describe] does not take a value for [state]")
    if given.has("delete") and given.has("topic"):
        raise UsageError("The consumer does not support topic-specific offset deletion from a consumer group.")
    if given.has("delete-offsets") and not (given.has("group") and given.has("topic")):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if given.has("reset-offsets"):
        if given.has("dry-run") and given.has("execute"):
            raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        for scenario in SCENARIOS:
            forbid(given, scenario, *(other for other in SCENARIOS if other != scenario))
    forbid(given, "group", "all-groups", "list")
    forbid(given, "topic", "list", "describe")
    if sum(given.has(action) for action in ACTIONS) != 1:
        named = ", ".join(f"--{action}" for action in ACTIONS)
        raise UsageError(f"Command must include exactly one action: {named}")


if __name__ == "__main__":
    main()

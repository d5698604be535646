"""reconfig: a change of an ensemble's members. A keeper is one node, and answers that this is not allowed."""

from headrace.cli.kafka.zookeeper_shell.command import Command, Context, out
from headrace.cli.kafka.zookeeper_shell.command_line import Given, Option, Options, ShellError
from headrace.cli.kafka.zookeeper_shell.printing import stat_lines

RECONFIG = Options(
    {
        "s": Option("stats"),
        "v": Option("required current config version", True),
        "file": Option("path of config file to parse for membership", True),
        "members": Option("comma-separated list of config strings for non-incremental reconfig", True),
        "add": Option("comma-separated list of config strings for new servers", True),
        "remove": Option("comma-separated list of server IDs to remove", True),
    }
)


def reconfig(context: Context, given: Given) -> None:
    whole = [name for name in ("file", "members") if given.has(name)]
    steps = [name for name in ("add", "remove") if given.has(name)]
    if not whole and not steps:
        raise ShellError(COMMAND.usage_text())
    version = _version(given)
    if whole and steps:
        raise ShellError(
            "Can't use -file or -members together with -add or -remove (mixing incremental and non-incremental modes is"
            " not allowed)"
        )
    if len(whole) > 1:
        raise ShellError("Can't use -file and -members together (conflicting non-incremental modes)")
    found = context.client.reconfigure(
        joining=_lower(given, "add"),
        leaving=_lower(given, "remove"),
        members=_members(given.options["file"]) if given.has("file") else _lower(given, "members"),
        version=version,
    )
    out(f"Committed new configuration:\n{(found.data or b'').decode('utf-8', 'replace')}\n")
    if given.has("s"):
        out(stat_lines(found.stat))


def _version(given: Given) -> int:
    try:
        return int(given.options["v"], 16) if given.has("v") else -1
    except ValueError:
        raise ShellError("-v must be followed by a long (configuration version)") from None


def _lower(given: Given, name: str) -> str | None:
    return given.options[name].lower() if given.has(name) else None


def _members(path: str) -> str:
    """The lines of a configuration file that say who belongs to the ensemble."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.strip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise ShellError(f"Error processing {path}{error}") from None
    return "\n".join(line for line in lines if line.startswith(("server.", "group.", "weight.")))


COMMAND = Command(
    "reconfig",
    "[-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*]] | [-add"
    " serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]",
    reconfig,
    RECONFIG,
)

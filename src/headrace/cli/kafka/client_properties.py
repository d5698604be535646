"""Client settings as a user gives them: files in Java's .properties format, and `key=value` arguments."""

from collections.abc import Iterable

from headrace.cli.kafka.tool import ToolError


def load(path: str) -> dict[str, str]:
    from headrace.core.properties import parse_properties

    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ToolError(f"{path}: {reason}; give the path of a .properties file") from error
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")  # what Java takes such a file to be
    return {each.key: each.value for each in parse_properties(text, path)}


def pairs(args: Iterable[str]) -> dict[str, str]:
    """`key=value` each; a value may hold further equals signs or be empty."""
    found = {}
    for arg in args:
        key, _, value = arg.partition("=")
        found[key] = value
    return found


def gathered(config_path: str | None, args: Iterable[str]) -> dict[str, str]:
    """The file's settings, and over them those of the command line."""
    return (load(config_path) if config_path else {}) | pairs(args)

"""Client settings as a user gives them: files in Java's .properties format, and `key=value` arguments."""

from collections.abc import Iterable

from headrace.client.errors import ClientError


def load(path: str) -> dict[str, str]:
    from headrace.core.errors import OperatorError
    from headrace.core.properties import parse_properties, read_text

    try:
        text = read_text(path, "a .properties file")
    except OperatorError as error:
        raise ClientError(str(error)) from error
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

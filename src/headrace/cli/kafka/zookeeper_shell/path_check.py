"""Why a path is not one, in the words of ZooKeeper's client, which looks before it asks a server."""

from headrace.cli.kafka.zookeeper_shell.command_line import ShellError


def check_path(path: str) -> None:
    why = _why_not(path)
    if why is not None:
        raise ShellError(why)


def _why_not(path: str) -> str | None:
    if not path:
        return "Path length must be > 0"
    if not path.startswith("/"):
        return "Path must start with / character"
    if path == "/":
        return None
    if path.endswith("/"):
        return "Path must not end with / character"
    for at in range(1, len(path)):
        reason = _wrong_at(path, at)
        if reason is not None:
            return f'Invalid path string "{path}" caused by {reason} @{at}'
    return None


def _wrong_at(path: str, at: int) -> str | None:
    char, before, ends = path[at], path[at - 1], at + 1 == len(path) or path[at + 1] == "/"
    if char == "\0":
        return "null character not allowed"
    if char == "/":
        return "empty node name specified" if before == "/" else None
    if char == ".":
        begins = path[at - 2] == "/" if before == "." else before == "/"
        return "relative paths not allowed" if begins and ends else None
    code = ord(char)
    bad = code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or code >= 0xFFF0
    return "invalid character" if bad else None

"""What the Tab key offers: commands, and paths that are there."""

from headrace.cli.kafka.zookeeper_shell.reading import children_of
from headrace.cli.kafka.zookeeper_shell.shell import Shell, command_names
from headrace.client.errors import ClientError
from headrace.client.zookeeper.states import State


def offers(shell: Shell, line: str, word: str) -> list[str]:
    """For the last word of a line."""
    if word.startswith("/"):
        return _paths(shell, word)
    if line.lstrip() != word:
        return []
    return [name for name in command_names() if name.startswith(word)]


def _paths(shell: Shell, word: str) -> list[str]:
    above = word[: word.rindex("/")] or "/"
    if shell.client.state is not State.CONNECTED:
        return []
    try:
        return [
            path for path in sorted(children_of(above, shell.client.children(above).names)) if path.startswith(word)
        ]
    except ClientError:
        return []  # the path is not there, or nobody answers: then there is nothing to offer

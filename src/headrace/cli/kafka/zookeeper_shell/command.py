"""A command of the shell: its name, its usage, its options, and what it does with a client."""

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from headrace.cli.kafka.zookeeper_shell.command_line import Given, Options, ShellError, option_lines
from headrace.client.zookeeper.blocking import BlockingClient
from headrace.client.zookeeper.events import Changed


class Context(Protocol):
    """What a command works with."""

    @property
    def client(self) -> BlockingClient: ...

    def changed(self, event: Changed) -> None:
        """The watcher of all watches that are set here."""


class Command(NamedTuple):
    name: str
    usage: str
    run: Callable[[Context, Given], None]
    options: Options = Options()
    args_min: int = 0  # after the name
    args_max: int | None = None
    explains_options: bool = False  # in its usage
    parses: bool = True
    listed: bool = True

    def usage_text(self) -> str:
        text = f"{self.name} {self.usage}"
        return f"{text}\n{option_lines(self.options)}" if self.explains_options else text

    def demand_args(self, args: Sequence[str]) -> None:
        count = len(args) - 1
        if count < self.args_min or (self.args_max is not None and count > self.args_max):
            raise ShellError(self.usage_text())


def out(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def err(text: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ShellError(f"{text} is not a whole number") from None

"""The shell at a terminal, or with its commands in a pipe: one line after the other until the end."""

import sys
import threading
from collections.abc import Iterator
from typing import Final

from headrace.cli.kafka.zookeeper_shell.command import out
from headrace.cli.kafka.zookeeper_shell.completion import offers
from headrace.cli.kafka.zookeeper_shell.shell import Shell

_ERASE_TO_END: Final = "\x1b[K"


def run_lines(shell: Shell) -> None:
    lines = _typed(shell) if sys.stdin.isatty() else _piped()
    for line in lines:
        shell.run_line(line)
        if shell.quitting:
            return


def _piped() -> Iterator[str]:
    for line in sys.stdin:
        yield line.removesuffix("\n")


def _typed(shell: Shell) -> Iterator[str]:
    import readline

    readline.set_completer_delims(" ")
    readline.set_completer(_Completer(shell))
    readline.parse_and_bind("tab: complete")
    prompt = Prompt(shell)
    readline.set_pre_input_hook(prompt.is_shown)
    shell.after_event = prompt.show_again
    while True:
        try:
            line = input(prompt.next())
        except EOFError:
            out("\n")
            return
        except KeyboardInterrupt:
            out("\n")
            continue
        finally:
            prompt.is_over()
        yield line


class Prompt:
    """The prompt names the state of the connection, which changes on another thread at any moment: also between the
    moment at which readline is given the prompt and the one at which it has written it."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._lock = threading.Lock()
        self._given = ""
        self._is_waiting = False  # readline has written the prompt, and waits for keys

    def next(self) -> str:
        self._given = self._shell.prompt
        return self._given

    def is_shown(self) -> None:
        with self._lock:
            self._is_waiting = True
            now = self._shell.prompt
            if now != self._given:
                out(f"\r{now}{_ERASE_TO_END}")

    def is_over(self) -> None:
        with self._lock:
            self._is_waiting = False

    def show_again(self) -> None:
        """An event was printed over it."""
        import readline

        with self._lock:
            if self._is_waiting:
                out(self._shell.prompt + readline.get_line_buffer())


class _Completer:
    """Readline asks for one offer after the other."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._offers: list[str] = []

    def __call__(self, word: str, number: int) -> str | None:
        import readline

        if number == 0:
            self._offers = offers(self._shell, readline.get_line_buffer()[: readline.get_endidx()], word)
        return self._offers[number] if number < len(self._offers) else None

"""The shell itself: it has a client, numbers its commands, remembers them, and knows how the last one ended."""

from collections.abc import Callable
from typing import Final

from headrace.cli.kafka.zookeeper_shell import changing, quotas, reading, reconfiguring
from headrace.cli.kafka.zookeeper_shell.command import Command, err, out, whole_number
from headrace.cli.kafka.zookeeper_shell.command_line import Given, ShellError, parse_options, split_words
from headrace.cli.kafka.zookeeper_shell.printing import error_line, event_lines, state_lines
from headrace.client.errors import ClientError
from headrace.client.zookeeper.blocking import BlockingClient
from headrace.client.zookeeper.errors import ZooKeeperError
from headrace.client.zookeeper.events import Changed, StateChanged
from headrace.client.zookeeper.states import ENDED, State
from headrace.protocol.zookeeper import codes

HISTORY_SHOWN: Final = 10
NOT_FOUND: Final = 127
# What the shell does itself, without a server.
OWN: Final = {"connect": "host:port", "history": "", "redo": "cmdno", "printwatches": "on|off", "quit": "", "close": ""}
COMMANDS: Final[dict[str, Command]] = {
    command.name: command
    for command in (*reading.COMMANDS, *changing.COMMANDS, *quotas.COMMANDS, reconfiguring.COMMAND)
}
_STATES: Final = {
    State.CONNECTED: "SyncConnected",
    State.CONNECTING: "Disconnected",
    State.CLOSED: "Closed",
    State.EXPIRED: "Expired",
    State.AUTH_FAILED: "AuthFailed",
}


def command_names() -> list[str]:
    return sorted([*OWN, *(name for name, command in COMMANDS.items() if command.listed)])


class Shell:
    def __init__(self, connect: str, *, timeout_ms: int) -> None:
        self.connect = connect
        self.count = 0  # commands
        self.exit_code = 0
        self.quitting = False
        self.print_watches = True
        self.after_event: Callable[[], None] = lambda: (
            None
        )  # what a terminal does when an event was printed over its prompt
        self._timeout_ms = timeout_ms
        self._history: dict[int, str] = {}
        self.client = self._opened(connect)

    # ── the connection ───────────────────────────────────────────────────────────────────────────────────────────

    def _opened(self, connect: str) -> BlockingClient:
        return BlockingClient(connect, timeout_ms=self._timeout_ms, on_state=self._state_changed)

    def close(self) -> None:
        self.client.close()

    @property
    def state(self) -> str:
        state = self.client.state
        if state is State.GREETING:
            return State.CONNECTING.name
        return "CLOSED" if state in (State.CLOSING, State.EXPIRED) else state.name

    @property
    def prompt(self) -> str:
        return f"[zk: {self.connect}({self.state}) {self.count}] "

    def changed(self, event: Changed) -> None:
        """The watcher of all watches."""
        if self.print_watches:
            out(event_lines(event.kind, event.path, event.zxid))
            self.after_event()

    def _state_changed(self, event: StateChanged) -> None:
        shown = _STATES.get(event.state)
        if self.print_watches and shown is not None and not (self.quitting and event.state is State.CLOSED):
            out(state_lines(shown))
            self.after_event()

    # ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────

    def run_line(self, line: str) -> None:
        if not line:
            return
        words = split_words(line)
        self._history[self.count] = line
        self.run(words)
        self.count += 1

    def run(self, words: list[str]) -> None:
        """One command; whatever it fails with is printed, and is the exit code from now on."""
        try:
            self._run(words)
            if not self.quitting:
                self.exit_code = 0
        except ShellError as error:
            self._failed(str(error), error.exit_code)
        except ZooKeeperError as error:
            self._failed(error_line(error) + self._remedy(error), 1)
        except ClientError as error:
            self._failed(str(error), 1)

    def _failed(self, message: str, exit_code: int) -> None:
        err(message)
        self.exit_code = exit_code

    def _remedy(self, error: ZooKeeperError) -> str:
        if error.code != codes.CONNECTION_LOSS or self.client.state is State.CONNECTED:
            return ""
        return f" ({self.client.why}); start a server, for example with `headrace keeper`, or correct {self.connect}"

    def _run(self, words: list[str]) -> None:
        if not words:
            self._usage()
            raise ShellError("No command entered")
        name = words[0]
        if name not in OWN and name not in COMMANDS:
            self._usage()
            raise ShellError(f"Command not found: Command not found {name}", NOT_FOUND)
        if name == "quit":
            self.quitting = True
            return
        self._run_own(name, words)
        if self.client.state in ENDED:
            out("Not connected\n")
            return
        if name == "close":
            self.client.close()
        command = COMMANDS.get(name)
        if command is not None:
            given = parse_options(command.options, words) if command.parses else Given(words, {})
            command.demand_args(given.args)
            command.run(self, given)

    def _run_own(self, name: str, words: list[str]) -> None:
        if name == "redo" and len(words) > 1:
            self._redo(whole_number(words[1]))
        elif name == "history":
            for number in range(max(0, self.count - HISTORY_SHOWN), self.count + 1):
                out(f"{number} - {self._history.get(number, 'null')}\n")
        elif name == "printwatches":
            if len(words) == 1:
                out(f"printwatches is {'on' if self.print_watches else 'off'}\n")
            else:
                self.print_watches = words[1] == "on"
        elif name == "connect":
            connect = words[1] if len(words) > 1 else self.connect
            self.client.close()
            self.client = self._opened(connect)
            self.connect = connect

    def _redo(self, number: int) -> None:
        if not 0 <= number < self.count:
            raise ShellError("Command index out of range")
        line = self._history[number]
        words = split_words(line)
        if words[:1] == ["redo"]:
            raise ShellError("No redoing redos")
        self._history[self.count] = line
        self._run(words)

    def _usage(self) -> None:
        lines = ["ZooKeeper -server host:port -client-configuration properties-file cmd args"]
        usages = OWN | {name: command.usage for name, command in COMMANDS.items()}
        err("\n".join([*lines, *(f"\t{name} {usages[name]}" for name in command_names())]))

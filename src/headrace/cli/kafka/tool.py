"""How a tool begins and ends: what every failure looks like, and the exit code.

A failure is one line on stderr that says what to do; a traceback only with HEADRACE_DEBUG=1. Kafka's tools end
with 1 for every failure, and so do these.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from headrace.cli.kafka.options import GivenOptions, Option, OptionError, parse
from headrace.client.errors import AddressError, ClientError
from headrace.core.errors import HeadraceError

KAFKA_VERSION = "4.3.1"  # whose flags and output these are
HELP = (
    Option(name="help", help="Print this text."),
    Option(name="version", help="Print the version of Kafka that this tool follows, and of Headrace."),
)


class ToolError(HeadraceError):
    """Ends the tool with one line; `on_stdout` where Kafka's tool writes it there and scripts look for it."""

    def __init__(self, message: str, *, on_stdout: bool = False) -> None:
        super().__init__(message)
        self.on_stdout = on_stdout


class UsageError(ToolError):
    """A combination of options that means nothing."""


def main(name: str, run: Callable[[list[str]], int | None]) -> NoReturn:
    """The body of every `main`: runs the tool with the process's arguments, and ends the process."""
    try:
        code = run(sys.argv[1:]) or 0
        sys.stdout.flush()
    except OptionError as error:
        code = _fail(f"{error} (see {name} --help)")
    except (UsageError, AddressError) as error:
        code = _fail(f"{error} (see {name} --help)")
    except ClientError as error:
        code = _fail(str(error))
    except ToolError as error:
        code = _fail(str(error), on_stdout=error.on_stdout)
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        stop_printing()
        code = 1
    except HeadraceError as error:
        code = _fail(f"{name}: {error}")
    except Exception as error:
        if os.environ.get("HEADRACE_DEBUG"):
            raise
        what = f"{type(error).__name__}: {error}"
        code = _fail(f"{name}: unexpected {what}; run it with HEADRACE_DEBUG=1 to see where, and report it")
    if _AT_ONCE:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


_AT_ONCE: list[bool] = []


def end_at_once() -> None:
    """The process will end without waiting for its threads: one of them is stuck in a client without a broker."""
    _AT_ONCE.append(True)


def must_end_at_once() -> bool:
    return bool(_AT_ONCE)


def stop_printing() -> None:
    """Nobody reads any more, as in `kafka-topics.sh --list | head -1`: what is still to be flushed goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_event(name: str, **fields: object) -> None:
    """A line of JSON, as the verifiable producer and consumer print them: a time, a name, what happened."""
    import json

    event = {"timestamp": time.time_ns() // 1_000_000, "name": name, **fields}
    print(json.dumps(event, separators=(",", ":"), ensure_ascii=False), flush=True)


def _fail(line: str, *, on_stdout: bool = False) -> int:
    sys.stdout.flush()
    print(line, file=sys.stdout if on_stdout else sys.stderr, flush=True)
    return 1


def client_properties(given: GivenOptions) -> dict[str, str]:
    """What the file of --command-config says, if one is given."""
    if not given.has("command-config"):
        return {}
    from headrace.client.properties import load

    return load(given.one("command-config"))


def read_options(options: Sequence[Option], args: Sequence[str], about: str, *, usage_exit: int = 1) -> GivenOptions:
    """The options. With none at all, or --help, the usage goes to stderr and the exit code is 1, as in Kafka; some
    of its tools print it to stdout and end with 0."""
    everything = (*options, *HELP)
    given = parse(everything, args)
    if not args or given.has("help"):
        from headrace.cli.kafka.usage import usage

        print(about, usage(everything), sep="\n", file=sys.stderr if usage_exit else sys.stdout)
        raise SystemExit(usage_exit)
    if given.has("version"):
        from headrace import __version__

        print(f"{KAFKA_VERSION} (Headrace {__version__})")
        raise SystemExit(0)
    return given


def require(given: GivenOptions, *names: str) -> None:
    for name in names:
        if not given.has(name):
            raise UsageError(f'Missing required argument "[{name}]"')


def forbid(given: GivenOptions, used: str, *others: str) -> None:
    """None of `others` may stand beside `used`."""
    if given.has(used):
        for other in others:
            if given.has(other):
                raise UsageError(f'Option "[{used}]" can\'t be used with option "[{other}]"')


# Of each command of a tool: the options that it takes, and those of them that it must have.
Commands = Mapping[str, tuple[frozenset[str], tuple[str, ...]]]


def command_of(given: GivenOptions, commands: Commands, *, always: Sequence[str] = ()) -> str:
    """The one command that stands among the arguments, with its options checked; all commands take `always`."""
    named = ", ".join(commands)
    if len(given.rest) != 1:
        raise UsageError(f"Name one command of {named}; found {' '.join(given.rest) or 'none'}")
    command = given.rest[0]
    if command not in commands:
        raise UsageError(f"Invalid choice: {command} (choose from {named})")
    takes, needs = commands[command]
    for name in given.order:
        if name not in takes and name not in always:
            raise UsageError(f"The command {command} has no option --{name}")
    for name in needs:
        if not given.has(name):
            raise UsageError(f"Missing required argument --{name}")
    return command

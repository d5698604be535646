"""`kafka-server-start.sh [-daemon] server.properties [--override property=value]*`: one broker.

In the foreground it is `headrace broker`. With `-daemon` it goes to the background, and the command returns when the
broker listens (or says why it does not), so that the next line of a script finds it. What the broker warns of while it
starts is said on the terminal too, not only in the log file.
"""

import os
import sys
import time

from headrace.cli.kafka import tool
from headrace.cli.kafka.tool import ToolError

NAME = "kafka-server-start.sh"
USAGE = f"USAGE: {NAME} [-daemon] server.properties [--override property=value]*"
START_S_MAX = 60.0
WARNING = "headrace: warning: "
_POLL_S = 0.02


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    background, path, pairs = _parse(args)
    if background:
        overrides = [word for pair in pairs for word in ("--override", pair)]
        return start_in_background("headrace.cli.kafka.server_start", "broker", "kafkaServer.out", [path, *overrides])
    import click

    from headrace.cli.running import setting_flags
    from headrace.cli.serving import run as running

    try:
        debug = bool(os.environ.get("HEADRACE_DEBUG"))
        with running(os.environ.get("HEADRACE_LOG_LEVEL", "warning"), "text", debug) as runner:
            flags = setting_flags("--override", pairs)
            runner.serve(flags=flags, properties=runner.read(path), source=path)
    except click.UsageError as error:
        raise ToolError(error.message) from error
    return 0


def _parse(args: list[str]) -> tuple[bool, str, tuple[str, ...]]:
    waiting = list(args)
    background = False
    while waiting and waiting[0] in ("-daemon", "-loggc", "-name"):
        flag = waiting.pop(0)
        background |= flag == "-daemon"
        if flag == "-name" and waiting:
            waiting.pop(0)
    if waiting and waiting[0] == "--version":
        tool.read_options((), ["--version"], "")
    if not waiting or waiting[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        raise SystemExit(1)
    path, pairs = waiting.pop(0), []
    while waiting:
        name, equals, value = waiting.pop(0).partition("=")
        if name != "--override" or not (equals or waiting):
            raise ToolError(f"{name}: only --override property=value may follow the file ({USAGE})")
        pairs.append(value if equals else waiting.pop(0))
    return background, path, tuple(pairs)


def start_in_background(module: str, what: str, log_name: str, words: list[str]) -> int:
    """Runs a module of ours as a process that outlives this one; returns when it listens."""
    import subprocess

    folder = os.environ.get("LOG_DIR", "logs")
    os.makedirs(folder, exist_ok=True)
    log = os.path.join(folder, log_name)
    with open(log, "ab") as out:
        begin = out.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,  # it outlives the terminal
        )
    deadline = time.monotonic() + START_S_MAX
    while time.monotonic() < deadline:
        with open(log, errors="replace") as said:
            said.seek(begin)
            text = said.read()
        if " listens on " in text:
            for line in text.splitlines():
                if line.startswith(WARNING):
                    print(line, file=sys.stderr)
            return 0
        if process.poll() is not None:
            last = text.strip().splitlines()[-1:] or [f"it ended with code {process.returncode}"]
            raise ToolError(f"The {what} did not start: {last[0]} (see {log})")
        time.sleep(_POLL_S)
    process.terminate()
    raise ToolError(f"The {what} did not listen within {START_S_MAX:g} s (see {log})")


if __name__ == "__main__":
    main()

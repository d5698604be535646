"""The entry point: `zookeeper-shell.sh host:port[/path] [option]… [command [argument]…]`."""

import sys
from typing import Final, NamedTuple

from headrace.cli.kafka import tool

NAME: Final = "zookeeper-shell.sh"
ABOUT: Final = "ZooKeeper's own shell: shows and changes what is in a ZooKeeper or a keeper."
USAGE: Final = f"USAGE: {NAME} zookeeper_host:port[/path] [-zk-tls-config-file file] [args...]"
TIMEOUT_MS: Final = 30_000
_WITHOUT_TLS: Final = ("-zk-tls-config-file", "-client-configuration")


class _Asked(NamedTuple):
    connect: str
    timeout_ms: int
    wait: bool
    command: list[str]


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    if not args or args[0] in ("--help", "-h"):
        print(USAGE, file=sys.stderr)
        return 1
    asked = _read(args)

    from headrace.cli.kafka.zookeeper_shell.interactive import run_lines
    from headrace.cli.kafka.zookeeper_shell.shell import Shell

    print(f"Connecting to {asked.connect}", flush=True)
    shell = Shell(asked.connect, timeout_ms=asked.timeout_ms)
    try:
        if asked.wait:
            shell.client.await_connected(asked.timeout_ms / 1000)
        if asked.command:
            shell.run(asked.command)
        else:
            print("Welcome to ZooKeeper!", flush=True)
            run_lines(shell)
    finally:
        shell.quitting = True
        shell.close()
    return shell.exit_code


def _read(args: list[str]) -> _Asked:
    """The address comes first, as in Kafka's tool, or after -server, as in ZooKeeper's."""
    waiting = args if args[0] == "-server" else ["-server", *args]
    asked = _Asked("", TIMEOUT_MS, False, [])
    while waiting and waiting[0].startswith("-"):
        option, *waiting = waiting
        if option == "-waitforconnection":
            asked = asked._replace(wait=True)
            continue
        if not waiting:
            raise tool.UsageError(f"Error: no argument found for option {option}")
        if option == "-server":
            asked = asked._replace(connect=waiting[0])
        elif option == "-timeout" and waiting[0].isdigit():
            asked = asked._replace(timeout_ms=int(waiting[0]))
        elif option in _WITHOUT_TLS:
            raise tool.ToolError(
                f"{option} {waiting[0]}: TLS to a ZooKeeper is not supported; connect to its plain port"
            )
        else:
            raise tool.UsageError(f"{option} {waiting[0]}: no such option, or not a value for it. {USAGE}")
        waiting = waiting[1:]
    return asked._replace(command=waiting)


if __name__ == "__main__":
    main()

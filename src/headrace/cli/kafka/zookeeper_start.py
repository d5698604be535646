"""`zookeeper-server-start.sh [-daemon] zookeeper.properties`: one keeper, from ZooKeeper's own file."""

import os
import sys

from headrace.cli.kafka import tool
from headrace.cli.kafka.server_start import start_in_background

NAME = "zookeeper-server-start.sh"
USAGE = f"USAGE: {NAME} [-daemon] zookeeper.properties"


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    waiting = list(args)
    background = bool(waiting) and waiting[0] == "-daemon"
    if background:
        waiting.pop(0)
    if len(waiting) != 1 or waiting[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        raise SystemExit(1)
    if background:
        return start_in_background("headrace.cli.kafka.zookeeper_start", "keeper", "zookeeper.out", waiting)

    from headrace.cli.keeper.serving import serve
    from headrace.cli.serving import run as running

    debug = bool(os.environ.get("HEADRACE_DEBUG"))
    with running(os.environ.get("HEADRACE_LOG_LEVEL", "warning"), "text", debug):
        serve(waiting[0], {})
    return 0


if __name__ == "__main__":
    main()

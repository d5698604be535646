"""`zookeeper-server-stop.sh [--data=DIR]`: asks this user's running keepers to stop cleanly.

As Kafka's script it sends SIGTERM and does not wait. Which processes are keepers is decided in `running_servers`; an
Apache ZooKeeper is none of them.
"""

import os

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import Option, parse
from headrace.cli.kafka.running_servers import KEEPER, running_servers
from headrace.cli.kafka.stopping import stop, wanted_signal
from headrace.cli.kafka.tool import ToolError, UsageError

NAME = "zookeeper-server-stop.sh"
ABOUT = (
    "Asks the keepers of this user to stop cleanly: those that zookeeper-server-start.sh or headrace keeper started.\n"
    "Usage: zookeeper-server-stop.sh [--data=DIR]"
)
OPTIONS = (Option(name="data", value="directory", help="Only the keeper with its data (dataDir) in this directory."),)
NONE = "No zookeeper server to stop"


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    # Without options it stops every keeper, so that no option must not mean the usage here.
    given = tool.read_options(OPTIONS, args, ABOUT) if args else parse(OPTIONS, args)
    if given.rest:
        raise UsageError(f"{given.rest[0]} is not an option")
    number = wanted_signal()
    keepers = running_servers(KEEPER)
    data = given.one("data")
    chosen = [keeper for keeper in keepers if data is None or os.path.realpath(data) in keeper.directories]
    if not chosen:
        others = f": none has its data in {data}; running: {', '.join(map(str, keepers))}" if keepers else ""
        raise ToolError(NONE + others, on_stdout=True)
    stop(chosen, number)
    return 0


if __name__ == "__main__":
    main()

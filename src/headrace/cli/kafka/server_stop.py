"""`kafka-server-stop.sh [--process-role=broker] [--node-id=N]`: asks this user's running brokers to stop cleanly.

As Kafka's script it sends SIGTERM and does not wait. Which processes are brokers is decided in `running_servers`.
"""

from headrace.cli.kafka import tool
from headrace.cli.kafka.options import Option, parse
from headrace.cli.kafka.running_servers import BROKER, RunningServer, running_servers
from headrace.cli.kafka.stopping import stop, wanted_signal
from headrace.cli.kafka.tool import ToolError, UsageError

NAME = "kafka-server-stop.sh"
ABOUT = (
    "Asks the brokers of this user to stop cleanly: those that kafka-server-start.sh, headrace up or headrace broker "
    "started.\n"
    "Usage: kafka-server-stop.sh [--process-role=broker] [--node-id=N]"
)
OPTIONS = (
    Option(name="process-role", value="roles", help="Only processes with this role; brokers are all there is."),
    Option(name="node-id", value="id", kind=int, help="Only the broker with this node.id."),
)
ROLES = {"broker", "controller"}
NONE = "No kafka server to stop"


def main() -> None:
    tool.main(NAME, run)


def run(args: list[str]) -> int:
    # Without options it stops every broker, so that no option must not mean the usage here.
    given = tool.read_options(OPTIONS, args, ABOUT) if args else parse(OPTIONS, args)
    if given.rest:
        raise UsageError(f"{given.rest[0]} is not an option")
    number = wanted_signal()
    node_id = given.one("node-id")
    if given.has("process-role"):
        asks_for_brokers = _asks_for_brokers(given.one("process-role"))
        if node_id is not None:
            print("When both node-id and process-role are provided, the value for node-id will take precedence")
        elif not asks_for_brokers:
            raise ToolError(NONE, on_stdout=True)
    brokers = running_servers(BROKER)
    chosen = [broker for broker in brokers if node_id is None or broker.node_id == node_id]
    if not chosen:
        raise ToolError(_nothing(node_id, brokers), on_stdout=True)
    stop(chosen, number)
    return 0


def _asks_for_brokers(text: str) -> bool:
    roles = {role.strip() for role in text.split(",")}
    if unknown := roles - ROLES:
        raise UsageError(f"--process-role {text}: {', '.join(sorted(unknown))} is no role; give broker")
    return "broker" in roles


def _nothing(node_id: int | None, others: list[RunningServer]) -> str:
    if not others:
        return NONE
    return f"{NONE}: none has node.id {node_id}; running: {', '.join(map(str, others))}"


if __name__ == "__main__":
    main()

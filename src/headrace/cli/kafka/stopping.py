"""What kafka-server-stop.sh and zookeeper-server-stop.sh share: which signal, and to whom it went.

As Kafka's scripts they send SIGTERM, or the signal that $SIGNAL names, and do not wait.
"""

import os
import signal
from collections.abc import Iterable

from headrace.cli.kafka.running_servers import RunningServer, send
from headrace.cli.kafka.tool import ToolError


def wanted_signal() -> signal.Signals:
    name = os.environ.get("SIGNAL") or "TERM"
    try:
        return signal.Signals(int(name)) if name.isdigit() else signal.Signals["SIG" + name.upper().removeprefix("SIG")]
    except (KeyError, ValueError):
        raise ToolError(f"SIGNAL={name} is not a signal; leave it out, or give a name such as TERM") from None


def stop(servers: Iterable[RunningServer], number: signal.Signals) -> None:
    for server in servers:
        if send(server, number):
            print(f"Sent {number.name} to the {server.kind.name} with {server}")

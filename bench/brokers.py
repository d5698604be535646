"""A Headrace and an Apache Kafka, each in a process of its own, fresh, with six partitions a topic.

Headrace runs as a user starts it: `headrace up`, default settings but num.partitions and
group.initial.rebalance.delay.ms, which are Kafka's here. Both are known to be
ready by their first acknowledged record, which is timed from the moment the broker's process began.
"""

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import wire
from processes import MeasurementError, Running, descendants
from shared_tools import SharedTools
from workspace import Workspace

PARTITIONS = 6
SETTINGS = (f"num.partitions={PARTITIONS}", "group.initial.rebalance.delay.ms=0")
START_S_MAX = 120.0


@dataclass(slots=True, kw_only=True)
class Broker:
    name: str
    port: int
    data: Path  # where the partitions' directories are
    running: Running
    first_record_s: float
    format_s: float | None = None  # Kafka formats its directory before it starts
    _process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)

    @property
    def pid(self) -> int:
        return self.running.pid

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> float:
        """Ends the broker and returns the seconds that took."""
        took = self.running.end()
        if self._process is not None:
            self._process.wait()
        return took

    @property
    def stopped_cleanly(self) -> bool:
        return self._process is not None and self._process.returncode == 0


@contextlib.contextmanager
def headrace(workspace: Workspace, name: str = "headrace", *settings: str) -> Iterator[Broker]:
    data = workspace.fresh(name)
    broker = start_headrace(name, data, *settings)
    try:
        yield broker
    finally:
        broker.stop()
        workspace.remove(name)


def start_headrace(name: str, data: Path, *settings: str) -> Broker:
    """The caller stops it. Starts on what the directory holds, if it holds something."""
    command = Path(sys.executable).parent / "headrace"
    if not command.exists():
        raise SystemExit("bench: the headrace command is not beside this Python; run make install")
    port = _free_ports(1)
    words = [str(command), "up", "--port", str(port), "--data", str(data)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    log_path = data.parent / f"{data.name}.log"
    with open(log_path, "wb") as log:
        began = time.monotonic()
        process = subprocess.Popen(
            [*words, *(word for setting in (*SETTINGS, *settings) for word in ("--set", setting))],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    running = Running.of(process.pid)
    try:
        acknowledged = wire.first_record(port, running.alive, seconds_max=START_S_MAX)
    except BaseException as error:
        running.end()
        process.wait()
        if isinstance(error, MeasurementError):
            raise MeasurementError(f"Headrace: {error}: {_last_line(log_path)}") from error
        raise
    return Broker(
        name=name,
        port=port,
        data=data,
        running=running,
        first_record_s=acknowledged - began,
        _process=process,
    )


@contextlib.contextmanager
def apache_kafka(tools: SharedTools, workspace: Workspace, name: str = "kafka") -> Iterator[Broker]:
    data = workspace.fresh(name)
    broker = _start_kafka(tools, name, data)
    try:
        yield broker
    finally:
        broker.stop()
        workspace.remove(name)


def _start_kafka(tools: SharedTools, name: str, data: Path) -> Broker:
    port = _free_ports(2)
    printed_path = data.parent / f"{name}.log"
    with open(printed_path, "wb") as printed:
        asked = time.monotonic()
        script = subprocess.Popen(
            [str(tools.apache_kafka), "start", str(port), str(data)],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
    try:
        # The script formats the directory, and opens the server's log as it starts the server.
        while not (data / "server.log").exists():
            if script.poll() is not None:
                raise MeasurementError(f"Apache Kafka did not start: {_last_line(printed_path)}")
            time.sleep(0.002)
        began = time.monotonic()
        acknowledged = wire.first_record(port, lambda: script.poll() in (None, 0), seconds_max=START_S_MAX)
        if script.wait(START_S_MAX) != 0:
            raise MeasurementError(f"Apache Kafka did not start: {_last_line(printed_path)}")
        return Broker(
            name=name,
            port=port,
            data=data / "logs",
            running=Running.of(int(_last_line(printed_path))),
            first_record_s=acknowledged - began,
            format_s=began - asked,
        )
    except BaseException:
        for process in [*descendants(script.pid), *_printed_process(printed_path)]:
            process.end()
        script.kill()
        script.wait()
        raise


def _printed_process(path: Path) -> list[Running]:
    """The server that a script which ended already had left running."""
    line = _last_line(path)
    return [Running.of(int(line))] if line.isdigit() else []


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1][-300:] if lines else "it printed nothing"


def _free_ports(count: int) -> int:
    """The first of so many free ports in a row, below those that the system gives to clients."""
    for _ in range(100):
        first = random.randrange(20_000, 32_000)
        try:
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise SystemExit(f"bench: no {count} free ports in a row on 127.0.0.1 between 20000 and 32000")

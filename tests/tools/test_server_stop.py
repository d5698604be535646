"""`kafka-server-stop.sh`, only ever with a node.id that no other broker on this machine has: without one it would stop
every broker of whoever runs the tests."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tool_process import BIN, Ran, Running, ok, run
from waits import WAIT_S_MAX, eventually

from headrace.cli.kafka.running_servers import BROKER, running_servers

NAME = "kafka-server-stop.sh"


@pytest.fixture
def node_id() -> int:
    return random.randrange(10**8, 2**31)


@pytest.fixture
def file(tmp_path: Path, node_id: int) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id={node_id}\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={tmp_path}/data\n")
    return file


def stop(node_id: int, *args: str) -> Ran:
    return run(NAME, f"--node-id={node_id}", *args)


@pytest.mark.parametrize("command", ["kafka-server-start.sh", "headrace broker", "headrace up"])
def test_a_broker_is_stopped_cleanly_whatever_started_it(
    command: str, node_id: int, file: Path, tmp_path: Path
) -> None:
    words = command.split()
    if words[-1] == "up":
        words += ["--port", "0", "--data", f"{tmp_path}/data", "--set", f"node.id={node_id}"]
    else:
        words.append(str(file))
    with Running(*words) as broker:
        broker.read_until(" listens on ")
        stopped = stop(node_id)
        (line,) = stopped.lines
        assert line.startswith("Sent SIGTERM to the broker with pid ")
        assert line.endswith(f" (node.id {node_id}, data in {tmp_path}/data)")
        assert (stopped.exit, stopped.err) == (0, "")
        assert broker.end(None, WAIT_S_MAX) == 0
        assert "Headrace stopped cleanly" in broker.out
    assert stop(node_id).exit == 1


def test_a_broker_in_the_background_is_stopped(node_id: int, file: Path, tmp_path: Path) -> None:
    ok("kafka-server-start.sh", "-daemon", file, cwd=tmp_path)
    assert stop(node_id).exit == 0
    log = tmp_path / "logs" / "kafkaServer.out"
    eventually(lambda: "Headrace stopped cleanly" in log.read_text(), "the broker stops")


def test_without_such_a_broker_it_says_so_and_ends_with_one(node_id: int) -> None:
    ran = stop(node_id)
    assert (ran.exit, ran.err) == (1, "")
    assert ran.out.startswith("No kafka server to stop")
    controllers = run(NAME, "--process-role=controller")
    assert (controllers.exit, controllers.out) == (1, "No kafka server to stop\n")


@pytest.fixture
def embedded(tmp_path: Path, node_id: int) -> Iterator[subprocess.Popen[str]]:
    program = (
        "import headrace\n"
        f"with headrace.Broker(data={str(tmp_path / 'embedded')!r}, node_id={node_id}) as broker:\n"
        "    print(broker.port, flush=True)\n    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, "headrace", "up"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdigit()
        yield process
        process.communicate("\n", timeout=WAIT_S_MAX)


def test_a_program_with_a_broker_inside_is_left_alone(embedded: subprocess.Popen[str], node_id: int) -> None:
    assert all(broker.pid != embedded.pid for broker in running_servers(BROKER))
    assert stop(node_id).exit == 1
    assert embedded.poll() is None


def test_another_signal_may_be_asked_for(node_id: int, file: Path) -> None:
    with Running("kafka-server-start.sh", file) as broker:
        broker.read_until(" listens on ")
        environ = {**os.environ, "SIGNAL": "INT"}
        command = [str(BIN / NAME), f"--node-id={node_id}"]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=WAIT_S_MAX, check=True)
        assert done.stdout.startswith("Sent SIGINT to the broker with pid ")
        assert broker.end(None, WAIT_S_MAX) == 0
    wrong = {**os.environ, "SIGNAL": "NOPE"}
    done = subprocess.run(command, env=wrong, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize("args", [("--node-id=many",), ("--process-role=brokr",), ("now",), ("--nope",)])
def test_a_wrong_command_line_stops_nobody(args: tuple[str, ...], node_id: int) -> None:
    ran = stop(node_id, *args)
    assert (ran.exit, ran.out, ran.err.count("\n")) == (1, "", 1)

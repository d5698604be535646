"""A tool starts quickly because it imports little: what would make it slow must not come in unnoticed.

Speed itself is not asserted here; CONTRIBUTING says why.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from waits import WAIT_S_MAX

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
SCRIPTS = {name: target for name, target in PROJECT["project"]["scripts"].items() if name.endswith(".sh")}
# None of them may be loaded to read a command line.
HEAVY = ("confluent_kafka", "kio", "asyncio", "click", "prometheus_client", "cramjam", "hypothesis", "ssl")
ADMINISTER = ("topics", "consumer_groups", "configs", "get_offsets", "log_dirs", "transactions", "delete_records")


def test_every_tool_of_the_issue_is_installed() -> None:
    kafka = sorted(name for name in SCRIPTS if name.startswith("kafka-"))
    assert {"zookeeper-server-start.sh", "zookeeper-server-stop.sh", "zookeeper-shell.sh"} == set(SCRIPTS) - set(kafka)
    assert kafka == sorted(
        f"kafka-{name}.sh"
        for name in (
            *(
                "server-start",
                "server-stop",
                "storage",
                "topics",
                "console-producer",
                "console-consumer",
                "consumer-groups",
                "configs",
            ),
            *("get-offsets", "delete-records", "log-dirs", "broker-api-versions", "transactions", "producer-perf-test"),
            *("consumer-perf-test", "e2e-latency", "dump-log", "verifiable-producer", "verifiable-consumer"),
        )
    )
    for name in SCRIPTS:
        assert (Path(sys.executable).parent / name).is_file()


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_reading_a_command_line_loads_nothing_heavy(name: str) -> None:
    module = SCRIPTS[name].partition(":")[0]
    # Never without arguments: that would stop every server of this user.
    script = f"import sys, {module} as tool\ntry:\n tool.run(['--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=WAIT_S_MAX, check=True
    )
    loaded = {module.partition(".")[0] for module in done.stdout.splitlines()[-1].split()}
    assert loaded.isdisjoint(HEAVY)


SERVING = """
import os, signal, sys
from headrace.cli.kafka import zookeeper_start
from headrace.cli.keeper import serving

def say_lines(*lines):  # the first are said when it listens
    serving.say_lines = lambda *_: None
    print(*sys.modules)
    os.kill(os.getpid(), signal.SIGTERM)

serving.say_lines = say_lines
zookeeper_start.run([sys.argv[1]])
"""


def test_a_keeper_keeps_little_in_memory(tmp_path: Path) -> None:
    """What reads command lines, JSON or addresses is not loaded by a keeper that has no use for it."""
    file = tmp_path / "zoo.cfg"
    file.write_text(f"dataDir={tmp_path}/data\nclientPort=0\nclientPortAddress=127.0.0.1\n")
    command = [sys.executable, "-c", SERVING, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=True)
    loaded = set(done.stdout.splitlines()[0].split())
    assert "headrace.keeper.node" in loaded
    assert loaded.isdisjoint((*HEAVY, "json", "ipaddress", "ctypes", "difflib", "datetime", "headrace.broker"))


@pytest.mark.parametrize("name", ADMINISTER)
def test_what_administers_does_without_librdkafka(name: str, bootstrap: str) -> None:
    script = (
        f"import sys\nfrom headrace.client.cluster import ClusterClient\nimport headrace.cli.kafka.{name}\n"
        f"with ClusterClient({bootstrap!r}) as cluster: cluster.nodes()\nprint(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=WAIT_S_MAX, check=True
    )
    loaded = {module.partition(".")[0] for module in done.stdout.split()}
    assert loaded.isdisjoint({"confluent_kafka", "asyncio", "click", "hypothesis", "ssl"})

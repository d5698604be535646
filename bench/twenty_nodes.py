"""A pipeline of twenty nodes over one topic, and what it costs while it runs: memory, time per batch, CPU when idle."""

import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from processes import MeasurementError, Running, call, descendants

PAGES = 12  # a table of its own for each
NODES = (
    *(f"page_{number:02}" for number in range(PAGES)),
    *(f"last_visit_{number}" for number in range(4)),
    *(f"views_{number}" for number in range(4)),
)
FLOW_S, WAVES_WARM = 20.0, 3  # events flow for so long, and until every node has taken so many waves
SETTLE_S, IDLE_S = 5.0, 20.0
_POLL_S, _AWAIT_S_MAX, _STATUS_S_MAX = 0.5, 300.0, 60.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def code(topic: str) -> str:
    """Twelve that append, four that keep the last row of each key, four that count."""
    parts = [
        "import headrace as hr",
        "from pyspark.sql import functions as F",
        'hr.pipeline("twenty")',
        f'visits = hr.topic("{topic}", schema="customer string, page string, at timestamp")',
    ]
    for name in NODES:
        number = int(name.rpartition("_")[2])
        if name.startswith("page_"):
            parts.append(f"@hr.table\ndef {name}(visits):\n    return visits.where(\"page = '/{number}'\")")
        elif name.startswith("last_visit_"):
            parts.append(f'@hr.table(key="customer")\ndef {name}(visits):\n    return visits')
        else:
            views = 'visits.groupBy("page").agg(F.count("*").alias("views"))'
            parts.append(f'@hr.table(key="page")\ndef {name}(visits):\n    return {views}')
    return "\n\n".join(parts) + "\n"


class Live:
    """The pipeline while it streams, from the start of its process to its end."""

    def __init__(self, command: list[str], status: list[str], *, log_path: Path) -> None:
        self._command = command
        self._status = status
        self._log_path = log_path

    def __enter__(self) -> "Live":
        with open(self._log_path, "wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._running = Running.of(self._process.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        started = descendants(self._process.pid)
        self._running.end()
        self._process.wait()
        for each in started:  # the JVM ends with its Python, unless that had to be killed
            each.end()

    def measure(self, send: Callable[[], None], *, rows_per_wave: int) -> dict[str, float]:
        """`send` sends one wave of events."""
        self._await(lambda node: node["status"] == "running", "not every node runs")
        batch_ms = self._flowing(send, rows_per_wave)
        time.sleep(SETTLE_S)
        before, began = self._cpu_s(), time.monotonic()
        time.sleep(IDLE_S)
        idle_cores = (self._cpu_s() - before) / (time.monotonic() - began)
        return {"batch_ms": batch_ms, "idle_cores": idle_cores, "rss_mb": self._rss_mb()}

    def _flowing(self, send: Callable[[], None], rows_per_wave: int) -> float:
        """The median of the nodes' last batches. Read while events flow: an idle trigger is reported as a batch too."""
        began, waves = time.monotonic(), 0

        def wave() -> None:
            nonlocal waves
            send()
            waves += 1

        enough = WAVES_WARM * rows_per_wave
        nodes = self._await(lambda node: node["rows_in"] >= enough, "events are not taken", wave)
        while time.monotonic() - began < FLOW_S:
            wave()
            nodes = self._await(lambda node: True, "no report")
        sent = waves * rows_per_wave
        self._await(lambda node: node["rows_in"] >= sent, "events are left over")
        return statistics.median(node["batch_ms"] for node in nodes)

    def _await(
        self, reached: Callable[[Any], bool], otherwise: str, meanwhile: Callable[[], None] = lambda: None
    ) -> list[Any]:
        """The reports of all nodes, as soon as all have reached it."""
        deadline = time.monotonic() + _AWAIT_S_MAX
        while True:
            meanwhile()
            nodes = list(self._nodes().values())
            there = sum(map(reached, nodes))
            if there == len(NODES):
                return nodes
            if not self._running.alive() or time.monotonic() > deadline:
                said = self._log_path.read_text(errors="replace").strip()[-300:]
                raise MeasurementError(f"twenty nodes: {otherwise} ({there} of {len(NODES)}): {said}")
            time.sleep(_POLL_S)

    def _nodes(self) -> dict[str, Any]:
        """Empty until this run has written its first report: the one of an earlier run does not count."""
        (pipeline,) = json.loads(call(self._status, seconds_max=_STATUS_S_MAX))
        run = pipeline["versions"][-1]["run"]
        return run["nodes"] if run is not None and run["pid"] == self._process.pid else {}

    def _family(self) -> list[int]:
        return [self._process.pid, *(each.pid for each in descendants(self._process.pid))]

    def _cpu_s(self) -> float:
        ticks = 0
        for pid in self._family():
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / _TICKS_PER_S

    def _rss_mb(self) -> float:
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._family())
        return pages * page_bytes / 1e6

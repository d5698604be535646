"""How a run goes, as Prometheus and whoever asks for /health see it.

It only reads the run's progress, which the runner's thread writes; a figure may be a moment old.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, get_args

from headrace.core.status_port import StatusPort, UnhealthyError
from headrace.streaming.progress import NodeProgress, NodeStatus, RunProgress
from headrace.streaming.run_settings import RunSettings

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

PREFIX: Final = "headrace_pipeline_"
LABELS: Final = ("pipeline", "version", "node")
STUCK_S = 60.0  # a runner that has not looked at its nodes for so long is stuck


class NodeFamily(NamedTuple):
    name: str  # without PREFIX; a counter's _total is added by Prometheus' own rules
    kind: str  # counter or gauge
    help: str
    samples: Callable[[NodeProgress], Mapping[tuple[str, ...], float | None]]
    labels: tuple[str, ...] = ()


def _one(value: float | None) -> Mapping[tuple[str, ...], float | None]:
    return {(): value}


FAMILIES: Final = (
    NodeFamily("rows_in", "counter", "Rows read in this run.", lambda node: _one(node.rows_in)),
    NodeFamily("rows_out", "counter", "Rows written in this run.", lambda node: _one(node.rows_out)),
    NodeFamily("batches", "counter", "Batches done in this run.", lambda node: _one(node.batches)),
    NodeFamily("unparsed_records", "counter", "Records that could not be parsed.", lambda node: _one(node.unparsed)),
    NodeFamily(
        "quarantined_rows", "counter", "Rows and records put into quarantine.", lambda node: _one(node.quarantined)
    ),
    NodeFamily("late_rows", "counter", "Rows that came behind the watermark.", lambda node: _one(node.late)),
    NodeFamily(
        "unknown_field_records",
        "counter",
        "Records with a field that the schema does not have, by field.",
        lambda node: {(name,): count for name, count in list(node.extra.items())},
        ("field",),
    ),
    NodeFamily(
        "expectation_failures",
        "counter",
        "Rows that failed an expectation.",
        lambda node: {(name, each["action"]): each["failed"] for name, each in list(node.expectations.items())},
        ("expectation", "action"),
    ),
    NodeFamily("restarts", "counter", "Times that the node was started again.", lambda node: _one(node.restarts)),
    NodeFamily("lag_rows", "gauge", "Rows that are written upstream and not read yet.", lambda node: _one(node.lag)),
    NodeFamily(
        "batch_seconds",
        "gauge",
        "Time that the last batch took.",
        lambda node: _one(None if node.batch_ms is None else node.batch_ms / 1000),
    ),
    NodeFamily(
        "node_state",
        "gauge",
        "1 for the state that the node is in, 0 for the others.",
        lambda node: {(state,): float(state == node.status) for state in get_args(NodeStatus)},
        ("state",),
    ),
)


class RunStatus:
    """The clock is passed in; `take` is called once there is a progress, `beat` at each turn of the runner."""

    def __init__(self, pipeline: str, version: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._labels = (pipeline, str(version))
        self._clock = clock
        self._progress: RunProgress | None = None
        self._beat_at: float | None = None

    def take(self, progress: RunProgress) -> None:
        self._progress = progress

    def beat(self) -> None:
        self._beat_at = self._clock()

    def families(self) -> "Iterator[Metric]":
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        progress = self._progress
        nodes = list(progress.nodes.values()) if progress is not None else []
        for family in FAMILIES:
            make = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = make(PREFIX + family.name, family.help, labels=(*LABELS, *family.labels))
            for node in nodes:
                for labels, value in family.samples(node).items():
                    if value is not None:
                        metric.add_metric((*self._labels, node.name, *labels), value)
            yield metric
        caught_up = GaugeMetricFamily(PREFIX + "caught_up", "1 while every node has caught up.", labels=LABELS[:2])
        caught_up.add_metric(self._labels, float(progress is not None and progress.caught_up))
        yield caught_up

    def health(self) -> dict[str, object]:
        """A node that failed, and a runner that is stuck, are unhealthy; one that restarts may come back."""
        progress = self._progress
        state: dict[str, object] = {"pipeline": self._labels[0], "version": int(self._labels[1])}
        if progress is None or not progress.nodes:
            return {"status": "starting", **state}
        nodes = {name: node.status for name, node in list(progress.nodes.items())}
        failed = {name: progress.nodes[name].message for name, status in nodes.items() if status == "failed"}
        if failed:
            reason = "; ".join(f"{name}: {message}" for name, message in failed.items())
            raise UnhealthyError(reason, **state, nodes=nodes)
        if self._beat_at is not None and self._clock() - self._beat_at > STUCK_S:
            raise UnhealthyError(f"the runner has not looked at its nodes for {STUCK_S:g} s", **state, nodes=nodes)
        restarting = "restarting" in nodes.values()
        return {"status": "restarting" if restarting else progress.status, **state, "nodes": nodes}


@contextmanager
def served(status: RunStatus, settings: RunSettings, say: Callable[[str], None]) -> Iterator[None]:
    """Answers on the port of the settings for the length of a block, if they have one."""
    if settings.metrics_port is None:
        yield
        return
    port = StatusPort(
        settings.metrics_host,
        settings.metrics_port,
        metrics=status.families,
        health=status.health,
        remedy="choose another --metrics-port",
    )
    port.start()
    try:
        say(f"metrics at http://{settings.metrics_host}:{port.port}/metrics, and /health")
        yield
    finally:
        port.stop()

"""The broker's optional port with GET /metrics and GET /health.

It reads nothing of the broker but `node.snapshot()`, and never writes.
"""

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from headrace.broker.metrics import prometheus_families
from headrace.core.status_port import StatusPort, UnhealthyError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

ANSWER_S_MAX = 1.0  # how long the loop may take for a snapshot
DAMAGE_LINES_MAX = 100


class SnapshotSource(Protocol):
    def snapshot(self) -> Mapping[str, object]:
        """Counters and gauges by name; called on a thread of ours, answered by the broker's loop."""


class MetricsServer:
    """`start()` binds and serves, `port` is the bound port, `stop()` ends it."""

    def __init__(self, node: SnapshotSource, host: str, port: int) -> None:
        self._asker = _Asker(node)
        self._port = StatusPort(
            host,
            port,
            metrics=self._metrics,
            health=self._health,
            remedy="choose another headrace.metrics.port, or -1 for none",
        )

    @property
    def port(self) -> int:
        return self._port.port

    def start(self) -> None:
        self._port.start()

    def stop(self) -> None:
        self._port.stop()

    def _metrics(self) -> "Iterator[Metric]":
        return prometheus_families(self._asker.ask())

    def _health(self) -> Mapping[str, object]:
        snapshot = self._asker.ask()
        _check(snapshot)
        return _state(snapshot)


class _Asker:
    """Asks the loop for a snapshot, with a bound on the wait and at most one question under way."""

    def __init__(self, node: SnapshotSource) -> None:
        self._node = node
        self._busy = threading.Lock()

    def ask(self) -> Mapping[str, object]:
        late = UnhealthyError(f"the broker's loop did not answer within {ANSWER_S_MAX:g} s")
        if not self._busy.acquire(timeout=ANSWER_S_MAX):
            raise late  # an earlier question still waits; another thread would only wait with it
        answered = threading.Event()
        answer: list[Mapping[str, object] | BaseException] = []

        def question() -> None:
            try:
                answer.append(self._node.snapshot())
            except BaseException as error:
                answer.append(error)
            finally:
                self._busy.release()
                answered.set()

        threading.Thread(target=question, name="headrace-snapshot", daemon=True).start()
        if not answered.wait(ANSWER_S_MAX):
            raise late
        if isinstance(answer[0], BaseException):
            raise UnhealthyError(f"no snapshot: {answer[0]}") from answer[0]
        return answer[0]


def _check(snapshot: Mapping[str, object]) -> None:
    online = snapshot.get("log_directory_online", {})
    offline = [labels[0] for labels, up in online.items() if not up] if isinstance(online, Mapping) else []
    if offline:
        raise UnhealthyError(f"offline: log directory {', '.join(offline)}")


def _state(snapshot: Mapping[str, object]) -> dict[str, object]:
    """Damaged files are shown, but the answer stays 200: to start the broker again would not help."""
    damage = snapshot.get("damage")
    if not isinstance(damage, list) or not damage:
        return {"status": "healthy"}
    return {"status": "damaged", "count": len(damage), "damage": damage[:DAMAGE_LINES_MAX]}

"""The keeper's optional port with GET /metrics and GET /health.

The figures are those of `mntr`, under the names that ZooKeeper's own Prometheus provider gives them. They are taken on
the loop: a loop that does not answer in time is what /health reports.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from headrace.core.status_port import StatusPort, UnhealthyError
from headrace.net.reactor import Reactor

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

ANSWER_S_MAX = 1.0  # how long the loop may take for its figures
_COUNTERS: Final = frozenset(("packets_received", "packets_sent", "connection_rejected"))

Figures = Mapping[str, int | float | str]


class Status:
    """`start()` binds and serves, `port` is the bound port, `stop()` ends it."""

    def __init__(self, reactor: Reactor, figures: Callable[[], Figures], has_room: Callable[[], bool]) -> None:
        self._reactor = reactor
        self._figures = figures
        self._has_room = has_room
        self._asking = threading.Lock()  # one question at a time waits for the loop
        self._port: StatusPort | None = None

    def start(self, host: str, port: int) -> None:
        self._port = StatusPort(
            host,
            port,
            metrics=self._metrics,
            health=self._health,
            remedy="choose another metricsProvider.httpPort, or -1 for none",
        )
        self._port.start()

    @property
    def port(self) -> int:
        return self._port.port if self._port is not None else -1

    def stop(self) -> None:
        if self._port is not None:
            self._port.stop()

    def _ask(self) -> tuple[Figures, bool]:
        answered = threading.Event()
        answer: list[tuple[Figures, bool]] = []

        def take() -> None:
            answer.append((self._figures(), self._has_room()))
            answered.set()

        with self._asking:
            self._reactor.call_from_thread(take)
            if not answered.wait(ANSWER_S_MAX):
                raise UnhealthyError(f"the keeper's loop did not answer within {ANSWER_S_MAX:g} s")
        return answer[0]

    def _metrics(self) -> "Iterator[Metric]":
        return _families(self._ask()[0])

    def _health(self) -> Mapping[str, object]:
        figures, has_room = self._ask()
        if not has_room:
            raise UnhealthyError("the disk is full: changes are refused; make room on it")
        return {"status": "healthy", "connections": figures["zk_num_alive_connections"]}


def _families(figures: Figures) -> "Iterator[Metric]":
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    for name, value in figures.items():
        if isinstance(value, str):
            continue
        plain = name.removeprefix("zk_")
        help = f"As `{name}` in the answer to mntr."
        if plain in _COUNTERS:
            yield CounterMetricFamily(plain, help, value=value)
        else:
            yield GaugeMetricFamily(plain, help, value=value)

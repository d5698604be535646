"""`--print-metrics`: the numbers that librdkafka keeps about a client, under its own names."""

import json
from collections.abc import Iterator
from typing import Any


class ClientMetrics:
    """Give `settings()` to the client, and print `lines()` at the end."""

    def __init__(self) -> None:
        self._last = "{}"

    def settings(self) -> dict[str, Any]:
        return {"statistics.interval.ms": 100, "stats_cb": self._keep}

    def _keep(self, text: str) -> None:
        self._last = text

    def lines(self) -> list[str]:
        rows = sorted(_numbers(json.loads(self._last), ""))
        width = max((len(name) for name, _ in rows), default=0)
        titles = f"\n{'Metric Name':<{width}} Value"
        return [titles, *(f"{name:<{width}} : {value:.3f}" for name, value in rows)]


def _numbers(held: Any, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(held, dict):
        for name, value in held.items():
            yield from _numbers(value, f"{path}:{name}" if path else name)
    elif isinstance(held, int | float) and not isinstance(held, bool):
        yield path, float(held)

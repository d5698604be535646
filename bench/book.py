"""What was measured, as it comes in: one entry for each workload, side and round."""

import json
import statistics
from pathlib import Path

RATES = ("rec_s", "per_s", "settle_ms")  # of which a workload has one
_UNITS = (
    ("rec_s", "records/s"),
    ("per_s", "/s"),
    ("settle_ms", "ms"),
    ("p50_us", "us p50"),
    ("p99_us", "us p99"),
    ("p50_ms", "ms p50"),
    ("p99_ms", "ms p99"),
    ("max_ms", "ms max"),
    ("took_s", "s"),
)


class Book:
    """`sides` are the two that a workload compares; entries of one round stand at the same place in both."""

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._entries: dict[tuple[str, str], list[dict[str, float]]] = {}
        self.failures: dict[str, str] = {}
        log_path.unlink(missing_ok=True)

    def add(self, workload: str, side: str, **figures: float) -> None:
        self._entries.setdefault((workload, side), []).append(figures)
        with open(self._log_path, "a") as log:
            log.write(json.dumps({"workload": workload, "side": side, **figures}) + "\n")
        units = _UNITS[:1] if "rec_s" in figures else _UNITS[1:]
        shown = [f"{figures[name]:,.0f} {unit}" for name, unit in units if name in figures]
        if "cpu_s_per_million" in figures:
            shown.append(f"{figures['cpu_s_per_million']:.3f} CPU s/M")
        shown = shown or [f"{name} {value:,.2f}" for name, value in figures.items()]
        print(f"  {workload:22} {side:10} {', '.join(shown)}", flush=True)

    def fail(self, workload: str, reason: object) -> None:
        self.failures.setdefault(workload, str(reason))
        print(f"  {workload:22} FAILED: {reason}", flush=True)

    def values(self, workload: str, side: str, figure: str) -> list[float]:
        entries = self._entries.get((workload, side), [])
        return [entry[figure] for entry in entries if figure in entry]

    def highest(self, side: str, figure: str) -> float:
        """Over all workloads."""
        every = [self.values(workload, side, figure) for workload, _ in self._entries]
        return max((value for values in every for value in values), default=0.0)

    def spreads(self) -> dict[str, float]:
        """How far apart the rounds of a workload were, for the side that scattered more: (max - min) / median."""
        found: dict[str, float] = {}
        for workload, side in self._entries:
            values = next(filter(None, (self.values(workload, side, rate) for rate in RATES)), [])
            if len(values) > 1 and statistics.median(values):
                spread = (max(values) - min(values)) / statistics.median(values)
                found[workload] = max(spread, found.get(workload, 0.0))
        return found

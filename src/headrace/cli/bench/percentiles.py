"""Percentiles of many measurements, by nearest rank: always a value that was measured."""

import math
from collections.abc import Iterable, Sequence

USUAL = (50.0, 95.0, 99.0, 99.9)


def percentile(ordered: Sequence[float], share: float) -> float:
    """Of values in ascending order."""
    rank = math.ceil(round(share * len(ordered) / 100, 9))  # 99.9 % of 1000 is 999, not a little more
    return ordered[max(0, rank - 1)]


def summary(values: Iterable[float], *, digits: int = 3) -> dict[str, float]:
    """`{"p50": …, "p95": …, "p99": …, "p99.9": …, "max": …}`; nothing for no values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    found = {f"p{share:g}": round(percentile(ordered, share), digits) for share in USUAL}
    return found | {"max": round(ordered[-1], digits)}


def text(found: dict[str, float], unit: str) -> str:
    return "  ".join(f"{name} {value:,.3g} {unit}" for name, value in found.items())

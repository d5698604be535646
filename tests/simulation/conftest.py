"""The simulation: `--seeds N` runs N seeds, `--seed N` replays one; `make simulate SEEDS=…` runs more of them."""

from __future__ import annotations

import contextlib
import itertools
import sys
from pathlib import Path

import pytest

from headrace.broker import steps
from headrace.broker.handlers import produce_slowly

sys.path.insert(1, str(Path(__file__).parent.parent / "keeper"))  # keeper_history, raw_client

SEEDS, ITEMS = 60, 6


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=SEEDS, metavar="N", help="how many seeds the simulation runs")
    with contextlib.suppress(ValueError):  # the fault tests have it too
        parser.addoption("--seed", type=int, default=None, metavar="N", help="replay one seed")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Some seeds per item, and half of the items per file that names its part, so that they can run side by side."""
    if "seeds" not in metafunc.fixturenames:
        return
    part = getattr(metafunc.module, "PART", None)
    one = metafunc.config.getoption("--seed", None)
    if one is not None:
        parts = [] if part else [range(one, one + 1)]
    else:
        count = metafunc.config.getoption("--seeds", SEEDS)
        size = max(1, -(-count // ITEMS))
        parts = [range(first, min(first + size, count)) for first in range(0, count, size)]
        parts = parts if part is None else parts[part::2]
    metafunc.parametrize("seeds", parts, ids=[f"{part[0]}-{part[-1]}" for part in parts])


@pytest.fixture(autouse=True)
def same_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long requests run for a time per turn. Here that time is a number of looks at the clock: a seed replays what it
    did on a busy machine, too."""
    looks = itertools.count()
    for module in (steps, produce_slowly):
        monkeypatch.setattr(module, "perf_counter", lambda: next(looks) / 4096)

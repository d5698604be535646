"""The simulation: `--seeds N` runs N seeds, `--seed N` replays one; `make simulate SEEDS=…` runs more of them."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from headrace.broker import steps
from headrace.broker.handlers import produce_slowly

SEEDS, ITEMS = 60, 6


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seeds", type=int, default=SEEDS, metavar="N", help="how many seeds the simulation runs")
    with contextlib.suppress(ValueError):  # the fault tests have it too
        parser.addoption("--seed", type=int, default=None, metavar="N", help="replay one seed")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Some seeds an item, and half of the items a file, so that they can run side by side."""
    if "seeds" not in metafunc.fixturenames:
        return
    one = metafunc.config.getoption("--seed", None)
    if one is not None:
        parts = [range(one, one + 1)] if metafunc.module.PART == 0 else []
    else:
        count = metafunc.config.getoption("--seeds", SEEDS)
        size = max(1, -(-count // ITEMS))
        parts = [range(first, min(first + size, count)) for first in range(0, count, size)]
        parts = parts[metafunc.module.PART :: 2]
    metafunc.parametrize("seeds", parts, ids=[f"{part[0]}-{part[-1]}" for part in parts])


@pytest.fixture(autouse=True)
def same_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long requests run for a time per turn. Here that time is a number of looks at the clock: a seed replays what it
    did on a busy machine, too."""
    looks = itertools.count()
    for module in (steps, produce_slowly):
        monkeypatch.setattr(module, "perf_counter", lambda: next(looks) / 4096)

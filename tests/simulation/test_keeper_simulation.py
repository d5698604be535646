"""A keeper with crashes, a disk that loses what was not synced, and clients that hold it to its word, under one seed.

A seed that fails says which one it is; `pytest tests/simulation --seed N` does the same again, step by step.
"""

from __future__ import annotations

import pytest
from keeper_history import ViolationError
from sim_keeper import World

SEEDS, ITEMS = 60, 4


def _run(seed: int) -> World:
    world = World(seed)
    try:
        world.run()
    except Exception as error:
        known = isinstance(error, ViolationError)
        pytest.fail(f"{error!r}\nreplay it with: pytest tests/simulation --seed {seed}", pytrace=not known)
    return world


@pytest.mark.parametrize("part", range(ITEMS))
def test_what_a_keeper_has_promised_holds_whatever_breaks(part: int, request: pytest.FixtureRequest) -> None:
    one = request.config.getoption("--seed", None)
    seeds = range(part, request.config.getoption("--seeds", SEEDS), ITEMS) if one is None else [one][part:]
    for seed in seeds:
        _run(seed)


def test_a_keepers_seed_replays_what_it_did() -> None:
    first, second = _run(4), _run(4)
    assert first.trace == second.trace
    assert first.history.writes == second.history.writes

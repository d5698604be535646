"""Clients, coordinators, disk and clock under one seed, with crashes, delays, lost connections and failing disks.

A seed that fails says which one it is; `pytest tests/simulation --seed N` does the same again, step by step.
"""

from sim_scenario import run_seeds, simulate

PART = 0


def test_what_the_broker_has_promised_holds_whatever_breaks(seeds):
    run_seeds(seeds)


def test_a_seed_replays_what_it_did():
    first, second = simulate(3), simulate(3)
    assert first.trace == second.trace
    assert first.records.content == second.records.content
    assert first.records.place == second.records.place

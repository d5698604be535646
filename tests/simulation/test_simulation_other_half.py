"""The other half of the seeds: a file is what a test runner's process takes at a time."""

from sim_scenario import run_seeds

PART = 1


def test_what_the_broker_has_promised_holds_whatever_breaks(seeds):
    run_seeds(seeds)

"""The scripts under examples/coordination, run as a reader runs them: as they stand, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from waits import WAIT_S_MAX

from headrace import Keeper

EXAMPLES = Path(__file__).parents[2] / "examples" / "coordination"
PRINTED = {
    "naming": [
        "billing is at 10.0.0.7:8080",
        "a second billing is refused: the name is taken",
        "shipping is not known",
        "names that nobody had: worker-0000000001, worker-0000000002",
    ],
    "configuration": [
        "the service starts with limit 10",
        "without a restart it has limit 20",
        "bob is refused: ann has changed it since he read it",
        "the service has limit 30",
    ],
    "membership": [
        "members: ['ann', 'bob']",
        "bob has left; members: ['ann']",
        "ann's node belongs to her session: True",
        "ann has left; members: []",
    ],
    "leader_election": [
        "in line: ann, bob, cleo",
        "leading: ann",
        "led, one after the other: ann, bob, cleo",
    ],
    "locks": [
        "4 workers added 20 in all; at most 1 was inside at a time",
        "held by somebody else: True",
        "free again when its session has ended: True",
    ],
}


def _run(name: str, *args: str) -> list[str]:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", PRINTED)
def test_row_54_an_example_shows_what_it_is_about(name: str) -> None:
    assert _run(name) == PRINTED[name]


def test_examples_leave_nothing_behind_on_a_keeper_that_is_given() -> None:
    with Keeper() as keeper:
        for name in PRINTED:
            assert _run(name, keeper.hosts) == PRINTED[name]
        assert [path for path in keeper.node.machine.tree.nodes if path.startswith("/examples/")] == []


def test_every_example_is_tested_and_explained() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} - {"example_keeper"}
    assert scripts == set(PRINTED)
    readme = (EXAMPLES / "README.md").read_text()
    assert all(f"`{name}.py`" in readme for name in scripts)

"""The messaging patterns under examples/, run as a reader runs them: as they stand, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from waits import WAIT_S_MAX

EXAMPLES = Path(__file__).parents[2] / "examples" / "messaging"
PRINTED = {
    "publish_subscribe": [
        "billing received: order placed, order paid, order shipped",
        "shipping received: order placed, order paid, order shipped",
    ],
    "point_to_point": [
        "worker-0 did 20 jobs",
        "worker-1 did 20 jobs",
        "40 different jobs, 40 in all: each was done once",
    ],
    "fire_and_forget": ["1000 arrived; nobody would have been told of any that did not"],
    "request_reply": ["2 squared is 4", "7 squared is 49", "12 squared is 144"],
    "at_most_once": [
        "booked: pay 10, pay 30",
        "the one that was under way in the crash is lost; none was booked twice",
    ],
    "at_least_once": [
        "booked: pay 10, pay 20, pay 20, pay 30",
        "the one that was under way in the crash is booked twice; none is lost",
    ],
    "exactly_once": [
        "receipts: receipt for 10, receipt for 20, receipt for 30",
        "each payment has one receipt, in spite of the crash",
    ],
}


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_shows_its_pattern(name: str, request: pytest.FixtureRequest) -> None:
    """With --bootstrap it runs against that broker; otherwise it starts one of its own, as its reader's does."""
    given = request.config.getoption("--bootstrap")
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *([given] if given else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.splitlines()
    assert printed[-len(PRINTED[name]) :] == PRINTED[name], done.stdout + done.stderr


def test_every_example_is_tested_and_explained() -> None:
    scripts = {path.stem for path in EXAMPLES.glob("*.py")} - {"example_broker"}
    assert scripts == set(PRINTED)
    readme = (EXAMPLES / "README.md").read_text()
    assert all(f"`{name}.py`" in readme for name in scripts)

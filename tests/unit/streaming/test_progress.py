"""run.json and the ledger of expectations: what is written is what is read, and half a line harms nobody."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.core.errors import OperatorError
from headrace.streaming.declarations import Expectation
from headrace.streaming.expectations import OBSERVED, outcome_of
from headrace.streaming.progress import NodeProgress, RunProgress, read_progress
from headrace.streaming.run_settings import RunSettings
from headrace.tables.expectations import BatchOutcome, Ledger, Outcome, read_outcomes

POSITIVE = Expectation(name="positive", predicate="a > 0", action="quarantine")


def counted(batch: int, failed: int, unparsed: int = 0) -> BatchOutcome:
    """From what Spark's plan reports of a batch."""
    return outcome_of(batch, {OBSERVED: {"rows": 10, "e0": failed, "quarantined": failed}}, (POSITIVE,), unparsed)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = str(tmp_path / "run.json")
    progress = RunProgress(pipeline="shop", version=2, nodes={"clean": NodeProgress(name="clean", rows_in=5)})
    progress.write(path)
    assert read_progress(path) == progress


@pytest.mark.parametrize("content", ["", "{", "[]", '{"nodes": 5}', '{"nodes": {}, "unknown": 1}'])
def test_what_is_no_run_is_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(content)
    assert read_progress(str(path)) is None
    assert read_progress(str(tmp_path / "none.json")) is None


def test_of_a_batch_that_ran_again_the_last_line_counts(tmp_path: Path) -> None:
    path = str(tmp_path / "_expectations" / "clean.jsonl")
    ledger = Ledger(path)
    for each in (counted(0, 1), counted(1, 9), counted(1, 2, unparsed=3)):
        ledger.add(each)
    kept_up = ledger.totals
    with open(path, "a") as file:
        file.write('{"batch": 2, "rows"')
    totals = Ledger(path).totals
    assert totals.rows == kept_up.rows == 20
    assert totals.unparsed == kept_up.unparsed == 3
    assert totals.quarantined == kept_up.quarantined == 3
    assert (
        totals.expectations
        == kept_up.expectations
        == {
            "positive": Outcome(action="quarantine", failed=3),
            "can be parsed": Outcome(action="quarantine", failed=3),
        }
    )


def test_the_ledger_is_what_the_table_tools_read(tmp_path: Path) -> None:
    path = str(tmp_path / "_expectations" / "clean.jsonl")
    Ledger(path).add(counted(4, 2))
    (outcome,) = read_outcomes(path)
    assert (outcome.batch, outcome.rows, outcome.expectations["positive"].failed) == (4, 10, 2)
    assert json.loads(Path(path).read_text())["quarantined"] == 2


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"bootstrap": " "}, "bootstrap: empty"),
        ({"restarts_max": -1}, "below 0"),
        ({"backoff_s_min": 60.0}, r"outside \(0, 30\]"),
    ],
)
def test_wrong_settings_are_said_when_they_are_made(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(OperatorError, match=says):
        RunSettings(**wrong)  # type: ignore[arg-type]

from __future__ import annotations

from pathlib import Path

from shop import make_shop

from headrace.tables.expectations import BatchOutcome, ExpectationSummary, Outcome, read_outcomes, summarize
from headrace.tables.versions import time_of

AT = time_of("2026-10-05T12:00:00.250Z")


def outcome(batch: int, failed: int) -> BatchOutcome:
    return BatchOutcome(batch=batch, at=AT, rows=10, expectations={"größer 0": Outcome(action="drop", failed=failed)})


def test_the_last_line_of_a_batch_counts_and_a_torn_one_does_not(tmp_path: Path) -> None:
    path = tmp_path / "n.jsonl"
    lines = [outcome(1, 5), outcome(0, 0), outcome(1, 2)]
    path.write_text("".join(each.to_line() for each in lines) + outcome(2, 9).to_line()[:-8])
    found = read_outcomes(str(path))
    assert found == [outcome(0, 0), outcome(1, 2)]
    assert summarize(found) == [
        ExpectationSummary(name="größer 0", action="drop", rows=20, failed=2, batch_last_failed=1)
    ]


def test_a_node_without_expectations_has_none(tmp_path: Path) -> None:
    assert read_outcomes(str(tmp_path / "none.jsonl")) == []
    assert summarize([]) == []


def test_the_counts_of_a_pipeline_are_found(tmp_path: Path) -> None:
    shop = make_shop(tmp_path)
    summary = summarize(read_outcomes(shop.layout.expectations_file(1, "clean_orders")))
    assert [(each.name, each.failed, each.rows) for each in summary] == [("amount is positive", 2, 30)]

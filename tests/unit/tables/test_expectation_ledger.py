from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.tables import expectations
from headrace.tables.expectations import BatchOutcome, Ledger, Outcome, read_outcomes, summarize
from headrace.tables.versions import time_of

AT = time_of("2026-10-05T12:00:00.250Z")


def outcome(batch: int, failed: int = 1) -> BatchOutcome:
    small = Outcome(action="warn", failed=failed)
    return BatchOutcome(batch=batch, at=AT, rows=10, unparsed=1, quarantined=2, late=3, expectations={"small": small})


def test_totals_are_those_of_all_batches_and_of_the_last_run_of_each(tmp_path: Path) -> None:
    path = str(tmp_path / "node.jsonl")
    ledger = Ledger(path)
    for batch in (0, 1, 2, 2):
        ledger.add(outcome(batch))
    for each in (ledger, Ledger(path)):
        assert (each.totals.rows, each.totals.expectations["small"].failed) == (30, 3)


def test_a_long_ledger_is_folded_and_its_sums_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectations, "LEDGER_BYTES_MAX", 2000)
    path = str(tmp_path / "node.jsonl")
    ledger = Ledger(path)
    for batch in range(500):
        ledger.add(outcome(batch, failed=batch % 2))
        assert os.path.getsize(path) < 2500
    for each in (ledger, Ledger(path)):
        assert (each.totals.rows, each.totals.expectations["small"].failed) == (5000, 250)
        assert (each.totals.unparsed, each.totals.quarantined, each.totals.late) == (500, 1000, 1500)
    (summary,) = summarize(read_outcomes(path))
    assert (summary.rows, summary.failed, summary.batch_last_failed) == (5000, 250, 499)
    ledger.add(outcome(499, failed=5))  # the last batch comes again
    assert Ledger(path).totals.expectations["small"].failed == 254
    assert os.listdir(tmp_path) == ["node.jsonl"]

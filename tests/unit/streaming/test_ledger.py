from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.streaming import expectations
from headrace.streaming.declarations import Expectation
from headrace.streaming.expectations import Counts, Ledger
from headrace.tables.expectations import read_outcomes, summarize

SMALL = Expectation(name="small", predicate="id < 100", action="warn")


def counts(batch: int, failed: int = 1) -> Counts:
    return Counts(batch=batch, rows=10, unparsed=0, failed={"small": failed}, quarantined=0)


def test_totals_are_those_of_all_batches_and_of_the_last_run_of_each(tmp_path: Path) -> None:
    path = str(tmp_path / "node.jsonl")
    ledger = Ledger(path)
    for batch in (0, 1, 2, 2):
        ledger.add(counts(batch), (SMALL,))
    for each in (ledger, Ledger(path)):
        assert (each.totals.rows, each.totals.expectations["small"]["failed"]) == (30, 3)


def test_a_long_ledger_is_folded_and_its_sums_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectations, "LEDGER_BYTES_MAX", 2000)
    path = str(tmp_path / "node.jsonl")
    ledger = Ledger(path)
    for batch in range(500):
        ledger.add(counts(batch, failed=batch % 2), (SMALL,))
        assert os.path.getsize(path) < 2500
    for each in (ledger, Ledger(path)):
        assert (each.totals.rows, each.totals.expectations["small"]["failed"]) == (5000, 250)
    (summary,) = summarize(read_outcomes(path))
    assert (summary.rows, summary.failed, summary.batch_last_failed) == (5000, 250, 499)
    ledger.add(counts(499, failed=5), (SMALL,))  # the last batch comes again
    assert Ledger(path).totals.expectations["small"]["failed"] == 254
    assert os.listdir(tmp_path) == ["node.jsonl"]

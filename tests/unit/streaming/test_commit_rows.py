"""Rows that a reader has before it and a node wrote, from the commits of a Delta table's log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.streaming import commit_rows
from headrace.streaming.commit_rows import CommitRows
from headrace.tables.provenance import Provenance


def commit(table: Path, version: int, *, operation: str = "WRITE", node: str = "clean", **metrics: int) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    made_by = Provenance(pipeline="shop", version=1, node=node, batch=version, sources=())
    info = {"timestamp": 1, "operation": operation, "operationMetrics": {k: str(v) for k, v in metrics.items()}}
    info["userMetadata"] = made_by.encode()
    actions = [{"commitInfo": info}]
    if "numOutputRows" in metrics:
        added = {"path": f"{version}.parquet", "dataChange": operation != "OPTIMIZE"}
        actions.append({"add": added | {"stats": json.dumps({"numRecords": metrics["numOutputRows"]})}})
    (log / f"{version:020d}.json").write_text("".join(json.dumps(each) + "\n" for each in actions))


def test_rows_are_what_was_appended_and_what_a_merge_touched(tmp_path: Path) -> None:
    commit(tmp_path, 0, operation="CREATE TABLE")
    commit(tmp_path, 1, numOutputRows=10)
    commit(tmp_path, 2, operation="MERGE", numTargetRowsInserted=1, numTargetRowsUpdated=2, numTargetRowsDeleted=4,
           numOutputRows=900)  # fmt: skip
    commit(tmp_path, 3, operation="OPTIMIZE", numOutputRows=900)
    commit(tmp_path, 4, node="filled", numOutputRows=5)
    table = CommitRows(str(tmp_path))
    assert table.last() == 4
    assert table.rows(0, 4) == 10 + 7 + 5
    assert table.rows(2, 4) == 7 + 5
    assert table.rows(0, 4, node="clean") == 10 + 7
    assert table.rows(5, 4) == 0


def test_a_commit_is_read_once_and_a_long_backlog_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in range(10):
        commit(tmp_path, version, numOutputRows=3)
    monkeypatch.setattr(commit_rows, "COMMITS_READ_MAX", 5)
    table = CommitRows(str(tmp_path))
    assert table.rows(0, 9) == 30
    for version in range(10):
        (tmp_path / "_delta_log" / f"{version:020d}.json").write_text("no longer readable")
    assert table.rows(6, 9) == 12


def test_a_table_that_is_not_there_has_no_rows(tmp_path: Path) -> None:
    table = CommitRows(str(tmp_path / "none"))
    assert (table.last(), table.rows(0, 3)) == (None, 0)

"""Whether commits changed rows, from Delta's log alone. No Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace.streaming.recomputing import rows_changed


def commit(table: Path, version: int, *actions: dict[str, Any]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def merge(inserted: int, updated: int, deleted: int) -> dict[str, Any]:
    counts = {"Inserted": inserted, "Updated": updated, "Deleted": deleted}
    metrics = {f"numTargetRows{name}": str(count) for name, count in counts.items()}
    return {"commitInfo": {"operation": "MERGE", "operationMetrics": metrics}}


def test_only_commits_that_change_rows_count(tmp_path: Path) -> None:
    files = ({"add": {"path": "a", "dataChange": True}}, {"remove": {"path": "b", "dataChange": True}})
    commit(tmp_path, 0, {"commitInfo": {"operation": "CREATE TABLE"}}, {"metaData": {}})
    commit(tmp_path, 1, {"commitInfo": {"operation": "WRITE"}}, files[0])
    commit(tmp_path, 2, {"commitInfo": {"operation": "OPTIMIZE"}}, {"add": {"path": "c", "dataChange": False}})
    commit(tmp_path, 3, merge(0, 0, 0), *files)  # a file written again as it was
    commit(tmp_path, 4, merge(0, 0, 1), files[1])
    found = [rows_changed(str(tmp_path), (version, version)) for version in range(5)]
    assert found == [False, True, False, False, True]
    assert rows_changed(str(tmp_path), (2, 4))
    assert not rows_changed(str(tmp_path), (2, 3))


def test_a_commit_that_is_gone_may_have_changed_rows(tmp_path: Path) -> None:
    commit(tmp_path, 7, {"commitInfo": {"operation": "OPTIMIZE"}})
    assert rows_changed(str(tmp_path), (6, 7))

"""Whether commits changed rows, from Delta's log alone. No Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace.streaming.changed_rows import told_by_log, unread
from headrace.tables.provenance import TableSource, TopicSource


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
    found = [told_by_log(str(tmp_path), (version, version)) for version in range(5)]
    assert found == [False, True, False, False, True]
    assert told_by_log(str(tmp_path), (2, 4)) is True
    assert told_by_log(str(tmp_path), (2, 3)) is False


def test_where_rows_were_only_updated_the_change_feed_tells_the_rest(tmp_path: Path) -> None:
    commit(tmp_path, 0, merge(0, 2, 0), {"add": {"path": "a", "dataChange": True}}, {"cdc": {"path": "c"}})
    commit(tmp_path, 1, merge(0, 0, 0))
    commit(tmp_path, 2, merge(1, 2, 0), {"add": {"path": "b", "dataChange": True}}, {"cdc": {"path": "d"}})
    commit(tmp_path, 3, merge(0, 2, 0), {"add": {"path": "e", "dataChange": True}})  # the table keeps no changes
    found = [told_by_log(str(tmp_path), (first, last)) for first, last in ((0, 0), (0, 1), (0, 2), (3, 3))]
    assert found == [None, None, True, True]


def test_what_the_batch_before_has_reached_is_not_news() -> None:
    sources = (TableSource(table="a", versions=(5, 6)), TableSource(table="b", versions=(3, 3)),
               TableSource(table="c", versions=(0, 2)), TopicSource(topic="t", ranges={0: (1, 2)}))  # fmt: skip
    paths = {name: f"/{name}" for name in "abc"}
    assert list(unread(sources, paths, {"/a": 5, "/b": 3})) == [("a", (6, 6)), ("c", (0, 2))]


def test_a_commit_that_is_gone_may_have_changed_rows(tmp_path: Path) -> None:
    commit(tmp_path, 7, {"commitInfo": {"operation": "OPTIMIZE"}})
    assert told_by_log(str(tmp_path), (6, 7)) is True

"""Only a table whose commits do nothing but add rows is read by its commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.streaming.delta_writes import CHANGE_FEED
from headrace.streaming.first_commits import COMMITS_MAX, only_appended

Action = dict[str, Any]
CREATED: list[Action] = [{"protocol": {}}, {"metaData": {"configuration": {}}}]
WITH_FEED: list[Action] = [{"protocol": {}}, {"metaData": {"configuration": {CHANGE_FEED: "true"}}}]
ADDED: list[Action] = [{"txn": {"appId": "a", "version": 0}}, {"add": {"path": "one"}}]
REMOVED: list[Action] = [{"remove": {"path": "one"}}, {"add": {"path": "two"}}]
CHANGED: list[Action] = [{"cdc": {"path": "changes"}}]
ALTERED: list[Action] = [{"metaData": {"configuration": {CHANGE_FEED: "true"}}}]


def table(directory: Path, commits: list[list[Action]], *, first: int = 0) -> str:
    log = directory / "_delta_log"
    log.mkdir()
    for version, actions in enumerate(commits, start=first):
        (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))
        (log / f"{version:020}.crc").write_text("{}")
    return str(directory)


@pytest.mark.parametrize(
    ("commits", "change_feed", "expected"),
    [
        ([CREATED], False, True),
        ([CREATED, ADDED, ADDED], False, True),
        ([CREATED, ADDED, REMOVED], False, False),
        ([CREATED, ADDED, ALTERED], False, False),
        ([WITH_FEED, ADDED, CHANGED], True, False),
        ([WITH_FEED, ADDED], True, True),
        ([CREATED, ADDED], True, False),
        ([CREATED, *[ADDED] * (COMMITS_MAX - 1)], False, True),
        ([CREATED, *[ADDED] * COMMITS_MAX], False, False),
        ([], False, False),
    ],
    ids=[
        "new",
        "appended",
        "a file removed",
        "columns changed",
        "rows changed",
        "with a change feed",
        "a change feed switched on later",
        "few commits",
        "too many to read",
        "empty log",
    ],
)
def test_a_table_is_read_by_its_commits_if_they_only_add_rows(
    commits: list[list[Action]], change_feed: bool, expected: bool, tmp_path: Path
) -> None:
    assert only_appended(table(tmp_path, commits), change_feed=change_feed) is expected


def test_a_table_whose_first_commits_are_gone_is_read_as_a_whole(tmp_path: Path) -> None:
    assert not only_appended(table(tmp_path, [ADDED, ADDED], first=3), change_feed=False)

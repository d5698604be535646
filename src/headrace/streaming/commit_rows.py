"""How many rows the commits of a Delta table wrote, read from its log: what a reader has before it, what a node wrote.

Each commit is read once. Nothing is read while a reader is at the end of its table, or a node writes nothing.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from headrace.core.errors import OperatorError
from headrace.tables.delta_log import Commit, DeltaLog
from headrace.tables.storage import storage_of

COMMITS_READ_MAX = 500  # of a long backlog the older commits count as much as these on average
_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")


class WrittenRows(NamedTuple):
    rows: int
    node: str | None


class CommitRows:
    """One table, whose log only grows."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._read: dict[int, WrittenRows] = {}

    def last(self) -> int | None:
        return table_version(self._path)

    def rows(self, first: int, last: int, node: str | None = None) -> int:
        """Rows of the commits `first` to `last`, both included; with `node`, of those only that it made."""
        wanted = range(max(first, last - COMMITS_READ_MAX + 1), last + 1)
        self._read = {version: each for version, each in self._read.items() if version >= first}
        missing = [version for version in wanted if version not in self._read]
        if missing:
            self._fetch(missing)
        found = [self._read[version] for version in wanted if version in self._read]
        counted = sum(each.rows for each in found if node is None or each.node == node)
        unread = last - first + 1 - len(wanted)
        return counted + (counted * unread // len(found) if unread > 0 and found else 0)

    def _fetch(self, versions: list[int]) -> None:
        try:
            log = DeltaLog(self._path)
        except OperatorError:
            return
        for version in versions:
            try:
                commit = log.commit(version)
            except OperatorError:  # it is no longer in the log
                self._read[version] = WrittenRows(0, None)
                continue
            node = commit.provenance.node if commit.provenance is not None else None
            self._read[version] = WrittenRows(rows_of(commit), node)


def rows_of(commit: Commit) -> int:
    """Rows that were added, changed or removed; 1 where a writer of data kept no count."""
    merged = [_count(commit.metrics, name) for name in _MERGED]
    if any(each is not None for each in merged):
        return sum(each or 0 for each in merged)
    if commit.rows_added is None and commit.rows_removed is None:
        return 1 if commit.operation in ("WRITE", "STREAMING UPDATE", "MERGE", "DELETE", "UPDATE") else 0
    return (commit.rows_added or 0) + (0 if commit.rows_added else commit.rows_removed or 0)


def _count(metrics: Mapping[str, Any], name: str) -> int | None:
    return int(metrics[name]) if name in metrics else None


def table_version(path: str) -> int | None:
    """The last version of a Delta table, by the names of its commits."""
    names = storage_of(path).names(os.path.join(path, "_delta_log"))
    return max((int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit()), default=None)

"""The commits of a Delta table, read from its log's JSON files: what happened, when, and who says why.

Only the files that are asked for are opened, so looking up a time in a log of ten thousand commits reads fourteen of
them. It never writes, and knows nothing of the table's data.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.core.errors import OperatorError
from headrace.tables.provenance import Provenance, decode
from headrace.tables.storage import is_delta, storage_of
from headrace.tables.versions import time_of_ms, time_text

_COMMIT_FILE = re.compile(r"(\d{20})\.json")
_ROWS_REMOVED = ("numDeletedRows", "num_deleted_rows", "numTargetRowsDeleted", "num_target_rows_deleted")
_ROWS_ADDED = ("numOutputRows", "num_added_rows", "numTargetRowsInserted", "num_target_rows_inserted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    version: int
    at: datetime
    operation: str
    parameters: Mapping[str, Any]
    metrics: Mapping[str, Any]
    rows_added: int | None  # in the files that it added and removed; None where the writer kept no count
    rows_removed: int | None
    engine: str
    user_metadata: object
    provenance: Provenance | None


class DeltaLog:
    """The log of the table in a directory, as it was when this was made."""

    def __init__(self, path: str, name: str | None = None) -> None:
        self.name = name or path
        self._directory = os.path.join(path, "_delta_log")
        self._storage = storage_of(path)
        if not is_delta(path):
            raise OperatorError(f"{path}: not a Delta table; give the path of a directory with a _delta_log")
        matches = map(_COMMIT_FILE.fullmatch, self._storage.names(self._directory))
        self.versions = sorted(int(match[1]) for match in matches if match)
        if not self.versions:
            raise OperatorError(f"{self.name}: its log holds no commits; look at {self._directory}")

    @property
    def first(self) -> int:
        """The oldest version whose commit is still in the log; older ones live on in checkpoints only."""
        return self.versions[0]

    @property
    def last(self) -> int:
        return self.versions[-1]

    def commit(self, version: int) -> Commit:
        info: dict[str, Any] = {}
        rows = _RowCount()
        path = self._path(version)
        try:
            data = self._storage.read(path)
            if data is None:
                raise OperatorError(f"{self.name}: commit {version} is no longer in the log; it begins at {self.first}")
            for line in data.splitlines():
                if not line.strip():
                    continue
                action = json.loads(line)
                if "commitInfo" in action:
                    info = action["commitInfo"] or {}
                for kind in ("add", "remove"):
                    if kind in action:
                        rows.see(kind, action[kind])
            at_ms = info.get("inCommitTimestamp") or info.get("timestamp") or self._storage.changed_ms(path)
        except ValueError as error:
            raise OperatorError(f"{path}: not a commit of a Delta table ({error})") from error
        metrics = info.get("operationMetrics") or {}
        added, removed = rows.total("add"), rows.total("remove")
        return Commit(
            version=version,
            at=time_of_ms(int(at_ms)),
            operation=str(info.get("operation", "unknown")),
            parameters=info.get("operationParameters") or {},
            metrics=metrics,
            rows_added=added if added is not None else _metric(metrics, _ROWS_ADDED),
            rows_removed=removed if removed is not None else _metric(metrics, _ROWS_REMOVED),
            engine=str(info.get("engineInfo", "")),
            user_metadata=info.get("userMetadata"),
            provenance=decode(info.get("userMetadata")),
        )

    def commits(self, count_max: int | None = None) -> list[Commit]:
        """The newest first."""
        wanted = self.versions if count_max is None else self.versions[-count_max:] if count_max else []
        return [self.commit(version) for version in reversed(wanted)]

    def version_at(self, at: datetime) -> int:
        """The last version that was there at a time."""
        low, high = 0, len(self.versions)
        while low < high:
            middle = (low + high) // 2
            if self.commit(self.versions[middle]).at <= at:
                low = middle + 1
            else:
                high = middle
        if low == 0:
            begin = time_text(self.commit(self.first).at)
            raise OperatorError(
                f"{self.name}: nothing at {time_text(at)}; its log begins at {begin}, version {self.first}"
            )
        return self.versions[low - 1]

    def _path(self, version: int) -> str:
        return os.path.join(self._directory, f"{version:020d}.json")


class _RowCount:
    """Rows of the files that a commit adds and removes, as far as each of them has a count."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, int | None]] = {"add": {}, "remove": {}}

    def see(self, kind: str, action: Mapping[str, Any]) -> None:
        if not action.get("dataChange", True):
            return
        stats = action.get("stats")
        count = json.loads(stats).get("numRecords") if isinstance(stats, str) and stats else None
        deleted = (action.get("deletionVector") or {}).get("cardinality", 0)
        self._files[kind][action["path"]] = None if count is None else int(count) - int(deleted)

    def total(self, kind: str) -> int | None:
        """A file that is both added and removed has another deletion vector: only the difference counts."""
        rows, others = self._files[kind], self._files["remove" if kind == "add" else "add"]
        total = 0
        for path, count in rows.items():
            other = others.get(path, 0)
            if count is None or other is None:
                return None
            total += max(count - other, 0) if path in others else count
        return total


def _metric(metrics: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        if name in metrics:
            return int(metrics[name])
    return None

"""Whether commits of a table changed rows as its readers see them, and which.

A keyed table keeps the order of each row in a hidden column. A row that comes again as it was may be newer than before
and is merged, but to a reader nothing has changed. Delta's log tells most of it; where a merge only updated rows, its
change feed tells whether more than their order is another.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.streaming.sources import CHANGE_COLUMNS, without_hidden
from headrace.tables.provenance import Source, TableSource
from headrace.tables.storage import storage_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INSERTED, _UPDATED, _DELETED = (f"numTargetRows{what}" for what in ("Inserted", "Updated", "Deleted"))
_MADE = ("insert", "update_postimage")  # of the change feed; the others are rows as they were
_NET = "_headrace_net"
_UNCOUNTABLE = frozenset({"map", "variant"})  # Spark cannot group by them


def unread(
    sources: Iterable[Source], paths: Mapping[str, str], before: Mapping[str, int]
) -> Iterator[tuple[str, tuple[int, int]]]:
    """Of each table that a batch reads the versions that the batch `before` it had not reached, by paths. A batch may
    name a version again of which the one before had read all."""
    for source in sources:
        if isinstance(source, TableSource):
            first, last = max(source.versions[0], before.get(paths[source.table], -1) + 1), source.versions[1]
            if first <= last:
                yield source.table, (first, last)


def rows_changed(spark: "SparkSession", path: str, versions: tuple[int, int]) -> bool:
    told = told_by_log(path, versions)
    return told if told is not None else not changes(spark, path, versions).isEmpty()


def told_by_log(path: str, versions: tuple[int, int]) -> bool | None:
    """Whether one of these commits added or removed rows; None where some were updated, and the change feed tells the
    rest. A commit that cannot be read any more may have."""
    told: bool | None = False
    for version in range(versions[0], versions[1] + 1):
        file = os.path.join(path, "_delta_log", f"{version:020}.json")
        data = storage_of(file).read(file)
        found = _changes_rows([json.loads(line) for line in data.splitlines()]) if data is not None else True
        if found:
            return True
        told = None if found is None else told
    return told


def _changes_rows(actions: list[dict[str, Any]]) -> bool | None:
    """A merge may write a file again though none of its rows changed; its own counts tell."""
    for info in (action["commitInfo"] for action in actions if "commitInfo" in action):
        metrics = info.get("operationMetrics") or {}
        if info.get("operation") != "MERGE" or any(metrics.get(name) != "0" for name in (_INSERTED, _DELETED)):
            continue
        if metrics.get(_UPDATED) == "0":
            return False
        if any("cdc" in action for action in actions):
            return None
    files = [action.get("add") or action.get("remove") for action in actions]
    return any(file is not None and bool(file.get("dataChange", True)) for file in files)


def changes(spark: "SparkSession", path: str, versions: tuple[int, int]) -> "DataFrame":
    """Every row that is another at the end of these versions than before them, as it was and as it is."""
    from pyspark.sql import functions as F

    options = {"readChangeFeed": "true", "startingVersion": str(versions[0]), "endingVersion": str(versions[1])}
    rows = without_hidden(spark.read.format("delta").options(**options).load(path))
    columns = [name for name in rows.columns if name not in CHANGE_COLUMNS]
    if any(_UNCOUNTABLE & _kinds(rows.schema[name].dataType) for name in columns):
        return rows.drop(*CHANGE_COLUMNS)
    step = F.when(F.col("_change_type").isin(*_MADE), 1).otherwise(-1)
    counted = rows.withColumn(_NET, step).groupBy(*[F.col(_quoted(name)) for name in columns])
    return counted.agg(F.sum(_NET).alias(_NET)).where(f"{_NET} <> 0").drop(_NET)


def _kinds(kind: Any) -> set[str]:
    """The names of a type and of all inside it."""
    inner = [getattr(kind, name) for name in ("elementType", "keyType", "valueType") if hasattr(kind, name)]
    inner += [field.dataType for field in getattr(kind, "fields", ())]
    return {str(kind.typeName())}.union(*map(_kinds, inner))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

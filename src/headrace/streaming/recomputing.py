"""Tables that are computed again from the whole of what they read: `@hr.materialized`.

The tables that the function reads are streams only to say that they changed: their rows are not read by the query. Each
batch reads every input at the version which the batch's offsets name, so that a batch that is run again gives the
same rows, and replaces the table in one commit. Nothing runs while nothing changes.
"""

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.core.errors import OperatorError
from headrace.streaming.declarations import Node, Static, TableOutput, TableStream, Topic
from headrace.streaming.delta_writes import Stamp, last_batch, overwrite
from headrace.streaming.sources import static_table, without_hidden
from headrace.tables.provenance import TableSource
from headrace.tables.storage import storage_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
SIGNAL_FILES_MAX = 1_000_000  # a batch takes all that there is: it reads none of it


class SnapshotReader:
    """The inputs of a function as plain DataFrames, each at one version. `versions` are by path; what is not there is
    read as it is now."""

    def __init__(
        self,
        spark: "SparkSession",
        versions: Mapping[str, int],
        *,
        own_path: Callable[[str], str],
        path_of: Callable[[str], str],
    ) -> None:
        self._spark = spark
        self._versions = versions
        self._own_path = own_path
        self._path_of = path_of

    def topic(self, topic: Topic, observed: str) -> "DataFrame":
        raise OperatorError(f"topic {topic.topic!r}: cannot be read whole; make a table of it first")

    def own_table(self, node: Node, given: TableStream | None, *, changes: bool) -> "DataFrame":
        return self.table(self._own_path(node.name))

    def other_table(self, given: TableStream) -> "DataFrame":
        return self.table(self._path_of(given.table))

    def static(self, given: Static, node: Node | None) -> "DataFrame":
        return static_table(self._spark, self._own_path(node.name) if node else self._path_of(given.table), given)

    def table(self, path: str) -> "DataFrame":
        reading = self._spark.read.format("delta")
        if path in self._versions:
            reading = reading.option("versionAsOf", self._versions[path])
        return without_hidden(reading.load(path))


def signal(spark: "SparkSession", paths: list[str]) -> "DataFrame":
    """A stream that has a batch whenever one of the tables has changed."""
    from pyspark.sql import functions as F

    options = {"ignoreChanges": "true", "maxFilesPerTrigger": str(SIGNAL_FILES_MAX)}
    streams = [
        spark.readStream.format("delta").options(**options).load(path).select(F.lit(1).alias("changed"))
        for path in paths
    ]
    whole = streams[0]
    for stream in streams[1:]:
        whole = whole.union(stream)
    return whole


def rows_changed(path: str, versions: tuple[int, int]) -> bool:
    """Whether one of these commits added or removed rows. A commit that cannot be read any more may have."""
    for version in range(versions[0], versions[1] + 1):
        file = os.path.join(path, "_delta_log", f"{version:020}.json")
        data = storage_of(file).read(file)
        if data is None or _changes_rows([json.loads(line) for line in data.splitlines()]):
            return True
    return False


def _changes_rows(actions: list[dict[str, Any]]) -> bool:
    """A merge may write a file again though none of its rows changed; its own counts tell."""
    for info in (action["commitInfo"] for action in actions if "commitInfo" in action):
        metrics = info.get("operationMetrics") or {}
        if info.get("operation") == "MERGE" and all(metrics.get(name) == "0" for name in _MERGED):
            return False
    files = [action.get("add") or action.get("remove") for action in actions]
    return any(file is not None and bool(file.get("dataChange", True)) for file in files)


class RecomputeSink:
    """`compute` gives the rows of a batch, from the tables as they were at its end; `paths` are those of the tables by
    their names."""

    def __init__(
        self,
        output: TableOutput,
        path: str,
        paths: Mapping[str, str],
        compute: "Callable[[SparkSession, int], DataFrame]",
    ) -> None:
        self._output = output
        self._path = path
        self._paths = paths
        self._compute = compute

    def done(self, spark: "SparkSession", stamp: Stamp) -> bool:
        last = last_batch(spark, self._path, stamp.app_id)
        return last is not None and last >= stamp.batch

    def write(self, frame: "DataFrame", stamp: Stamp) -> None:
        read = [source for source in stamp.sources if isinstance(source, TableSource)]
        if stamp.batch > 0 and not any(rows_changed(self._paths[each.table], each.versions) for each in read):
            return
        rows = self._compute(frame.sparkSession, stamp.batch)
        overwrite(rows, self._path, stamp, evolve=self._output.evolve)

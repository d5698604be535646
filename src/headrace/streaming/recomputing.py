"""Tables that are computed again from the whole of what they read: `@hr.materialized`.

The tables that the function reads are streams only to say that they changed: their rows are not read by the query. Each
batch reads every input at the version which the batch's offsets name, so that a batch that is run again gives the
same rows, and replaces the table in one commit. Nothing runs while nothing changes.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from headrace.core.errors import OperatorError
from headrace.streaming.changed_rows import rows_changed, unread
from headrace.streaming.declarations import Node, Static, TableOutput, TableStream, TopicStream
from headrace.streaming.delta_writes import Stamp, is_written, overwrite
from headrace.streaming.sources import static_table, without_hidden

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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

    def topic(self, topic: TopicStream, observed: str) -> "DataFrame":
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


class RecomputeSink:
    """`compute` gives the rows of a batch, from the tables as they were at its end; `paths` are those of the tables by
    their names, `reached` gives the version of each path up to which a batch has read."""

    def __init__(
        self,
        output: TableOutput,
        path: str,
        paths: Mapping[str, str],
        reached: Callable[[int], Mapping[str, int]],
        compute: "Callable[[SparkSession, int], DataFrame]",
    ) -> None:
        self._output = output
        self._path = path
        self._paths = paths
        self._reached = reached
        self._compute = compute

    def done(self, spark: "SparkSession", stamp: Stamp) -> bool:
        return is_written(spark, self._path, stamp)

    def write(self, frame: "DataFrame", stamp: Stamp) -> None:
        spark = frame.sparkSession
        if stamp.batch > 0:
            news = unread(stamp.sources, self._paths, self._reached(stamp.batch - 1))
            if not any(rows_changed(spark, self._paths[table], versions) for table, versions in news):
                return
        rows = self._compute(spark, stamp.batch)
        overwrite(rows, self._path, stamp, evolve=self._output.evolve)

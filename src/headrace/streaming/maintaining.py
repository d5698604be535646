"""Keyed tables over tables that change, kept up to date from the changes: always what the function gives for all rows.

A batch is a range of versions of each input. The function over the rows that changed in it, as they were and as they
are, gives the keys whose rows may be others now (`maintainable` says when that is so); the function over the inputs as
they are at the end of the batch, cut down to those keys, gives their rows. What differs is merged, and a key without a
row is removed, in one commit. Spark does the cutting before it groups and joins.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.streaming.changed_rows import changes, told_by_log, unread
from headrace.streaming.declarations import Node, PipelineError, Static, TableOutput, TableStream, TopicStream
from headrace.streaming.delta_writes import Stamp, last_batch, overwrite, stamped
from headrace.streaming.keyed.merge import GONE, last_of_state
from headrace.streaming.keyed.order import quoted
from headrace.streaming.recomputing import SnapshotReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PART = "maintained"  # of the transaction's name: who else wrote the table did not keep it up to date
Compute = Callable[["GivenReader"], "DataFrame"]


class GivenReader:
    """Some tables as they are given, by their names; the rest as they were at the end of the batch."""

    def __init__(self, snapshots: SnapshotReader, given: "Mapping[str, DataFrame]") -> None:
        self._snapshots = snapshots
        self._given = given

    def topic(self, topic: TopicStream, observed: str) -> "DataFrame":
        return self._snapshots.topic(topic, observed)

    def own_table(self, node: Node, given: TableStream | None, *, changes: bool) -> "DataFrame":
        found = self._given.get(node.name)
        return found if found is not None else self._snapshots.own_table(node, given, changes=changes)

    def other_table(self, given: TableStream) -> "DataFrame":
        return self._snapshots.other_table(given)

    def static(self, given: Static, node: Node | None) -> "DataFrame":
        return self._snapshots.static(given, node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """`paths` are those of the tables by their names; `reached` gives the version of each path up to which a batch has
    read, and `snapshots` reads them there."""

    paths: Mapping[str, str]
    reached: Callable[[int], Mapping[str, int]]
    snapshots: "Callable[[SparkSession, int], SnapshotReader]"
    compute: Compute


class MaintainSink:
    def __init__(self, output: TableOutput, path: str, inputs: Inputs, *, grouped: bool = False) -> None:
        """`grouped`: the function gives one row per key for certain."""
        self._grouped = grouped
        self._output = output
        self._path = path
        self._inputs = inputs

    def done(self, spark: "SparkSession", stamp: Stamp) -> bool:
        last = last_batch(spark, self._path, stamp.as_part(PART).app_id)
        return last is not None and last >= stamp.batch

    def write(self, frame: "DataFrame", stamp: Stamp) -> None:
        spark, compute, stamp = frame.sparkSession, self._inputs.compute, stamp.as_part(PART)
        snapshots = self._inputs.snapshots(spark, stamp.batch)
        whole = compute(GivenReader(snapshots, {}))
        if last_batch(spark, self._path, stamp.app_id) is None:
            rows = self._one_per_key(whole, whole.columns).drop(GONE)
            overwrite(rows, self._path, stamp)
            return
        paths, changed, certain = self._inputs.paths, {}, False
        before = self._inputs.reached(stamp.batch - 1) if stamp.batch else {}
        for table, versions in unread(stamp.sources, paths, before):
            told = told_by_log(paths[table], versions)
            if told is not False:
                changed[table] = changes(spark, paths[table], versions)
                certain = certain or told is True
        if changed:
            self._merge(whole, self._touched(spark, snapshots, changed), stamp, certain=certain)

    def _one_per_key(self, rows: "DataFrame", columns: list[str]) -> "DataFrame":
        return last_of_state(rows, self._output, columns, grouped=self._grouped)

    def _touched(
        self, spark: "SparkSession", snapshots: SnapshotReader, changed: "Mapping[str, DataFrame]"
    ) -> "DataFrame":
        """The keys whose rows may be others now. Beside the changes of one table, the others are as they were and as
        they are: a row that is gone from both sides of a join must be found as well."""
        found: DataFrame | None = None
        for table in changed:
            given = {}
            for other, rows in changed.items():
                now = snapshots.table(self._inputs.paths[other])
                given[other] = rows if other == table else now.unionByName(rows, allowMissingColumns=True)
            keys = self._inputs.compute(GivenReader(snapshots, given)).select(*map(quoted, self._output.key))
            found = keys if found is None else found.union(keys)
        if found is None:
            raise ValueError("no table has changed")
        return found.distinct()

    def _merge(self, whole: "DataFrame", touched: "DataFrame", stamp: Stamp, *, certain: bool) -> None:
        """`certain`: the log says that rows have changed; else they may only have come again."""
        from delta.tables import DeltaTable
        from pyspark.sql import functions as F

        spark, key = whole.sparkSession, self._output.key
        touched = touched.select(
            *[F.col(quoted(name)).alias(f"_headrace_k{index}") for index, name in enumerate(key)]
        ).persist()
        try:
            if not certain and touched.isEmpty():
                return
            ours = F.expr(" and ".join(f"{quoted(name)} <=> _headrace_k{index}" for index, name in enumerate(key)))
            rows = self._one_per_key(whole.join(touched, ours, "left_semi"), whole.columns)
            same = " and ".join(f"t.{quoted(name)} <=> s._headrace_k{index}" for index, name in enumerate(key))
            values: dict[str, Any] = {quoted(name): f"s.{quoted(name)}" for name in whole.columns}
            kinds = {column.name: column.dataType.simpleString() for column in whole.schema.fields}
            alike = [f"t.{quoted(name)} <=> s.{quoted(name)}" for name in whole.columns if "map<" not in kinds[name]]
            mapped = [f"to_json(t.{quoted(n)}) <=> to_json(s.{quoted(n)})" for n in whole.columns if "map<" in kinds[n]]
            # GONE is null where a key has no row any more.
            with stamped(spark, stamp):
                source = touched.join(rows, ours, "left").alias("s")
                merging = DeltaTable.forPath(spark, self._path).alias("t").merge(source, same)
                (
                    merging.whenMatchedDelete(f"s.{GONE} is null")
                    .whenMatchedUpdate(condition=f"not ({' and '.join([*alike, *mapped])})", set=values)
                    .whenNotMatchedInsert(condition=f"s.{GONE} is not null", values=values)
                    .execute()
                )
        finally:
            touched.unpersist()


def refuse_streamed(spark: "SparkSession", node: Node, path: str, stamp: Stamp) -> None:
    """A table that an earlier release made of a stream: its rows may be wrong, and changes do not correct them."""
    if (
        last_batch(spark, path, stamp.as_part(PART).app_id) is None
        and last_batch(spark, path, stamp.app_id) is not None
    ):
        raise PipelineError(
            node.place,
            f"{node.name}: the table was written by an earlier release, which read a table whose rows change as a "
            f"stream; replay the pipeline",
        )

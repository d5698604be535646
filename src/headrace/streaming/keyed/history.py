"""A keyed table that keeps every version of a row (a slowly changing dimension of type 2): `@hr.table(history=True)`.

A version is valid from its own order up to, and without, the order of the next change of its key; the change may be a
removal. A change can come late: then it lies between two versions that are there, and both get new bounds. So for
the keys of a batch all changes are put in order again (the versions in the table, the removals known, the batch), and
what differs is merged. The same changes give the same versions, whichever batches they came in.

A removal is known by its marker, which is kept, and by the end of the version before it.
"""

from typing import TYPE_CHECKING, Any

from headrace.streaming.declarations import HISTORY_COLUMNS, TableOutput
from headrace.streaming.delete_markers import DeleteMarkers
from headrace.streaming.delta_append import append_first
from headrace.streaming.delta_writes import Stamp, is_new, stamped
from headrace.streaming.keyed.merge import GONE, changes_of, key_columns, last_of_each
from headrace.streaming.keyed.order import Order, quoted
from headrace.tables.hidden import ORDER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

FROM, TO, CURRENT = HISTORY_COLUMNS
_KNOWN = "_headrace_known"  # 0 where a removal is only concluded from the end of a version


def history_schema(schema: "StructType", kind: "DataType") -> "StructType":
    """`schema` with the bounds of a version, which are of the type of the order."""
    from pyspark.sql.types import BooleanType, StructField, StructType

    bounds = [StructField(FROM, kind), StructField(TO, kind), StructField(CURRENT, BooleanType())]
    return StructType([*schema.fields, *bounds])


class HistoryTable:
    """One such table with its markers, and the one writer of both."""

    def __init__(self, output: TableOutput, path: str, markers: DeleteMarkers, order: Order, *, alone: bool) -> None:
        self._output = output
        self._path = path
        self._markers = markers
        self._order = order
        self._alone = alone

    def write(self, frame: "DataFrame", columns: list[str], stamp: Stamp) -> None:
        """`columns` are those of the frame that are stored."""
        changes = changes_of(frame, self._output, columns, self._order)
        changes = last_of_each(changes, self._by(), self._order).persist()
        try:
            removed = changes.where(GONE)
            if not removed.isEmpty():
                self._markers.add(removed, stamp)
            rows = changes.select(*map(quoted, [*columns, ORDER, GONE]))
            if self._alone and stamp.batch == 0 and is_new(frame.sparkSession, self._path):
                versions = self._versions(rows).where(f"not {GONE}").drop(GONE)
                append_first(versions, self._path, stamp, evolve=self._output.evolve)
            else:
                markers = self._markers.known(frame.sparkSession)
                self._merge(self._versions(self._with_known(rows, markers, columns)), columns, stamp)
        finally:
            changes.unpersist()

    def _by(self) -> "list[Column]":
        from pyspark.sql import functions as F

        return [*key_columns(self._output), F.col(f"{ORDER}.o0")]

    def _with_known(self, changes: "DataFrame", markers: "DataFrame | None", columns: list[str]) -> "DataFrame":
        """The batch's changes and all that is known of their keys already, one per key and order."""
        from pyspark.sql import functions as F

        key, spark = self._output.key, changes.sparkSession
        names = list(map(quoted, [*columns, ORDER, GONE]))
        touched = changes.select(
            *[F.col(quoted(name)).alias(f"_headrace_k{index}") for index, name in enumerate(key)]
        ).distinct()
        same = F.expr(" and ".join(f"{quoted(name)} <=> _headrace_k{index}" for index, name in enumerate(key)))
        table = spark.read.format("delta").load(self._path).join(touched, same, "left_semi")
        known = changes.unionByName(table.withColumn(GONE, F.lit(False)).select(*names))
        if markers is not None:
            removed = markers.join(touched, same, "left_semi").withColumn(GONE, F.lit(True))
            known = known.unionByName(removed.select(*map(quoted, [*key, ORDER, GONE])), allowMissingColumns=True)
        certain = last_of_each(known, self._by(), self._order).withColumn(_KNOWN, F.lit(1))
        ended = table.where(F.col(TO).isNotNull()).withColumn(GONE, F.lit(True)).withColumn(_KNOWN, F.lit(0))
        ended = ended.withColumn(ORDER, F.col(ORDER).withField("o0", F.col(TO)))
        ended = ended.select(*map(quoted, [*key, ORDER, GONE, _KNOWN]))
        # What is known to be at the same place comes before what is only concluded.
        every = certain.unionByName(ended, allowMissingColumns=True)
        return last_of_each(every, self._by(), None, rank=_KNOWN).drop(_KNOWN)

    def _versions(self, changes: "DataFrame") -> "DataFrame":
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        begins = F.col(f"{ORDER}.o0")
        ends = F.lead(begins).over(Window.partitionBy(*key_columns(self._output)).orderBy(begins))
        return changes.withColumn(FROM, begins).withColumn(TO, ends).withColumn(CURRENT, F.col(TO).isNull())

    def _merge(self, versions: "DataFrame", columns: list[str], stamp: Stamp) -> None:
        from delta.tables import DeltaTable

        spark = versions.sparkSession
        same = " and ".join(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in (*self._output.key, FROM))
        differs = f"not (t.{TO} <=> s.{TO} and t.{ORDER} <=> s.{ORDER})"
        values: dict[str, Any] = {quoted(name): f"s.{quoted(name)}" for name in (*columns, *HISTORY_COLUMNS, ORDER)}
        with stamped(spark, stamp):
            merging = DeltaTable.forPath(spark, self._path).alias("t").merge(versions.alias("s"), same)
            if self._output.evolve:
                merging = merging.withSchemaEvolution()
            (
                merging.whenMatchedDelete(f"s.{GONE}")
                .whenMatchedUpdate(condition=differs, set=values)
                .whenNotMatchedInsert(condition=f"not s.{GONE}", values=values)
                .execute()
            )

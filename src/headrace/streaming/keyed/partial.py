"""A keyed table whose changes hold only what they change: `@hr.table(nulls="unchanged")`.

A null leaves a column as it was. So every column has an order of its own: the change that set it last. Kept in a hidden
column beside the row's order, it lets an older change that comes later still set what no newer one has set, and only
that. A removal takes all values that are older; a change behind it begins a new row, of nulls.

Two changes that nothing tells apart (`order`) may set different columns; both setting one column stops the node.
"""

from typing import TYPE_CHECKING, Any

from headrace.streaming.declarations import TableOutput
from headrace.streaming.delete_markers import DeleteMarkers
from headrace.streaming.delta_append import append_first
from headrace.streaming.delta_writes import Stamp, is_new, stamped
from headrace.streaming.keyed.merge import CUT, GONE, changes_of, contents, key_columns, told, with_cuts
from headrace.streaming.keyed.order import SEVERAL_MARK, Order, key_text, newer, order_field, quoted
from headrace.tables.hidden import ORDER, ORDERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType


def orders_field(order: Order, output: TableOutput, stored: "StructType", frame: "StructType") -> "StructField":
    """The hidden column of the columns' orders; `stored` and `frame` are of what is stored, and of what is returned."""
    from pyspark.sql.types import StructField, StructType

    kind = order_field(order, frame).dataType
    names = [name for name in stored.names if name not in output.key]
    return StructField(ORDERS, StructType([StructField(name, kind) for name in names]))


class PartialTable:
    """One such table with its markers, and the one writer of both."""

    def __init__(self, output: TableOutput, path: str, markers: DeleteMarkers, order: Order, *, alone: bool) -> None:
        self._output = output
        self._path = path
        self._markers = markers
        self._order = order
        self._alone = alone

    def write(self, frame: "DataFrame", columns: list[str], stamp: Stamp) -> None:
        """`columns` are those of the frame that are stored."""
        names = [name for name in columns if name not in self._output.key]
        changes = changes_of(frame, self._output, columns, self._order).persist()
        try:
            removals = changes.where(GONE)
            if self._output.delete is not None and not removals.isEmpty():
                self._markers.add(removals, stamp)
            rows = self._put_together(self._markers.unmarked(changes.where(f"not {GONE}")), names)
            if self._alone and stamp.batch == 0 and is_new(frame.sparkSession, self._path):
                append_first(rows, self._path, stamp, evolve=self._output.evolve)
            else:
                self._merge(with_cuts(rows, removals, self._output.key), names, stamp)
        finally:
            changes.unpersist()

    def _put_together(self, changes: "DataFrame", names: list[str]) -> "DataFrame":
        """One row per key: of each column the last value, and its order."""
        from pyspark.sql import functions as F

        order = F.col(ORDER)
        found = [F.max(order).alias(ORDER)]
        for index, name in enumerate(names):
            at = F.when(F.col(quoted(name)).isNotNull(), order)
            found += [
                F.max_by(F.col(quoted(name)), at).alias(f"_headrace_v{index}"),
                F.max(at).alias(f"_headrace_o{index}"),
                F.equal_null(*contents(self._order, at)).alias(f"_headrace_told{index}"),
            ]
        keys = [column.alias(f"_headrace_k{index}") for index, column in enumerate(key_columns(self._output))]
        by = [F.col(f"_headrace_k{index}") for index in range(len(keys))]
        picked = changes.select("*", *keys).groupBy(*by).agg(*found)
        if names:
            alike = " and ".join(f"_headrace_told{index}" for index in range(len(names)))
            picked = picked.where(told(F.expr(alike), SEVERAL_MARK, by))
        return picked.select(
            *[F.col(f"_headrace_k{index}").alias(name) for index, name in enumerate(self._output.key)],
            *[F.col(f"_headrace_v{index}").alias(name) for index, name in enumerate(names)],
            F.struct(*[F.col(f"_headrace_o{index}").alias(name) for index, name in enumerate(names)]).alias(ORDERS),
            ORDER,
        )

    def _merge(self, rows: "DataFrame", names: list[str], stamp: Stamp) -> None:
        from delta.tables import DeltaTable

        spark, key = rows.sparkSession, self._output.key
        same = " and ".join(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in key)
        text = key_text(key, "s")
        stays = f"(s.{CUT} is null or {newer(self._order, f't.{ORDER}', f's.{CUT}', text)})"
        values: dict[str, Any] = {}
        orders, differs = [], []
        for name in names:
            column = quoted(name)
            mine, theirs = f"s.{ORDERS}.{column}", f"t.{ORDERS}.{column}"
            later = newer(self._order, mine, theirs, text)
            older = f"(s.{CUT} is null or {newer(self._order, theirs, f's.{CUT}', text)})"
            differs += [f"({later})", f"({theirs} is not null and not {older})"]
            values[column] = f"case when {later} then s.{column} when {older} then t.{column} end"
            orders.append(f"'{name}', case when {later} then {mine} when {older} then {theirs} end")
        values[ORDERS] = f"named_struct({', '.join(orders)})"
        values[ORDER] = f"case when {stays} then greatest(s.{ORDER}, t.{ORDER}) else s.{ORDER} end"
        inserted: dict[str, Any] = {quoted(n): f"s.{quoted(n)}" for n in (*key, *names, ORDERS, ORDER)}
        with stamped(spark, stamp):
            merging = DeltaTable.forPath(spark, self._path).alias("t").merge(rows.alias("s"), same)
            (
                merging.whenMatchedDelete(f"s.{ORDER} is null and not {stays}")
                .whenMatchedUpdate(condition=" or ".join([*differs, f"s.{ORDER} > t.{ORDER}"]), set=values)
                .whenNotMatchedInsert(condition=f"s.{ORDER} is not null", values=inserted)
                .execute()
            )

"""Merging changes into a keyed table so that the result does not depend on where a batch ended.

A change that removes a key leaves a marker in a table beside the user's (`delete_markers`). Changes that a removal is
held against go first, be it of this batch or of an earlier one; of the others the newest of each key is taken
(`order` says which that is), and it is applied if it is newer than what the table holds, or if what the table
holds is older than a removal of this batch. The user's table never holds a removed row.

Markers are written first. A crash between the two commits is harmless: the batch is run again, finds its markers
there by their transaction id, and merges the same rows.
"""

from typing import TYPE_CHECKING, Any

from headrace.streaming.declarations import TableOutput
from headrace.streaming.delete_markers import AT, PARTITION, TOPIC, DeleteMarkers
from headrace.streaming.delta_append import append_first
from headrace.streaming.delta_writes import Stamp, is_new, stamped
from headrace.streaming.keyed.order import (
    CONTENT,
    KEY_CHARS_MAX,
    PARTITIONS_MARK,
    SEVERAL_MARK,
    Order,
    behind_all,
    key_text,
    newer,
    order_column,
    quoted,
)
from headrace.tables.hidden import ORDER

if TYPE_CHECKING:
    from delta.tables import DeltaMergeBuilder
    from pyspark.sql import Column, DataFrame

GONE = "_headrace_gone"
EMPTIES = "_headrace_empties"
CUT = "_headrace_cut"  # the order of the last removal of a batch
_ROW = "_headrace_row"


class KeyedTable:
    """One keyed table with its markers, and the one writer of both. `order` is None where state updates the rows."""

    def __init__(
        self,
        output: TableOutput,
        path: str,
        markers: DeleteMarkers,
        order: Order | None,
        *,
        alone: bool,
        grouped: bool = False,
    ) -> None:
        """`grouped`: state gives at most one row per key and batch."""
        self._grouped = grouped
        self._output = output
        self._path = path
        self._markers = markers
        self._order = order
        self._alone = alone

    def write(self, frame: "DataFrame", columns: list[str], stamp: Stamp) -> None:
        """`columns` are those of the frame that are stored."""
        output, order = self._output, self._order
        if order is None:
            self._merge_state(last_of_state(frame, output, columns, grouped=self._grouped), columns, stamp)
            return
        changes = changes_of(frame, output, columns, order)
        if not removes(output):
            self._merge(last_of_each(changes, key_columns(output), order), columns, stamp, order)
            return
        persisted = changes.persist()  # two tables are written from it, and the batch is read once
        try:
            if output.truncate is not None:
                self._truncate(changes.where(EMPTIES), stamp, order)
                changes = changes.where(f"not {EMPTIES}")
            removals = changes.where(GONE)
            removed = not removals.isEmpty()
            if removed:
                self._markers.add(removals, stamp)
            lasting = self._markers.unmarked(changes.where(f"not {GONE}"))
            last = last_of_each(lasting, key_columns(output), order)
            if removed:
                last = with_cuts(last, removals, output.key)
            self._merge(last, columns, stamp, order, cut=removed)
        finally:
            persisted.unpersist()

    def _truncate(self, emptying: "DataFrame", stamp: Stamp, order: Order) -> None:
        """What removes all rows leaves a marker of its own, and takes the rows that are older."""
        from delta.tables import DeltaTable
        from pyspark.sql import functions as F

        spark = emptying.sparkSession
        emptied = last_of_each(emptying, [F.lit(1)], None)
        if emptied.isEmpty():
            return
        self._markers.add(emptied, stamp, everything=True)
        older = f"not coalesce({behind_all(order, f't.{ORDER}', f's.{ORDER}')}, false)"
        with stamped(spark, stamp.as_part("truncate")):
            merging = DeltaTable.forPath(spark, self._path).alias("t").merge(emptied.alias("s"), older)
            merging.whenMatchedDelete().execute()

    def _merge(self, rows: "DataFrame", columns: list[str], stamp: Stamp, order: Order, *, cut: bool = False) -> None:
        """With `cut` a row may stand for a removal alone: its order is null then."""
        output, spark, kept = self._output, rows.sparkSession, [*columns, ORDER]
        if self._alone and stamp.batch == 0 and is_new(spark, self._path):
            # Nothing can match, and a merge takes two jobs and a plan of its own.
            if cut:
                rows = rows.where(f"{ORDER} is not null")
            append_first(rows.select(*map(quoted, kept)), self._path, stamp, evolve=output.evolve)
            return
        text = key_text(output.key, "s")
        behind = newer(order, f"s.{ORDER}", f"t.{ORDER}", text)
        with stamped(spark, stamp):
            merging = self._merging(rows.select(*map(quoted, [*kept, *([CUT] if cut else [])])))
            if not cut:
                merging.whenMatchedUpdateAll(behind).whenNotMatchedInsertAll().execute()
                return
            after = newer(order, f"s.{CUT}", f"t.{ORDER}", text)
            values: dict[str, Any] = {quoted(name): f"s.{quoted(name)}" for name in kept}
            (
                merging.whenMatchedDelete(f"s.{ORDER} is null and {after}")
                .whenMatchedUpdate(condition=f"s.{ORDER} is not null and ({behind} or {after})", set=values)
                .whenNotMatchedInsert(condition=f"s.{ORDER} is not null", values=values)
                .execute()
            )

    def _merge_state(self, rows: "DataFrame", columns: list[str], stamp: Stamp) -> None:
        """Rows that state updates replace those before them."""
        output, spark = self._output, rows.sparkSession
        if self._alone and stamp.batch == 0 and is_new(spark, self._path):
            new = rows.where(f"not {GONE}").select(*map(quoted, columns))
            append_first(new, self._path, stamp, evolve=output.evolve)
            return
        with stamped(spark, stamp):
            if output.delete is None:
                merging = self._merging(rows.select(*map(quoted, columns)))
                merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
                return
            values: dict[str, Any] = {quoted(name): f"s.{quoted(name)}" for name in columns}
            (
                self._merging(rows.select(*map(quoted, [*columns, GONE])))
                .whenMatchedDelete(f"s.{GONE}")
                .whenMatchedUpdate(set=values)
                .whenNotMatchedInsert(condition=f"not s.{GONE}", values=values)
                .execute()
            )

    def _merging(self, source: "DataFrame") -> "DeltaMergeBuilder":
        from delta.tables import DeltaTable

        same = " and ".join(f"t.{quoted(name)} <=> s.{quoted(name)}" for name in self._output.key)
        table = DeltaTable.forPath(source.sparkSession, self._path).alias("t")
        merging = table.merge(source.alias("s"), same)
        return merging.withSchemaEvolution() if self._output.evolve else merging


def with_cuts(rows: "DataFrame", removals: "DataFrame", key: tuple[str, ...]) -> "DataFrame":
    """One row per key, and in CUT the order of the last removal of the key; the rest is null for a key that has none of
    `rows`."""
    from pyspark.sql import functions as F

    names = [f"_headrace_c{index}" for index in range(len(key))]
    keys = [F.col(quoted(name)).alias(new) for name, new in zip(key, names, strict=True)]
    last = removals.select(*keys, ORDER).groupBy(*names).agg(F.max(ORDER).alias(CUT))
    same = F.expr(" and ".join(f"{quoted(name)} <=> {new}" for name, new in zip(key, names, strict=True)))
    joined = rows.join(last, same, "full_outer")
    # A key that is null on one side because there is no row has its value on the other.
    whole = {name: F.coalesce(F.col(quoted(name)), F.col(new)) for name, new in zip(key, names, strict=True)}
    return joined.select(*[whole.get(n, F.col(quoted(n))).alias(n) for n in rows.columns], CUT)


def removes(output: TableOutput) -> bool:
    """Whether a change may remove rows."""
    return output.delete is not None or output.truncate is not None


def key_columns(output: TableOutput) -> "list[Column]":
    from pyspark.sql import functions as F

    return [F.col(quoted(name)) for name in output.key]


def changes_of(frame: "DataFrame", output: TableOutput, columns: list[str], order: Order) -> "DataFrame":
    """What is stored of each row, its order, and whether it removes its key or everything."""
    from pyspark.sql import functions as F

    gone = _is(output.delete)
    wanted = [F.col(quoted(name)) for name in columns]
    wanted += [order_column(order, columns, gone).alias(ORDER), gone.alias(GONE)]
    if output.truncate is not None:
        wanted.append(_is(output.truncate).alias(EMPTIES))
    if removes(output) and order.timed:
        wanted += [F.col("_topic").alias(TOPIC), F.col("_partition").alias(PARTITION), F.col("_timestamp").alias(AT)]
    return frame.select(*wanted)


def last_of_each(rows: "DataFrame", by: "list[Column]", order: Order | None, rank: str = ORDER) -> "DataFrame":
    """Of the rows that are equal in `by` the one of the greatest `rank`. With an `order`, rows of which nothing tells
    which is last stop the node, rather than one of them winning by chance."""
    from pyspark.sql import functions as F

    keys = [column.alias(f"_headrace_k{index}") for index, column in enumerate(by)]
    names = [f"_headrace_k{index}" for index in range(len(by))]
    row = F.struct(*map(quoted, rows.columns)).alias(_ROW)
    groups = rows.select(*keys, row, F.col(ORDER).alias("o"), F.col(rank).alias("r")).groupBy(*names)
    picked = groups.agg(F.max_by(_ROW, "r").alias(_ROW), *(_doubts(order) if order is not None else []))
    if order is not None:
        picked = _undoubted(picked, order, list(map(F.col, names)))
    return picked.select(f"{_ROW}.*")


def _is(predicate: str | None) -> "Column":
    from pyspark.sql import functions as F

    return F.lit(False) if predicate is None else F.coalesce(F.expr(predicate).cast("boolean"), F.lit(False))


def contents(order: Order, at: "Column") -> "list[Column]":
    """Aggregates: the greatest and the least hash among the rows of the greatest rank `at`. They differ where nothing
    tells which of those rows is the last. A complement turns the order of the hashes round."""
    from pyspark.sql import functions as F

    ranks = [at.getField(name).alias(name) for name in order.ranks]
    turned = F.struct(*ranks, F.bitwise_not(at.getField(CONTENT)).alias(CONTENT))
    least = F.max(F.when(at.isNotNull(), turned)).getField(CONTENT)
    return [F.max(at).getField(CONTENT), F.bitwise_not(least)]


def told(alike: "Column", mark: str, by: "list[Column]", *rest: "Column") -> "Column":
    """A condition that is true, or stops the node and names the key."""
    from pyspark.sql import functions as F

    values = [F.coalesce(each.cast("string"), F.lit("null")) for each in by]
    key = F.substring(F.concat(F.lit("key "), F.concat_ws(", ", *values)), 1, KEY_CHARS_MAX)
    return F.when(alike, True).otherwise(F.raise_error(F.concat(F.lit(mark), key, *rest)).cast("boolean"))


def _doubts(order: Order) -> "list[Column]":
    """What must be equal in all rows of a key that could be the last one."""
    from pyspark.sql import functions as F

    found = [each.alias(name) for each, name in zip(contents(order, F.col("o")), ("one", "other"), strict=True)]
    if order.placed and not order.by:
        place = F.struct("o.topic", "o.partition")
        found += [F.min(place).alias("here"), F.max(place).alias("there")]
    return found


def _undoubted(picked: "DataFrame", order: Order, by: "list[Column]") -> "DataFrame":
    from pyspark.sql import functions as F

    if order.placed and not order.by:
        places = (
            F.lit(" in {"), F.col("here.topic"), F.lit("-"), F.col("here.partition"),
            F.lit(", "), F.col("there.topic"), F.lit("-"), F.col("there.partition"), F.lit("}"),
        )  # fmt: skip
        picked = picked.where(told(F.col("here").eqNullSafe(F.col("there")), PARTITIONS_MARK, by, *places))
    return picked.where(told(F.col("one").eqNullSafe(F.col("other")), SEVERAL_MARK, by))


def last_of_state(frame: "DataFrame", output: TableOutput, columns: list[str], *, grouped: bool = False) -> "DataFrame":
    """Rows that a stateful query updates, or that are computed for a key: one per key, or the node stops. Of groups
    there is one, and nothing to look for."""
    from pyspark.sql import functions as F

    if grouped:
        return frame.select(*map(quoted, columns), _is(output.delete).alias(GONE))
    keys = [column.alias(f"_headrace_k{index}") for index, column in enumerate(key_columns(output))]
    by = [F.col(f"_headrace_k{index}") for index in range(len(keys))]
    row = F.struct(*map(quoted, columns), _is(output.delete).alias(GONE))
    groups = frame.select(*keys, row.alias(_ROW)).groupBy(*by)
    counted = groups.agg(F.first(_ROW).alias(_ROW), F.count(F.lit(1)).alias("n"))
    return counted.where(told(F.col("n") == 1, SEVERAL_MARK, by)).select(f"{_ROW}.*")

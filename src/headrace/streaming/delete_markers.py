"""The keys that were removed from a keyed table, each with the order of its removal: a Delta table of its own.

It lies beside the table (`_deletes/<node>`), so that whoever reads the user's table sees no removed row. A row is held
against every removal of its key that has a greater order and is not older than `forget_deletes_after`, by the log's
times of the two: which batch either came in plays no part, and neither does wall time. A removal that another one of
its key makes superfluous (greater order and later time) need not be kept.

Markers leave the table when they are twice as old as that by the time of their own partition. A row that comes then is
too late for them anyway, unless its own time lies further behind what was read before it than `forget_deletes_after`.
Where rows do not carry the log's time, and in a table with history, whose versions end at removals, markers stay.
"""

import sys
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.streaming.declarations import TableOutput
from headrace.streaming.delta_writes import Stamp, append, overwrite
from headrace.streaming.keyed.order import Order, behind_all, key_text, newer, quoted
from headrace.tables.hidden import ORDER
from headrace.tables.storage import is_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "_headrace_topic"
PARTITION = "_headrace_partition"
AT = "_headrace_at"
EVERYTHING = "_headrace_everything"  # a marker of all keys at once
REWRITE_EVERY_BATCHES = 16  # it costs a pass over all of them
_SEEN = "_headrace_seen"
_UNTIL = "_headrace_until"
_FIRST = -sys.maxsize - 1  # Spark's Window.unboundedPreceding, without an import of Spark


class DeleteMarkers:
    """Of one table. Only the node that writes the table uses it."""

    def __init__(self, path: str, output: TableOutput, order: Order | None) -> None:
        self._path = path
        self._key = output.key
        self._order = order
        self._kept = None if output.history else output.forget_deletes_after
        self._every = output.history  # all removals of a key are of interest, not only its last one
        self._truncated = output.truncate is not None
        self._exists = False

    def add(self, removed: "DataFrame", stamp: Stamp, *, everything: bool = False) -> None:
        """`removed` holds the removals of a batch, with their orders. They are appended, which costs less than a merge;
        now and then all are written again, without those that are old or superfluous."""
        from pyspark.sql import functions as F

        spark, order = removed.sparkSession, self._must_order()
        times = [TOPIC, PARTITION, AT] if order.timed else []
        rows = removed.select(*map(quoted, [*self._key, ORDER, *times])).withColumn(EVERYTHING, F.lit(everything))
        rows = self._needed(rows)
        stamp = stamp.as_part("truncations" if everything else "deletes")
        if everything or not self._there() or stamp.batch % REWRITE_EVERY_BATCHES:
            append(rows, self._path, stamp)
        else:
            old = self._forgotten(spark)
            kept = self._needed(self._all(spark))
            if old is not None:
                kept = kept.where(f"{EVERYTHING} or not coalesce({old}, false)")
            overwrite(kept.unionByName(rows), self._path, stamp)
        self._exists = True

    def _all(self, spark: "SparkSession") -> "DataFrame":
        return spark.read.format("delta").load(self._path)

    def _needed(self, markers: "DataFrame") -> "DataFrame":
        """Without those that another marker of the same key makes superfluous."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        by = [F.col(EVERYTHING), *[F.col(quoted(name)) for name in self._key]]
        if self._every:
            by.append(F.col(f"{ORDER}.o0"))
        if not self._must_order().timed:
            newest = Window.partitionBy(*by).orderBy(F.col(ORDER).desc())
            return markers.withColumn(_SEEN, F.row_number().over(newest)).where(f"{_SEEN} = 1").drop(_SEEN)
        never = F.lit("9999-12-31").cast("timestamp")  # a removal without a time is never forgotten
        at = F.coalesce(F.col(AT), never)
        greater = Window.partitionBy(*by).orderBy(F.col(ORDER).desc(), at.desc()).rowsBetween(_FIRST, -1)
        seen = markers.withColumn(_SEEN, F.max(at).over(greater)).withColumn(_UNTIL, at)
        return seen.where(f"{_SEEN} is null or {_UNTIL} > {_SEEN}").drop(_SEEN, _UNTIL)

    def known(self, spark: "SparkSession") -> "DataFrame | None":
        """The removals of every key; None if nothing was ever removed."""
        return self._needed(self._all(spark)).where(f"not {EVERYTHING}") if self._there() else None

    def unmarked(self, rows: "DataFrame") -> "DataFrame":
        """Without the rows that a removal of their key is held against."""
        if not self._there():
            return rows
        from pyspark.sql import functions as F

        order, markers = self._must_order(), self._all(rows.sparkSession)
        if self._truncated:
            emptied = markers.where(EVERYTHING).select(ORDER).alias("e")
            older = f"not coalesce({behind_all(order, f's.{ORDER}', f'e.{ORDER}')}, false)"
            rows = rows.alias("s").join(emptied, F.expr(older), "left_anti")
        times = [AT] if order.timed else []
        markers = markers.where(f"not {EVERYTHING}").select(*map(quoted, [*self._key, ORDER, *times])).alias("m")
        same = " and ".join(f"m.{quoted(name)} <=> s.{quoted(name)}" for name in self._key)
        behind = newer(order, f"s.{ORDER}", f"m.{ORDER}", key_text(self._key, "s"))
        late = self._too_late(f"s.{AT}", f"m.{AT}") or "false"
        held = f"{same} and case when {late} then false else not ({behind}) end"
        return rows.alias("s").join(markers, F.expr(held), "left_anti")

    def _too_late(self, row: str, marker: str) -> str | None:
        """SQL that is true where a row comes too late for a marker; None if none does. Both are times."""
        if self._kept is None or not self._must_order().timed:
            return None
        kept_us = self._kept // timedelta(microseconds=1)
        return f"coalesce(unix_micros({row}) > unix_micros({marker}) + {kept_us}, false)"

    def _forgotten(self, spark: "SparkSession") -> str | None:
        """SQL of the markers that no change is held against; None if there are none. What counts as now is the last
        removal of each partition in the batches before, so that no change of this batch is judged by a later one."""
        from pyspark.sql import functions as F

        if self._kept is None or not self._must_order().timed or not self._there():
            return None
        markers = spark.read.format("delta").load(self._path)
        at = F.unix_micros(AT)
        spans = markers.groupBy(TOPIC, PARTITION).agg(F.min(at).alias("first"), F.max(at).alias("last")).collect()
        return forgotten([(row[TOPIC], row[PARTITION], row["first"], row["last"]) for row in spans], 2 * self._kept)

    def _there(self) -> bool:
        self._exists = self._exists or is_delta(self._path)
        return self._exists

    def _must_order(self) -> Order:
        if self._order is None:
            raise ValueError(f"{self._path}: rows without an order leave no markers")
        return self._order


def forgotten(spans: Iterable[tuple[str | None, int | None, int | None, int | None]], kept: timedelta) -> str | None:
    """SQL of what is to be forgotten. A span is topic, partition, and the times in microseconds of the first and the
    last marker there; None if all of it is to be kept."""
    kept_us = kept // timedelta(microseconds=1)
    old = []
    for topic, partition, first_us, last_us in spans:
        if topic is None or partition is None or first_us is None or last_us is None or first_us >= last_us - kept_us:
            continue
        name = topic.replace("\\", "\\\\").replace("'", "\\'")
        place = f"{TOPIC} = '{name}' and {PARTITION} = {partition}"
        old.append(f"({place} and unix_micros({AT}) < {last_us - kept_us})")
    return " or ".join(old) or None

"""The keys that were removed from a keyed table, each with the order of its removal: a Delta table of its own.

It lies beside the table (`_deletes/<node>`), so that whoever reads the user's table sees no removed row. A marker
counts for `forget_deletes_after` of the log's time: a change whose own time is later than that is not held against it,
whether the marker is still there or not. Wall time plays no part. Markers leave the table only when they are twice as
old as that by the time of their own partition, so that when they leave changes nothing as long as no record is late by
more than `forget_deletes_after`. Where rows do not carry the log's time, markers are kept forever.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from headrace.streaming.declarations import TableOutput
from headrace.streaming.delta_writes import Stamp, append, overwrite
from headrace.streaming.keyed_order import Order, behind_all, key_text, newer, quoted
from headrace.tables.hidden import ORDER
from headrace.tables.storage import is_delta

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC = "_headrace_topic"
PARTITION = "_headrace_partition"
AT = "_headrace_at"
EVERYTHING = "_headrace_everything"  # a marker of all keys at once
REWRITE_EVERY_BATCHES = 16  # it costs a pass over all of them


class Markers:
    """Of one table. Only the node that writes the table uses it."""

    def __init__(self, path: str, output: TableOutput, order: Order | None) -> None:
        self._path = path
        self._key = output.key
        self._order = order
        self._kept = output.forget_deletes_after
        self._every = output.history  # all removals of a key are of interest, not only its last one
        self._truncated = output.truncate is not None
        self._exists = False

    def add(self, removed: "DataFrame", stamp: Stamp, *, everything: bool = False) -> None:
        """`removed` holds one row per key with its order or, for `everything`, one row in all. They are appended, which
        costs less than a merge; now and then all are written again, one per key, and without those that are old."""
        from pyspark.sql import functions as F

        spark, order = removed.sparkSession, self._must_order()
        times = [TOPIC, PARTITION, AT] if order.timed else []
        rows = removed.select(*map(quoted, [*self._key, ORDER, *times])).withColumn(EVERYTHING, F.lit(everything))
        stamp = stamp.as_part("truncations" if everything else "deletes")
        if everything or not self._there() or stamp.batch % REWRITE_EVERY_BATCHES:
            append(rows, self._path, stamp)
        else:
            old = self._forgotten(spark)
            kept = self._last(spark)
            if old is not None:
                kept = kept.where(f"{EVERYTHING} or not coalesce({old}, false)")
            overwrite(kept.unionByName(rows), self._path, stamp)
        self._exists = True

    def _last(self, spark: "SparkSession") -> "DataFrame":
        """The last marker of each key."""
        from pyspark.sql import functions as F

        marks = spark.read.format("delta").load(self._path)
        row = F.struct(*map(quoted, marks.columns)).alias("row")
        by = [F.col(EVERYTHING), *[F.col(quoted(name)) for name in self._key]]
        if self._every:
            by.append(F.col(f"{ORDER}.o0"))
        keys = [column.alias(f"_headrace_k{index}") for index, column in enumerate(by)]
        rows = marks.select(*keys, row).groupBy(*[f"_headrace_k{index}" for index in range(len(keys))])
        last = F.max_by("row", F.col(f"row.{ORDER}")).alias("row")
        if not self._must_order().timed:
            return rows.agg(last).select("row.*")
        # A removal that comes again is remembered from then on.
        found = rows.agg(last, F.max(F.col(f"row.{AT}")).alias("at"))
        return found.select(F.col("row").withField(AT, F.col("at")).alias("row")).select("row.*")

    def known(self, changes: "DataFrame") -> "DataFrame | None":
        """The last marker of each key, without those that all `changes` of the key come too late for; None if nothing
        was ever removed."""
        if not self._there():
            return None
        from pyspark.sql import functions as F

        marks = self._last(changes.sparkSession).where(f"not {EVERYTHING}")
        late = self._too_late("_headrace_seen", AT)
        if late is None:
            return marks
        keys = [F.col(quoted(name)).alias(f"_headrace_c{index}") for index, name in enumerate(self._key)]
        seen = changes.groupBy(*keys).agg(F.min(AT).alias("_headrace_seen"))
        same = " and ".join(f"{quoted(name)} <=> _headrace_c{index}" for index, name in enumerate(self._key))
        return marks.join(seen, F.expr(f"{same} and not {late}"), "left_semi")

    def unmarked(self, rows: "DataFrame", gone: str) -> "DataFrame":
        """Without the rows whose key was removed by a newer change, if in time; rows that remove a key stay."""
        if not self._there():
            return rows
        from pyspark.sql import functions as F

        order, marks = self._must_order(), self._last(rows.sparkSession)
        if self._truncated:
            emptied = marks.where(EVERYTHING).select(ORDER).alias("e")
            older = f"not coalesce({behind_all(order, f's.{ORDER}', f'e.{ORDER}')}, false)"
            rows = rows.alias("s").join(emptied, F.expr(older), "left_anti")
        times = [AT] if order.timed else []
        marks = marks.where(f"not {EVERYTHING}").select(*map(quoted, [*self._key, ORDER, *times])).alias("m")
        same = " and ".join(f"m.{quoted(name)} <=> s.{quoted(name)}" for name in self._key)
        behind = newer(order, f"s.{ORDER}", f"m.{ORDER}", key_text(self._key, "s"))
        late = self._too_late(f"s.{AT}", f"m.{AT}") or "false"
        joined = rows.alias("s").join(marks, F.expr(same), "left")
        return joined.where(f"case when s.{gone} or {late} then true else {behind} end").select("s.*")

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
        marks = spark.read.format("delta").load(self._path)
        at = F.unix_micros(AT)
        spans = marks.groupBy(TOPIC, PARTITION).agg(F.min(at).alias("first"), F.max(at).alias("last")).collect()
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

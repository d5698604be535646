"""Debezium's envelope, as expressions over a record: the row, what happened to it, and where that stands in the order.

A value is `{"before": …, "after": …, "source": …, "op": …}`, alone or as the `payload` beside a `schema`. A row that
was deleted is taken from `before`, its key from the record's key where the database did not log the row. A record
without a value (the tombstone behind a delete, for compaction) and a message that a user wrote into the log say
nothing of rows, and are skipped.

The order is the position in the database's own log. Connectors name it differently, and a topic has one connector: so
the order is a struct of all of their names, in which only one connector's are not null.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

OP, ORDER, AT = "_op", "_order", "_at"
EXTRA_COLUMNS = (OP, ORDER, AT)
_SOURCE = (
    "lsn bigint, commit_lsn string, change_lsn string, event_serial_no bigint, scn string, file string, pos bigint, "
    "row int, ord int, ts_ms bigint"
)
# What Debezium sends for a large value that the database did not log, since the change left it as it was.
UNLOGGED = "__debezium_unavailable_value"
_ROW_OPS = ("c", "u", "r")  # created, updated, read by a snapshot


def envelope(row: "StructType") -> "StructType":
    """What a value is parsed as: the envelope, with and without a payload around it."""
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    source = StructType.fromDDL(_SOURCE)
    inner = [
        StructField("before", row),
        StructField("after", row),
        StructField("source", source),
        StructField("op", StringType()),
        StructField("ts_ms", LongType()),
    ]
    return StructType([StructField("payload", StructType(inner)), *inner])


class CapturedChange:
    """Expressions over a parsed value; `key` is an expression of the record's key as text."""

    def __init__(self, parsed: "Column", key: "Column", row: "StructType", key_columns: Sequence[str]) -> None:
        self._parsed = parsed
        self._row = row
        self._key_text = key
        self._key = tuple(key_columns)

    def op(self) -> "Column":
        return self._field("op")

    def skipped(self) -> "Column":
        from pyspark.sql import functions as F

        return F.coalesce(self.op() == "m", F.lit(False))

    def whole(self) -> "Column":
        """Whether it holds what its operation needs."""
        from pyspark.sql import functions as F

        rows = self.op().isin(*_ROW_OPS) & self._field("after").isNotNull() & ~self.unlogged()
        gone = self.op() == "d"
        for name in self._key:
            gone = gone & self._column(name).isNotNull()
        return F.coalesce(rows | gone | self.op().isin("t", "m"), F.lit(False))

    def unlogged(self) -> "Column":
        """Whether the new row has a value that nobody logged: taken as it stands, it would replace the real one."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import BinaryType, StringType

        found = F.lit(False)
        for field in self._row.fields:
            if isinstance(field.dataType, StringType | BinaryType):
                value = self._field("after").getField(field.name).cast("string")
                found = found | F.coalesce(value == UNLOGGED, F.lit(False))
        return found

    def columns(self) -> "list[Column]":
        return [
            *[self._column(name).alias(name) for name in self._row.names],
            self.op().alias(OP),
            self._order().alias(ORDER),
            self._time().alias(AT),
        ]

    def _column(self, name: str) -> "Column":
        from pyspark.sql import functions as F

        before, after = (self._field(side).getField(name) for side in ("before", "after"))
        if name in self._key:
            before = F.coalesce(before, self._of_key(name))
        return F.when(self.op() == "d", before).otherwise(after)

    def _of_key(self, name: str) -> "Column":
        """From the record's key, `{"id": 1}` alone or as a payload."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructField, StructType

        fields = StructType([field for field in self._row.fields if field.name in self._key])
        key = F.from_json(self._key_text, StructType([StructField("payload", fields), *fields.fields]))
        return F.coalesce(key.getField("payload").getField(name), key.getField(name))

    def _order(self) -> "Column":
        from pyspark.sql import functions as F

        source = self._field("source")
        parts = [
            source.getField("lsn"),
            source.getField("commit_lsn"),
            source.getField("change_lsn"),
            source.getField("event_serial_no"),
            F.try_to_number(source.getField("scn"), F.lit("9" * 38)).cast("decimal(38,0)"),
            source.getField("file"),
            source.getField("pos"),
            source.getField("row"),
            source.getField("ts_ms"),
            source.getField("ord"),
        ]
        names = ("lsn", "commit_lsn", "change_lsn", "serial", "scn", "file", "pos", "row", "ts_ms", "ord")
        known = F.coalesce(*[F.when(part.isNotNull(), True) for part in parts])
        return F.when(known, F.struct(*[part.alias(name) for part, name in zip(parts, names, strict=True)]))

    def _time(self) -> "Column":
        from pyspark.sql import functions as F

        return F.timestamp_millis(F.coalesce(self._field("source").getField("ts_ms"), self._field("ts_ms")))

    def _field(self, name: str) -> "Column":
        from pyspark.sql import functions as F

        return F.coalesce(self._parsed.getField("payload").getField(name), self._parsed.getField(name))

"""The quarantine table of a node: what could not be parsed, and rows that an expectation kept out.

It is written only when a batch's counts say that there is something, in a second pass over just that batch and in one
commit, with transaction ids of its own. What could not be parsed is read again from the log by the offsets of the
batch, so the raw bytes are the producer's own.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from headrace.streaming.declarations import METADATA_COLUMNS
from headrace.streaming.delta_append import DeltaAppender
from headrace.streaming.delta_writes import Stamp, append
from headrace.tables.storage import is_delta

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.streaming.parsing import Parser

COLUMNS = (
    "reason string, topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "row string, batch bigint, quarantined_at timestamp"
)


class Quarantine:
    """The table of one node, and the one writer of it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._appender = DeltaAppender(path)
        self._exists = False

    def create(self, spark: "SparkSession") -> None:
        from delta.tables import DeltaTable
        from pyspark.sql.types import StructType

        if not self._exists and not is_delta(self._path):
            columns = cast(StructType, StructType.fromDDL(COLUMNS))
            DeltaTable.createIfNotExists(spark).location(self._path).addColumns(columns).execute()
        self._exists = True

    def write(self, parts: "Sequence[tuple[DataFrame, Stamp]]") -> None:
        """What `unparsed` and `rows_kept_out` made of one batch."""
        if not parts:
            return
        self.create(parts[0][0].sparkSession)
        if not self._appender.append_parts(parts):  # somebody gave the table other columns
            for frame, stamp in parts:
                append(frame, self._path, stamp)


def unparsed(raw: "DataFrame", parser: "Parser", stamp: Stamp) -> "tuple[DataFrame, Stamp]":
    """`raw` are the batch's records as they are in the log."""
    from pyspark.sql import functions as F

    from headrace.streaming.parsing import BAD

    bad = parser.split(raw).where(F.col(BAD))
    rows = bad.select(
        parser.reason().alias("reason"),
        "topic",
        "partition",
        "offset",
        "timestamp",
        "key",
        "value",
        F.try_validate_utf8(F.col("value").cast("string")).alias("row"),  # null where it is no text
        F.lit(stamp.batch).cast("bigint").alias("batch"),
        F.current_timestamp().alias("quarantined_at"),
    )
    return rows, stamp


def rows_kept_out(rows: "DataFrame", reason: "Column", stamp: Stamp) -> "tuple[DataFrame, Stamp]":
    """Rows of the function's result, as JSON; with their place in the log where the function passed it on."""
    from pyspark.sql import functions as F

    def given(name: str, kind: str) -> "Column":
        return (F.col(name) if name in rows.columns else F.lit(None)).cast(kind)

    columns = list(dict.fromkeys(rows.columns))
    own = [name for name in columns if name not in METADATA_COLUMNS] or columns
    made = rows.select(
        reason.alias("reason"),
        given("_topic", "string").alias("topic"),
        given("_partition", "int").alias("partition"),
        given("_offset", "bigint").alias("offset"),
        given("_timestamp", "timestamp").alias("timestamp"),
        given("_key", "binary").alias("key"),
        F.lit(None).cast("binary").alias("value"),
        F.to_json(F.struct(*[F.col(f"`{name}`") for name in own])).alias("row"),
        F.lit(stamp.batch).cast("bigint").alias("batch"),
        F.current_timestamp().alias("quarantined_at"),
    )
    return made, stamp

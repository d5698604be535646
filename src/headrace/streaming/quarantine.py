"""The quarantine table of a node: what could not be parsed, and rows that an expectation kept out.

It is written only when a batch's counts say that there is something, in a second pass over just that batch, with
transaction ids of its own. What could not be parsed is read again from the log by the offsets of the batch, so the raw
bytes are the producer's own.
"""

from typing import TYPE_CHECKING, cast

from headrace.streaming.declarations import METADATA_COLUMNS
from headrace.streaming.delta_writes import Stamp, append

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headrace.streaming.parsing import Parser

COLUMNS = (
    "reason string, topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "row string, batch bigint, quarantined_at timestamp"
)


def create(spark: "SparkSession", path: str) -> None:
    from delta.tables import DeltaTable
    from pyspark.sql.types import StructType

    columns = cast(StructType, StructType.fromDDL(COLUMNS))
    DeltaTable.createIfNotExists(spark).location(path).addColumns(columns).execute()


def write_unparsed(raw: "DataFrame", parser: "Parser", path: str, stamp: Stamp) -> None:
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
        F.lit(None).cast("string").alias("row"),
        F.lit(stamp.batch).cast("bigint").alias("batch"),
        F.current_timestamp().alias("quarantined_at"),
    )
    append(rows, path, stamp)


def write_rows(rows: "DataFrame", reason: "Column", path: str, stamp: Stamp) -> None:
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
    append(made, path, stamp)

"""The ways in which a batch becomes one commit of a Delta table: append, overwrite; and creating the table.
Merging by key is in `keyed/merge`.

Each carries the batch's transaction id, so that Delta itself refuses to write a batch twice, and as user metadata the
offsets that made it. So does every other write of a pipeline's tables (`delta_append`, `keyed/merge` and the modules
beside it, `maintaining`, `redrive`): they take the `Stamp` from here.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.streaming.declarations import TableOutput
from headrace.streaming.spark_internals.delta import table_state
from headrace.tables.hidden import HIDDEN_COLUMNS
from headrace.tables.provenance import Provenance, Source, TableSource
from headrace.tables.storage import storage_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

TXN_APP = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
CHANGE_FEED = "delta.enableChangeDataFeed"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What a commit says of itself. `part` tells the several writes of one batch apart."""

    pipeline: str
    version: int
    node: str
    batch: int
    sources: tuple[Source, ...]
    part: str = ""
    transactional: bool = True

    @property
    def app_id(self) -> str:
        base = f"{self.pipeline}/v{self.version}/{self.node}"
        return f"{base}/{self.part}" if self.part else base

    @property
    def metadata(self) -> str:
        return Provenance(
            pipeline=self.pipeline, version=self.version, node=self.node, batch=self.batch, sources=self.sources
        ).encode()

    @property
    def has_input(self) -> bool:
        """Whether something was there for the batch to read."""
        return any(
            isinstance(each, TableSource) or any(first < end for first, end in each.ranges.values())
            for each in self.sources
        )

    def as_part(self, part: str) -> "Stamp":
        return replace(self, part=part)

    def options(self) -> dict[str, str]:
        options = {"userMetadata": self.metadata}
        if self.transactional:
            options |= {"txnAppId": self.app_id, "txnVersion": str(self.batch)}
        return options


@contextmanager
def stamped(spark: "SparkSession", stamp: Stamp) -> Iterator[None]:
    """Every Delta write of the session carries the stamp meanwhile: for MERGE, which takes no options, and for the
    user's own writes. The session is the query's own, so that queries do not see each other's."""
    values = {USER_METADATA: stamp.metadata}
    if stamp.transactional:
        values |= {TXN_APP: stamp.app_id, TXN_VERSION: str(stamp.batch)}
    for key, value in values.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in values:
            spark.conf.unset(key)


def append(frame: "DataFrame", path: str, stamp: Stamp, *, evolve: bool = False) -> None:
    writer = frame.write.format("delta").mode("append").options(**stamp.options())
    if evolve:
        writer = writer.option("mergeSchema", "true")
    writer.save(path)


def overwrite(
    frame: "DataFrame", path: str, stamp: Stamp, *, evolve: bool = False, replace_where: str | None = None
) -> None:
    writer = frame.write.format("delta").mode("overwrite").options(**stamp.options())
    if replace_where is not None:
        writer = writer.option("replaceWhere", replace_where)
    if evolve:
        writer = writer.option("mergeSchema", "true")
    writer.save(path)


def create_table(
    spark: "SparkSession", path: str, schema: "StructType", output: TableOutput, *, change_feed: bool
) -> None:
    """An empty table of that schema, so that others can read it as a stream before its first batch."""
    from delta.tables import DeltaTable
    from pyspark.sql.types import StructField, StructType

    # What a batch of rows proves of nulls says nothing of the next.
    nullable = StructType([StructField(column.name, column.dataType, True) for column in schema.fields])
    builder = DeltaTable.createIfNotExists(spark).location(path).addColumns(nullable)
    if output.partition_by:
        builder = builder.partitionedBy(*output.partition_by)
    properties = dict(output.properties)
    if change_feed:
        properties[CHANGE_FEED] = "true"
    for key, value in properties.items():
        builder = builder.property(key, value)
    builder.execute()


def add_column(spark: "SparkSession", path: str, column: "StructField") -> None:
    kind = column.dataType.simpleString()
    spark.sql(f"alter table delta.`{path}` add columns ({column.name} {kind})")


def set_change_feed(spark: "SparkSession", path: str) -> None:
    """For a table from before somebody read its changes; one that has it stays as it is."""
    if not table_state(spark, path).has_property(CHANGE_FEED):
        spark.sql(f"alter table delta.`{path}` set tblproperties ('{CHANGE_FEED}' = 'true')")


def is_new(spark: "SparkSession", path: str) -> bool:
    """Whether the table has had no commit since `create_table`, and so holds no row."""
    return holds_no_batch(table_state(spark, path).version, path)


def holds_no_batch(version: int, path: str) -> bool:
    """Whether the table is as `create_table` left it. To list a table's transactions, Delta makes its state from its
    log in two jobs; of a table whose one commit wrote nothing we know that there are none."""
    if version != 0:
        return False
    commit = storage_of(path).read(os.path.join(path, "_delta_log", f"{0:020d}.json"))
    return commit is not None and not any({"txn", "add"} & json.loads(line).keys() for line in commit.splitlines())


def last_batch(spark: "SparkSession", path: str, app_id: str) -> int | None:
    """The last batch that the table knows of an application; None for none, or for no table."""
    found = table_state(spark, path)
    return None if holds_no_batch(found.version, path) else found.batch(app_id)


def is_written(spark: "SparkSession", path: str, stamp: Stamp) -> bool:
    """Whether the table has this batch, or a later one, of this writer."""
    last = last_batch(spark, path, stamp.app_id)
    return last is not None and last >= stamp.batch


def schema_differences(old: "StructType", new: "StructType") -> list[str]:
    """Columns that would be new, or of another type, in a table that exists; one that is gone is filled with null."""
    fields = [column for column in old.fields if column.name not in HIDDEN_COLUMNS]
    before: Mapping[str, Any] = {column.name.lower(): column for column in fields}
    found = []
    for column in new.fields:
        known = before.get(column.name.lower())
        if known is None:
            found.append(f"{column.name} is new")
        elif known.dataType.simpleString() != column.dataType.simpleString():
            found.append(f"{column.name} was {known.dataType.simpleString()}, is {column.dataType.simpleString()}")
    names = {column.name.lower() for column in new.fields}
    found += [f"{column.name} is gone" for column in fields if column.name.lower() not in names]
    return found

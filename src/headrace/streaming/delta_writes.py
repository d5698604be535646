"""The ways in which a batch becomes one commit of a Delta table: append, merge, overwrite; and creating the table.

Each carries the batch's transaction id, so that Delta itself refuses to write a batch twice, and as user metadata the
offsets that made it. Nothing else writes a pipeline's tables.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.streaming.declarations import METADATA_COLUMNS, TableOutput
from headrace.tables.provenance import Provenance, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TXN_APP = "spark.databricks.delta.write.txnAppId"
TXN_VERSION = "spark.databricks.delta.write.txnVersion"
USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
SEVERAL_MARK = "headrace rows of one key: "
_ROW = "_headrace_row"
_COUNT = "_headrace_count"
_GONE = "_headrace_gone"


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


def merge(frame: "DataFrame", path: str, stamp: Stamp, output: TableOutput, columns: list[str]) -> None:
    """The last row of each key; `columns` are those that are stored."""
    from delta.tables import DeltaTable

    spark = frame.sparkSession
    rows = last_of_each_key(frame, output, columns)
    same = " and ".join(f"t.{_quoted(name)} <=> s.{_quoted(name)}" for name in output.key)
    with stamped(spark, stamp):
        merging = DeltaTable.forPath(spark, path).alias("t").merge(rows.alias("s"), same)
        if output.evolve:
            merging = merging.withSchemaEvolution()
        if output.delete is None:
            merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        else:
            gone = f"s.{_GONE}"
            values: dict[str, Any] = {_quoted(name): f"s.{_quoted(name)}" for name in columns}
            (
                merging.whenMatchedDelete(gone)
                .whenMatchedUpdate(set=values)
                .whenNotMatchedInsert(condition=f"not {gone}", values=values)
                .execute()
            )


def new_rows(frame: "DataFrame", output: TableOutput, columns: list[str]) -> "DataFrame":
    """What a merge into an empty table would leave there."""
    rows = last_of_each_key(frame, output, columns)
    return rows if output.delete is None else rows.where(f"not {_GONE}").drop(_GONE)


def last_of_each_key(frame: "DataFrame", output: TableOutput, columns: list[str]) -> "DataFrame":
    """One row a key: the last by `order_by`, or by the log where the function passed offset and partition on.
    Where nothing tells which is last, two rows of one key stop the node rather than one of them winning by chance."""
    from pyspark.sql import functions as F

    keys = [F.col(_quoted(name)) for name in output.key]
    wanted = [F.col(_quoted(name)) for name in columns]
    if output.delete is not None:
        gone = F.coalesce(F.expr(output.delete).cast("boolean"), F.lit(False)).alias(_GONE)
        wanted.append(gone)
    row = F.struct(*wanted)
    aliases = [key.alias(f"_headrace_k{index}") for index, key in enumerate(keys)]
    by = [F.col(f"_headrace_k{index}") for index in range(len(keys))]
    if output.order_by:
        order = F.struct(*[F.col(_quoted(name)) for name in output.order_by])
        picked = (
            frame.select(*aliases, row.alias(_ROW), order.alias("o")).groupBy(*by).agg(F.max_by(_ROW, "o").alias(_ROW))
        )
    elif all(name in frame.columns for name in METADATA_COLUMNS):
        # Within a partition the offset decides; among partitions, only the time can.
        places = frame.select(*aliases, row.alias(_ROW), "_partition", "_offset", "_timestamp")
        last = places.groupBy(*by, "_partition").agg(F.max_by(F.struct(_ROW, "_timestamp"), "_offset").alias("last"))
        order = F.struct(F.col("last._timestamp"), F.col("_partition"))
        picked = last.groupBy(*by).agg(F.max_by(F.col(f"last.{_ROW}"), order).alias(_ROW))
    else:
        counted = (
            frame.select(*aliases, row.alias(_ROW))
            .groupBy(*by)
            .agg(F.first(_ROW).alias(_ROW), F.count(F.lit(1)).alias(_COUNT))
        )
        message = F.concat(F.lit(SEVERAL_MARK), F.substring(F.to_json(F.struct(*by)), 1, 200))
        picked = counted.where(F.when(F.col(_COUNT) == 1, True).otherwise(F.raise_error(message).cast("boolean")))
    return picked.select(f"{_ROW}.*")


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
        properties["delta.enableChangeDataFeed"] = "true"
    for key, value in properties.items():
        builder = builder.property(key, value)
    builder.execute()


def is_new(spark: "SparkSession", path: str) -> bool:
    """Whether the table has had no commit since `create_table`, and so holds no row."""
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    return int(log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty()).version()) == 0


def last_batch(spark: "SparkSession", path: str, app_id: str) -> int | None:
    """The last batch that the table knows of an application; None for none, or for no table."""
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path)
    found = log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty()).transactions().get(app_id)
    return int(found.get()) if found.isDefined() else None


def schema_differences(old: "StructType", new: "StructType") -> list[str]:
    """Columns that would be new, or of another type, in a table that exists; one that is gone is filled with null."""
    before: Mapping[str, Any] = {column.name.lower(): column for column in old.fields}
    found = []
    for column in new.fields:
        known = before.get(column.name.lower())
        if known is None:
            found.append(f"{column.name} is new")
        elif known.dataType.simpleString() != column.dataType.simpleString():
            found.append(f"{column.name} was {known.dataType.simpleString()}, is {column.dataType.simpleString()}")
    names = {column.name.lower() for column in new.fields}
    found += [f"{column.name} is gone" for column in old.fields if column.name.lower() not in names]
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

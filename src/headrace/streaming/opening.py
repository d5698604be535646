"""Opening a node's table before its first batch: created where there is none, checked against the code where there is.

Tables exist before any query starts, so that every stream has something to read.
"""

from typing import TYPE_CHECKING

from headrace.streaming.check import CheckedNode
from headrace.streaming.declarations import Node, PipelineError, TableOutput
from headrace.streaming.delta_writes import add_column, create_table, schema_differences, set_change_feed
from headrace.tables.storage import is_delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField, StructType

REPLAY = "build the next version with: headrace pipeline replay {file}"


def open_table(spark: "SparkSession", node: Node, path: str, checked: CheckedNode, *, changes: bool) -> None:
    """`changes`: another node reads its change feed."""
    from pyspark.sql.types import StructType

    output, schema = node.output, checked.schema
    if not isinstance(output, TableOutput):
        return
    changes = changes or output.change_feed
    if not is_delta(path):
        whole = StructType([*schema.fields, *checked.hidden])
        create_table(spark, path, whole, output, change_feed=changes)
        return
    there = spark.read.format("delta").load(path).schema
    _refuse_types(node, there, schema)
    differences = schema_differences(there, schema)
    if differences and not output.evolve:
        raise PipelineError(
            node.place,
            f"{node.name}: the table has another schema ({'; '.join(differences)}); "
            f"{REPLAY.format(file=node.place.file)}, or declare the table with evolve=True",
        )
    for field in checked.hidden:
        _keep_order(spark, node, path, there, field)
    if changes:
        set_change_feed(spark, path)


def _refuse_types(node: Node, there: "StructType", schema: "StructType") -> None:
    """Delta changes no column's type while others read it, whatever evolve= says: the batch would fail."""
    before = {column.name.lower(): column.dataType.simpleString() for column in there.fields}
    for column in schema.fields:
        kind, now = before.get(column.name.lower()), column.dataType.simpleString()
        if kind is not None and kind != now:
            raise PipelineError(
                node.place,
                f"{node.name}: column {column.name!r} is {kind} in the table, and now {now}; "
                f"{REPLAY.format(file=node.place.file)}, or keep the type: "
                f".withColumn({column.name!r}, F.col({column.name!r}).cast({kind!r}))",
            )


def _keep_order(spark: "SparkSession", node: Node, path: str, there: "StructType", order: "StructField") -> None:
    """A table from before it kept the order of its rows gets the column. Its rows count as older than all others."""
    if order.name not in there.names:
        add_column(spark, path, order)
    elif there[order.name].dataType != order.dataType:
        raise PipelineError(
            node.place,
            f"{node.name}: its rows are ordered by {there[order.name].dataType.simpleString()}, and now by "
            f"{order.dataType.simpleString()}; replay the pipeline",
        )

"""A topic as the place where a node's batches go, each row exactly once.

Rows are spread over as many tasks as the batch began with, by a hash of their key, or of all of them where there is
none, so that a batch that is run again falls into the same parts; `topic_task` writes each part in one transaction.
Behind the rows of each part comes a mark, for a part without it is not whole.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.streaming.assembling import stored
from headrace.streaming.batch_parts import BatchParts
from headrace.streaming.declarations import METADATA_COLUMNS, Node, TopicOutput
from headrace.streaming.delta_writes import Stamp
from headrace.streaming.expectations import kept
from headrace.streaming.topic_task import TopicTask

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame, SparkSession

HEADERS = "array<struct<key: string, value: binary>>"


class TopicSink:
    def __init__(
        self, node: Node, output: TopicOutput, topic: str, config: Mapping[str, Any], parts: BatchParts
    ) -> None:
        self._node = node
        self._output = output
        self._topic = topic
        self._config = dict(config)
        self._batch_parts = parts
        self.rows_written = 0

    def done(self, spark: "SparkSession", stamp: Stamp) -> bool:
        return False  # each task knows for its own part

    def write(self, frame: "DataFrame", stamp: Stamp) -> None:
        tasks = self._batch_parts.of(stamp.batch, self._output.tasks)
        parts = self._parts(kept(frame, self._node.expectations), tasks)
        name, topic, config = stamp.app_id, self._topic, self._config
        batch, transactional = stamp.batch, stamp.transactional

        def run(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
            import pyarrow
            from pyspark import TaskContext

            context = TaskContext.get()
            task = TopicTask(
                name=name,
                task=context.partitionId() if context is not None else 0,
                batch=batch,
                topic=topic,
                config=config,
                transactional=transactional,
            )
            yield pyarrow.RecordBatch.from_pydict({"rows": [task.run(batches)]})

        self.rows_written += sum(max(0, int(row.rows)) for row in parts.mapInArrow(run, "rows bigint").collect())

    def _parts(self, frame: "DataFrame", tasks: int) -> "DataFrame":
        """(key, value, headers, last) in as many partitions as there are tasks, the mark behind all else."""
        from pyspark.sql import functions as F

        output = self._output
        key, value, headers = record_columns(frame, output)
        order = self._order(frame)
        hashed = [key] if output.key else [key, value]
        records = frame.select(
            key.alias("key"),
            value.alias("value"),
            headers.alias("headers"),
            F.lit(False).alias("last"),
            F.pmod(F.xxhash64(*hashed), F.lit(tasks)).cast("int").alias("task"),
            F.struct(*order).alias("order") if order else F.lit(0).alias("order"),
        )
        kind = records.schema["order"].dataType
        marks = frame.sparkSession.range(0, tasks, 1, 1).select(
            F.lit(None).cast("binary").alias("key"),
            F.lit(None).cast("binary").alias("value"),
            F.lit(None).cast(HEADERS).alias("headers"),
            F.lit(True).alias("last"),
            F.col("id").cast("int").alias("task"),
            F.lit(None).cast(kind).alias("order"),
        )
        return (
            records.unionAll(marks)
            .repartitionById(tasks, F.col("task"))
            .sortWithinPartitions("last", "order")
            .select("key", "value", "headers", "last")
        )

    def _order(self, frame: "DataFrame") -> "list[Column]":
        from pyspark.sql import functions as F

        if self._output.order_by:
            return [F.col(f"`{name}`") for name in self._output.order_by]
        if all(name in frame.columns for name in METADATA_COLUMNS):
            return [F.col("_partition"), F.col("_offset")]
        return []


def record_columns(frame: "DataFrame", output: TopicOutput) -> "tuple[Column, Column, Column]":
    """Key, value and headers of the records: a column of the frame each, or what stands for it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, StringType

    own = [name for name in stored(frame).columns if name != output.headers]

    def as_bytes(name: str) -> "Column":
        kind = frame.schema[name].dataType
        if isinstance(kind, BinaryType):
            return F.col(f"`{name}`")
        if isinstance(kind, StringType):
            return F.col(f"`{name}`").cast("binary")
        if kind.simpleString().startswith(("struct", "array", "map", "variant")):
            return F.to_json(f"`{name}`").cast("binary")
        return F.col(f"`{name}`").cast("string").cast("binary")

    if len(output.key) == 1:
        key = as_bytes(output.key[0])
    elif output.key:
        key = F.to_json(F.struct(*[F.col(f"`{name}`") for name in output.key])).cast("binary")
    else:
        key = F.lit(None).cast("binary")
    if output.value is not None:
        value = as_bytes(output.value)
    else:
        # Nulls are written out, so that every record has every column.
        every = F.struct(*[F.col(f"`{name}`") for name in own])
        value = F.to_json(every, {"ignoreNullFields": "false"}).cast("binary")
    headers = F.col(f"`{output.headers}`").cast(HEADERS) if output.headers is not None else F.lit(None).cast(HEADERS)
    return key, value, headers

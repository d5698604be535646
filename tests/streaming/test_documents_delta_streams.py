"""Document 002: Delta as the source and the sink of a stream. The samples as they stand, but for paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from waits import WAIT_S_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def add(spark: SparkSession, path: str, *values: int) -> None:
    spark.createDataFrame([(value,) for value in values], "value long").coalesce(1).write.format("delta").mode(
        "append"
    ).save(path)


def ids(spark: SparkSession, path: str) -> list[int]:
    return sorted(row.id for row in spark.read.format("delta").load(path).collect())


def rows_by_batch(query: StreamingQuery) -> list[int]:
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def test_a_table_streams_into_a_table_and_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    source, sink, checkpoint = (f"{tmp_path}/{name}" for name in ("source", "delta-table", "checkpoint"))
    add(spark, source, 1, 2)

    def start() -> StreamingQuery:
        streamingDf = spark.readStream.format("delta").load(source)  # noqa: N806 - the document's name
        return (
            streamingDf.selectExpr("value as id")
            .writeStream.format("delta")
            .option("checkpointLocation", checkpoint)
            .start(sink)
        )

    stream = start()
    stream.processAllAvailable()
    assert ids(spark, sink) == [1, 2]
    add(spark, source, 3)
    stream.processAllAvailable()
    stream.stop()
    assert not stream.isActive
    add(spark, source, 4)
    stream = start()
    stream.processAllAvailable()
    assert rows_by_batch(stream) == [1]
    stream.stop()
    assert ids(spark, sink) == [1, 2, 3, 4]


def test_a_mini_batch_takes_no_more_files_than_it_is_told(spark: SparkSession, tmp_path: Path) -> None:
    source, sink = f"{tmp_path}/source", f"{tmp_path}/sink"
    for value in range(3):
        add(spark, source, value)
    query = (
        spark.readStream.format("delta")
        .option("maxFilesPerTrigger", 1)
        .load(source)
        .selectExpr("value as id")
        .writeStream.format("delta")
        .outputMode("append")
        .option("checkpointLocation", f"{tmp_path}/checkpoint")
        .trigger(availableNow=True)
        .start(sink)
    )
    assert query.awaitTermination(WAIT_S_MAX)
    assert rows_by_batch(query) == [1, 1, 1]
    assert ids(spark, sink) == [0, 1, 2]


def test_a_change_of_the_source_stops_the_stream_unless_it_is_ignored(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    source, sink = f"{tmp_path}/source", f"{tmp_path}/sink"
    rows = spark.createDataFrame([(1, 10), (2, 20), (2, 21)], "day int, value long").coalesce(1)
    rows.write.format("delta").partitionBy("day").save(source)

    def run(*options: str) -> None:
        reader = spark.readStream.format("delta")
        for name in options:
            reader = reader.option(name, "true")
        query = (
            reader.load(source)
            .selectExpr("value as id")
            .writeStream.format("delta")
            .option("checkpointLocation", f"{tmp_path}/checkpoint")
            .trigger(availableNow=True)
            .start(sink)
        )
        assert query.awaitTermination(WAIT_S_MAX)

    run()
    spark.sql(f"DELETE FROM delta.`{source}` WHERE day = 1")
    with pytest.raises(StreamingQueryException, match="ignoreDeletes"):
        run()
    run("ignoreDeletes")
    assert ids(spark, sink) == [10, 20, 21]
    spark.sql(f"UPDATE delta.`{source}` SET value = 99 WHERE value = 20")
    run("ignoreDeletes", "ignoreChanges")
    # The file that the update rewrote came again, with the row that was changed and the one that was not.
    assert ids(spark, sink) == [10, 20, 21, 21, 99]


def test_complete_mode_replaces_the_table_with_each_new_total(spark: SparkSession, tmp_path: Path) -> None:
    source, sink = f"{tmp_path}/source", f"{tmp_path}/eventsByCustomer"
    add(spark, source, 7, 7, 8)
    query = (
        spark.readStream.format("delta")
        .load(source)
        .groupBy("value")
        .count()
        .writeStream.format("delta")
        .outputMode("complete")
        .option("checkpointLocation", f"{sink}/_checkpoints/streaming-agg")
        .start(sink)
    )
    query.processAllAvailable()
    table = spark.read.format("delta").load(sink)
    assert sorted(table.collect()) == [(7, 2), (8, 1)]
    add(spark, source, 8, 9)
    query.processAllAvailable()
    query.stop()
    assert sorted(spark.read.format("delta").load(sink).collect()) == [(7, 2), (8, 2), (9, 1)]


def test_the_console_sink_prints_the_table(spark: SparkSession, tmp_path: Path, console: Path) -> None:
    path = f"{tmp_path}/delta-table"
    add(spark, path, 31_415_926)
    stream2 = spark.readStream.format("delta").load(path).writeStream.format("console").start()
    stream2.processAllAvailable()
    stream2.stop()
    printed = console.read_text()
    assert "Batch: 0" in printed
    assert "|31415926|" in printed

"""A batch is appended once: by the writer that wrote it, by its successor, and with others writing in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.streaming.declarations import Node, SourceLine, TableOutput
from headrace.streaming.delta_append import DeltaAppender
from headrace.streaming.delta_sink import DeltaSink
from headrace.streaming.delta_writes import Stamp, create_table, last_batch
from headrace.tables.delta_log import DeltaLog
from headrace.tables.provenance import TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE = TopicSource(topic="orders", ranges={0: (10, 13)})


def stamp(batch: int, *, transactional: bool = True) -> Stamp:
    return Stamp(
        pipeline="shop", version=1, node="clean", batch=batch, sources=(SOURCE,), transactional=transactional
    )  # fmt: skip


def rows(spark: SparkSession, first: int) -> DataFrame:
    return spark.createDataFrame([(first + n, f"d{n % 2}") for n in range(3)], "id long, day string")


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "table")
    output = TableOutput(partition_by=("day",))
    create_table(spark, path, rows(spark, 0).schema, output, change_feed=False)
    return path


def count(spark: SparkSession, path: str) -> int:
    return spark.read.format("delta").load(path).count()


def test_a_batch_is_appended_once_whoever_comes_again(spark: SparkSession, table: str) -> None:
    first = DeltaAppender(table)
    assert first.append(rows(spark, 0), stamp(0))
    assert first.append(rows(spark, 0), stamp(0)), "the same writer"
    assert first.append(rows(spark, 3), stamp(1))
    assert count(spark, table) == 6
    second = DeltaAppender(table)
    assert second.append(rows(spark, 3), stamp(1)), "its successor, which knows nothing yet"
    assert count(spark, table) == 6
    assert second.append(rows(spark, 6), stamp(2))
    assert first.append(rows(spark, 6), stamp(2)), "the first again, which sees that somebody has written"
    assert count(spark, table) == 9
    assert last_batch(spark, table, stamp(0).app_id) == 2


def test_others_may_write_in_between(spark: SparkSession, table: str) -> None:
    writer = DeltaAppender(table)
    for batch in range(3):
        assert writer.append(rows(spark, 3 * batch), stamp(batch))
        rows(spark, 100).write.format("delta").mode("append").save(table)
    assert count(spark, table) == 18


def test_without_transactions_it_is_appended_twice(spark: SparkSession, table: str) -> None:
    """The control: it is the transaction that counts."""
    writer = DeltaAppender(table)
    for _ in range(2):
        assert writer.append(rows(spark, 0), stamp(0, transactional=False))
    assert count(spark, table) == 6


def test_the_commit_says_what_made_it(spark: SparkSession, table: str) -> None:
    assert DeltaAppender(table).append(rows(spark, 0), stamp(7))
    commit = DeltaLog(table).commits(1)[0]
    assert commit.provenance is not None
    assert (commit.provenance.node, commit.provenance.batch, commit.provenance.sources) == ("clean", 7, (SOURCE,))
    assert (commit.operation, commit.rows_added) == ("WRITE", 3)
    assert int(commit.metrics["numOutputRows"]) == 3
    assert sorted(path.name for path in Path(table).glob("day=*")) == ["day=d0", "day=d1"]


def test_a_frame_of_other_columns_is_left_to_delta(spark: SparkSession, table: str) -> None:
    other = spark.createDataFrame([(1, "d0", 2.0)], "id long, day string, more double")
    assert not DeltaAppender(table).append(other, stamp(0))
    assert not DeltaAppender(table).append(rows(spark, 0).select("day", "id"), stamp(0))
    assert count(spark, table) == 0


def test_a_constraint_of_the_table_holds(spark: SparkSession, table: str) -> None:
    spark.sql(f"alter table delta.`{table}` add constraint small check (id < 100)")
    writer = DeltaAppender(table)
    with pytest.raises(Exception, match="CHECK constraint small"):
        writer.append(rows(spark, 100), stamp(0))
    assert writer.append(rows(spark, 0), stamp(0))
    assert count(spark, table) == 3


def test_the_parts_of_a_batch_are_one_commit_and_each_is_there_once(spark: SparkSession, table: str) -> None:
    one, two = stamp(0).as_part("one"), stamp(0).as_part("two")
    writer = DeltaAppender(table)
    assert writer.append_parts([(rows(spark, 0), one), (rows(spark, 3), two)])
    assert (count(spark, table), DeltaLog(table).last) == (6, 1)
    assert (last_batch(spark, table, one.app_id), last_batch(spark, table, two.app_id)) == (0, 0)
    three = stamp(0).as_part("three")
    successor = DeltaAppender(table)
    assert successor.append_parts([(rows(spark, 0), one), (rows(spark, 6), three)])
    assert count(spark, table) == 9, "the part that was there is left out, the other is not"
    assert DeltaLog(table).last == 2


def test_a_batch_without_input_is_committed_only_if_it_gives_rows(spark: SparkSession, table: str) -> None:
    """Spark runs one after a watermark has moved."""
    node = Node(
        name="clean",
        function=lambda orders: orders,
        inputs=("orders",),
        defaults={},
        output=TableOutput(),
        expectations=(),
        trigger=None,
        options={},
        place=SourceLine("shop.py", 1),
    )
    sink = DeltaSink(node, TableOutput(), table)
    idle = replace(stamp(1), sources=(TopicSource(topic="orders", ranges={0: (13, 13)}),))
    assert not idle.has_input
    sink.write(rows(spark, 0).where("false"), idle)
    assert DeltaLog(table).last == 0
    sink.write(rows(spark, 0), idle)
    assert (count(spark, table), DeltaLog(table).last) == (3, 1)
